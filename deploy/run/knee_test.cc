#include "deploy/run/knee.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace islands::deploy {
namespace {

// A cluster that answers `capacity` transactions per second, each after `service_us`, and where more are due
// lets them wait, as M/M/1 does. Beyond capacity a queue grows for as long as it is looked at.
struct Queueing {
  double capacity = 50'000;
  double service_us = 100;
  double closed_share = 1;  // of capacity, that clients in a closed loop reach

  RateStep At(const KneeSearch::Ask& ask) const {
    const double seconds = ask.at_length ? 10 : 1;
    RateStep step{.rate_per_s = ask.rate_per_s, .seconds = seconds};
    if (ask.rate_per_s == 0) {
      step.committed_per_s = capacity * closed_share;
      return step;
    }
    const double load = ask.rate_per_s / capacity;
    step.committed_per_s = std::min(ask.rate_per_s, capacity);
    step.utilisation = std::min(load, 1.0);
    double mean_us = service_us;
    if (load < 1) {
      mean_us = service_us / (1 - load);
    } else {
      step.waiting = static_cast<uint64_t>((ask.rate_per_s - capacity) * seconds);
      mean_us = static_cast<double>(step.waiting) / capacity * 1e6;
    }
    step.p50_us = mean_us * std::log(2);
    step.p99_us = mean_us * std::log(100);
    return step;
  }
  // Where p99 is `limit_us`.
  double Knee(double limit_us) const { return capacity * (1 - service_us * std::log(100) / limit_us); }
};

using Answer = std::function<RateStep(const KneeSearch::Ask&)>;

void Search(KneeSearch& search, const Answer& answer) {
  while (const std::optional<KneeSearch::Ask> ask = search.Next()) search.Observe(answer(*ask));
}

TEST(KneeSearch, GivenLimit_IsMetAndHardlyMissed) {
  for (const double limit_us : {600.0, 1'000.0, 5'000.0}) {
    const Queueing cluster;
    KneeSearch search(limit_us);
    Search(search, [&](const auto& ask) { return cluster.At(ask); });
    EXPECT_TRUE(search.found()) << limit_us;
    EXPECT_LE(search.holds(), cluster.Knee(limit_us));
    EXPECT_GE(search.holds(), cluster.Knee(limit_us) * (1 - 2 * KneeSearch::kPrecision));
    EXPECT_LE(search.steps().size(), 25u);
    EXPECT_EQ(search.steps().back().rate_per_s, search.holds());
    EXPECT_EQ(search.steps().back().seconds, 10) << "the last step is the one at length";
  }
}

TEST(KneeSearch, NoLimit_IsTenTimesTheQuietMedian) {
  const Queueing cluster;
  KneeSearch search(0);
  Search(search, [&](const auto& ask) { return cluster.At(ask); });
  const double quiet_p50_us = 100 / (1 - KneeSearch::kQuietShare) * std::log(2);
  const double quiet_p99_us = 100 / (1 - KneeSearch::kQuietShare) * std::log(100);
  EXPECT_DOUBLE_EQ(search.limit_us(), std::max(10 * quiet_p50_us, 2 * quiet_p99_us));
  EXPECT_NEAR(search.holds(), cluster.Knee(search.limit_us()), cluster.capacity * 0.03);
}

// Something else than load has made the quiet p99 long: a limit below it would never be met.
TEST(KneeSearch, NoLimit_IsNoShorterThanTwiceTheQuietP99) {
  const Queueing cluster;
  KneeSearch search(0);
  Search(search, [&](const auto& ask) {
    RateStep step = cluster.At(ask);
    step.p99_us = std::max(step.p99_us, 8'000.0);
    return step;
  });
  EXPECT_DOUBLE_EQ(search.limit_us(), 16'000);
  EXPECT_TRUE(search.found());
  EXPECT_NEAR(search.holds(), cluster.capacity, cluster.capacity * 0.05);
}

// Ten times the quiet median is longer than the steps in which it would have to be exceeded: that is no
// limit.
TEST(KneeSearch, NoLimit_IsNotLongerThanStepsCanSee) {
  const Queueing cluster;
  KneeSearch search(0);
  Search(search, [&](const auto& ask) {
    RateStep step = cluster.At(ask);
    step.p50_us += 60'000;
    step.p99_us += 60'000;
    return step;
  });
  EXPECT_EQ(search.limit_us(), 0);
  EXPECT_FALSE(search.found());
}

TEST(KneeSearch, OneHiccup_CostsNothing) {
  const Queueing cluster;
  KneeSearch calm(1'000), nervous(1'000);
  Search(calm, [&](const auto& ask) { return cluster.At(ask); });
  size_t step = 0;
  Search(nervous, [&](const auto& ask) {
    RateStep seen = cluster.At(ask);
    if (++step % 3 != 0 && !ask.at_length) seen.p99_us += 20'000;  // never three times on end
    return seen;
  });
  EXPECT_EQ(nervous.holds(), calm.holds());
  EXPECT_GT(nervous.steps().size(), calm.steps().size());
}

// Every number wavers by a tenth, one step in ten is lost to something else: near the knee all the same.
TEST(KneeSearch, Noise_MovesTheKneeALittle) {
  const Queueing cluster;
  int far = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> tenth(0.9, 1.1);
    std::bernoulli_distribution hiccup(0.1);
    KneeSearch search(1'000);
    Search(search, [&](const auto& ask) {
      RateStep seen = cluster.At(ask);
      seen.p50_us *= tenth(random);
      seen.p99_us *= tenth(random);
      if (ask.rate_per_s == 0) seen.committed_per_s *= tenth(random);
      if (hiccup(random) && !ask.at_length) seen.p99_us *= 100;
      return seen;
    });
    EXPECT_LT(search.steps().size(), KneeSearch::kMostSteps) << "seed " << seed;
    far += std::abs(search.holds() / cluster.Knee(1'000) - 1) > 0.15;
  }
  EXPECT_LE(far, 2) << "three hiccups on end are rare";
}

TEST(KneeSearch, ClosedLoopThatDoesLess_IsNoCeiling) {
  const Queueing cluster{.closed_share = 0.3};
  KneeSearch search(1'000);
  Search(search, [&](const auto& ask) { return cluster.At(ask); });
  EXPECT_TRUE(search.found());
  EXPECT_GE(search.holds(), cluster.Knee(1'000) * (1 - 2 * KneeSearch::kPrecision));
}

TEST(KneeSearch, ClosedLoopThatDoesMore_IsNoFloor) {
  const Queueing cluster{.closed_share = 17};
  KneeSearch search(0);
  Search(search, [&](const auto& ask) { return cluster.At(ask); });
  EXPECT_TRUE(search.found());
  EXPECT_LT(search.holds(), cluster.capacity);
  EXPECT_GT(search.holds(), cluster.capacity / 2);
}

TEST(KneeSearch, LimitThatNothingMeets_IsGivenUp) {
  const Queueing cluster;
  KneeSearch search(1);
  Search(search, [&](const auto& ask) { return cluster.At(ask); });
  EXPECT_FALSE(search.found());
  EXPECT_EQ(search.holds(), 0);
  EXPECT_EQ(search.limit_us(), 1);
}

TEST(KneeSearch, NothingCommits_IsOverAtOnce) {
  KneeSearch search(0);
  search.Observe({.seconds = 1});
  EXPECT_FALSE(search.Next());
  EXPECT_FALSE(search.found());
}

// What holds for a second may fail in ten.
TEST(KneeSearch, AtLength_FailedStepsDown) {
  const Queueing cluster;
  KneeSearch search(1'000);
  const double held_at_length = cluster.Knee(1'000) * 0.93;
  Search(search, [&](const auto& ask) {
    RateStep seen = cluster.At(ask);
    if (ask.at_length && ask.rate_per_s > held_at_length) seen.p99_us = 1'001;
    return seen;
  });
  EXPECT_TRUE(search.found());
  EXPECT_LE(search.holds(), held_at_length);
  EXPECT_GE(search.holds(), held_at_length * KneeSearch::kStepDown * (1 - KneeSearch::kPrecision));
}

TEST(KneeSearch, AtLength_NeverHolds_IsNotFound) {
  const Queueing cluster;
  KneeSearch search(1'000);
  Search(search, [&](const auto& ask) {
    RateStep seen = cluster.At(ask);
    if (ask.at_length) seen.p99_us = 1'001;
    return seen;
  });
  EXPECT_FALSE(search.found());
  EXPECT_GT(search.holds(), 0);
  EXPECT_FALSE(search.steps().back().held);
  EXPECT_EQ(search.steps().back().fault, RateFault::kLate);
}

// Latencies that look good are no excuse: they are of what was answered.
TEST(KneeSearch, WhatPilesUp_DoesNotHold) {
  const auto search_with = [](auto change, RateFault fault = RateFault::kNone) {
    const Queueing cluster;
    KneeSearch search(1'000);
    Search(search, [&](const auto& ask) {
      RateStep seen = cluster.At(ask);
      seen.p99_us = 500;
      if (ask.rate_per_s > 20'000) change(seen);
      return seen;
    });
    for (const RateStep& step : search.steps()) {
      if (step.rate_per_s <= 20'000 || step.rate_per_s >= cluster.capacity) continue;
      EXPECT_EQ(step.fault, fault);
    }
    return search.holds();
  };
  EXPECT_NEAR(search_with([](RateStep& seen) { seen.refused = 1; }, RateFault::kRefused), 20'000, 800);
  EXPECT_NEAR(search_with([](RateStep& seen) { seen.waiting = 1'000; }, RateFault::kWaiting), 20'000, 800);
  EXPECT_NEAR(
      search_with([](RateStep& seen) { seen.committed_per_s = seen.rate_per_s * 0.9; }, RateFault::kBehind),
      20'000, 800);
  EXPECT_GT(search_with([](RateStep& seen) { seen.waiting = 10; }), 40'000) << "so many are always there";
}

// A Poisson process of few has more and fewer of them.
TEST(KneeSearch, FewTransactions_MayBeFewerThanDue) {
  const Queueing cluster{.capacity = 100, .service_us = 1'000};
  KneeSearch search(100'000);
  Search(search, [&](const auto& ask) {
    RateStep seen = cluster.At(ask);
    if (ask.rate_per_s > 0) seen.committed_per_s -= 2 * std::sqrt(ask.rate_per_s / seen.seconds);
    return seen;
  });
  EXPECT_TRUE(search.found());
  EXPECT_GT(search.holds(), 80);
}

}  // namespace
}  // namespace islands::deploy
