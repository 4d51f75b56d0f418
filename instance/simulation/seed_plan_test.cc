// Plans, and what of the seed runner can be tested without hundreds of seeds.
#include "instance/simulation/seed_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "instance/simulation/seed_runner.h"

namespace islands::simulation {
namespace {

TEST(SeedPlan, ConsecutiveSeeds_AimAtEveryPair) {
  const size_t pairs = LastingStates().size() * kFaults;
  std::set<std::pair<StateIndex, Fault>> aimed;
  for (uint64_t seed = 1000; seed < 1000 + pairs; ++seed) {
    for (const PlannedFault& fault : MakePlan(seed).faults) {
      if (fault.state) aimed.insert({*fault.state, fault.aim});
    }
  }
  EXPECT_EQ(aimed.size(), pairs);
}

TEST(SeedPlan, EverySeed_CanCount) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const SeedPlan plan = MakePlan(seed);
    EXPECT_GE(plan.cluster.islands, 3u);
    EXPECT_GE(plan.cluster.sites, plan.cluster.islands);
    EXPECT_GE(plan.faults.size(), 1u);
    EXPECT_EQ(plan.Describe(), MakePlan(seed).Describe());
  }
}

TEST(NetworkPlan, Delay_PairsDifferAndTailsComeThrough) {
  const NetworkPlan network{
      .seed = 7, .base_ns = 1000, .jitter_ns = 10, .tail_percent = 50, .tail_ns = 1'000'000};
  runtime::Random random(1);
  std::set<int64_t> shortest;
  int64_t longest = 0;
  for (uint32_t from = 0; from < 10; ++from) {
    int64_t least = INT64_MAX;
    for (int n = 0; n < 100; ++n) {
      const int64_t delay = network.Delay(random, {from, 0}, {11, 0});
      least = std::min(least, delay);
      longest = std::max(longest, delay);
    }
    shortest.insert(least);
  }
  EXPECT_GE(shortest.size(), 8u);
  EXPECT_GT(longest, 500'000);
}

TEST(Coverage, Unreached_NamesEveryPairButImpossibleOnes) {
  Coverage coverage;
  const size_t pairs = LastingStates().size() * kFaults;
  EXPECT_EQ(coverage.Unreached().size(), pairs);
  coverage.Add(LastingStates()[1], Fault::kCut);
  Coverage sum;
  sum.Merge(coverage);
  sum.Merge(coverage);
  EXPECT_EQ(sum.count(LastingStates()[1], Fault::kCut), 2u);
  EXPECT_EQ(sum.Unreached().size(), pairs - 1);
  EXPECT_NE(sum.Table().find("cannot occur without a log"), std::string::npos);
}

TEST(RunSeed, Report_CountsAndRepeats) {
  const SeedReport first = RunSeed(3), second = RunSeed(3), other = RunSeed(4);
  EXPECT_TRUE(first.ok()) << first.Text();
  EXPECT_GE(first.ended, 200u);
  EXPECT_GE(first.faults, 1u);
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_EQ(first.Text(), second.Text());
  EXPECT_NE(first.trace, other.trace);
}

}  // namespace
}  // namespace islands::simulation
