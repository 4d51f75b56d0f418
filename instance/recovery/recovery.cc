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

absl::Status Recovery::Redo(const log::StreamId& stream, const log::Record& record) {
  const log::Lsn lsn = log::Lsn::FromValue(record.lsn);
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

absl::Status Recovery::Note(const log::Entry& entry, log::Lsn lsn) {
  switch (entry.kind) {
    case log::EntryKind::kDone:
      return absl::OkStatus();
    case log::EntryKind::kUpdate: {
      Open& open = open_[entry.transaction];
      open.last = lsn;
      return open.undo.Decode(entry.undo);
    }
    case log::EntryKind::kCompensation: {
      const auto open = open_.find(entry.transaction);
      if (open == open_.end() || entry.left > open->second.undo.size())
        return absl::DataLossError("it undoes what was not done");
      open->second.undo.DropLast(entry.left);
      open->second.last = lsn;
      return absl::OkStatus();
    }
    case log::EntryKind::kCommit:
    case log::EntryKind::kAborted:
      if (Planted(PlantedBug::kUndoTwice) && entry.kind == log::EntryKind::kAborted) return absl::OkStatus();
      if (open_.erase(entry.transaction) == 0)
        return absl::DataLossError("it ends a transaction that is not open");
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Recovery::FindTrees() {
  if (absl::Status found = store_.FindTrees(catalog_); !found.ok()) return found;
  for (const auto& [id, open] : open_) {
    if (open.undo.Fits(store_)) continue;
    return absl::DataLossError(
        fmt::format("transaction {} has changed tables that are not there: log and "
                    "catalog do not go together",
                    id.ToString()));
  }
  return absl::OkStatus();
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
