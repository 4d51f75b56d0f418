#include "instance/worker/answers.h"

#include <algorithm>
#include <iterator>

#include "runtime/check.h"

namespace islands::instance {

// Epochs nearly ascend. One that another island has sent and that will never come stays at the end, and holds
// nobody up.
void WaitingAnswers::Add(WaitingAnswer answer) {
  auto before = waiting_.end();
  while (before != waiting_.begin() && std::prev(before)->epoch > answer.epoch) --before;
  waiting_.insert(before, std::move(answer));
}

WaitingAnswer WaitingAnswers::TakeFirst() {
  WaitingAnswer first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

std::vector<WaitingAnswer> WaitingAnswers::TakeOverdue(int64_t now_ns) {
  const auto in_time = [now_ns](const WaitingAnswer& answer) { return now_ns < answer.deadline_ns; };
  const auto overdue = std::stable_partition(waiting_.begin(), waiting_.end(), in_time);
  std::vector<WaitingAnswer> taken;
  std::move(overdue, waiting_.end(), std::back_inserter(taken));
  waiting_.erase(overdue, waiting_.end());
  return taken;
}

void WaitingAnswers::CheckInvariants() const {
  ISLANDS_CHECK(
      std::is_sorted(waiting_.begin(), waiting_.end(),
                     [](const WaitingAnswer& a, const WaitingAnswer& b) { return a.epoch < b.epoch; }));
}

}  // namespace islands::instance
