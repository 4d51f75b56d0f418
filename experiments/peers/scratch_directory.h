// A directory that is gone when the program is, also when it is interrupted.
//
// Thread safety: none. A thread of its own waits for SIGINT and SIGTERM: then it does what it was told to do
// first, removes the directory and ends the process with exit code 130, whatever the other threads are doing;
// the destructor does not return then.
//
// Invariants:
//  1. Only what this object created is ever removed: a fresh directory inside the given one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace islands::experiments {

class ScratchDirectory {
 public:
  // Inside `parent`, which must exist. To be called before other threads start, because they inherit the
  // blocked signals. `before_removal` ends who may write to it.
  static absl::StatusOr<std::unique_ptr<ScratchDirectory>> Create(const std::string& parent,
                                                                  void (*before_removal)() = nullptr);
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path);
  const std::string path_;
};

// Where data that shall stay in memory goes: /dev/shm where there is one, else the temporary directory.
std::string DefaultScratchParent();

}  // namespace islands::experiments
