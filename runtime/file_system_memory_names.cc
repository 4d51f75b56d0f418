#include "runtime/file_system_memory_names.h"

#include <algorithm>

namespace islands::runtime {

std::string SimulatedNames::DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

SimulatedFilePtr SimulatedNames::Find(const std::string& path) const {
  const auto found = now_.find(path);
  return found == now_.end() ? nullptr : found->second;
}

std::vector<std::string> SimulatedNames::List(const std::string& directory) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (DirectoryOf(path) == directory) names.push_back(path.substr(path.find_last_of('/') + 1));
  };
  for (const auto& [path, file] : now_) add(path);
  for (const std::string& path : directories_) add(path);
  std::sort(names.begin(), names.end());
  return names;
}

void SimulatedNames::MakeDirectories(const std::string& path) {
  for (std::string name = path; !name.empty(); name = DirectoryOf(name)) directories_.insert(name);
}

void SimulatedNames::Apply(Change change, bool lost) {
  ApplyTo(change, &now_);
  if (!lost) unsynced_.push_back(std::move(change));
}

void SimulatedNames::Sync(const std::string& directory) {
  for (const Change& change : unsynced_) {
    if (DirectoryOf(change.front().first) == directory) ApplyTo(change, &disk_);
  }
  DropUnsynced(directory);
}

void SimulatedNames::DropUnsynced(const std::string& directory) {
  std::erase_if(unsynced_,
                [&](const Change& change) { return DirectoryOf(change.front().first) == directory; });
}

void SimulatedNames::LosePower(Random* random) {
  std::set<std::string> lost;  // names of which a change has not survived: none after it does
  for (const Change& change : unsynced_) {
    bool survives = random != nullptr && random->Below(2) == 0;
    for (const auto& [name, file] : change) survives = survives && !lost.contains(name);
    if (survives) ApplyTo(change, &disk_);
    if (survives) continue;
    for (const auto& [name, file] : change) lost.insert(name);
  }
  unsynced_.clear();
  now_ = disk_;
}

void SimulatedNames::ApplyTo(const Change& change, Names* names) {
  for (const auto& [name, file] : change) {
    if (file) {
      (*names)[name] = file;
    } else {
      names->erase(name);
    }
  }
}

}  // namespace islands::runtime
