// The coroutines of one worker that can go on, in the order in which they became ready.
//
// Thread safety: each worker has its own.
//
// Invariant: once it has been as long as it gets, nothing is allocated (a std::deque allocates for every 64).
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/check.h"

namespace islands::runtime {

class ReadyQueue {
 public:
  void Push(std::coroutine_handle<> handle) {
    if (size_ == ring_.size()) Grow();
    ring_[(first_ + size_++) & (ring_.size() - 1)] = handle;
  }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  std::coroutine_handle<> Pop() {
    ISLANDS_CHECK(size_ != 0);
    const std::coroutine_handle<> handle = ring_[first_];
    first_ = (first_ + 1) & (ring_.size() - 1);
    --size_;
    return handle;
  }

 private:
  void Grow() {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(first_), ring_.end());
    first_ = 0;
    ring_.resize(std::max<size_t>(64, 2 * ring_.size()));
  }

  std::vector<std::coroutine_handle<>> ring_;  // its size is a power of two
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace islands::runtime
