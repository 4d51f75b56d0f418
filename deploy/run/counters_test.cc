#include "deploy/run/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::deploy {
namespace {

control::v1::Snapshot MakeSnapshot(uint64_t epoch, int64_t time_us, uint64_t committed) {
  control::v1::Snapshot snapshot;
  snapshot.set_boot_epoch(epoch);
  snapshot.set_time_us(time_us);
  for (int w = 0; w < 2; ++w) {
    auto& worker = *snapshot.add_workers();
    for (int s = 0; s < 3; ++s) {
      auto& scope = *worker.add_scopes();
      scope.set_committed(committed * (s + 1));
      scope.set_aborted(committed / 10);
      scope.mutable_latency()->add_buckets(0);
      scope.mutable_latency()->add_buckets(committed * (s + 1));
    }
    (*worker.mutable_aborts_by_reason())["deadlock"] = committed / 5;
    worker.set_busy_seconds(static_cast<double>(committed) / 100);
    worker.set_idle_seconds(static_cast<double>(committed) / 300);
    worker.set_waiting_seconds(static_cast<double>(committed) / 600);
    worker.set_messages_sent(committed * 2);
    worker.set_log_bytes(committed * 3);
  }
  return snapshot;
}

TEST(SumOf, Snapshot_AddsWorkersUp) {
  const Sums sums = SumOf(MakeSnapshot(1, 0, 100));
  EXPECT_EQ(sums.scopes[0].committed, 200u);
  EXPECT_EQ(sums.scopes[2].committed, 600u);
  EXPECT_EQ(sums.committed(), 1200u);
  EXPECT_EQ(sums.aborted(), 60u);
  EXPECT_EQ(sums.aborts_by_reason.at("deadlock"), 40u);
  EXPECT_EQ(sums.messages_sent, 400u);
  EXPECT_EQ(sums.log_bytes, 600u);
  EXPECT_THAT(sums.latency(), testing::ElementsAre(0, 1200));
  EXPECT_DOUBLE_EQ(sums.busy_fraction(), 0.75);
  EXPECT_DOUBLE_EQ(sums.waiting_fraction(), 0.125);
}

TEST(Sums, HitFraction_IsOfLooksInPagedPools) {
  control::v1::Snapshot before = MakeSnapshot(1, 0, 100), after = MakeSnapshot(1, 1, 100);
  EXPECT_EQ(SumOf(before).hit_fraction(), std::nullopt);
  before.set_page_looks(1'000);
  before.set_page_misses(900);
  after.set_page_looks(1'400);
  after.set_page_misses(1'000);
  EXPECT_EQ(Difference(SumOf(after), SumOf(before)).hit_fraction(), 0.75);
  Sums both = SumOf(before);
  both.Add(Difference(SumOf(after), SumOf(before)));
  EXPECT_DOUBLE_EQ(both.hit_fraction().value(), 400 / 1'400.0);
}

TEST(Difference, LaterMinusEarlier_EveryCounter) {
  const Sums difference = Difference(SumOf(MakeSnapshot(1, 0, 150)), SumOf(MakeSnapshot(1, 0, 100)));
  EXPECT_EQ(difference.committed(), 600u);
  EXPECT_EQ(difference.scopes[1].committed, 200u);
  EXPECT_EQ(difference.aborts_by_reason.at("deadlock"), 20u);
  EXPECT_EQ(difference.messages_sent, 200u);
  EXPECT_EQ(difference.log_bytes, 300u);
  EXPECT_NEAR(difference.waiting_seconds, 2 * 50.0 / 600, 1e-9);
  EXPECT_THAT(difference.latency(), testing::ElementsAre(0, 600));
}

TEST(Difference, Unchanged_IsZeroWithoutReasons) {
  const Sums sums = SumOf(MakeSnapshot(1, 0, 100));
  const Sums difference = Difference(sums, sums);
  EXPECT_EQ(difference.committed(), 0u);
  EXPECT_TRUE(difference.aborts_by_reason.empty());
  EXPECT_EQ(difference.busy_fraction(), 0);
  EXPECT_EQ(difference.waiting_fraction(), 0);
}

TEST(IslandMeter, Observe_FirstOnlySetsTheBase) {
  IslandMeter meter;
  EXPECT_EQ(meter.Observe(MakeSnapshot(1, 5'000'000, 100)).sums.committed(), 0u);
  const IslandMeter::Step step = meter.Observe(MakeSnapshot(1, 7'000'000, 200));
  EXPECT_EQ(step.sums.committed(), 1200u);
  EXPECT_DOUBLE_EQ(step.seconds, 2.0);
  EXPECT_FALSE(step.restarted);
}

TEST(IslandMeter, Observe_AcrossARestart_CountsTheNewLifeWhole) {
  IslandMeter meter;
  meter.Observe(MakeSnapshot(1, 5'000'000, 1'000));
  const IslandMeter::Step step = meter.Observe(MakeSnapshot(2, 100, 10));
  EXPECT_TRUE(step.restarted);
  EXPECT_EQ(step.sums.committed(), 120u);
  EXPECT_EQ(step.seconds, 0);
  EXPECT_EQ(meter.boot_epoch(), 2u);
}

}  // namespace
}  // namespace islands::deploy
