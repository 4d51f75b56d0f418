#include "instance/recovery/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {

using runtime::Planted;
using runtime::PlantedBug;

namespace {

// Other islands, and each once.
bool AreOthers(std::span<const coordinator::Fellow> fellows, std::initializer_list<uint32_t> not_these) {
  std::set<uint32_t> seen(not_these);
  return std::all_of(fellows.begin(), fellows.end(),
                     [&](const coordinator::Fellow& fellow) { return seen.insert(fellow.island).second; });
}

// Whether a worker with that stream may write it: who coordinates a transaction is in its id.
absl::Status CheckWriter(const log::Entry& entry, const log::StreamId& stream) {
  const coordinator::TransactionId& id = entry.transaction;
  const bool own = id.island == stream.island;
  if (log::IsCommand(entry.kind) && (!own || id.worker != stream.worker || id.boot_epoch != stream.life))
    return absl::DataLossError("it is the command of another worker, or life");
  if (entry.kind == log::EntryKind::kDecided && own)
    return absl::DataLossError("it decides for a coordinator, and that is its own island");
  if (entry.kind != log::EntryKind::kPrepare && entry.kind != log::EntryKind::kDecision)
    return absl::OkStatus();
  const absl::StatusOr<std::vector<coordinator::Fellow>> fellows = log::DecodeFellows(entry.fellows);
  if (!fellows.ok()) return fellows.status();
  if (!AreOthers(*fellows, {stream.island, id.island}))
    return absl::DataLossError("it names an island twice, or itself, as another that takes part");
  if (entry.kind == log::EntryKind::kPrepare)
    return own ? absl::DataLossError("it prepares what its own island coordinates") : absl::OkStatus();
  // A later life repeats what this one has decided.
  if (!own || id.worker != stream.worker || id.boot_epoch > stream.life)
    return absl::DataLossError("it decides what another worker, or a later life, has begun");
  return fellows->empty() ? absl::DataLossError("it decides for nobody") : absl::OkStatus();
}

}  // namespace

void Recovery::BeginFrom(const Checkpoint& checkpoint) {
  bound_ = checkpoint.bound;
  taken_ = checkpoint.taken;
  snapshot_ = checkpoint.snapshot ? checkpoint.taken : 0;
  if (bound_ != 0) last_ = log::Lsn::FromValue(log::Lsn::Of(bound_, 0).value() - 1);
}

absl::Status Recovery::Redo(const log::StreamId& stream, const log::Record& record) {
  const log::Lsn lsn = log::Lsn::FromValue(record.lsn);
  if (lsn.epoch() < bound_) return absl::OkStatus();  // the pages have it, and what it began has ended
  const auto drops = [&](const log::EpochCut& cut) { return cut.Drops(lsn.epoch()); };
  if (std::any_of(cuts_.begin(), cuts_.end(), drops)) {
    ++dropped_;
    return absl::OkStatus();
  }
  const absl::StatusOr<log::Entry> entry = log::DecodeEntry(record);
  absl::Status status = entry.status();
  if (status.ok() && lsn < last_) status = absl::DataLossError("its LSN does not ascend");  // invariant 2
  if (status.ok()) status = CheckWriter(*entry, stream);
  if (status.ok()) status = Note(*entry, lsn);
  if (status.ok() && log::IsCommand(entry->kind)) {
    status = RunCommand(*entry, lsn);
    if (absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status)) return status;
  }
  last_ = std::max(last_, lsn);
  ++records_;
  pages_changed_ = pages_changed_ || (status.ok() && !entry->changes.empty());
  return status.ok() ? pages_.Add(stream, lsn, entry->changes) : CannotRepeat(stream, lsn, status);
}

absl::Status Recovery::RunCommand(const log::Entry& entry, log::Lsn lsn) {
  if (lsn.epoch() <= snapshot_ && !Planted(PlantedBug::kCommandTwice)) return absl::OkStatus();
  if (pages_changed_) {
    if (absl::Status found = FindTreesOfCommands(); !found.ok()) return found;
    pages_changed_ = false;
  }
  ++commands_run_;
  return commands_->Run(entry, last_, lsn);
}

absl::Status Recovery::FindTreesOfCommands() {
  if (absl::Status made = pages_.Flush(); !made.ok()) return made;
  if (commands_ && store_.CountTrees() == trees_) return absl::OkStatus();
  store_.BeginRedo();
  if (absl::Status found = store_.FindTrees(catalog_); !found.ok()) return found;
  store_.LetRedoGoOn();
  trees_ = store_.CountTrees();
  commands_ ? commands_->NoteTables() : void(commands_.emplace(catalog_, store_, open_workload_));
  return absl::OkStatus();
}

// What ended before the checkpoint was taken may have begun before its bound: then only the end is here.
absl::Status Recovery::Note(const log::Entry& entry, log::Lsn lsn) {
  const bool ended = MayHaveEnded(lsn);
  switch (entry.kind) {
    case log::EntryKind::kDone:
    case log::EntryKind::kCommand:
    case log::EntryKind::kCall:
      return absl::OkStatus();
    case log::EntryKind::kUpdate:
      return NoteUpdate(entry, lsn);
    case log::EntryKind::kCompensation: {
      // One that had prepared was told to abort.
      if (auto prepared = unsettled_.prepared.extract(entry.transaction))
        open_[entry.transaction] = {std::move(prepared.mapped().undo),
                                    log::Lsn::Of(prepared.mapped().since, 0), lsn};
      const auto open = open_.find(entry.transaction);
      if (open == open_.end() || entry.left > open->second.undo.size())
        return ended ? absl::OkStatus() : absl::DataLossError("it undoes what was not done");
      open->second.undo.DropLast(entry.left);
      open->second.last = lsn;
      return absl::OkStatus();
    }
    case log::EntryKind::kAborted:
      if (Planted(PlantedBug::kUndoTwice)) return absl::OkStatus();
      if (open_.erase(entry.transaction) + unsettled_.prepared.erase(entry.transaction) == 0 && !ended)
        return absl::DataLossError("it ends a transaction that is not open");
      return absl::OkStatus();
    case log::EntryKind::kPrepare:
      return NotePrepare(entry, lsn);
    case log::EntryKind::kCommit:
    case log::EntryKind::kDecision:
    case log::EntryKind::kDecided:
      return NoteCommit(entry, lsn);
    case log::EntryKind::kEnd:
      if (unsettled_.decisions.erase(entry.transaction) + unsettled_.decided.erase(entry.transaction) == 0 &&
          !ended)
        return absl::DataLossError("it settles what was not decided");
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

bool Recovery::Decided(const coordinator::TransactionId& id) const {
  return unsettled_.decisions.contains(id) || unsettled_.decided.contains(id);
}

absl::Status Recovery::NoteUpdate(const log::Entry& entry, log::Lsn lsn) {
  if (unsettled_.prepared.contains(entry.transaction) || Decided(entry.transaction))
    return absl::DataLossError("it changes more for a transaction that has voted, or committed");
  Open& open = open_.try_emplace(entry.transaction, Open{.first = lsn}).first->second;
  open.last = lsn;
  return open.undo.Decode(entry.undo);
}

absl::Status Recovery::NotePrepare(const log::Entry& entry, log::Lsn lsn) {
  if (Decided(entry.transaction)) return absl::DataLossError("it prepares a transaction that has committed");
  Unsettled::Prepared& prepared = unsettled_.prepared[entry.transaction];
  prepared.undo.Clear();                                  // if it repeats another, it has all of it
  prepared.fellows = *log::DecodeFellows(entry.fellows);  // CheckWriter has looked
  prepared.since = lsn.epoch();
  if (const auto open = open_.extract(entry.transaction)) {
    prepared.undo = std::move(open.mapped().undo);
    prepared.since = open.mapped().first.epoch();
  }
  return prepared.undo.Decode(entry.undo);
}

// What a coordinator has decided may have changed nothing on its own island, and what was decided alone may
// be in one record.
absl::Status Recovery::NoteCommit(const log::Entry& entry, log::Lsn lsn) {
  const coordinator::TransactionId& id = entry.transaction;
  const bool repeats = entry.kind == log::EntryKind::kDecision  ? unsettled_.decisions.contains(id)
                       : entry.kind == log::EntryKind::kDecided ? unsettled_.decided.contains(id)
                                                                : false;
  if (Decided(id) && !repeats) return absl::DataLossError("it commits a transaction twice");
  const auto open = open_.extract(id);
  auto prepared = unsettled_.prepared.extract(id);
  const uint64_t since = open       ? open.mapped().first.epoch()
                         : prepared ? prepared.mapped().since
                                    : lsn.epoch();
  if (entry.kind == log::EntryKind::kDecision) {
    if (!Planted(PlantedBug::kForgetDecisions))
      unsettled_.decisions[id] = {*log::DecodeFellows(entry.fellows), since};
  } else if (entry.kind == log::EntryKind::kDecided) {
    unsettled_.decided[id] = {since};
  } else if (!open && !prepared && !MayHaveEnded(lsn)) {
    return absl::DataLossError("it ends a transaction that is not open");
  }
  if (prepared && Planted(PlantedBug::kRecoverPreparedTwice)) unsettled_.prepared.insert(std::move(prepared));
  return absl::OkStatus();
}

absl::Status Recovery::FindTrees() {
  if (absl::Status made = pages_.Finish(); !made.ok()) return made;
  commands_.reset();
  store_.BeginRedo();
  if (absl::Status found = store_.FindTrees(catalog_); !found.ok()) return found;
  const auto check = [&](const coordinator::TransactionId& id, const instance::UndoLog& undo) {
    if (undo.Fits(store_)) return absl::OkStatus();
    return absl::DataLossError(fmt::format(
        "transaction {} has changed tables that are not there: log and catalog do not go together",
        id.ToString()));
  };
  absl::Status status;
  for (const auto& [id, open] : open_) status.Update(check(id, open.undo));
  for (const auto& [id, prepared] : unsettled_.prepared) status.Update(check(id, prepared.undo));
  return status;
}

absl::Status Recovery::CheckUndo() const {
  absl::Status status;
  const auto check = [&](const coordinator::TransactionId& id, const instance::UndoLog& undo) {
    undo.Suits(store_, [&](storage::TableId table, uint32_t site, storage::KeyView key) {
      const storage::TableDefinition& definition = catalog_.table(table);
      status.Update(absl::DataLossError(fmt::format(
          "transaction {} has changed row {} of table '{}' on site {}, which is not as it has left "
          "it: a page is an old state of itself; restore data and log from a copy",
          id.ToString(), partitioner::KeyToString(definition.key, key), definition.name, site)));
    });
  };
  for (const auto& [id, open] : open_) check(id, open.undo);
  for (const auto& [id, prepared] : unsettled_.prepared) check(id, prepared.undo);
  return status;
}

bool Recovery::UndoLosers(instance::Executor& executor, absl::FunctionRef<bool()> go_on) {
  while (!open_.empty()) {
    if (!go_on()) return false;
    const auto newest = std::max_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    });
    instance::Branch branch;
    branch.locks.transaction = newest->first;
    branch.undo = std::move(newest->second.undo);
    open_.erase(newest);
    executor.Adopt(branch);
    std::vector<locks::Wakeup> wakeups;
    executor.Rollback(branch, &wakeups);
    ISLANDS_CHECK(wakeups.empty());  // nobody else is there
    executor.EndStep();              // undone, whatever comes
  }
  return true;
}

}  // namespace islands::recovery
