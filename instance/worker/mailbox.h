// What other threads want of a worker: functions to be called on its thread, and ends of waits for locks.
//
// Thread safety: Post, PostWakeup and empty from any thread; Drain and Sleep by the worker.
//
// Invariant: what was posted before Sleep is entered, or while it lasts, ends it: nothing waits unseen.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/locks/lock_table.h"
#include "runtime/mutex.h"

namespace islands::instance {

class Mailbox {
 public:
  // `wake` ends the wait of a Sleep, from any thread.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Post(std::function<void()> function);
  void PostWakeup(const locks::Wakeup& wakeup);

  // Hands out all that was posted, wake-ups first. Returns how many there were.
  size_t Drain(absl::FunctionRef<void(const locks::Wakeup&)> on_wakeup);
  // Calls `wait` unless something was posted.
  void Sleep(absl::FunctionRef<void()> wait);

 private:
  template <typename Add>
  void PostAnd(Add add);

  const std::function<void()> wake_;
  runtime::Mutex mutex_;
  std::vector<std::function<void()>> functions_ ABSL_GUARDED_BY(mutex_);
  std::vector<locks::Wakeup> wakeups_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_mail_{false};
  std::atomic<bool> sleeping_{false};
};

}  // namespace islands::instance
