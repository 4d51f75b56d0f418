#include "runtime/pulse_board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace islands::runtime {
namespace {

constexpr uint32_t kWorkers[] = {1, 3};

TEST(PulseBoard, Beat_IsSeenByWhoeverReads) {
  PulseBoard board(kWorkers);
  board.Beat(1, 2);
  board.Beat(1, 2);
  board.Beat(0, 0);
  EXPECT_EQ(board.Read(1, 2), 2u);
  EXPECT_EQ(board.Read(0, 0), 1u);
  EXPECT_EQ(board.Read(1, 1), 0u);
}

TEST(PulseBoard, Resting_IsSaidByWhomItConcerns) {
  PulseBoard board(kWorkers);
  EXPECT_FALSE(board.Resting(1, 0));
  board.SetResting(1, 0, true);
  EXPECT_TRUE(board.Resting(1, 0));
  EXPECT_FALSE(board.Resting(1, 1));
  board.SetResting(1, 0, false);
  EXPECT_FALSE(board.Resting(1, 0));
}

TEST(PulseBoard, Life_IsTheLastThatBegan) {
  PulseBoard board(kWorkers);
  board.SetLife(1, 7);
  board.SetLife(1, 8);
  EXPECT_EQ(board.Life(1), 8u);
  EXPECT_EQ(board.Life(0), 0u);
  EXPECT_EQ(board.Read(1, 0), 0u);
}

TEST(PulseBoard, Map_OfAnotherProcess) {
  const absl::StatusOr<int> descriptor = PulseBoard::MakeShared(kWorkers);
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  const auto board = PulseBoard::Map(*descriptor, kWorkers);
  ASSERT_TRUE(board.ok()) << board.status();
  const pid_t child = fork();
  if (child == 0) {
    const auto own = PulseBoard::Map(*descriptor, kWorkers);
    if (own.ok()) (*own)->Beat(1, 1);
    _exit(own.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*board)->Read(1, 1), 1u);
  EXPECT_NE(ftruncate(*descriptor, 0), 0) << "nobody can take it away from those who look at it";
  close(*descriptor);
}

TEST(PulseBoard, Map_OfAnotherSizeIsRefused) {
  const absl::StatusOr<int> descriptor = PulseBoard::MakeShared(kWorkers);
  ASSERT_TRUE(descriptor.ok());
  constexpr uint32_t kOthers[] = {1, 2};
  EXPECT_EQ(PulseBoard::Map(*descriptor, kOthers).status().code(), absl::StatusCode::kInvalidArgument);
  close(*descriptor);
}

}  // namespace
}  // namespace islands::runtime
