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

void SimulatedNames::MakeDirectory(const std::string& path, bool lost) {
  directories_.insert(path);
  (lost ? lost_directories_ : unsynced_directories_).insert(path);
}

void SimulatedNames::Apply(Change change, bool lost) {
  ApplyTo(change, &now_);
  if (!lost) unsynced_.push_back(std::move(change));
}

void SimulatedNames::Sync(const std::string& directory) {
  for (const Change& change : unsynced_) {
    if (DirectoryOf(change.front().first) == directory) ApplyTo(change, &disk_);
  }
  const auto is_in_it = [&](const std::string& path) { return DirectoryOf(path) == directory; };
  std::erase_if(unsynced_directories_, is_in_it);
  DropUnsynced(directory);
}

void SimulatedNames::DropUnsynced(const std::string& directory) {
  std::erase_if(unsynced_,
                [&](const Change& change) { return DirectoryOf(change.front().first) == directory; });
  std::erase_if(unsynced_directories_, [&](const std::string& path) {
    return DirectoryOf(path) == directory && lost_directories_.insert(path).second;
  });
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
  LoseDirectories(random);
  now_ = disk_;
}

void SimulatedNames::LoseDirectories(Random* random) {
  for (const std::string& path : unsynced_directories_) {
    if (random == nullptr || random->Below(2) != 0) lost_directories_.insert(path);
  }
  for (const std::string& path : lost_directories_) directories_.erase(path);
  unsynced_directories_.clear();
  lost_directories_.clear();
  // Sorted: what is above comes first.
  std::erase_if(directories_, [&](const std::string& path) { return !HasDirectory(DirectoryOf(path)); });
  std::erase_if(disk_, [&](const auto& named) { return !HasDirectory(DirectoryOf(named.first)); });
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

void SimulatedNames::ReplaceFiles(absl::FunctionRef<SimulatedFilePtr(const SimulatedFilePtr&)> other) {
  for (Names* names : {&now_, &disk_}) {
    for (auto& [name, file] : *names) file = other(file);
  }
  for (Change& change : unsynced_) {
    for (auto& [name, file] : change) file = other(file);
  }
}

}  // namespace islands::runtime
