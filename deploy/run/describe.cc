#include "deploy/run/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
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

std::filesystem::path FolderOfWorkloads(const std::string& binary_directory) {
  return (std::filesystem::path(binary_directory) / "../lib/islands").lexically_normal();
}

absl::StatusOr<std::string> FindWorkload(const std::string& workload, const std::string& binary_directory) {
  // The name becomes part of paths.
  const bool named = std::all_of(workload.begin(), workload.end(),
                                 [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
  if (workload.empty() || !named) {
    return absl::InvalidArgumentError(fmt::format(
        "WORKLOAD: found '{}', expected the name of a workload: letters, digits, '_' and '-'", workload));
  }
  std::string object = (FolderOfWorkloads(binary_directory) / (workload + ".so")).string();
  if (access(object.c_str(), R_OK) == 0) return object;
  return absl::InvalidArgumentError(fmt::format("there is no workload '{}': no {}; built are: {}", workload,
                                                object, NamesOfWorkloads(binary_directory)));
}

std::string Complaint(const Answer& answer) {
  std::string said(absl::StripAsciiWhitespace(answer.err));
  return said.empty() ? DescribeExit(answer.wait_status) : said;
}

}  // namespace

std::string NamesOfWorkloads(const std::string& binary_directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(FolderOfWorkloads(binary_directory), error)) {
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
}

absl::StatusOr<DescribedWorkload> DescribeWorkload(const std::string& workload,
                                                   const std::string& binary_directory) {
  absl::StatusOr<std::string> object = FindWorkload(workload, binary_directory);
  if (!object.ok()) return object.status();
  const std::string islandd = binary_directory + "/islandd";
  const absl::StatusOr<Answer> answer = Ask({islandd, "--describe", *object}, kTimeoutMs);
  if (!answer.ok()) return answer.status();
  const auto bad = [&](std::string_view why) {
    return absl::FailedPreconditionError(
        fmt::format("{} cannot say what workload '{}' can be told: {}", islandd, workload, why));
  };
  if (answer->wait_status != 0) return bad(Complaint(*answer));
  absl::StatusOr<instance::Description> description = instance::DescriptionFromJson(answer->out);
  if (!description.ok()) return bad(std::string(description.status().message()));
  return DescribedWorkload{workload, *std::move(object), *std::move(description)};
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
