#include "instance/log/open_transactions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "instance/log/journal.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

using Id = coordinator::TransactionId;

class OpenTransactionsTest : public testing::Test {
 protected:
  OpenTransactionsTest() { journal_.Listen(); }
  ~OpenTransactionsTest() override {
    journal_.EndStep();
    journal_.EndListening();
  }
  // Of the next record.
  void BeginEpoch(uint64_t epoch) {
    journal_.EndStep();
    board_.RaiseEpoch(epoch);
  }
  uint64_t Oldest() const { return journal_.open().oldest(); }

  static constexpr Id kOurs{0, 0, 1, 1}, kTheirs{1, 0, 1, 1};
  static constexpr uint64_t kNone = OpenTransactions::kNone;
  const std::vector<std::byte> undo_ = std::vector<std::byte>(3);
  Board board_{std::vector<uint32_t>{1}};
  const std::unique_ptr<Ring> ring_ = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  Journal journal_{board_, *ring_, {}};
};

TEST_F(OpenTransactionsTest, Open_FromItsFirstRecordToItsEnd) {
  for (const bool commits : {true, false}) {
    BeginEpoch(board_.epoch() + 2);
    EXPECT_EQ(Oldest(), kNone);
    const uint64_t first = board_.epoch();
    journal_.AppendUpdate(kOurs, undo_);
    EXPECT_EQ(Oldest(), first);
    BeginEpoch(first + 2);
    journal_.AppendUpdate(kOurs, undo_);
    if (!commits) journal_.AppendCompensation(kOurs, 1);
    EXPECT_EQ(Oldest(), first);
    commits ? journal_.AppendCommit(kOurs) : journal_.AppendAborted(kOurs);
    EXPECT_EQ(Oldest(), kNone);
  }
}

TEST_F(OpenTransactionsTest, InDoubt_UntilItIsTold) {
  for (const bool commits : {true, false}) {
    BeginEpoch(board_.epoch() + 3);
    const uint64_t first = board_.epoch();
    if (commits) journal_.AppendUpdate(kTheirs, undo_);
    if (commits) BeginEpoch(first + 1);
    journal_.AppendPrepare(kTheirs, {}, undo_);
    EXPECT_EQ(Oldest(), first);
    BeginEpoch(first + 9);
    EXPECT_EQ(Oldest(), first);
    commits ? journal_.AppendCommit(kTheirs) : journal_.AppendAborted(kTheirs);
    EXPECT_EQ(Oldest(), kNone);
  }
}

TEST_F(OpenTransactionsTest, Decided_UntilAllHaveHeard) {
  BeginEpoch(5);
  journal_.AppendUpdate(kOurs, undo_);
  BeginEpoch(6);
  journal_.AppendDecided(kTheirs);
  journal_.AppendDecision(kOurs, {{{1, 1}}});
  EXPECT_EQ(Oldest(), 5u);
  BeginEpoch(9);
  journal_.AppendEnd(kOurs);
  EXPECT_EQ(Oldest(), 6u);
  journal_.AppendEnd(kTheirs);
  EXPECT_EQ(Oldest(), kNone);
  journal_.AppendDecision(kOurs, {{{1, 1}}});  // its own branch has changed nothing
  EXPECT_EQ(Oldest(), 9u);
}

TEST_F(OpenTransactionsTest, Earlier_FromTheFirstRecordThatTheEarlierLifeHasWritten) {
  BeginEpoch(20);
  journal_.AppendUpdate({0, 0, 2, 1}, undo_);
  journal_.NoteEarlier(EntryKind::kDecision, kOurs, 9);
  journal_.NoteEarlier(EntryKind::kPrepare, kTheirs, 7);
  journal_.NoteEarlier(EntryKind::kDecided, {1, 0, 1, 2}, 8);
  EXPECT_EQ(Oldest(), 7u);
  journal_.AppendCompensation(kTheirs, 1);
  EXPECT_EQ(Oldest(), 7u);
  journal_.AppendAborted(kTheirs);
  EXPECT_EQ(Oldest(), 8u);
  journal_.AppendEnd({1, 0, 1, 2});
  journal_.AppendEnd(kOurs);
  EXPECT_EQ(Oldest(), 20u);
}

TEST_F(OpenTransactionsTest, Repeated_FromThatRecordOn) {
  BeginEpoch(5);
  journal_.AppendUpdate(kTheirs, undo_);
  journal_.AppendPrepare(kTheirs, {}, undo_);
  journal_.NoteEarlier(EntryKind::kDecision, kOurs, 4);
  BeginEpoch(9);
  EXPECT_FALSE(journal_.RepeatPrepare(kTheirs, {}, undo_, 0));  // that would let go of nothing
  EXPECT_TRUE(journal_.RepeatDecision(kOurs, {{{1, 1}}}, 0));
  EXPECT_EQ(Oldest(), 5u);
  EXPECT_TRUE(journal_.RepeatPrepare(kTheirs, {}, undo_, 0));
  EXPECT_EQ(Oldest(), 9u);
  journal_.AppendCommit(kTheirs);
  journal_.AppendEnd(kOurs);
  EXPECT_EQ(Oldest(), kNone);
}

TEST_F(OpenTransactionsTest, Repeated_OnlyWhereThereIsRoom) {
  BeginEpoch(5);
  journal_.AppendPrepare(kTheirs, {}, undo_);
  BeginEpoch(9);
  const uint64_t appended = journal_.appended_bytes();
  EXPECT_FALSE(journal_.RepeatPrepare(kTheirs, {}, undo_, /*reserved=*/journal_.capacity()));
  EXPECT_FALSE(journal_.RepeatPrepare(kTheirs, {}, std::vector<std::byte>(Journal::kMostCollected + 1), 0));
  board_.SetFull(true);
  EXPECT_FALSE(journal_.RepeatPrepare(kTheirs, {}, undo_, 0));
  EXPECT_EQ(journal_.appended_bytes(), appended);
  EXPECT_EQ(Oldest(), 5u);
}

// What it committed was there to be seen since its first record: no answer depends on this one.
TEST_F(OpenTransactionsTest, Repeated_NobodysAnswerWaitsForIt) {
  BeginEpoch(5);
  journal_.AppendDecision(kOurs, {{{1, 1}}});
  journal_.AppendDecided(kTheirs);
  const uint64_t commits = journal_.commit_epoch();
  BeginEpoch(9);
  EXPECT_TRUE(journal_.RepeatDecision(kOurs, {{{1, 1}}}, 0));
  EXPECT_TRUE(journal_.RepeatDecided(kTheirs, 0));
  EXPECT_EQ(Oldest(), 9u);
  EXPECT_EQ(journal_.commit_epoch(), commits);
}

// While somebody older pins the log who cannot be repeated, an island at rest writes nothing: that would not
// let go of any of it.
TEST_F(OpenTransactionsTest, Repeated_OnlyIfThatLetsGoOfSome) {
  BeginEpoch(5);
  journal_.AppendPrepare(kOurs, {}, std::vector<std::byte>(Journal::kMostCollected + 1));
  BeginEpoch(6);
  const std::vector<std::byte> small(20 << 10);
  journal_.AppendPrepare(kTheirs, {}, small);
  const uint64_t appended = journal_.appended_bytes();
  for (uint64_t epoch = 7; epoch < 12; ++epoch) {
    BeginEpoch(epoch);
    journal_.RepeatPrepare(kTheirs, {}, small, 0);
  }
  EXPECT_EQ(Oldest(), 5u);
  EXPECT_EQ(journal_.appended_bytes(), appended) << "and the log that is kept only grows";
}

TEST_F(OpenTransactionsTest, WhatIsOneRecord_IsNeverOpen) {
  BeginEpoch(5);
  journal_.AppendRedoOnly();
  journal_.AppendAborted(kOurs);  // a loser's, of which there was nothing left to undo
  EXPECT_EQ(Oldest(), kNone);
  EXPECT_EQ(journal_.open().size(), 0u);
}

TEST(OpenTransactions, Property_AsAModel) {
  runtime::Random random(1);
  OpenTransactions open;
  std::map<Id, uint64_t> model;
  for (uint64_t step = 0, epoch = 1; step < 100'000; ++step) {
    epoch += random.Below(4) == 0 ? 1 : 0;
    const Id id{0, 0, 1, 1 + random.Below(40)};
    const auto kind = static_cast<EntryKind>(1 + random.Below(9));
    if (random.Below(5) == 0) {
      open.Renew(id, epoch);
      if (const auto renewed = model.find(id); renewed != model.end()) renewed->second = epoch;
    }
    open.Note(kind, id, epoch);
    const bool ends = kind == EntryKind::kCommit || kind == EntryKind::kAborted || kind == EntryKind::kEnd;
    if (ends) {
      model.erase(id);
    } else if (kind != EntryKind::kDone) {
      model.try_emplace(id, epoch);
    }
    uint64_t oldest = OpenTransactions::kNone;
    for (const auto& [each, first] : model) oldest = std::min(oldest, first);
    ASSERT_EQ(open.oldest(), oldest);
    ASSERT_EQ(open.size(), model.size());
  }
}

}  // namespace
}  // namespace islands::log
