#include "instance/log/journal.h"

#include "runtime/check.h"

namespace islands::log {

void Journal::Listen() {
  ISLANDS_CHECK(storage::page_change_sink == nullptr && !begun_);
  storage::page_change_sink = this;
}

void Journal::EndListening() {
  ISLANDS_CHECK(storage::page_change_sink == this && !begun_ && !hold_.held());
  storage::page_change_sink = nullptr;
}

void Journal::BeginRecord() {
  begun_ = true;
  body_.Clear();
  // One epoch for all of the record (entry.h): if its counter may become full on the way, the next one.
  uint64_t epoch = hold_.Take();
  const Lsn last = collector_.last();
  if (last.epoch() >= epoch && last.Next(kMostRecordBytes).epoch() != last.epoch()) {
    board_.RaiseEpoch(last.epoch() + 1);
    epoch = hold_.Take();
  }
  collector_.Begin(epoch, &body_);
}

void Journal::BeforeChange(const std::byte* page, const storage::PageChange& change) {
  if (!begun_) [[unlikely]]
    BeginRecord();
  collector_.BeforeChange(page, change);
}

void Journal::AppendEntry(const Entry& entry) {
  if (!begun_) BeginRecord();
  // A record without changes needs an LSN of its own; one with changes has that of the last.
  const Lsn lsn = collected() ? collector_.last() : collector_.Stamp();
  head_.Clear();
  EncodeEntryHead(entry, &head_);
  Append(writer_, static_cast<uint8_t>(entry.kind), lsn.value(), {head_.bytes(), body_.bytes()});
  // A counter that was full: nobody may be stamped with less who sees this (lsn.h).
  if (collector_.AheadOfEpoch()) board_.RaiseEpoch(lsn.epoch());
  if (entry.kind != EntryKind::kDone) open_.Note(entry.kind, entry.transaction, lsn.epoch());
  if (Commits(entry.kind) && entry.kind != EntryKind::kDone) commits_.Raise(lsn.epoch());
  begun_ = false;
  // Whoever is told in this very step that it has committed is told the truth, whenever the process is
  // killed.
  appended_ = alone() && !Commits(entry.kind);
  if (!appended_) writer_.Show();
  body_.Clear();
}

void Journal::PublishCollected() {
  publisher_ != nullptr ? publisher_->Publish() : AppendRedoOnly();
  ISLANDS_CHECK(!collected());
}

void Journal::AppendDone() {
  if (!collected()) return;
  AppendRedoOnly();
  commits_.Raise(collector_.last().epoch());
}

void Journal::AppendRedoOnly() {
  if (collected()) AppendEntry({.kind = EntryKind::kDone});
}

void Journal::AppendUpdate(const Id& id, std::span<const std::byte> undo) {
  if (collected() || !undo.empty())
    AppendEntry({.kind = EntryKind::kUpdate, .transaction = id, .undo = undo});
}

void Journal::AppendCompensation(const Id& id, uint32_t left) {
  if (runtime::Planted(runtime::PlantedBug::kDropCompensation)) {
    body_.Clear();
    begun_ = false;
    return;
  }
  AppendEntry({.kind = EntryKind::kCompensation, .transaction = id, .left = left});
}

void Journal::AppendPrepare(const Id& id, std::span<const coordinator::Fellow> fellows,
                            std::span<const std::byte> undo) {
  fellows_.clear();
  EncodeFellows(fellows, &fellows_);
  AppendEntry({.kind = EntryKind::kPrepare, .transaction = id, .fellows = fellows_, .undo = undo});
}

void Journal::AppendDecision(const Id& id, std::span<const coordinator::Fellow> fellows) {
  fellows_.clear();
  EncodeFellows(fellows, &fellows_);
  AppendEntry({.kind = EntryKind::kDecision, .transaction = id, .fellows = fellows_});
}

void Journal::AppendEnd(const Id& id) {
  ISLANDS_CHECK(!collected());
  AppendEntry({.kind = EntryKind::kEnd, .transaction = id});
}

void Journal::EndStep() {
  ISLANDS_CHECK(!collected());  // invariant 1
  begun_ = false;
  if (appended_) writer_.Show();
  appended_ = false;
  hold_.Release();
}

}  // namespace islands::log
