#include "instance/worker/turns.h"

#include "runtime/check.h"

namespace islands::instance {

void Turns::AddSleeper(int64_t at_ns, std::coroutine_handle<> handle) {
  ISLANDS_CHECK(handle && !handle.done());
  sleepers_.push_back({at_ns, handle});
  std::push_heap(sleepers_.begin(), sleepers_.end());
}

size_t Turns::WakeSleepers() {
  size_t woken = 0;
  while (!sleepers_.empty() && sleepers_.front().at_ns <= now_ns_) {
    std::pop_heap(sleepers_.begin(), sleepers_.end());
    ready_.Push(sleepers_.back().handle);
    sleepers_.pop_back();
    ++woken;
  }
  return woken;
}

void Turns::CheckInvariants() const {
  ISLANDS_CHECK(std::is_heap(sleepers_.begin(), sleepers_.end()));
  ISLANDS_CHECK(begun_in_round_ <= kBegunPerRound);
}

}  // namespace islands::instance
