#include "instance/worker/mailbox.h"

#include <utility>

#include "runtime/latch_site.h"

namespace islands::instance {

template <typename Add>
void Mailbox::PostAnd(Add add) {
  {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.mailbox"));
    add();
    has_mail_.store(true);
  }
  if (sleeping_.load()) wake_();
}

void Mailbox::Post(std::function<void()> function) {
  PostAnd([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { functions_.push_back(std::move(function)); });
}

void Mailbox::PostWakeup(const locks::Wakeup& wakeup) {
  PostAnd([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { wakeups_.push_back(wakeup); });
}

size_t Mailbox::Drain(absl::FunctionRef<void(const locks::Wakeup&)> on_wakeup) {
  if (!has_mail_.load()) return 0;
  std::vector<std::function<void()>> functions;
  std::vector<locks::Wakeup> wakeups;
  {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.mailbox"));
    functions.swap(functions_);
    wakeups.swap(wakeups_);
    has_mail_.store(false);
  }
  for (const locks::Wakeup& wakeup : wakeups) on_wakeup(wakeup);
  for (const std::function<void()>& function : functions) function();
  return functions.size() + wakeups.size();
}

void Mailbox::Sleep(absl::FunctionRef<void()> wait) {
  // Whoever posts looks at sleeping_ after setting has_mail_, and we look at has_mail_ after setting
  // sleeping_: one of the two sees the other (both orders are sequentially consistent).
  sleeping_.store(true);
  if (!has_mail_.load()) wait();
  sleeping_.store(false);
}

}  // namespace islands::instance
