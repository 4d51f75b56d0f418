#include "runtime/task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/random.h"
#include "runtime/ready_queue.h"
#include "runtime/scheduler.h"

namespace islands::runtime {
namespace {

struct Gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) { waiting = self; }
  void await_resume() const {}
};

Task<int> Immediate(int value) { co_return value; }

Task<int> AfterGate(Gate* gate, int value) {
  co_await *gate;
  co_return value;
}

Task<int> Sum(Gate* gate) {
  Task<int> first = Immediate(1);
  const int a = co_await first;
  Task<int> second = AfterGate(gate, 2);
  const int b = co_await second;
  co_return a + b;
}

TEST(Task, Await_RunsStraightThroughWithoutSuspension) {
  Task<int> task = Immediate(7);
  task.Start();
  EXPECT_TRUE(task.done());
  EXPECT_EQ(task.Take(), 7);
}

TEST(ReadyQueue, Pop_KeepsTheOrderWhileItGrowsAndGoesRound) {
  // Handles are only passed on: any distinct addresses will do.
  std::vector<char> frames(1000);
  const auto handle = [&](size_t i) { return std::coroutine_handle<>::from_address(&frames[i]); };
  ReadyQueue queue;
  size_t pushed = 0, popped = 0;
  for (const size_t length : {1u, 64u, 63u, 65u, 300u, 2u}) {
    while (queue.size() < length) queue.Push(handle(pushed++ % frames.size()));
    while (queue.size() > length / 3) EXPECT_EQ(queue.Pop(), handle(popped++ % frames.size()));
  }
  while (!queue.empty()) EXPECT_EQ(queue.Pop(), handle(popped++ % frames.size()));
  EXPECT_EQ(pushed, popped);
}

TEST(Task, Await_AwaiterGoesOnWhereTheAwaitedEnds) {
  Gate gate;
  Task<int> task = Sum(&gate);
  task.Start();
  EXPECT_FALSE(task.done());
  gate.waiting.resume();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.Take(), 3);
}

// Each callee's frame is gone, and used again, before its caller's caller goes on.
Task<int> Nested(Gate* gate, int depth) {
  int sum = 0;
  for (int i = 0; i < 2; ++i) {
    if (depth == 0) {
      co_await *gate;
      ++sum;
    } else {
      Task<int> inner = Nested(gate, depth - 1);
      sum += co_await inner;
    }
  }
  co_return sum;
}

TEST(Task, Await_CallersGoOnOneAfterTheOther) {
  Gate gate;
  Task<int> task = Nested(&gate, 6);
  task.Start();
  int waits = 0;
  for (; !task.done(); ++waits) gate.waiting.resume();
  EXPECT_EQ(waits, 128);
  EXPECT_EQ(task.Take(), 128);
}

Task<int> Deep(int depth) {
  if (depth == 0) co_return 0;
  Task<int> inner = Deep(depth - 1);
  co_return 1 + co_await inner;
}

TEST(Task, FramePool_ReusesFrames) {
  void* first = FramePool::Allocate(200);
  FramePool::Free(first, 200);
  EXPECT_EQ(FramePool::Allocate(200), first);
  FramePool::Free(first, 200);
  for (int round = 0; round < 3; ++round) {
    Task<int> task = Deep(50);
    task.Start();
    EXPECT_EQ(task.Take(), 50);
  }
}

struct Flag {
  bool* destroyed;
  ~Flag() { *destroyed = true; }
};

Task<void> Holding(Gate* gate, bool* destroyed) {
  const Flag flag{destroyed};
  co_await *gate;
}

TEST(Task, Destructor_DestroysASuspendedFrame) {
  Gate gate;
  bool destroyed = false;
  {
    Task<void> task = Holding(&gate, &destroyed);
    task.Start();
    Task<void> moved = std::move(task);
    EXPECT_FALSE(task.valid());
    EXPECT_FALSE(destroyed);
  }
  EXPECT_TRUE(destroyed);
}

TEST(Random, Below_StaysBelowAndReachesAll) {
  Random random(3);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen[random.Below(7)];
  for (int count : seen) EXPECT_NEAR(count, 1000, 200);
  for (int i = 0; i < 1000; ++i) {
    const double unit = random.Unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
  }
}

TEST(Random, Stream_DiffersBetweenStreamsAndRepeats) {
  Random a = Random::Stream(1, 0), b = Random::Stream(1, 1), again = Random::Stream(1, 0);
  const uint64_t first = a();
  EXPECT_NE(first, b());
  EXPECT_EQ(first, again());
}

// Does nothing until somebody adds work; counts how often it slept.
class CountingWorker final : public Runnable {
 public:
  bool RunOnce() override {
    const int64_t taken = work_.exchange(0);
    done_ += taken;
    return taken != 0;
  }
  void Sleep(int64_t) override {
    ++slept_;
    std::this_thread::yield();
  }
  void Wake() override {}
  int64_t NextDeadlineNs() const override { return INT64_MAX; }

  std::atomic<int64_t> work_{0}, done_{0}, slept_{0};
};

TEST(ThreadScheduler, Start_RunsAndSleeps) {
  const MonotonicClock clock;
  const std::unique_ptr<Scheduler> scheduler = MakeThreadScheduler(clock, {.spin_ns = 10 * kNsPerUs});
  CountingWorker worker;
  scheduler->Start({&worker});
  for (int i = 0; i < 100; ++i) {
    worker.work_ = 1;
    while (worker.done_ <= i) std::this_thread::yield();
  }
  while (worker.slept_ == 0) std::this_thread::yield();
  scheduler->Stop();
  EXPECT_EQ(worker.done_, 100);
}

TEST(ThreadScheduler, Restart_RunsAgain) {
  const MonotonicClock clock;
  const std::unique_ptr<Scheduler> scheduler = MakeThreadScheduler(clock, {});
  CountingWorker worker;
  for (int round = 1; round <= 3; ++round) {
    scheduler->Start({&worker});
    worker.work_ = 1;
    while (worker.done_ < round) std::this_thread::yield();
    scheduler->Stop();
  }
  EXPECT_EQ(worker.done_, 3);
}

}  // namespace
}  // namespace islands::runtime
