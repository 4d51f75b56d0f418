#include "experiments/counters/measure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "experiments/counters/spin_lock.h"

namespace islands::experiments {
namespace {

CountersPlan Unbound(uint32_t threads, uint32_t counters) {
  CountersPlan plan;
  for (uint32_t t = 0; t < threads; ++t) plan.threads.push_back({t % counters, {0}});
  plan.counter_nodes.resize(counters);
  return plan;
}

TEST(SpinLock, ManyThreads_ExcludeEachOther) {
  SpinLock lock;
  uint64_t value = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        std::lock_guard guard(lock);
        ++value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value, 80'000);
}

class MeasureTest : public testing::TestWithParam<CounterLock> {};

TEST_P(MeasureTest, SharedAndOwnCounters_AddUp) {
  for (uint32_t counters : {1u, 2u, 4u}) {
    const auto result =
        MeasureCounters(Unbound(4, counters), {.lock = GetParam(), .warmup_s = 0.01, .seconds = 0.05});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GE(result->seconds, 0.05);
    EXPECT_EQ(result->per_thread.size(), 4);
    EXPECT_EQ(result->interval_rates.size(), 10);
    EXPECT_GT(result->IncrementsPerSecond(), 0);
    EXPECT_LE(result->ThreadMinPerSecond(), result->ThreadMaxPerSecond());
    EXPECT_LE(result->ThreadMaxPerSecond(), result->IncrementsPerSecond());
  }
}

TEST_P(MeasureTest, Terminated_EndsEarly) {
  {
    // The signal goes to the process: it stays pending until the measurement, which takes it, as here all
    // threads block it.
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    kill(getpid(), SIGTERM);
    const auto result = MeasureCounters(Unbound(2, 1), {.lock = GetParam(), .warmup_s = 0, .seconds = 60});
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Locks, MeasureTest, testing::Values(CounterLock::kSpin, CounterLock::kMutex),
                         [](const auto& info) {
                           return info.param == CounterLock::kSpin ? "Spin" : "Mutex";
                         });

TEST(Measure, CpuThatDoesNotExist_IsSaidNotFatal) {
  CountersPlan plan = Unbound(1, 1);
  plan.threads[0].cpus = {60'000};
  plan.counter_nodes = {1000};
  const auto result = MeasureCounters(plan, {.warmup_s = 0, .seconds = 0.01});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->unbound.size(), 2);
}

TEST(CountersResult, StdDevPercent_OfTheSample) {
  CountersResult result;
  result.interval_rates = {90, 110};
  EXPECT_NEAR(result.StdDevPercent(), 14.14, 0.01);
  result.interval_rates = {100, 100, 100};
  EXPECT_EQ(result.StdDevPercent(), 0);
}

}  // namespace
}  // namespace islands::experiments
