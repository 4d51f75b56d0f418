// When a lost island is started again: exponential back-off with a budget.
//
// The n-th loss within the window waits first_delay_ms * 2^(n-1), at most max_delay_ms. More losses within
// the window than the budget allows: the island is given up, so that a broken one does not burn the cores of
// the others.
//
// Thread safety: none; a plain value. Time is handed in.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace islands::deploy {

struct RestartLimits {
  uint32_t budget = 10;  // restarts within the window
  int64_t window_ms = 60'000;
  int64_t first_delay_ms = 100;
  int64_t max_delay_ms = 5'000;
};

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartLimits limits) : limits_(limits) {}

  // The island was lost at `now_ms`: how long to wait before it is started again, or nothing when it is given
  // up.
  std::optional<int64_t> OnLost(int64_t now_ms);

 private:
  RestartLimits limits_;
  std::deque<int64_t> losses_ms_;  // within the window, oldest first
};

}  // namespace islands::deploy
