// For what latches a thread has had to wait, by the site where it wanted the latch and the site where it
// had been taken: the lock and the critical section that holds it (Horikawa, ICPE 2011, section 3).
//
// Of several who had it one after the other meanwhile one is named: the first of those who had a latch that
// is spun for, the last of those who had a mutex.
//
// To try again because somebody else has been faster counts as waiting, too. A thread whose latch_waits is
// null waits uncounted.
//
// Where one name stands for many latches, a place says of which: a number that means something to whoever
// has these latches (instance/storage/pages/page_latch.h), and 0 where there is nothing to say.
//
// Thread safety: a LatchWaits is written by one thread and read by any.
//
// Invariant: what is in the table stays where it is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"
#include "runtime/latch_site.h"
#include "runtime/work_account.h"

namespace islands::runtime {

class LatchWaits {
 public:
  static constexpr size_t kMost = 1024;  // entries; the last one is for all that have none of their own

  // `holder`: null where it is not known.
  void Add(const char* site, const char* holder, uint64_t waits, int64_t waited_ns, uint64_t place = 0) {
    Entry& entry = Find(site, holder, place);
    entry.waited_ns.store(entry.waited_ns.load(std::memory_order_relaxed) + static_cast<uint64_t>(waited_ns),
                          std::memory_order_relaxed);
    // Last: who sees the count sees the names.
    entry.waits.store(entry.waits.load(std::memory_order_relaxed) + waits, std::memory_order_release);
  }
  // Calls visit(site, holder, place, waits, waited_ns); both names are null for what had no entry of its own.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : entries_) {
      const uint64_t waits = entry.waits.load(std::memory_order_acquire);
      if (waits == 0) continue;
      visit(entry.site.load(std::memory_order_relaxed), entry.holder.load(std::memory_order_relaxed),
            entry.place.load(std::memory_order_relaxed), waits,
            entry.waited_ns.load(std::memory_order_relaxed));
    }
  }

 private:
  struct Entry {
    std::atomic<const char*> site = nullptr;
    std::atomic<const char*> holder = nullptr;
    std::atomic<uint64_t> place = 0;
    std::atomic<uint64_t> waits = 0;
    std::atomic<uint64_t> waited_ns = 0;
  };

  // Looks at few entries: who waits for a latch that is free again waits for this, too.
  Entry& Find(const char* site, const char* holder, uint64_t place) {
    constexpr size_t kLooks = 32;
    const uint64_t names = reinterpret_cast<uintptr_t>(site) * 31 + reinterpret_cast<uintptr_t>(holder);
    const uint64_t hash = (names ^ place * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull >> 32;
    for (size_t look = 0; look < kLooks; ++look) {
      Entry& entry = entries_[(hash + look) % (kMost - 1)];
      const char* const found = entry.site.load(std::memory_order_relaxed);
      if (found == site && entry.holder.load(std::memory_order_relaxed) == holder &&
          entry.place.load(std::memory_order_relaxed) == place) {
        return entry;
      }
      if (found != nullptr) continue;
      entry.holder.store(holder, std::memory_order_relaxed);
      entry.place.store(place, std::memory_order_relaxed);
      entry.site.store(site, std::memory_order_relaxed);
      return entry;
    }
    return entries_[kMost - 1];
  }

  std::array<Entry, kMost> entries_;
};

inline constinit thread_local LatchWaits* latch_waits = nullptr;

// Calls wait(), of which this thread is counted to wait for a latch. `again`: as before, for the same one.
// `holder` is asked afterwards.
template <typename Holder, typename Wait>
void CountWait(LatchSite site, Holder holder, bool again, Wait wait, uint64_t place = 0) {
  const WorkScope latching(Work::kLatching);
  if (latch_waits == nullptr || site.name == nullptr) return wait();
  const int64_t begun_ns = MonotonicClock().NowNs();
  wait();
  latch_waits->Add(site.name, holder(), again ? 0 : 1, MonotonicClock().NowNs() - begun_ns, place);
}

}  // namespace islands::runtime
