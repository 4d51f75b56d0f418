#include "instance/log/journal.h"

#include <gtest/gtest.h>

#include "instance/log/page_changes_testing.h"

namespace islands::log {
namespace {

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
