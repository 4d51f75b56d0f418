#include "deploy/processes/restart.h"

#include <algorithm>

namespace islands::deploy {

std::optional<int64_t> RestartPolicy::OnLost(int64_t now_ms) {
  while (!losses_ms_.empty() && now_ms - losses_ms_.front() >= limits_.window_ms) losses_ms_.pop_front();
  if (losses_ms_.size() >= limits_.budget) return std::nullopt;
  int64_t delay_ms = limits_.first_delay_ms;
  for (size_t i = 0; i < losses_ms_.size() && delay_ms < limits_.max_delay_ms; ++i) delay_ms *= 2;
  losses_ms_.push_back(now_ms);
  return std::min(delay_ms, limits_.max_delay_ms);
}

}  // namespace islands::deploy
