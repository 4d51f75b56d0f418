#include "instance/log/board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "runtime/descriptor.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

constexpr std::array<uint32_t, 2> kWorkers = {2, 1};

TEST(Board, Complete_IsBelowEveryHold) {
  Board board(kWorkers);
  EXPECT_EQ(board.Complete(), 0u);
  EpochHold first(board, 0, 1), second(board, 1, 0);
  board.RaiseEpoch(5);
  board.RaiseEpoch(3);  // never falls
  EXPECT_EQ(board.epoch(), 5u);
  EXPECT_EQ(board.Complete(), 4u);
  EXPECT_EQ(first.Take(), 5u);
  board.RaiseEpoch(7);
  EXPECT_EQ(first.Take(), 7u);  // held still from 5 on
  EXPECT_EQ(second.Take(), 7u);
  EXPECT_EQ(board.Complete(), 4u);
  first.Release();
  EXPECT_EQ(board.Complete(), 6u);
  second.Release();
  second.Release();
  EXPECT_EQ(board.Complete(), 6u);
  board.SetDurable(6);
  EXPECT_EQ(board.durable(), 6u);
}

TEST(Board, Shared_SeenThroughEveryMapping) {
  const absl::StatusOr<int> memory = Board::MakeShared(kWorkers);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const runtime::UniqueFd file(*memory);
  const auto one = Board::Map(file.get(), kWorkers), two = Board::Map(file.get(), kWorkers);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ((*two)->epoch(), 1u);
  EXPECT_EQ((*two)->Complete(), 0u);
  (*one)->RaiseEpoch(9);
  EpochHold hold(**one, 1, 0);
  hold.Take();
  (*one)->RaiseEpoch(11);
  EXPECT_EQ((*two)->epoch(), 11u);
  EXPECT_EQ((*two)->Complete(), 8u);
  constexpr std::array<uint32_t, 2> kOthers = {2, 2};
  EXPECT_EQ(Board::Map(file.get(), kOthers).status().code(), absl::StatusCode::kInvalidArgument);
}

// Each worker counts what it has appended in every epoch; whoever reads the counts after Complete() finds
// that those of complete epochs do not grow any more.
TEST(Board, Complete_NothingIsAppendedAfterwards) {
  constexpr uint64_t kEpochs = 200;
  constexpr size_t kThreads = 3;
  Board board(kWorkers);
  std::array<std::array<std::atomic<uint32_t>, kEpochs + 2>, kThreads> appended{};
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (size_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      EpochHold hold(board, number == 2, number % 2);
      runtime::Random random(number);
      while (!stop.load()) {
        uint64_t last = 0;
        for (uint64_t left = random.Below(4); left != 0; --left) {
          last = hold.Take();
          if (last > kEpochs) break;
          std::atomic<uint32_t>& count = appended[number][last];
          count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        }
        hold.Release();
      }
    });
  }
  std::vector<std::pair<uint64_t, uint32_t>> seen;  // complete epochs, and how much there was in them
  const auto sum = [&](uint64_t epoch) {
    uint32_t all = 0;
    for (auto& counts : appended) all += counts[epoch].load(std::memory_order_acquire);
    return all;
  };
  for (uint64_t looked_at = 0; looked_at < kEpochs;) {
    while (board.epoch() <= kEpochs && sum(board.epoch()) == 0)
      std::this_thread::yield();  // somebody is at it
    board.RaiseEpoch(board.epoch() + 1);
    const uint64_t complete = std::min(board.Complete(), kEpochs);
    for (; looked_at < complete; ++looked_at) seen.emplace_back(looked_at + 1, sum(looked_at + 1));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  uint64_t total = 0;
  for (const auto& [epoch, count] : seen) {
    EXPECT_EQ(sum(epoch), count) << "in epoch " << epoch;
    total += count;
  }
  EXPECT_GT(total, kEpochs / 2);
}

}  // namespace
}  // namespace islands::log
