// Task<T>: the coroutine that transactions are made of.
//
// A Task starts when it is awaited and runs on the awaiting worker; it never changes worker. If it finishes
// without suspending, the awaiter goes on in the same call: a local transaction that meets no conflict runs
// straight through. If it suspended, its awaiter goes on in its place when it ends (symmetric transfer): who
// has waited for a lock is not kept from letting it go by rounds of the worker between each callee and its
// caller. The stack is as deep as calls are, if the compiler does not make a jump of the transfer.
//
// Rules for GCC 12: no lambda coroutines; no temporaries or braced initializers as arguments across co_await.
//
// Frames come from the worker's pool (frame_pool.h).
//
// Thread safety: none; everything happens on the owning worker.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "runtime/frame_pool.h"

namespace islands::runtime {

struct TaskPromiseBase {
  std::coroutine_handle<> continuation;  // set if the awaiter suspended

  static void* operator new(size_t bytes) { return FramePool::Allocate(bytes); }
  static void operator delete(void* frame, size_t bytes) { FramePool::Free(frame, bytes); }

  std::suspend_always initial_suspend() noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      const std::coroutine_handle<> awaiter = self.promise().continuation;
      return awaiter ? awaiter : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  // Our code does not throw; what libraries throw is a bug that must not be swallowed.
  void unhandled_exception() noexcept { std::terminate(); }
};

template <typename T>
class [[nodiscard]] Task;

namespace internal {

template <typename T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T result) { value.emplace(std::move(result)); }
  T Take() { return std::move(*value); }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void Take() {}
};

}  // namespace internal

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      Destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() { Destroy(); }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.resume();
    if (handle_.done()) return false;
    handle_.promise().continuation = awaiter;
    return true;
  }
  T await_resume() { return handle_.promise().Take(); }

  // For whoever owns a task at the top of the stack: runs it up to its first suspension.
  void Start() { handle_.resume(); }
  bool done() const { return !handle_ || handle_.done(); }
  bool valid() const { return static_cast<bool>(handle_); }
  T Take() { return handle_.promise().Take(); }

 private:
  void Destroy() {
    if (handle_) handle_.destroy();
    handle_ = nullptr;
  }
  Handle handle_;
};

namespace internal {

template <typename T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

}  // namespace internal
}  // namespace islands::runtime
