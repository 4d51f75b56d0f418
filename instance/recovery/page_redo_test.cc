// Several threads that repeat one log leave the pages as the worker left them, whichever of them is ahead.
#include "instance/recovery/page_redo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "instance/log/entry.h"
#include "instance/log/page_changes_reader.h"
#include "instance/recovery/redo_testing.h"

namespace islands::recovery {
namespace {

constexpr uint32_t kSites = 5;

// More than batches have room for ahead of each other.
const RedoLog& Log() {
  static const RedoLog log({.rows = 5'000, .sites = kSites, .updates = 3'000});
  return log;
}

size_t DifferentPages(storage::Store& a, storage::Store& b) {
  size_t different = 0;
  for (size_t slot = 0; slot < a.slots(); ++slot) {
    EXPECT_EQ(a.space(slot).end_page(), b.space(slot).end_page());
    for (uint64_t page = 0; page < a.space(slot).end_page(); ++page) {
      const storage::GuardS of_a(a.space(slot).At(page)), of_b(b.space(slot).At(page));
      different += std::memcmp(of_a.bytes(), of_b.bytes(), storage::kPageBytes) != 0 ? 1 : 0;
    }
  }
  return different;
}

class PageRedoLanes : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, PageRedoLanes, testing::Values(1, 2, 3, 8));

TEST_P(PageRedoLanes, LeaveThePagesAsTheyWere) {
  const auto store = Log().EmptyStore(/*alone=*/GetParam() == 1);
  Recovery recovery(Log().catalog(), *store, {}, GetParam());
  ASSERT_TRUE(RedoLog::Repeat(recovery, Log().load()).ok());
  ASSERT_TRUE(recovery.FindTrees().ok());
  store->BeginRedo();  // it may go on
  ASSERT_TRUE(RedoLog::Repeat(recovery, Log().updates()).ok());
  const absl::Status found = recovery.FindTrees();
  ASSERT_TRUE(found.ok()) << found;
  EXPECT_EQ(DifferentPages(Log().store(), *store), 0u);
  const absl::Status sound = store->Check();
  EXPECT_TRUE(sound.ok()) << sound;
}

// The record that changes a page for which another had to make room: it is named, however late it is found.
TEST_P(PageRedoLanes, RecordThatDoesNotFit_IsNamed) {
  const RedoLog::Records& load = Log().load();
  RedoLog::Records records = load;
  records.erase(records.begin() + static_cast<ptrdiff_t>(load.size() / 2));
  const auto store = Log().EmptyStore(/*alone=*/GetParam() == 1);
  Recovery recovery(Log().catalog(), *store, {}, GetParam());
  absl::Status redone = RedoLog::Repeat(recovery, records);
  if (redone.ok()) redone = recovery.FindTrees();
  ASSERT_TRUE(absl::IsDataLoss(redone)) << redone;
  const std::string next = log::ToString(log::Lsn::FromValue(load[load.size() / 2 + 1].first.lsn));
  EXPECT_NE(std::string(redone.message()).find("record " + next + " "), std::string::npos) << redone;
  EXPECT_EQ(recovery.FindTrees(), redone);
}

}  // namespace
}  // namespace islands::recovery
