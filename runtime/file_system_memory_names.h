// The directories of the simulated disk: which name is which file, now and after power loss.
//
// Thread safety: none; MemoryFileSystem guards its names.
//
// Invariants:
//  1. A change of names is atomic: after power loss all of it is there or nothing.
//  2. A synced directory survives as it was then. Of later changes any may survive without the others, except
//     that changes of one name survive in their order: no file system forgets a file's creation and keeps its
//     new name.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/file_system_memory_file.h"
#include "runtime/random.h"

namespace islands::runtime {

class SimulatedNames {
 public:
  // What names stand for from now on; null: for nothing. All of one directory.
  using Change = std::vector<std::pair<std::string, SimulatedFilePtr>>;

  // "" is the root, and what a path without a slash is relative to.
  static std::string DirectoryOf(const std::string& path);

  SimulatedFilePtr Find(const std::string& path) const;  // null if there is none
  bool HasDirectory(const std::string& path) const { return path.empty() || directories_.contains(path); }
  std::vector<std::string> List(const std::string& directory) const;  // sorted
  const std::map<std::string, SimulatedFilePtr>& files() const { return now_; }

  // Whose parent is there. Durable when that is synced; if it is lost, so is what is in it.
  void MakeDirectory(const std::string& path, bool lost);
  // `lost`: shows, but no sync will find it.
  void Apply(Change change, bool lost);
  void Sync(const std::string& directory);
  // After a failed sync: what was not on disk never gets there, and the next sync does not know.
  void DropUnsynced(const std::string& directory);
  // Back to what is on disk, with what `random` lets survive of the changes; without it none.
  void LosePower(Random* random);
  // Every file by another one. For copies, which have files of their own.
  void ReplaceFiles(absl::FunctionRef<SimulatedFilePtr(const SimulatedFilePtr&)> other);

 private:
  using Names = std::map<std::string, SimulatedFilePtr>;
  static void ApplyTo(const Change& change, Names* names);
  void LoseDirectories(Random* random);

  std::set<std::string> directories_;
  std::set<std::string> unsynced_directories_;
  std::set<std::string> lost_directories_;  // show, and no sync finds them
  Names now_;
  Names disk_;
  std::deque<Change> unsynced_;
};

}  // namespace islands::runtime
