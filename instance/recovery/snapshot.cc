#include "instance/recovery/snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "instance/log/lsn.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {

using runtime::IoKind;
using runtime::Planted;
using runtime::PlantedBug;
using storage::kPageBytes;

Snapshot::Snapshot(runtime::FileSystem& files, storage::Store& store, storage::DataFiles& data,
                   log::Journal& journal)
    : files_(files),
      store_(store),
      data_(data),
      journal_(journal),
      batch_(kBatchPages),
      queue_(files.MakeQueue()) {
  ISLANDS_CHECK(store.pager() == nullptr && journal.alone());
}

Snapshot::~Snapshot() {
  if (state_ == State::kVisiting || state_ == State::kWriting) journal_.EndSnapshot();
}

absl::Status Snapshot::Begin() {
  ISLANDS_CHECK(state_ == State::kIdle || state_ == State::kDone);
  if (absl::Status opened = data_.OpenOther(); !opened.ok()) return opened;
  ends_.clear();
  for (size_t slot = 0; slot < store_.slots(); ++slot) {
    ends_.push_back(store_.space(slot).end_page());
    files_.Allocate(data_.other_site(slot), ends_.back() * kPageBytes).IgnoreError();  // writes find out
  }
  epoch_ = journal_.BeginSnapshot(this);
  slot_ = 0;
  page_ = 0;
  state_ = State::kVisiting;
  return absl::OkStatus();
}

void Snapshot::Keep(const std::byte* page) {
  const auto& header = *reinterpret_cast<const storage::PageHeader*>(page);
  // Changed since, so it was kept, or visited, before; or new.
  if (header.lsn == 0 || log::Lsn::FromValue(header.lsn).epoch() > epoch_) return;
  const storage::PageId id = storage::PageId::FromValue(header.page_id);
  const Place place{store_.PlaceOf(id.site(), 0).slot, id.number()};
  if (Visited(place) || place.second >= ends_[place.first] || Planted(PlantedBug::kSnapshotLateImages))
    return;
  std::unique_ptr<storage::DiskPage>& image = kept_[place];
  if (image != nullptr) return;  // twice in one step
  image = std::make_unique<storage::DiskPage>();
  std::copy_n(page, kPageBytes, image->bytes.begin());
}

bool Snapshot::RunOnce(size_t pages) {
  switch (state_) {
    case State::kIdle:
    case State::kDone:
      return false;
    case State::kVisiting:
      for (; pages > 0 && state_ == State::kVisiting && failure_.ok(); --pages) Visit();
      return true;
    case State::kWriting:
    case State::kSyncing:
      Take();
      if (under_way_ != 0) return false;
      if (!again_) return true;
      again_ = false;
      WriteBatch();
      return false;
  }
  return false;
}

void Snapshot::Visit() {
  while (slot_ < ends_.size() && page_ == ends_[slot_]) ++slot_, page_ = 0;
  const bool end = slot_ == ends_.size();
  if (places_.size() == kBatchPages || (end && !places_.empty())) return WriteBatch();
  if (end) return SyncAll();
  constexpr uint64_t kAhead = 8;
  storage::SiteSpace& space = store_.space(slot_);
  space.Prefetch(page_ + kAhead);
  const Place place{slot_, page_++};
  const auto kept = kept_.find(place);
  storage::DiskPage& copy = batch_[places_.size()];
  if (kept != kept_.end()) {
    copy = *kept->second;
    kept_.erase(kept);
  } else {
    const storage::GuardS page(space.At(place.second), ISLANDS_LATCH("snapshot.copy"));
    const uint64_t lsn = storage::HeaderOf(storage::ConstPageBytes(page.bytes(), kPageBytes)).lsn;
    const uint64_t epoch = log::Lsn::FromValue(lsn).epoch();
    if ((lsn == 0 || epoch > epoch_) && !Planted(PlantedBug::kSnapshotLateImages)) return Refuse(place, lsn);
    const uint32_t set = data_.other_set();
    if (written_at_[set] != 0 && epoch <= written_at_[set]) {
      space.SetHome(place.second, lsn);
      return;
    }
    std::copy_n(page.bytes(), kPageBytes, copy.bytes.begin());
  }
  storage::StampChecksum(copy.bytes);
  places_.push_back(place);
  lsns_.push_back(storage::HeaderOf(copy.bytes).lsn);
}

// Who changes pages gives them LSNs, and raises the box's epoch to theirs; this one came so from its file.
void Snapshot::Refuse(const Place& place, uint64_t lsn) {
  failure_ = absl::DataLossError(fmt::format(
      "page {} of site {} has LSN {}, and the log has come to epoch {}: the data are not those of the log; "
      "restore both from one copy",
      place.second, store_.space(place.first).site(), log::ToString(log::Lsn::FromValue(lsn)), epoch_));
  Abandon();
}

// Nobody comes here again.
void Snapshot::Abandon() {
  journal_.EndSnapshot();
  kept_.clear();
}

void Snapshot::WriteBatch() {
  state_ = State::kWriting;
  for (size_t begin = 0; begin < places_.size();) {
    size_t end = begin + 1;
    while (end < places_.size() && places_[end].first == places_[begin].first &&
           places_[end].second == places_[begin].second + (end - begin))
      ++end;
    queue_->Submit({.kind = IoKind::kWrite,
                    .file = data_.other_site(places_[begin].first),
                    .offset = places_[begin].second * kPageBytes,
                    .buffer = storage::AsBytes(std::span(batch_).subspan(begin, end - begin))});
    ++under_way_;
    begin = end;
  }
}

void Snapshot::SyncAll() {
  ISLANDS_CHECK(kept_.empty());
  journal_.EndSnapshot();
  state_ = State::kSyncing;
  for (size_t slot = 0; slot < ends_.size(); ++slot) {
    queue_->Submit({.kind = IoKind::kSync, .file = data_.other_site(slot)});
    ++under_way_;
  }
}

// What has completed. A write that finds the disk full is tried again with all of its batch.
void Snapshot::Take() {
  completions_.clear();
  under_way_ -= queue_->Poll(&completions_);
  for (const runtime::IoCompletion& completion : completions_) {
    if (state_ == State::kWriting && absl::IsResourceExhausted(completion.status)) {
      full_ = completion.status;
      again_ = true;
    } else {
      failure_.Update(completion.status);
    }
  }
  if (!failure_.ok()) Abandon();
  if (under_way_ != 0 || again_ || !failure_.ok()) return;
  if (state_ == State::kSyncing) {
    written_at_[data_.other_set()] = epoch_;
    state_ = State::kDone;
    return;
  }
  full_ = absl::OkStatus();
  written_ += places_.size();
  for (size_t i = 0; i < places_.size(); ++i) {
    store_.space(places_[i].first).SetHome(places_[i].second, lsns_[i]);
    store_.space(places_[i].first).NoteWritten();
  }
  places_.clear();
  lsns_.clear();
  state_ = State::kVisiting;
}

}  // namespace islands::recovery
