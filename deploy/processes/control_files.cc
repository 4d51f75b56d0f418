#include "deploy/processes/control_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "deploy/processes/claim.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

// N of all files island-N`suffix` in `directory`.
std::vector<uint32_t> IslandsWith(std::string_view suffix, const std::string& directory) {
  constexpr std::string_view kPrefix = "island-";
  std::vector<uint32_t> islands;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    uint32_t island = 0;
    if (name.starts_with(kPrefix) &&
        absl::SimpleAtoi(name.substr(kPrefix.size(), name.find('.') - kPrefix.size()), &island) &&
        name == fmt::format("{}{}{}", kPrefix, island, suffix)) {
      islands.push_back(island);
    }
  }
  std::sort(islands.begin(), islands.end());
  return islands;
}

}  // namespace

std::string ControlFiles::IslandName(uint32_t island) const {
  return fmt::format("{}/island-{}", directory, island);
}

std::vector<uint32_t> ControlFiles::IslandsWithLogs() const { return IslandsWith(".log", directory); }

std::vector<std::string> ControlFiles::AllIslandLocks() const {
  std::vector<std::string> paths;
  for (const uint32_t island : IslandsWith(".lock", directory)) paths.push_back(IslandLock(island));
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
