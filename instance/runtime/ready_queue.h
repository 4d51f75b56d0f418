// The coroutines of one worker that can go on, in the order in which they became ready.
//
// Thread safety: each worker has its own; Current() is the queue of the worker whose RunOnce is on this
// thread's stack (simulation runs many workers on one thread, one after the other).
#pragma once

#include <coroutine>
#include <cstddef>
#include <deque>

namespace islands::runtime {

class ReadyQueue {
 public:
  void Push(std::coroutine_handle<> handle) { queue_.push_back(handle); }
  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  std::coroutine_handle<> Pop() {
    std::coroutine_handle<> handle = queue_.front();
    queue_.pop_front();
    return handle;
  }

  static ReadyQueue& Current() { return *current_; }

  // Makes `queue` the current one for a scope.
  class Scope {
   public:
    explicit Scope(ReadyQueue* queue) : before_(current_) { current_ = queue; }
    ~Scope() { current_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ReadyQueue* before_;
  };

 private:
  static thread_local ReadyQueue* current_;
  std::deque<std::coroutine_handle<>> queue_;
};

}  // namespace islands::runtime
