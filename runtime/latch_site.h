// Waiting for a latch, and the one macro through which latches are entered.
//
// ISLANDS_LATCH("btree.modify") names the call site to what takes the latch there: GuardX(page,
// ISLANDS_LATCH("btree.modify")). Whoever has to wait is counted under that name, and under the name of the
// site where the latch was taken by who has it, if that is known (latch_waits.h). A latch that is free costs
// nothing more for it.
//
// In the build with planted bugs (ISLANDS_PLANTED_BUGS) these sites are scheduling points as well: a
// simulation runs the workers of an island on one thread, and changes from one to another there
// (simulation/interleaver.h).
//
// Thread safety: a Backoff belongs to one thread.
#pragma once

#include <cstdint>

#define ISLANDS_LATCH(site) (::islands::runtime::SchedulingPoint(), ::islands::runtime::LatchSite{site})

namespace islands::runtime {

// Where a latch is taken. `name` is a literal.
struct LatchSite {
  const char* name = nullptr;
};

#ifdef ISLANDS_PLANTED_BUGS
// Lets another worker go on, perhaps; `blocked`: surely. Null: there are threads.
inline void (*interleave)(bool blocked) = nullptr;
inline void SchedulingPoint() {
  if (interleave != nullptr) interleave(/*blocked=*/false);
}
#else
constexpr void SchedulingPoint() {}
#endif

// Latches are held for well under a microsecond: spin first, then let the holder have the core. Round 1, 2,
// ... of one wait for a latch that is wanted at `site` and was taken at `holder` (null: nobody knows),
// which is counted (latch_waits.h, also for `place`).
void BackOff(uint32_t round, LatchSite site, const char* holder, uint64_t place = 0);

class Backoff {
 public:
  void Wait(LatchSite site = {}, const char* holder = nullptr, uint64_t place = 0) {
    BackOff(++rounds_, site, holder, place);
  }

 private:
  uint32_t rounds_ = 0;
};

}  // namespace islands::runtime
