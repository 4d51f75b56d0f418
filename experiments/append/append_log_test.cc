// Logs made by hand: what has all that was answered passes, and each way to lack something is found.
#include "experiments/append/append_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "instance/log/entry.h"
#include "instance/log/page_changes_format.h"

namespace islands::experiments {
namespace {

using log::EntryKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kRowBytes = 120;
constexpr uint64_t kHere = MakeLife(0, 5'000'000);   // rows of island 0
constexpr uint64_t kThere = MakeLife(2, 6'000'000);  // of island 1
const coordinator::TransactionId kId{.island = 0, .worker = 0, .boot_epoch = 1, .sequence = 7};

class AppendLogTest : public testing::Test {
 protected:
  AppendLogTest() : histories_{{.island = 0, .first_site = 0}, {.island = 1, .first_site = 2}} {
    // Of island 1, so that its sites are known.
    histories_[1].attempts.push_back({.id = Element::Of({1, 0, 1, 1}), .fate = RecordedAttempt::kOpen});
  }

  // A record of an entry of this kind, which makes the first element of a row of this life.
  absl::Status Take(uint32_t island, EntryKind kind, uint64_t life, uint64_t lsn = 0) {
    std::vector<std::byte> row(kRowBytes);
    FillAppendRow(life, row);
    AppendToRow(Element::Of(kId), row);
    std::vector<std::byte> changes{std::byte{1 << log::kHeadCountShift | log::kHeadLsn},
                                   std::byte{0},
                                   std::byte{1},
                                   std::byte{0},
                                   static_cast<std::byte>(log::PageOp::kValue),
                                   std::byte{0},
                                   static_cast<std::byte>(kRowBytes)};
    changes.insert(changes.end(), row.begin(), row.end());
    return TakeChanges(island, kind, life == 0 ? std::vector<std::byte>() : changes, lsn);
  }
  absl::Status TakeChanges(uint32_t island, EntryKind kind, const std::vector<std::byte>& changes,
                           uint64_t lsn) {
    log::RecordBuffer head;
    log::EncodeEntryHead({.kind = kind, .transaction = kId}, &head);
    std::vector<std::byte> body(head.bytes().begin(), head.bytes().end());
    body.insert(body.end(), changes.begin(), changes.end());
    lsn_ = lsn == 0 ? lsn_ + 1 : lsn;
    return judge_.Take({.life = 1, .island = island, .worker = 0},
                       {.lsn = lsn_, .kind = static_cast<uint8_t>(kind), .body = body});
  }
  void Answered(RecordedAttempt::Fate fate, const std::vector<uint64_t>& lives) {
    RecordedAttempt attempt{.id = Element::Of(kId), .fate = fate, .begun_ns = 1, .ended_ns = 2};
    for (const uint64_t life : lives)
      attempt.looks.push_back({.key = attempt.looks.size(), .appends = true, .before = {.life = life}});
    histories_[0].attempts.push_back(attempt);
  }
  std::vector<std::string> Judge() const {
    uint64_t answered = 0;
    std::vector<std::string> found = judge_.Judge(histories_, &answered);
    EXPECT_EQ(answered, histories_[0].attempts.size());
    return found;
  }

  AppendLogJudge judge_{kRowBytes};
  std::vector<RecordedHistory> histories_;
  uint64_t lsn_ = 0;
};

TEST_F(AppendLogTest, OneRecord_IsItsOwnCommit) {
  ASSERT_TRUE(Take(0, EntryKind::kDone, kHere).ok());
  Answered(RecordedAttempt::kCommitted, {kHere});
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(AppendLogTest, NothingInTheLog_IsFound) {
  Answered(RecordedAttempt::kCommitted, {kHere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("0.0.1.7 was answered as committed, and the log does not")));
}

TEST_F(AppendLogTest, WhatWasNotAnswered_MayLackAnything) {
  ASSERT_TRUE(Take(0, EntryKind::kUpdate, kHere).ok());
  Answered(RecordedAttempt::kUnknown, {kHere});
  EXPECT_EQ(judge_.Judge(histories_, &lsn_), std::vector<std::string>());
}

TEST_F(AppendLogTest, ChangesWithoutCommit_AreFound) {
  ASSERT_TRUE(Take(0, EntryKind::kUpdate, kHere).ok());
  Answered(RecordedAttempt::kCommitted, {kHere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("the log does not say so")));
  ASSERT_TRUE(Take(0, EntryKind::kCommit, 0).ok());
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(AppendLogTest, RowThatIsMissing_IsFound) {
  ASSERT_TRUE(Take(0, EntryKind::kDone, kHere).ok());
  Answered(RecordedAttempt::kCommitted, {kHere, kHere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("the log of island 0 lacks a row")));
}

TEST_F(AppendLogTest, Participant_IsPreparedOrHasCommitted) {
  ASSERT_TRUE(Take(0, EntryKind::kDecision, kHere).ok());
  ASSERT_TRUE(Take(1, EntryKind::kUpdate, kThere).ok());
  Answered(RecordedAttempt::kCommitted, {kHere, kThere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("the log of island 1 does not say so")));
  ASSERT_TRUE(Take(1, EntryKind::kPrepare, 0).ok());
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(AppendLogTest, PreparedEverywhereAndDecidedNowhere_IsFound) {
  ASSERT_TRUE(Take(1, EntryKind::kPrepare, kThere).ok());
  Answered(RecordedAttempt::kCommitted, {kThere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("the log does not say so")));
}

TEST_F(AppendLogTest, AbortThatHasCommitted_IsFound) {
  ASSERT_TRUE(Take(0, EntryKind::kDecision, 0).ok());
  Answered(RecordedAttempt::kAborted, {kHere});
  EXPECT_THAT(Judge(), ElementsAre(HasSubstr("answered as aborted")));
}

TEST_F(AppendLogTest, LsnThatFalls_IsFound) {
  ASSERT_TRUE(Take(0, EntryKind::kDone, kHere, 5).ok());
  const absl::Status second = Take(0, EntryKind::kDone, kHere, 5);
  EXPECT_EQ(second.code(), absl::StatusCode::kDataLoss) << second;
}

}  // namespace
}  // namespace islands::experiments
