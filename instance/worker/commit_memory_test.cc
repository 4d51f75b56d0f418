#include "instance/worker/commit_memory.h"

#include <gtest/gtest.h>

namespace islands::instance {
namespace {

using coordinator::TransactionId;

TEST(CommitMemory, Knows_WhatWasCommittedUntilItHasEnded) {
  CommitMemory memory;
  const TransactionId id{1, 2, 3, 100};
  EXPECT_FALSE(memory.Knows(id));
  memory.Remember(id);
  EXPECT_TRUE(memory.Knows(id));
  EXPECT_FALSE(memory.Knows({1, 2, 3, 101}));
  EXPECT_FALSE(memory.Knows({1, 2, 4, 100})) << "another life of the coordinator";
  EXPECT_FALSE(memory.Knows({1, 0, 3, 100})) << "another worker";
  memory.EndedBelow({1, 2, 3, 7}, 100, {});
  EXPECT_TRUE(memory.Knows(id)) << "those below have ended";
}

// However long a coordinator lives: what is kept is what it has under way.
TEST(CommitMemory, Size_IsThatOfTheWindow) {
  constexpr uint64_t kWindow = 500, kAll = 200'000;
  CommitMemory memory;
  for (uint64_t sequence = 1; sequence <= kAll; ++sequence) {
    memory.Remember({0, 0, 1, sequence});
    memory.Remember({1, 0, 1, sequence});
    const uint64_t ended = sequence > kWindow ? sequence - kWindow : 0;
    memory.EndedBelow({0, 0, 1, 0}, ended, {});
    memory.EndedBelow({1, 0, 1, 0}, ended, {});
    if (sequence % 1000 != 0) continue;
    for (uint64_t recent = ended; recent <= sequence; recent += 50) {
      ASSERT_TRUE(recent == 0 || memory.Knows({1, 0, 1, recent})) << recent;
    }
  }
  EXPECT_LE(memory.size(), 2 * 2 * (kWindow + 1));
}

// One that does not end, because a participant stands still, is kept; all others are not kept for its sake.
TEST(CommitMemory, Size_OneThatStaysOpenKeepsItselfOnly) {
  CommitMemory memory;
  for (uint64_t sequence = 1; sequence <= 100'000; ++sequence) {
    memory.Remember({0, 0, 1, sequence});
    memory.EndedBelow({0, 0, 1, 0}, sequence, std::vector<uint64_t>{7, 11});
  }
  EXPECT_TRUE(memory.Knows({0, 0, 1, 7}));
  EXPECT_TRUE(memory.Knows({0, 0, 1, 11}));
  EXPECT_LE(memory.size(), 100u);
}

TEST(WhatEnded, NamesTheOldestAndNothingBelowTheRest) {
  std::vector<uint64_t> overdue;
  for (uint64_t sequence = 300; sequence > 100; --sequence) overdue.push_back(sequence);
  const Ended few = WhatEnded(250, {overdue.end() - 10, overdue.end()});
  EXPECT_EQ(few.below, 250u);
  EXPECT_EQ(few.open.size(), 10u);
  const Ended many = WhatEnded(250, overdue);
  EXPECT_EQ(many.open.size(), Ended::kMostNamed);
  EXPECT_EQ(many.open.front(), 101u);
  EXPECT_EQ(many.below, 101 + Ended::kMostNamed) << "one that is open would be taken for ended";
  EXPECT_EQ(WhatEnded(50, overdue).below, 50u);
}

}  // namespace
}  // namespace islands::instance
