#include "runtime/work_account.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace islands::runtime {
namespace {

// Nothing else would be long enough for the counter of any machine to move on.
void Spend(int64_t ns) {
  const MonotonicClock clock;
  for (const int64_t until_ns = clock.NowNs() + ns; clock.NowNs() < until_ns;) {
  }
}

uint64_t TimeOf(const WorkAccount::Times& times, Work work) { return times[static_cast<size_t>(work)]; }

TEST(WorkAccount, WorkScope_CountsItsTimeAndGivesTheRestBack) {
  WorkAccount account(WorkAccount::MeasureChange());
  const MonotonicClock clock;
  const int64_t begun_ns = clock.NowNs();
  account.Begin(Work::kManaging);
  {
    const WorkScope executing(Work::kExecuting);
    Spend(kNsPerMs);
    {
      const WorkScope locking(Work::kLocking);
      Spend(2 * kNsPerMs);
    }
    Spend(kNsPerMs);
  }
  Spend(kNsPerMs);
  const auto whole_ns = static_cast<uint64_t>(clock.NowNs() - begun_ns);
  const WorkAccount::Times times = account.End(whole_ns);
  // Each did what it did for that long; other programs may have had the core meanwhile.
  EXPECT_GE(TimeOf(times, Work::kExecuting), 1'900'000);
  EXPECT_GE(TimeOf(times, Work::kLocking), 1'900'000);
  EXPECT_GE(TimeOf(times, Work::kManaging), 900'000);
  EXPECT_EQ(TimeOf(times, Work::kLogging), 0);
  // Nothing is lost: together it is the whole, but for what rounding takes of each.
  const uint64_t sum = std::accumulate(times.begin(), times.end(), uint64_t{0});
  EXPECT_LE(sum, whole_ns);
  EXPECT_GE(sum + kWorks, whole_ns);
}

TEST(WorkAccount, WorkScope_DoesNothingWhereNobodyMeasures) {
  WorkAccount account(0);
  {
    const WorkScope before(Work::kLocking);
    account.Begin(Work::kManaging);  // while a scope is open that nobody has measured
  }
  { const WorkScope unwatched(Work::kLocking, /*watched=*/false); }
  Spend(kNsPerMs);
  const WorkAccount::Times times = account.End(1'000'000);
  EXPECT_EQ(TimeOf(times, Work::kLocking), 0);
  EXPECT_NEAR(static_cast<double>(TimeOf(times, Work::kManaging)), 1e6, 1);
  EXPECT_EQ(work_account, nullptr);
}

// What a change costs is taken off the kind of work that it ends: of so many that do nothing, if a change
// cost that much, nothing would be left.
TEST(WorkAccount, End_TakesTheCostOfChangesOff) {
  const auto time_of_many = [](uint64_t change_ticks) {
    WorkAccount account(change_ticks);
    account.Begin(Work::kManaging);
    for (int i = 0; i < 20'000; ++i) const WorkScope empty(Work::kLocking);
    {
      const WorkScope executing(Work::kExecuting);
      Spend(20 * kNsPerMs);
    }
    return TimeOf(account.End(1'000'000), Work::kLocking);
  };
  EXPECT_GT(time_of_many(0), 0);
  EXPECT_EQ(time_of_many(100'000), 0);
}

TEST(WorkAccount, Begin_MeasuresItsOwnThread) {
  WorkAccount account(0);
  account.Begin(Work::kManaging);
  std::thread([] { EXPECT_EQ(work_account, nullptr); }).join();
  EXPECT_EQ(work_account, &account);
  account.End(1);
}

}  // namespace
}  // namespace islands::runtime
