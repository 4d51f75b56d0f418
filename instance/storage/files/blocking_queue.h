// Requests of a thread that may wait for a disk: at start-up, and in a load.
//
// Thread safety: owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/file_system.h"

namespace islands::storage {

class BlockingQueue {
 public:
  explicit BlockingQueue(runtime::FileSystem& files) : queue_(files.MakeQueue()) {}

  void Submit(const runtime::IoRequest& request) {
    queue_->Enqueue(request);
    ++under_way_;
  }
  size_t under_way() const { return under_way_; }
  // At least one that has completed, if any is under way; good until the next call.
  const std::vector<runtime::IoCompletion>& Wait() {
    completions_.clear();
    while (under_way_ != 0 && queue_->Poll(&completions_) == 0) queue_->Wait(1'000'000'000);
    under_way_ -= completions_.size();
    return completions_;
  }
  // Until nothing is under way. The first error.
  absl::Status WaitAll() {
    absl::Status first;
    while (under_way_ != 0) {
      for (const runtime::IoCompletion& completion : Wait()) first.Update(completion.status);
    }
    return first;
  }
  absl::Status Do(const runtime::IoRequest& request) {
    Submit(request);
    return WaitAll();
  }

 private:
  std::unique_ptr<runtime::FileSystem::Queue> queue_;
  size_t under_way_ = 0;
  std::vector<runtime::IoCompletion> completions_;
};

}  // namespace islands::storage
