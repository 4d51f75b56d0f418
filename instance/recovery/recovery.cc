#include "instance/recovery/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "instance/log/page_changes_reader.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {

using runtime::Planted;
using runtime::PlantedBug;

void Recovery::BeginFrom(const Checkpoint& checkpoint) {
  bound_ = checkpoint.bound;
  taken_ = checkpoint.taken;
  if (bound_ != 0) last_ = log::Lsn::FromValue(log::Lsn::Of(bound_, 0).value() - 1);
}

absl::Status Recovery::Redo(const log::StreamId& stream, const log::Record& record) {
  const log::Lsn lsn = log::Lsn::FromValue(record.lsn);
  if (lsn.epoch() < bound_) return absl::OkStatus();  // the pages have it, and what it began has ended
  const auto drops = [&](const Cut& cut) { return cut.Drops(lsn.epoch()); };
  if (std::any_of(cuts_.begin(), cuts_.end(), drops)) {
    ++dropped_;
    return absl::OkStatus();
  }
  const absl::StatusOr<log::Entry> entry = log::DecodeEntry(record);
  absl::Status status = entry.status();
  if (status.ok() && lsn < last_) status = absl::DataLossError("its LSN does not ascend");  // invariant 2
  if (status.ok()) status = RedoChanges(entry->changes);
  if (status.ok()) status = Note(*entry, lsn);
  last_ = std::max(last_, lsn);
  ++records_;
  if (status.ok()) return status;
  return absl::DataLossError(fmt::format("record {} of life {} of island {} cannot be repeated: {}",
                                         log::ToString(lsn), stream.life, stream.island,
                                         std::string(status.message())));
}

absl::Status Recovery::RedoChanges(std::span<const std::byte> changes) {
  log::PageChangeReader reader(changes);
  log::PageChangeGroup group;
  while (reader.Next(&group)) {
    if (!group.is_image() && !store_.HasPage(group.page())) {  // invariant 3
      return absl::DataLossError(
          fmt::format("page {} of site {} is not whole in its data file, and the log does not have all of "
                      "it: restore data "
                      "and log from a copy",
                      group.page().number(), group.page().site()));
    }
    const storage::GuardX page = store_.PageForRedo(group.page());
    if (!page) {
      return absl::DataLossError(
          fmt::format("this island has no page {} of site {}", group.page().number(), group.page().site()));
    }
    const std::span<std::byte, storage::kPageBytes> bytes(page.Redo(), storage::kPageBytes);
    if (absl::Status redone = log::Redo(group, bytes); !redone.ok()) return redone;
  }
  return reader.status();
}

// What ended before the checkpoint was taken may have begun before its bound: then only the end is here.
absl::Status Recovery::Note(const log::Entry& entry, log::Lsn lsn) {
  const bool ended = lsn.epoch() <= taken_;
  switch (entry.kind) {
    case log::EntryKind::kDone:
      return absl::OkStatus();
    case log::EntryKind::kUpdate: {
      Open& open = open_[entry.transaction];
      open.last = lsn;
      return open.undo.Decode(entry.undo);
    }
    case log::EntryKind::kCompensation: {
      // One that had prepared was told to abort.
      if (auto prepared = unsettled_.prepared.extract(entry.transaction))
        open_[entry.transaction].undo = std::move(prepared.mapped().undo);
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
      return NotePrepare(entry);
    case log::EntryKind::kCommit:
    case log::EntryKind::kDecision:
    case log::EntryKind::kDecided:
      return NoteCommit(entry, ended);
    case log::EntryKind::kEnd:
      if (unsettled_.decisions.erase(entry.transaction) + unsettled_.decided.erase(entry.transaction) == 0 &&
          !ended)
        return absl::DataLossError("it settles what was not decided");
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Recovery::NotePrepare(const log::Entry& entry) {
  absl::StatusOr<std::vector<coordinator::Fellow>> fellows = log::DecodeFellows(entry.fellows);
  if (!fellows.ok()) return fellows.status();
  Unsettled::Prepared& prepared = unsettled_.prepared[entry.transaction];
  if (!prepared.undo.empty()) return absl::DataLossError("it prepares a transaction twice");
  prepared.fellows = *std::move(fellows);
  if (const auto open = open_.extract(entry.transaction)) prepared.undo = std::move(open.mapped().undo);
  return prepared.undo.Decode(entry.undo);
}

// What a coordinator has decided may have changed nothing on its own island.
absl::Status Recovery::NoteCommit(const log::Entry& entry, bool ended) {
  const bool open = open_.erase(entry.transaction) + unsettled_.prepared.erase(entry.transaction) != 0;
  if (entry.kind == log::EntryKind::kDecision) {
    absl::StatusOr<std::vector<coordinator::Fellow>> fellows = log::DecodeFellows(entry.fellows);
    if (!fellows.ok()) return fellows.status();
    if (!Planted(PlantedBug::kForgetDecisions)) unsettled_.decisions[entry.transaction] = *std::move(fellows);
    return absl::OkStatus();
  }
  if (!open && !ended) return absl::DataLossError("it ends a transaction that is not open");
  if (entry.kind == log::EntryKind::kDecided) unsettled_.decided.insert(entry.transaction);
  return absl::OkStatus();
}

absl::Status Recovery::FindTrees() {
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
