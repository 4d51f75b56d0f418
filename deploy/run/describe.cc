#include "deploy/run/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "deploy/cli/commands.h"
#include "deploy/processes/ask.h"
#include "deploy/processes/spawn.h"
#include "runtime/descriptor.h"

namespace islands::deploy {
namespace {

constexpr int64_t kTimeoutMs = 30'000;  // emulated machines are slow

constexpr std::string_view kObject = ".so";

// Where objects lie, the first of a name counts: beside the binaries, and where
// `cmake --install --prefix ~/.local` puts a user's own.
std::vector<std::filesystem::path> FoldersOfWorkloads(const std::string& binary_directory) {
  std::vector<std::filesystem::path> folders = {
      (std::filesystem::path(binary_directory) / "../lib/islands").lexically_normal()};
  if (const char* home = getenv("HOME"); home != nullptr && *home == '/') {
    folders.push_back(std::filesystem::path(home) / ".local/lib/islands");
  }
  return folders;
}

std::string InWords(const std::vector<std::filesystem::path>& folders) {
  std::string text;
  for (const std::filesystem::path& folder : folders) {
    text += (text.empty() ? "" : " or ") + folder.string();
  }
  return text;
}

absl::Status CheckName(const std::string& workload, std::string_view given) {
  // It becomes part of paths.
  const bool named = std::all_of(workload.begin(), workload.end(),
                                 [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
  if (!workload.empty() && named) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("WORKLOAD: found '{}', expected the name of a workload (letters, digits, '_' and '-'), or "
                  "the path of its object, as ./bank.so",
                  given));
}

// The path of its object.
absl::StatusOr<std::string> FindWorkload(const std::string& workload, const std::string& binary_directory) {
  if (absl::Status named = CheckName(workload, workload); !named.ok()) return named;
  for (const std::filesystem::path& folder : FoldersOfWorkloads(binary_directory)) {
    std::string object = (folder / workload).string() + std::string(kObject);
    if (access(object.c_str(), R_OK) == 0) return object;
  }
  return absl::InvalidArgumentError(
      fmt::format("there is no workload '{}': no {}{} in {}; built are: {}", workload, workload, kObject,
                  InWords(FoldersOfWorkloads(binary_directory)), NamesOfWorkloads(binary_directory)));
}

// One that is given by the path of its object: `name` becomes what that is called.
absl::StatusOr<std::string> ObjectAt(const std::string& path, std::string& name) {
  const std::filesystem::path object = std::filesystem::absolute(path).lexically_normal();
  name = object.stem().string();
  if (absl::Status named = CheckName(name, path); !named.ok()) return named;
  if (access(object.c_str(), R_OK) == 0) return object.string();
  return absl::InvalidArgumentError(fmt::format("WORKLOAD: {}: {}", object.string(), strerror(errno)));
}

std::string Complaint(const Answer& answer) {
  std::string said(absl::StripAsciiWhitespace(answer.err));
  return said.empty() ? DescribeExit(answer.wait_status) : said;
}

}  // namespace

std::string NamesOfWorkloads(const std::string& binary_directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const std::filesystem::path& folder : FoldersOfWorkloads(binary_directory)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == kObject) names.insert(entry.path().stem().string());
    }
  }
  return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
}

absl::StatusOr<DescribedWorkload> DescribeWorkload(const std::string& workload,
                                                   const std::string& binary_directory) {
  std::string name = workload;
  const bool path = workload.find('/') != std::string::npos || workload.ends_with(kObject);
  absl::StatusOr<std::string> object =
      path ? ObjectAt(workload, name) : FindWorkload(workload, binary_directory);
  if (!object.ok()) return object.status();
  const std::string islandd = binary_directory + "/islandd";
  const absl::StatusOr<Answer> answer = Ask({islandd, "--describe", *object}, kTimeoutMs);
  if (!answer.ok()) return answer.status();
  const auto bad = [&](std::string_view why) {
    return absl::FailedPreconditionError(
        fmt::format("{} cannot say what workload '{}' can be told: {}", islandd, name, why));
  };
  if (answer->wait_status != 0) return bad(Complaint(*answer));
  absl::StatusOr<instance::Description> description = instance::DescriptionFromJson(answer->out);
  if (!description.ok()) return bad(std::string(description.status().message()));
  return DescribedWorkload{std::move(name), *std::move(object), *std::move(description)};
}

absl::Status CheckLoad(const control::v1::LoadSpec& load, control::v1::IslandConfig config,
                       const std::string& binary_directory) {
  for (control::v1::TableSpec& table : *config.mutable_tables()) {
    for (const control::v1::TableSpec& loaded : load.tables()) {
      if (table.name() == loaded.name()) table = loaded;
    }
  }
  config.clear_loads();
  *config.add_loads() = load;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(config, &json);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  const runtime::UniqueFd file(memfd_create("load", MFD_CLOEXEC));
  if (!file) return absl::ErrnoToStatus(errno, "cannot write down what is to be loaded");
  absl::Status written = runtime::WriteAll(file.get(), json, "what is to be loaded");
  if (!written.ok()) return written;
  lseek(file.get(), 0, SEEK_SET);
  const absl::StatusOr<Answer> answer =
      Ask({binary_directory + "/islandd", "--check-loads", "--config-fd", fmt::format("{}", kInheritedFd)},
          kTimeoutMs, {file.get()});
  if (!answer.ok()) return answer.status();
  if (answer->wait_status == 0) return absl::OkStatus();
  const bool usage = WIFEXITED(answer->wait_status) && WEXITSTATUS(answer->wait_status) == kExitUsage;
  return absl::Status(usage ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kFailedPrecondition,
                      Complaint(*answer));
}

}  // namespace islands::deploy
