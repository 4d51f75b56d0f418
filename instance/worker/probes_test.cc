#include "instance/worker/probes.h"

#include <gmock/gmock.h>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

class ProbesTest : public WorkerPartsTest {
 protected:
  void SetUp() override {
    PutRow(1);
    transaction_.branch.locks.wake_token = lock_waits_.NextToken();
    // Island 1's transaction 7 holds row 1 here.
    Batch batch;
    batch.Add(0, Key(0, 1), 0, 1);
    const RoutedOperation route{0, 0, 0};
    far_.outbox.SendExecute(0, TheirId(7),
                            {.participant_epoch = kOurEpoch, .number = 1, .deadline_us = 1'000'000}, {},
                            batch, {&route, 1});
    FarHeard();
  }
  // One of ours, with this number, waits for it.
  void WaitForRow(uint64_t sequence) {
    transaction_.own_id = OurId(sequence);
    transaction_.branch.locks.transaction = transaction_.own_id;
    batch_.Add(0, Key(0, 1), 0, 1);
    ASSERT_EQ(Run(transaction_.branch, batch_), Progress::kWaiting);
    transaction_.executing = &batch_;
    executing_ = &transaction_;
    wait_ = lock_waits_.Await(transaction_, batch_, 0);
    wait_.Start();
  }
  void ChaseFor(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += runtime::kNsPerMs) {
      Advance(runtime::kNsPerMs);
      probes_.ChaseWaits();
    }
  }

  CoordinatedTransaction transaction_;
  Batch batch_;
  runtime::Task<void> wait_;
};

TEST_F(ProbesTest, ChaseWaits_AsksOnlyThoseOfALowerPriority) {
  // Of two transactions one outranks the other: of ten of ours some outrank theirs, and some do not.
  size_t asked = 0;
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    WaitForRow(sequence);
    ChaseFor(4 * runtime::kNsPerMs);
    const std::vector<std::string> heard = FarHeard();
    asked += heard.empty() ? 0 : 1;
    if (!heard.empty()) {
      EXPECT_THAT(heard.front(), StartsWith(fmt::format("probe of {} to 7 hops 0 chase 1", sequence)));
    }
    transaction_.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("enough"));
    turns_.Resume(transaction_);
    Pump();
    engine_.Rollback(transaction_.branch);
    transaction_.failure = {};
    batch_.Clear();
  }
  EXPECT_GT(asked, 0u);
  EXPECT_LT(asked, 10u);
}

TEST_F(ProbesTest, NextDeadline_OnlyWhileSomebodyWaits) {
  EXPECT_EQ(probes_.NextDeadlineNs(), std::numeric_limits<int64_t>::max());
  WaitForRow(1);
  EXPECT_LT(probes_.NextDeadlineNs(), clock_.NowNs() + runtime::kNsPerSecond);
}

TEST_F(ProbesTest, OnProbe_ComeRoundFailsItsInitiator) {
  WaitForRow(1);
  const Probe round{.initiator = OurId(1), .blocked_on = OurId(1), .from_island = 0};
  Probe other_life = round;
  other_life.initiator.boot_epoch = other_life.blocked_on.boot_epoch = kOurEpoch - 1;
  probes_.OnProbe(other_life);
  EXPECT_FALSE(transaction_.failure.set());
  // A wait on island 1 began it, and none is left there.
  Probe elsewhere = round;
  elsewhere.from_island = 1;
  probes_.OnProbe(elsewhere);
  EXPECT_FALSE(transaction_.failure.set());
  probes_.OnProbe(round);
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kDeadlock);
  EXPECT_EQ(counters_.probe_victims.Get(), 1u);
  Pump();
  EXPECT_TRUE(wait_.done());
}

// Theirs waits for row 2, which ours holds; a probe of a third that reached their branch goes on to ours.
TEST_F(ProbesTest, OnProbe_AtABranchGoesOnToItsBlockers) {
  PutRow(2);
  transaction_.own_id = OurId(3);
  transaction_.branch.locks.transaction = transaction_.own_id;
  batch_.Add(0, Key(0, 2), 0, 1);
  ASSERT_EQ(Run(transaction_.branch, batch_), Progress::kDone);
  transaction_.executing = &batch_;
  executing_ = &transaction_;
  Batch batch;
  batch.Add(0, Key(0, 2), 0, 1);
  const RoutedOperation route{0, 0, 0};
  far_.outbox.SendExecute(0, TheirId(7),
                          {.participant_epoch = kOurEpoch, .number = 2, .deadline_us = 1'000'000}, {}, batch,
                          {&route, 1});
  Pump();
  ASSERT_EQ(lock_waits_.Sorted().size(), 1u);
  // Come round: ours began it, from a wait on island 1 for an answer that is due.
  CoordinatorEntry entry;
  entry.peers.push_back({{1, kTheirEpoch}, 1, /*answer_due=*/true});
  transaction_.entry = &entry;
  far_.outbox.SendProbe(0, {.initiator = OurId(3),
                            .blocked_on = TheirId(7),
                            .from_island = 1,
                            .at_participant = true,
                            .chase = 1});
  Advance(3 * runtime::kNsPerMs);
  probes_.ChaseWaits();  // lets probes be sent
  Pump();
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kDeadlock);
  engine_.Rollback(transaction_.branch);
}

}  // namespace
}  // namespace islands::instance
