#include "runtime/latch_waits.h"

#include <sched.h>

#include <algorithm>

namespace islands::runtime {

// Out of line: where nobody has to wait nothing of this is in the way.
void BackOff(uint32_t round, LatchSite site, const char* holder, uint64_t place) {
  constexpr uint32_t kSpins = 16;
#ifdef ISLANDS_PLANTED_BUGS
  if (interleave != nullptr) return interleave(/*blocked=*/true);
#endif
  CountWait(
      site, [holder] { return holder; }, /*again=*/round > 1,
      [round] {
        if (round > kSpins) {
          sched_yield();
          return;
        }
        for (uint32_t i = 0; i < round; ++i) {
#if defined(__x86_64__)
          __builtin_ia32_pause();
#endif
        }
      },
      place);
}

}  // namespace islands::runtime
