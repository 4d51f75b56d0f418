#include "deploy/processes/control_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "deploy/processes/claim.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

bool IsIslandLock(const std::string& name) {
  constexpr std::string_view kPrefix = "island-";
  constexpr std::string_view kSuffix = ".lock";
  if (name.size() <= kPrefix.size() + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix)) {
    return false;
  }
  return std::all_of(name.begin() + kPrefix.size(), name.end() - kSuffix.size(),
                     [](unsigned char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string ControlFiles::IslandName(uint32_t island) const {
  return fmt::format("{}/island-{}", directory, island);
}

std::vector<std::string> ControlFiles::AllIslandLocks() const {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (IsIslandLock(it->path().filename().string())) paths.push_back(it->path().string());
  }
  return paths;
}

absl::StatusOr<ControlFiles> ControlFilesOf(const Deployment& deployment) {
  fs::path path = fs::path(deployment.folder) / deployment.control_directory;
  std::string text = path.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  const absl::Status checked = runtime::CheckPrivateDirectory(text);
  if (!checked.ok() && !absl::IsNotFound(checked)) return checked;
  return ControlFiles{text, deployment.name, CanonicalPath(deployment.filename)};
}

}  // namespace islands::deploy
