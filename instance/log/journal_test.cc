#include "instance/log/journal.h"

#include <gtest/gtest.h>

#include <utility>

#include "instance/log/page_changes_testing.h"

namespace islands::log {
namespace {

// A worker that is alone shows its records when its step ends. An answer may be given before.
TEST(Journal, WhatCommitsIsShownAtOnce) {
  LoneTree tree(16);
  Board board(std::vector<uint32_t>{1});
  const auto ring = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  Journal journal(board, *ring, Lsn());
  journal.Listen();
  const auto insert = [&](const char* key) {
    ASSERT_EQ(tree.tree->Insert(AsBytes(key), AsBytes("row")), absl::StatusCode::kOk);
  };
  insert("a");
  journal.AppendUpdate({0, 0, 1, 1}, AsBytes("undo"));
  EXPECT_EQ(ring->tail(), 0u);
  journal.AppendCommit({0, 0, 1, 1});
  uint64_t shown = ring->tail();
  EXPECT_GT(shown, 0u);
  insert("b");
  journal.AppendDone();
  EXPECT_GT(ring->tail(), std::exchange(shown, ring->tail()));
  journal.AppendDecision({0, 0, 1, 2}, {});
  EXPECT_GT(ring->tail(), std::exchange(shown, ring->tail()));
  journal.AppendDecided({1, 0, 1, 3});
  EXPECT_GT(ring->tail(), shown);
  journal.EndStep();
  journal.EndListening();
}

// A counter that is full carries into the epoch: not within a record, or a cut between the two epochs dropped
// a record of which pages on disk have a part (entry.h).
TEST(Journal, FullCounter_ARecordHasOneEpoch) {
  LoneTree tree(16);
  Board board(std::vector<uint32_t>{1});
  board.RaiseEpoch(7);
  const auto ring = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  Journal journal(board, *ring, Lsn::Of(7, 0xfffffe));
  journal.Listen();
  for (const char* key : {"a", "b", "c", "d"})
    ASSERT_EQ(tree.tree->Insert(AsBytes(key), AsBytes("row")), absl::StatusCode::kOk);
  journal.AppendDone();
  journal.EndStep();
  journal.EndListening();
  size_t taken = 0, groups = 0;
  const auto record = ParseRecord(ring->stream(), 0, ring->Bytes(0, ring->tail()), &taken);
  ASSERT_TRUE(record.ok()) << record.status();
  PageChangeReader reader(DecodeEntry(*record)->changes);
  PageChangeGroup group;
  for (; reader.Next(&group); ++groups) EXPECT_EQ(group.lsn().epoch(), Lsn::FromValue(record->lsn).epoch());
  EXPECT_TRUE(reader.status().ok()) << reader.status();
  EXPECT_EQ(groups, 4u);
  EXPECT_LE(Lsn::FromValue(record->lsn).epoch(), board.epoch());
}

}  // namespace
}  // namespace islands::log
