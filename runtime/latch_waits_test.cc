#include "runtime/latch_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/mutex.h"

namespace islands::runtime {
namespace {

struct Found {
  std::string site;
  std::string holder;
  uint64_t place = 0;
  uint64_t waits = 0;
  uint64_t waited_ns = 0;
};

// The longest wait first.
std::vector<Found> List(const LatchWaits& waits) {
  std::vector<Found> found;
  waits.ForEach([&](const char* site, const char* holder, uint64_t place, uint64_t count,
                    uint64_t waited_ns) {
    found.push_back({site == nullptr ? "" : site, holder == nullptr ? "" : holder, place, count, waited_ns});
  });
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.waited_ns > b.waited_ns; });
  return found;
}

TEST(LatchWaits, Add_SumsByWhereItWasWantedAndWhereItWasTaken) {
  LatchWaits waits;
  waits.Add("a", "b", 1, 100);
  waits.Add("a", "c", 1, 30);
  waits.Add("a", nullptr, 1, 20);
  waits.Add("a", "b", 1, 5);
  waits.Add("a", "b", 0, 7);  // goes on
  const std::vector<Found> found = List(waits);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].site + found[0].holder, "ab");
  EXPECT_EQ(found[0].waits, 2);
  EXPECT_EQ(found[0].waited_ns, 112);
  EXPECT_EQ(found[1].holder, "c");
  EXPECT_EQ(found[2].holder, "");
}

// Of latches with one name those that are elsewhere are told apart.
TEST(LatchWaits, Add_TellsPlacesApart) {
  LatchWaits waits;
  waits.Add("a", "b", 1, 10, 1);
  waits.Add("a", "b", 1, 30, 2);
  waits.Add("a", "b", 1, 30, 2);
  const std::vector<Found> found = List(waits);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].place, 2);
  EXPECT_EQ(found[0].waits, 2);
  EXPECT_EQ(found[0].waited_ns, 60);
  EXPECT_EQ(found[1].place, 1);
}

TEST(LatchWaits, Add_KeepsTheSumOfWhatHasNoPlaceOfItsOwn) {
  LatchWaits waits;
  std::vector<std::string> sites;
  for (size_t i = 0; i < LatchWaits::kMost + 10; ++i) sites.push_back("site" + std::to_string(i));
  for (const std::string& site : sites) waits.Add(site.c_str(), nullptr, 1, 1);
  uint64_t all = 0, others = 0;
  for (const Found& found : List(waits)) {
    all += found.waits;
    if (found.site.empty()) others = found.waits;
  }
  EXPECT_EQ(all, sites.size());
  EXPECT_GE(others, 11);
  EXPECT_LT(others, LatchWaits::kMost / 4);  // most of the table is used
}

// One section that holds a mutex for long, planted beside another mutex and a section that is short: it is
// what is waited for, and it is named. Also what ThreadSanitizer has to say about that.
TEST(LatchWaits, Mutex_NamesThePlantedSlowSection) {
  Mutex hot, calm;
  LatchWaits waits;
  std::atomic<bool> over = false;
  std::thread quick([&] {
    latch_waits = &waits;
    while (!over.load()) {
      {
        const MutexLock lock(calm, ISLANDS_LATCH("test.calm"));
      }
      const MutexLock lock(hot, ISLANDS_LATCH("test.quick"));
    }
    latch_waits = nullptr;
  });
  for (int i = 0; i < 100; ++i) {
    {
      const MutexLock lock(hot, ISLANDS_LATCH("test.slow"));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    { const MutexLock lock(calm, ISLANDS_LATCH("test.calm_too")); }
    std::this_thread::yield();
  }
  over.store(true);
  quick.join();
  const std::vector<Found> found = List(waits);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].site, "test.quick");
  EXPECT_EQ(found[0].holder, "test.slow");
}

// A wait is one, however many times it looks.
TEST(LatchWaits, Backoff_IsOneWait) {
  LatchWaits waits;
  latch_waits = &waits;
  Backoff backoff;
  for (int i = 0; i < 5; ++i) backoff.Wait({"test.latch"}, "test.holder");
  latch_waits = nullptr;
  backoff.Wait({"test.latch"}, "test.holder");  // and this one nobody counts
  const std::vector<Found> found = List(waits);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].waits, 1);
  EXPECT_GT(found[0].waited_ns, 0);
}

}  // namespace
}  // namespace islands::runtime
