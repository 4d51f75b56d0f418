// What the worker of a box does (box_testing.h): random transactions, and what of them must be there when the
// island comes back.
//
// With two-phase commit some are another island's: they prepare, and end when they are told at last, or
// decide alone. The others are decided on, and other islands may not have heard when this one dies.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/log/journal.h"
#include "instance/recovery/commands_testing.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/recovery/unsettled.h"
#include "runtime/random.h"

namespace islands::recovery {

inline constexpr uint64_t kKeys = 600;

// What must be there, as records have said it.
struct Expected {
  Rows rows;  // as the transactions that have committed leave them
  std::map<coordinator::TransactionId, Changes> in_doubt;        // that are in the pages too
  std::map<coordinator::TransactionId, log::EntryKind> unheard;  // kDecision or kDecided, without their kEnd
};

// The ends of transactions, and what two-phase commit has said of them.
class Story {
 public:
  // Is in the log, and not shown yet. `epoch`: of its record, where that is known.
  void Note(log::EntryKind kind, const coordinator::TransactionId& id, Changes changes, uint64_t epoch = 0) {
    untold_.push_back({kind, id, epoch, std::move(changes)});
  }
  // From here on a kill takes nothing of it. `epochs`: of the records.
  using Epochs = std::map<std::pair<log::EntryKind, coordinator::TransactionId>, uint64_t>;
  void Show(const Epochs& epochs) {
    auto event = untold_.begin();
    for (; event != untold_.end(); ++event) {
      const auto shown = epochs.find({event->kind, event->id});
      if (event->epoch == 0 && shown == epochs.end()) break;
      if (event->epoch == 0) event->epoch = shown->second;
      told_.push_back(std::move(*event));
    }
    untold_.erase(untold_.begin(), event);
  }
  bool AllIsTold() const { return untold_.empty(); }
  void Kill() { untold_.clear(); }
  // As if it had never been.
  void Cut(uint64_t durable) {
    std::erase_if(told_, [&](const Event& event) { return event.epoch > durable; });
  }
  Expected Tell() const {
    Expected expected;
    for (const Event& event : told_) Tell(event, &expected);
    return expected;
  }

 private:
  struct Event {
    log::EntryKind kind;
    coordinator::TransactionId id;
    uint64_t epoch;
    Changes changes;
  };
  static void Tell(const Event& event, Expected* expected) {
    switch (event.kind) {
      case log::EntryKind::kPrepare:
        expected->in_doubt[event.id] = event.changes;
        return;
      case log::EntryKind::kAborted:
        expected->in_doubt.erase(event.id);
        return;
      case log::EntryKind::kEnd:
        expected->unheard.erase(event.id);
        return;
      case log::EntryKind::kDecision:
      case log::EntryKind::kDecided:
        expected->unheard[event.id] = event.kind;
        break;
      default:
        expected->in_doubt.erase(event.id);
    }
    Apply(event.changes, &expected->rows);
  }

  std::vector<Event> untold_;
  std::vector<Event> told_;
};

class Work {
  using Batch = instance::Batch;
  using Branch = instance::Branch;
  using Executor = instance::Executor;
  using Key = partitioner::Uint64Key;
  using Id = coordinator::TransactionId;

 public:
  Work(runtime::Random& random, bool two_phases) : random_(random), two_phases_(two_phases) { EndLife(); }

  // From now on what can be repeated is logged so.
  void LogCommands(bool commands) { commands_on_ = commands; }
  // A life has recovered. Whoever is in doubt goes on being that.
  void BeginLife(Executor& executor, log::Journal& journal, const log::Ring& ring,
                 const Unsettled& unsettled) {
    executor_ = &executor;
    journal_ = &journal;
    ring_ = &ring;
    life_ = ring.stream().life;
    seen_ = ring.tail();
    const Expected expected = story_.Tell();
    std::map<Id, log::EntryKind> unheard;
    for (const auto& [id, decision] : unsettled.decisions) {
      EXPECT_EQ(decision.participants, kFellows);
      journal.NoteEarlier(unheard[id] = log::EntryKind::kDecision, id, decision.since);
    }
    for (const auto& [id, decided] : unsettled.decided)
      journal.NoteEarlier(unheard[id] = log::EntryKind::kDecided, id, decided.since);
    EXPECT_EQ(unheard, expected.unheard) << "decisions of earlier lives";
    unheard_.assign(unheard.begin(), unheard.end());
    restored_unheard_ += unheard.size();
    EXPECT_EQ(unsettled.prepared.size(), expected.in_doubt.size()) << "transactions in doubt";
    for (const auto& [id, prepared] : unsettled.prepared) Adopt(id, prepared, expected);
    CheckLocks();
    EndStep();
  }
  void EndLife() {
    transactions_ = std::vector<Transaction>(two_phases_ ? 5 : 3);
    unheard_.clear();
    if (ring_ != nullptr) Hear();  // who was short of room has shown a part
    ring_ = nullptr;
    story_.Kill();
  }
  void LosePower(uint64_t durable) { story_.Cut(durable); }

  // The next thing that the worker does.
  void Step() {
    Transaction& transaction = transactions_[random_.Below(transactions_.size())];
    if (!transaction.branch) Begin(transaction);
    transaction.prepared ? MayHear(transaction) : GoOn(transaction);
    executor_->EndQuiet();  // control goes back
    if (!unheard_.empty() && random_.Below(6) == 0) NoteEnd();
    if (two_phases_ && random_.Below(6) == 0) Repeat();
    if (random_.Below(3) == 0) EndStep();
    if (random_.Below(4) == 0 && executor_->ghosts() != 0) {
      executor_->RemoveGhosts(&wakeups_);
      EndStep();
    }
    executor_->CheckInvariants();
  }
  void EndStep() {
    journal_->EndStep();
    Hear();
    EXPECT_TRUE(story_.AllIsTold());
  }
  // A life has recovered: what must be there is, and nothing else.
  void Compare(const storage::Store& store) {
    const Expected expected = story_.Tell();
    rows_ = expected.rows;
    Rows wanted = rows_;
    for (const auto& [id, changes] : expected.in_doubt) Apply(changes, &wanted);
    const Rows found = RowsOf(store);
    EXPECT_EQ(found.size(), wanted.size());
    EXPECT_TRUE(found == wanted);
  }

  uint64_t commits() const { return commits_; }
  uint64_t adopted() const { return adopted_; }
  uint64_t unheard() const { return restored_unheard_; }
  uint64_t repeats() const { return repeats_; }

 private:
  struct Transaction {
    std::unique_ptr<Branch> branch;
    bool foreign = false;
    bool prepared = false;
    Changes changes;
    GivenRequest given;  // all that it was told to do
  };

  void Begin(Transaction& transaction) {
    transaction = Transaction();
    transaction.branch = std::make_unique<Branch>();
    transaction.foreign = two_phases_ && random_.Below(2) == 0;
    transaction.branch->foreign = transaction.foreign;
    transaction.branch->locks.transaction = {transaction.foreign ? 1u : 0u, 0, life_, ++sequence_};
    transaction.branch->locks.wake_token = sequence_;
  }
  void GoOn(Transaction& transaction) {
    switch (random_.Below(12)) {
      case 0:
      case 1:
        return End(transaction, /*commit=*/true);
      case 2:
        if (random_.Below(2) == 0) End(transaction, /*commit=*/false);
        return;
      default:
        Change(transaction);
        if (transaction.branch && random_.Below(3) == 0) End(transaction, random_.Below(8) != 0);
    }
  }
  void Change(Transaction& transaction) {
    using Kind = instance::OperationKind;
    Batch batch;
    std::vector<std::pair<uint64_t, std::optional<std::string>>> wanted;
    std::vector<GivenOperation>& given = transaction.given.batches.emplace_back();
    const auto add = [&](GivenOperation operation) {
      operation.AddTo(&batch);
      given.push_back(std::move(operation));
    };
    for (uint64_t left = 1 + random_.Below(random_.Below(30) == 0 ? 200 : 6); left > 0; --left) {
      const uint64_t key = random_.Below(kKeys);
      std::string row(4 + random_.Below(random_.Below(4) == 0 ? 900 : 60),
                      static_cast<char>('a' + random_.Below(26)));
      switch (random_.Below(4)) {
        case 0:
          add({Kind::kInsert, key, row});
          break;
        case 1:
          add({Kind::kReplace, key, row});
          break;
        case 2:
          add({Kind::kDelete, key, ""});
          wanted.emplace_back(key, std::nullopt);
          continue;
        default:
          add({Kind::kWrite, key, row.substr(0, 4)});
          wanted.emplace_back(key, row.substr(0, 4) + "+");  // "+": the rest stays
          continue;
      }
      wanted.emplace_back(key, row);
    }
    // Where it would wait, or has failed.
    if (Run(*transaction.branch, batch) != instance::Progress::kDone)
      return End(transaction, /*commit=*/false);
    for (uint32_t i = 0; i < batch.size(); ++i) {
      if (batch.code(i) != absl::StatusCode::kOk) continue;
      auto [key, row] = wanted[i];
      if (row && row->ends_with('+')) {
        row->pop_back();
        const std::optional<std::string> before = RowOf(transaction, key);
        ASSERT_TRUE(before.has_value());
        row = *row + before->substr(row->size());
      }
      transaction.changes[key] = row;
    }
  }
  instance::Progress Run(Branch& branch, Batch& batch) {
    batch.ResetResults();
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    instance::Failure failure;
    return executor_->Run(branch, batch, routes, &cursor, &failure);
  }
  std::optional<std::string> RowOf(const Transaction& transaction, uint64_t key) {
    const auto own = transaction.changes.find(key);
    if (own != transaction.changes.end()) return own->second;
    const auto committed = rows_.find(key);
    return committed == rows_.end() ? std::nullopt : std::optional(committed->second);
  }

  void End(Transaction& transaction, bool commit) {
    if (!transaction.branch) return;
    const Id id = transaction.branch->locks.transaction;
    if (!commit) {
      executor_->Rollback(*transaction.branch, &wakeups_);
      if (transaction.prepared) story_.Note(log::EntryKind::kAborted, id, {});
    } else if (two_phases_ && transaction.branch->wrote() && !transaction.prepared) {
      if (!Decide(transaction)) return;
    } else {
      Commit(transaction, transaction.prepared ? log::EntryKind::kCommit : log::EntryKind::kDone);
    }
    wakeups_.clear();
    transaction.branch.reset();
  }
  // False: it has prepared.
  bool Decide(Transaction& transaction) {
    Branch& branch = *transaction.branch;
    if (transaction.foreign && random_.Below(4) != 0) {
      executor_->Prepare(branch, kFellows);
      story_.Note(log::EntryKind::kPrepare, branch.locks.transaction, transaction.changes);
      return !(transaction.prepared = true);
    }
    if (transaction.foreign) {
      executor_->DecideAlone(branch);
    } else {
      executor_->Decide(branch, kFellows);
    }
    const auto kind = transaction.foreign ? log::EntryKind::kDecided : log::EntryKind::kDecision;
    unheard_.emplace_back(branch.locks.transaction, kind);
    Commit(transaction, kind);
    return true;
  }
  void Commit(Transaction& transaction, log::EntryKind kind) {
    std::vector<std::byte> input;
    if (commands_on_ && kind == log::EntryKind::kDone) {
      const bool called = random_.Below(3) == 0;
      input = called ? InputOfCall(transaction.given) : InputOf(transaction.given);
      transaction.branch->command = {
          .called = called, .workload = kGiven[random_.Below(8) == 0 ? 1 : 0], .input = input};
    }
    executor_->Commit(*transaction.branch, &wakeups_);
    if (transaction.changes.empty() && kind == log::EntryKind::kDone) return Hear();  // who knows what it did
    ++commits_;
    Apply(transaction.changes, &rows_);
    story_.Note(kind, transaction.branch->locks.transaction, std::move(transaction.changes),
                journal_->commit_epoch());
    Hear();  // what commits is shown at once, and all before it
  }
  // What has been shown meanwhile.
  void Hear() {
    Story::Epochs epochs;
    const absl::Status whole = VisitRecords(*ring_, seen_, ring_->tail(), [&](const log::Record& record) {
      const absl::StatusOr<log::Entry> entry = log::DecodeEntry(record);
      if (entry.ok())  // the first time: what is repeated is known
        epochs.try_emplace({entry->kind, entry->transaction}, log::Lsn::FromValue(record.lsn).epoch());
      return entry.status();
    });
    EXPECT_TRUE(whole.ok()) << whole;
    seen_ = ring_->tail();
    story_.Show(epochs);
  }
  void MayHear(Transaction& transaction) {
    if (random_.Below(8) == 0) End(transaction, random_.Below(2) == 0);
  }
  // All have heard of a decision.
  void NoteEnd() {
    std::swap(unheard_[random_.Below(unheard_.size())], unheard_.back());
    const Id id = unheard_.back().first;
    journal_->AppendEnd(id);
    story_.Note(log::EntryKind::kEnd, id, {});
    unheard_.pop_back();
  }
  // What the log has of somebody who waits for others.
  void Repeat() {
    if (!unheard_.empty() && random_.Below(2) == 0) {
      const auto& [id, kind] = unheard_[random_.Below(unheard_.size())];
      repeats_ += kind == log::EntryKind::kDecision ? executor_->RepeatDecision(id, kFellows)
                                                    : executor_->RepeatDecided(id);
      return;
    }
    const Transaction& transaction = transactions_[random_.Below(transactions_.size())];
    if (transaction.branch && transaction.prepared)
      repeats_ += executor_->RepeatPrepare(*transaction.branch, kFellows);
  }

  void Adopt(const Id& id, const Unsettled::Prepared& prepared, const Expected& expected) {
    EXPECT_EQ(prepared.fellows, kFellows);
    const auto changes = expected.in_doubt.find(id);
    Transaction transaction;
    transaction.branch = std::make_unique<Branch>();
    transaction.foreign = transaction.prepared = true;
    if (changes != expected.in_doubt.end()) transaction.changes = changes->second;
    transaction.branch->foreign = true;
    transaction.branch->undo = prepared.undo;
    transaction.branch->locks.transaction = id;
    transaction.branch->locks.wake_token = ++sequence_;
    journal_->NoteEarlier(log::EntryKind::kPrepare, id, prepared.since);
    const absl::Status adopted = executor_->AdoptPrepared(*transaction.branch);
    EXPECT_TRUE(adopted.ok()) << adopted;
    transactions_.push_back(std::move(transaction));
    ++adopted_;
  }
  // Nobody reads what is in doubt: not the row, nor that there is none, by its key, by a scan of where it is,
  // by an index.
  void CheckLocks() {
    for (const Transaction& transaction : transactions_) {
      if (!transaction.prepared || transaction.changes.empty()) continue;
      const Key key(transaction.changes.begin()->first), next(transaction.changes.begin()->first + 1);
      ExpectWaits([&](Batch& batch) { batch.Read(0, key); });
      ExpectWaits([&](Batch& batch) { batch.Scan(0, key, next); });
      ExpectWaits([&](Batch& batch) { batch.IndexScan(0, 0, key, {}, {}); });
    }
  }
  void ExpectWaits(absl::FunctionRef<void(Batch&)> read) {
    Transaction reader;
    Begin(reader);
    Batch batch;
    read(batch);
    EXPECT_EQ(Run(*reader.branch, batch), instance::Progress::kWaiting);
    End(reader, /*commit=*/false);
  }

  const std::vector<coordinator::Fellow> kFellows = {{2, 1}, {3, 4}};
  runtime::Random& random_;
  const bool two_phases_;
  Executor* executor_ = nullptr;
  log::Journal* journal_ = nullptr;
  const log::Ring* ring_ = nullptr;
  uint64_t seen_ = 0;  // of the ring
  uint64_t life_ = 0;
  uint64_t sequence_ = 0;
  std::vector<locks::Wakeup> wakeups_;
  std::vector<Transaction> transactions_;
  std::vector<std::pair<Id, log::EntryKind>> unheard_;
  Story story_;
  Rows rows_;  // as the transactions that have committed leave them
  bool commands_on_ = false;
  const std::vector<std::byte> kGiven[2] = {EncodeWorkload("given", "given.so", {}),
                                            EncodeWorkload("other", "given.so", {{"a", "1"}})};
  uint64_t commits_ = 0;
  uint64_t adopted_ = 0;
  uint64_t restored_unheard_ = 0;
  uint64_t repeats_ = 0;
};

}  // namespace islands::recovery
