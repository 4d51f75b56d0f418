#include "deploy/processes/claim.h"

#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "deploy/processes/file_lock.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool SameFile(const std::string& one, const std::string& other) {
  std::error_code error;
  return one == other || fs::equivalent(one, other, error);
}

}  // namespace

Claim ClaimOf(const ResolvedDeployment& resolved) {
  return {.name = resolved.deployment.name,
          .file = CanonicalPath(resolved.deployment.filename),
          .control_directory = resolved.control_directory,
          .data_directory = resolved.data_directory,
          .islands = static_cast<uint32_t>(resolved.plan.islands.size()),
          .since_s = std::time(nullptr)};
}

std::string NoteOf(const Claim& claim) {
  const ordered_json note = {{"name", claim.name},
                             {"file", claim.file},
                             {"control_directory", claim.control_directory},
                             {"data_directory", claim.data_directory},
                             {"islands", claim.islands},
                             {"since", claim.since_s}};
  return note.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

absl::StatusOr<Claim> ClaimIn(std::string_view note) {
  const ordered_json read = ordered_json::parse(note, nullptr, false);
  Claim claim;
  const auto text = [&](const char* key, std::string* value) {
    const auto found = read.find(key);
    if (found == read.end() || !found->is_string()) return false;
    *value = found->get<std::string>();
    return !value->empty();
  };
  const auto number = [&](const char* key, auto* value) {
    const auto found = read.find(key);
    if (found == read.end() || !found->is_number_unsigned()) return false;
    found->get_to(*value);
    return true;
  };
  if (read.is_object() && text("name", &claim.name) && text("file", &claim.file) &&
      text("control_directory", &claim.control_directory) && text("data_directory", &claim.data_directory) &&
      number("islands", &claim.islands) && number("since", &claim.since_s)) {
    return claim;
  }
  return absl::InvalidArgumentError("no supervisor has written this");
}

std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  const fs::path canonical = fs::weakly_canonical(absolute, error);
  std::string text = error ? absolute.string() : canonical.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool IsOf(const Claim& claim, const ControlFiles& files) {
  if (files.deployment.empty()) return true;
  return claim.name == files.deployment && (SameFile(claim.file, files.file) || !Exists(claim.file));
}

std::string DownCommand(const Claim& claim) {
  return fmt::format("`islands down {}`", Exists(claim.file) ? claim.file : claim.name);
}

absl::Status AnotherDeployment(const Claim& claim, const ControlFiles& files) {
  const bool edited = SameFile(claim.file, files.file);  // and has another name now
  return absl::FailedPreconditionError(fmt::format(
      "{} is where the deployment '{}' runs{}: that one was started from {}{}. End it with {}, or give one "
      "of them a control.directory and a data.directory of its own",
      claim.control_directory, claim.name,
      claim.name == files.deployment ? "" : fmt::format(", not '{}'", files.deployment), claim.file,
      edited ? ", which has been edited since" : fmt::format(", and this is {}", files.file),
      edited ? fmt::format("`islands down {}`", claim.name) : DownCommand(claim)));
}

absl::Status CheckWhose(const ControlFiles& files) {
  const absl::StatusOr<std::optional<LockState>> lock = ReadLock(files.SupervisorLock());
  if (!lock.ok()) return lock.status();
  if (!*lock || !(*lock)->held) return absl::OkStatus();
  const absl::StatusOr<Claim> claim = ClaimIn((*lock)->note);
  return !claim.ok() || IsOf(*claim, files) ? absl::OkStatus() : AnotherDeployment(*claim, files);
}

}  // namespace islands::deploy
