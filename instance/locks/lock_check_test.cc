#include <gtest/gtest.h>

#include "instance/locks/lock_table.h"
#include "runtime/planted_bug.h"

namespace islands::locks {
namespace {

constexpr LockName kName{.table = 0, .site = 0, .key_hash = 5};

class LockCheck : public testing::Test {
 protected:
  ~LockCheck() override {
    for (LockOwner* owner : {&third_, &second_, &first_}) table_.ReleaseAll(*owner, &wakeups_);
  }
  LockTable table_{LockTableOptions{.buckets = 64}};
  LockOwner first_, second_, third_;
  std::vector<Wakeup> wakeups_;
};

TEST_F(LockCheck, HoldersConversionsAndQueues) {
  table_.CheckInvariants();
  EXPECT_EQ(table_.AcquireKey(first_, kName, LockMode::kS), LockResult::kGranted);
  EXPECT_EQ(table_.AcquireKey(second_, kName, LockMode::kS), LockResult::kGranted);
  EXPECT_EQ(table_.AcquireKey(third_, kName, LockMode::kX), LockResult::kWaiting);
  table_.CheckInvariants();
  EXPECT_EQ(table_.AcquireKey(first_, kName, LockMode::kX), LockResult::kWaiting);  // goes before the third
  table_.CheckInvariants();
  table_.ReleaseAll(second_, &wakeups_);
  EXPECT_FALSE(first_.waiting());
  table_.CheckInvariants();
  table_.ReleaseAll(first_, &wakeups_);
  EXPECT_FALSE(third_.waiting());
  table_.CheckInvariants();
}

#ifdef ISLANDS_PLANTED_BUGS
// The check itself: a lock granted over its holders.
TEST_F(LockCheck, FindsAGrantOverHolders) {
  EXPECT_EQ(table_.AcquireKey(first_, kName, LockMode::kX), LockResult::kGranted);
  runtime::planted_bug = runtime::PlantedBug::kGrantEveryLock;
  LockResult result = LockResult::kWaiting;
  for (int i = 0; i < 10 && result != LockResult::kGranted; ++i) {
    table_.ReleaseAll(second_, &wakeups_);
    result = table_.AcquireKey(second_, kName, LockMode::kX);
  }
  runtime::planted_bug = runtime::PlantedBug::kNone;
  ASSERT_EQ(result, LockResult::kGranted);
  EXPECT_DEATH(table_.CheckInvariants(), "invariant broken");
}
#endif

}  // namespace
}  // namespace islands::locks
