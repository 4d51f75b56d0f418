#include "instance/log/journal.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/latch_site.h"

namespace islands::log {

using runtime::Planted;
using runtime::PlantedBug;

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

void Journal::AppendEntry(const Entry& entry, bool again) {
  if (!begun_) BeginRecord();
  // A record without changes needs an LSN of its own; one with changes has that of the last.
  const Lsn lsn = collected() ? collector_.last() : collector_.Stamp();
  head_.Clear();
  EncodeEntryHead(entry, &head_);
  const bool changes_follow = IsCommand(entry.kind);
  Append(writer_, static_cast<uint8_t>(entry.kind), lsn.value(),
         {head_.bytes(), changes_follow ? std::span<const std::byte>() : body_.bytes()});
  // A counter that was full: nobody may be stamped with less who sees this (lsn.h).
  if (collector_.AheadOfEpoch()) board_.RaiseEpoch(lsn.epoch());
  if (!IsWhole(entry.kind)) open_.Note(entry.kind, entry.transaction, lsn.epoch());
  if (Commits(entry.kind) && !IsWhole(entry.kind) && !again) commits_.Raise(lsn.epoch());
  begun_ = false;
  // Whoever is told in this very step that it has committed is told the truth, whenever the process is
  // killed.
  appended_ = alone() && !Commits(entry.kind);
  if (!appended_) writer_.Show();
  if (!alone()) island_->SetShown(writer_.stream().worker, lsn);
  body_.Clear();
}

// Light steps may wait for the end of the worker's step: whoever changes their page next waits for it.
void Journal::ReleaseShared(std::byte* page) {
  if (!collector_.InStep(page)) return;
  const runtime::WorkScope logging(runtime::Work::kLogging);
  if (!Planted(PlantedBug::kPublishAfterLatch)) Settle();
  bool light = collector_.LightStep();
  if (uint8_t& crowded = reinterpret_cast<storage::PageHeader*>(page)->crowded; light && crowded != 0) {
    --crowded;
    light = false;
  }
  collector_.BeforeRelease(page);
  const bool enough = body_.size() >= kMostCollected;
  if ((!light || enough) && !Planted(PlantedBug::kPublishAfterLatch)) PublishCollected();
}

// What the step builds on is shown before it, in records with lower LSNs; and its own record has one epoch.
void Journal::Settle() {
  Lsn above;
  for (const PageChangeCollector::ChangedPage& changed : collector_.step()) {
    const size_t worker = changed.stamper - size_t{1};
    if (worker >= shown_.size() || worker == writer_.stream().worker) continue;
    const Lsn lsn = Lsn::FromValue(changed.lsn);
    if (shown_[worker] < lsn) shown_[worker] = island_->shown(worker);
    if (shown_[worker] < lsn && !Planted(PlantedBug::kSplitUnshown)) AwaitShown(worker, changed);
    if (!Planted(PlantedBug::kStampBelow)) above = std::max(above, shown_[worker]);
  }
  const Lsn next = std::max(collector_.NextStamp(), above.Next());
  if (collected() && next.epoch() != collector_.last().epoch() && !Planted(PlantedBug::kMixEpochs))
    PublishBeforeStep();
  collector_.StampAbove(above);
}

// The other one ends its step, or waits for a latch (BeforeWait). Its page is wanted by several.
[[gnu::noinline]] void Journal::AwaitShown(size_t worker, const PageChangeCollector::ChangedPage& changed) {
  constexpr uint8_t kCrowded = 32;
  const_cast<storage::PageHeader*>(reinterpret_cast<const storage::PageHeader*>(changed.page))->crowded =
      kCrowded;
  if (collected()) PublishBeforeStep();  // or each would wait for the other
  for (runtime::Backoff backoff; shown_[worker] < Lsn::FromValue(changed.lsn); backoff.Wait({"log.order"}))
    shown_[worker] = island_->shown(worker);
}

// Changes of pages that are still latched are not among what is collected.
[[gnu::noinline]] void Journal::PublishBeforeStep() {
  PublishCollected();
  if (collector_.within_step()) BeginRecord();
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

bool Journal::AppendCommand(const Id& id, const Command& command, size_t reserved) {
  ISLANDS_CHECK(alone() && !command.workload.empty());
  if (!collected()) return true;
  Entry entry{.kind = command.called ? EntryKind::kCall : EntryKind::kCommand,
              .transaction = id,
              .input = command.input};
  const uint64_t epoch = collector_.last().epoch();
  const bool named = (named_in_ == epoch || Planted(PlantedBug::kNameWorkloadOnce)) &&
                     command.workload.size() == workload_.size() &&
                     std::memcmp(command.workload.data(), workload_.data(), workload_.size()) == 0;
  if (!named) entry.workload = command.workload;
  const size_t bytes = RecordBytes(kMostHeadBytes + entry.workload.size() + entry.input.size());
  // No longer than what others append, so that it fits whatever ring their changes fit.
  if (bytes > kMostCollected || room() + body_.size() < reserved + bytes) return false;
  entry.check = runtime::Crc32c(body_.bytes());
  AppendEntry(entry);
  if (!named) workload_.assign(command.workload.begin(), command.workload.end());
  named_in_ = epoch;
  commits_.Raise(collector_.last().epoch());
  return true;
}

uint64_t Journal::BeginSnapshot(BeforeImages* images) {
  ISLANDS_CHECK(alone() && !begun_ && !appended_);
  const uint64_t epoch = std::max(board_.epoch(), collector_.last().epoch());
  board_.RaiseEpoch(epoch + 1);
  images_ = images;
  return epoch;
}

void Journal::AppendRedoOnly() {
  if (collected()) AppendEntry({.kind = EntryKind::kDone});
}

void Journal::AppendUpdate(const Id& id, std::span<const std::byte> undo) {
  if (collected() || !undo.empty())
    AppendEntry({.kind = EntryKind::kUpdate, .transaction = id, .undo = undo});
}

void Journal::AppendCompensation(const Id& id, uint32_t left) {
  if (Planted(PlantedBug::kDropCompensation)) {
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
  OweEnd();
}

void Journal::AppendDecided(const Id& id) {
  AppendEntry({.kind = EntryKind::kDecided, .transaction = id});
  OweEnd();
}

bool Journal::Repeat(const Entry& entry, size_t reserved) {
  ISLANDS_CHECK(!collected());
  const size_t bytes = RecordBytes(kMostHeadBytes + entry.fellows.size() + entry.undo.size());
  if (entry.undo.size() > kMostCollected || room() < reserved + bytes || !WorthRepeating(entry.transaction))
    return false;
  if (!Planted(PlantedBug::kRepeatUnsaid)) AppendEntry(entry, /*again=*/true);
  open_.Renew(entry.transaction, collector_.last().epoch());
  return true;
}

bool Journal::RepeatPrepare(const Id& id, std::span<const coordinator::Fellow> fellows,
                            std::span<const std::byte> undo, size_t reserved) {
  fellows_.clear();
  EncodeFellows(fellows, &fellows_);
  const Entry entry{.kind = EntryKind::kPrepare, .transaction = id, .fellows = fellows_, .undo = undo};
  return Repeat(entry, reserved);
}

bool Journal::RepeatDecision(const Id& id, std::span<const coordinator::Fellow> fellows, size_t reserved) {
  fellows_.clear();
  EncodeFellows(fellows, &fellows_);
  return Repeat({.kind = EntryKind::kDecision, .transaction = id, .fellows = fellows_}, reserved);
}

bool Journal::RepeatDecided(const Id& id, size_t reserved) {
  return Repeat({.kind = EntryKind::kDecided, .transaction = id}, reserved);
}

void Journal::AppendEnd(const Id& id) {
  ISLANDS_CHECK(!collected());
  AppendEntry({.kind = EntryKind::kEnd, .transaction = id});
  owed_ -= std::min(owed_, kEndBytes);
}

void Journal::EndStep() {
  ISLANDS_CHECK(!collected());  // invariant 1
  begun_ = false;
  if (appended_) writer_.Show();
  appended_ = false;
  hold_.Release();
}

}  // namespace islands::log
