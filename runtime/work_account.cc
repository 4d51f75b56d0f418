#include "runtime/work_account.h"

#include <algorithm>
#include <limits>

namespace islands::runtime {

uint64_t WorkAccount::MeasureChange() {
  constexpr int kTries = 64;
  constexpr int kChanges = 32;
  WorkAccount account(0);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const uint64_t begun = Ticks();
    for (int change = 0; change < kChanges; ++change) account.Change(Work::kExecuting);
    least = std::min(least, Ticks() - begun);
  }
  return least / kChanges;
}

WorkAccount::Times WorkAccount::End(uint64_t whole_ns) {
  ISLANDS_CHECK(work_account == this);
  Change(work_);
  work_account = nullptr;
  uint64_t all = 0;
  for (size_t i = 0; i < kWorks; ++i) {
    ticks_[i] -= std::min(ticks_[i], changes_[i] * change_ticks_);
    all += ticks_[i];
  }
  Times shares{};
  if (all == 0) return shares;
  for (size_t i = 0; i < kWorks; ++i) {
    shares[i] = static_cast<uint64_t>(static_cast<double>(whole_ns) * static_cast<double>(ticks_[i]) /
                                      static_cast<double>(all));
  }
  return shares;
}

}  // namespace islands::runtime
