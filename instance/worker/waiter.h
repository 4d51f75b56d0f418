// A coroutine of a worker that waits: for a lock, for answers, or for both.
//
// Thread safety: none; it lives on one worker.
//
// Invariant: `suspended` is in one place only: here, or in a queue of Turns.
#pragma once

#include <coroutine>
#include <cstdint>

#include "instance/execution/abort_reason.h"
#include "instance/execution/branch.h"
#include "instance/worker/stays.h"

namespace islands::instance {

struct Waiter {
  std::coroutine_handle<> suspended;  // null while running or in the ready queue
  Branch branch;
  Failure failure;  // set by whoever ends the wait with bad news
  int64_t lock_wait_since_ns = 0;
  uint32_t chases = 0;  // of that wait: probes.h
  Stays stays;          // of a transaction that is watched

  void SetDoing(Stay stay) {
    branch.locks.doing.store(static_cast<uint8_t>(stay), std::memory_order_relaxed);
  }
  // The first reason stays.
  void Fail(AbortReason reason, absl::Status status) {
    if (!failure.set()) failure = {reason, std::move(status)};
  }

  struct Suspension {
    Waiter& waiter;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) noexcept { waiter.suspended = self; }
    void await_resume() const noexcept {}
  };
  Suspension Suspend() { return {*this}; }
};

}  // namespace islands::instance
