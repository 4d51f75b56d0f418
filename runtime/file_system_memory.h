// Files in memory that can lose power: what was not synced is gone, as on a real disk. For tests and
// simulation.
//
// Thread safety: all functions may be called from any thread; each Queue belongs to one.
//
// Invariants:
//  1. PowerLoss leaves exactly the synced bytes of the durably named files. ReplaceFile syncs before it
//     renames, so its path shows the old content or the new, whole.
//  2. After FailAfter(n), n more changing steps succeed and every later one answers UNAVAILABLE until
//     PowerLoss. The steps of ReplaceFile: create path.tmp, write it, sync it, rename it, sync the directory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/file_system.h"
#include "runtime/mutex.h"

namespace islands::runtime {

class MemoryFileSystem final : public FileSystem {
 public:
  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override;
  absl::Status Close(FileHandle file) override;
  std::unique_ptr<Queue> MakeQueue() override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::Status ReplaceFile(const std::string& path, std::string_view content) override;
  absl::Status MakeDirectories(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;

  void FailAfter(uint64_t steps);
  // Back to what was durable; ends FailAfter. Open handles are invalid afterwards.
  void PowerLoss();

 private:
  class MemoryQueue;
  struct File {
    std::string content;
    std::string synced;
  };
  using FilePtr = std::shared_ptr<File>;

  // One changing step: fails once the budget of FailAfter is spent.
  absl::Status Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RequireParent(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  IoCompletion CarryOut(const IoRequest& request);

  runtime::Mutex mutex_;
  std::map<std::string, FilePtr> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, FilePtr> durable_names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, bool> directories_ ABSL_GUARDED_BY(mutex_);
  std::vector<FilePtr> open_ ABSL_GUARDED_BY(mutex_);  // by handle; null = closed
  uint64_t steps_left_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace islands::runtime
