#include "instance/recovery/cleaner.h"

#include <algorithm>
#include <utility>

#include "instance/log/epoch_file.h"
#include "instance/log/lsn.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/file_size.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {

using runtime::IoKind;
using runtime::Planted;
using runtime::PlantedBug;

// More passes than that, while a transaction stays open, find no better place to begin from.
constexpr size_t kMostMarks = 1024;

Cleaner::Cleaner(runtime::FileSystem& files, storage::Store& store, const log::Board& board, IslandData data,
                 Options options)
    : files_(files),
      store_(store),
      board_(board),
      options_(std::move(options)),
      data_(std::move(data)),
      writer_(files, *data_.files, options_.batch_pages),
      queue_(files.MakeQueue()),
      epoch_bytes_(2 * log::EpochBlockBytes(board.islands())),
      takes_snapshots_(options_.snapshots != nullptr),
      ends_(store.slots()) {
  if (takes_snapshots_) snapshot_.emplace(files, store, *data_.files, *options_.snapshots);
}

absl::StatusOr<std::unique_ptr<Cleaner>> Cleaner::Create(runtime::FileSystem& files, storage::Store& store,
                                                         const log::Board& board, IslandData data,
                                                         Options options, OldestOpen oldest_open) {
  const std::string path = options.log_directory + "/" + log::kEpochFileName;
  const absl::StatusOr<runtime::FileHandle> file = files.Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  std::unique_ptr<Cleaner> cleaner(new Cleaner(files, store, board, std::move(data), std::move(options)));
  cleaner->oldest_open_ = std::move(oldest_open);
  cleaner->epoch_file_ = *file;
  return cleaner;
}

Cleaner::~Cleaner() {
  queue_.reset();  // waits for what is in flight
  files_.Close(epoch_file_).IgnoreError();
}

uint64_t Cleaner::waits_for() const {
  if (state_ == State::kWaiting) return batch_epoch_;
  return state_ == State::kWaitingToMove ? next_.taken : 0;
}

bool Cleaner::RunOnce() {
  if (!failure_.ok()) return false;
  switch (state_) {
    case State::kIdle:
      Submit({.kind = IoKind::kRead, .file = epoch_file_, .buffer = std::span(epoch_bytes_)},
             State::kReadingEpoch);
      return false;  // a look
    case State::kReadingEpoch:
      return Completed() && BeginPass();
    case State::kVisiting:
      return Visit();
    case State::kWaiting:
    case State::kWriting:
      return Write();
    case State::kWaitingToMove:
      if (!Durable(next_.taken) && !Planted(PlantedBug::kMoveMasterEarly)) return false;
      WriteCheckpoint();
      return true;
    case State::kWritingCheckpoint:
      if (!Completed()) return false;
      Submit({.kind = IoKind::kSync, .file = data_.files->checkpoint()}, State::kSyncingCheckpoint);
      return true;
    case State::kSyncingCheckpoint:
      if (!Completed()) return false;
      data_.checkpoint = next_;
      failure_.Update(data_.files->UseSet(next_.set));
      takes_snapshots_ = takes_snapshots_ && !options_.first_only;
      state_ = State::kIdle;
      return true;
    case State::kTakingSnapshot:
      return GoOnWithSnapshot();
  }
  return false;
}

void Cleaner::Submit(const runtime::IoRequest& request, State state) {
  state_ = state;
  queue_->Submit(request);
}

bool Cleaner::Completed() {
  completions_.clear();
  if (queue_->Poll(&completions_) == 0) return false;
  if (state_ != State::kSyncingCheckpoint || !Planted(PlantedBug::kIgnoreMasterSyncError))
    failure_.Update(completions_.front().status);
  return failure_.ok();
}

// Of one that found nothing another one finds nothing either, unless the island's log has grown since it
// began: nothing is changed without a record. So an island at rest writes no checkpoints. But somebody may
// wait for room in a paged pool, and what is in its way may be in no EPOCH yet.
bool Cleaner::BeginPass() {
  const std::optional<log::LogPosition> end = NoteMark();
  if (!found_any_ && end && end == end_ && !hurried()) {
    state_ = State::kIdle;
    ++found_nothing_;
    if (takes_snapshots_) return false;
    TakeCheckpoint();  // which open transactions may have held back
    return state_ != State::kIdle;
  }
  end_ = end;
  if (takes_snapshots_) return BeginSnapshot();
  begin_ = board_.Complete() + 1;
  found_any_ = false;
  slot_ = page_ = 0;
  for (size_t slot = 0; slot < ends_.size(); ++slot) ends_[slot] = store_.space(slot).end_page();
  state_ = State::kVisiting;
  return true;
}

bool Cleaner::BeginSnapshot() {
  const absl::Status begun = snapshot_->Begin();
  if (absl::IsUnavailable(begun)) {  // what a dead one was writing there is in flight
    state_ = State::kIdle;
    return false;
  }
  failure_.Update(begun);
  oldest_open_then_ = oldest_open_();
  found_any_ = true;
  state_ = State::kTakingSnapshot;
  return failure_.ok();
}

// Who was open as it began had all its records before it, and may have ended since: its end is behind it.
bool Cleaner::GoOnWithSnapshot() {
  constexpr size_t kCopies = 4;  // of a page, with its checksum, take as long as that many looks
  const bool some = snapshot_->RunOnce(1 + options_.pages_per_call / kCopies);
  failure_.Update(snapshot_->failure());
  if (!failure_.ok() || !snapshot_->done()) return some && failure_.ok();
  ++passes_;
  const uint64_t written = snapshot_->written();
  found_any_ = written != std::exchange(snapshot_pages_, written);
  next_ = data_.checkpoint;
  ++next_.number;
  next_.snapshot = true;
  next_.set = data_.files->other_set();
  next_.taken = snapshot_->epoch();
  next_.bound = std::max(next_.bound, std::min(next_.taken + 1, oldest_open_then_));
  next_.position = PositionFor(next_.bound);
  for (size_t slot = 0; slot < ends_.size(); ++slot) next_.sites[slot].pages = snapshot_->ends()[slot];
  state_ = State::kWaitingToMove;
  return true;
}

// Returns where the island's log ends. A block that is not durable yet will do: the checkpoint that uses it
// waits for a later one. One that is torn, because the logger is writing it, leaves the other.
std::optional<log::LogPosition> Cleaner::NoteMark() {
  const absl::StatusOr<log::EpochBlock> block = log::DecodeEpochFile(epoch_bytes_);
  const uint32_t island = data_.checkpoint.island;
  if (!block.ok() || block->ends.size() <= island) return {};
  const log::LogPosition& end = block->ends[island];
  if (marks_.size() < kMostMarks && (marks_.empty() || block->reaches > marks_.back().reaches))
    marks_.push_back({block->reaches, end});
  return end;
}

bool Cleaner::Visit() {
  if (store_.pager() != nullptr && VisitVictims()) return true;
  // Pages on disk cost next to nothing.
  const size_t visits = options_.pages_per_call * (store_.pager() == nullptr ? 1 : 16);
  for (size_t left = visits; left > 0; --left) {
    while (slot_ < ends_.size() && page_ == ends_[slot_]) ++slot_, page_ = 0;
    const bool end = slot_ == ends_.size();
    if (writer_.complete() || (end && writer_.size() != 0 && !Planted(PlantedBug::kCheckpointPastCopies))) {
      state_ = State::kWaiting;
      return true;
    }
    if (end) {
      ++passes_;
      TakeCheckpoint();
      return true;
    }
    VisitPage(slot_, page_++);
  }
  return true;
}

// Those that the hand wants have to be at home before anybody can go on, if the pool is full of them: a batch
// goes at once. False: there are none.
bool Cleaner::VisitVictims() {
  if (victims_.empty()) victims_ = store_.pager()->TakeVictims();
  if (victims_.empty()) return false;
  const std::vector<storage::Pager::Place> wanted = victims_;
  for (; !victims_.empty() && !writer_.complete(); victims_.pop_back())
    VisitPage(victims_.back().slot, victims_.back().number);
  hurries_ = writer_.size() != 0;
  if (hurries_) state_ = State::kWaiting;
  if (!hurries_ && victims_.empty()) store_.pager()->NoteCleaned(wanted);  // all are at home since
  return hurries_;
}

void Cleaner::VisitPage(size_t slot, uint64_t number) {
  constexpr uint64_t kAhead = 8;
  storage::SiteSpace& space = store_.space(slot);
  space.Prefetch(number + kAhead);
  if (space.OnDisk(number)) return;  // or it comes back, and is at home
  const bool marked = space.At(number).marked();
  storage::GuardS page(space.At(number), ISLANDS_LATCH("cleaner.copy"));
  const storage::ConstPageBytes bytes(page.bytes(), storage::kPageBytes);
  const uint64_t lsn = storage::HeaderOf(bytes).lsn;
  ISLANDS_CHECK(lsn != 0 && lsn >= space.Home(number));  // a page that no log has heard of
  const auto in_batch = [&](const Copied& copied) { return copied.slot == slot && copied.number == number; };
  const bool copies = lsn != space.Home(number) && std::ranges::none_of(copied_, in_batch);
  if (copies) std::copy(bytes.begin(), bytes.end(), writer_.Add(slot, number).begin());
  page.Release();
  if (marked) space.Mark(number);  // that the cleaner has looked at it says nothing
  if (!copies) return;
  copied_.push_back({static_cast<uint32_t>(slot), number, lsn});
  batch_epoch_ = std::max(batch_epoch_, log::Lsn::FromValue(lsn).epoch());
  found_any_ = true;
}

bool Cleaner::Write() {
  if (state_ == State::kWaiting) {
    if (!Durable(batch_epoch_) && !Planted(PlantedBug::kWritePageEarly)) return false;  // invariant 1
    std::vector<uint64_t> ends(store_.slots());
    for (const Copied& copied : copied_) ends[copied.slot] = std::max(ends[copied.slot], copied.number + 1);
    for (size_t slot = 0; slot < ends.size(); ++slot)
      storage::GrowFor(files_, *data_.files, slot, ends[slot]);
    writer_.Begin();
    state_ = State::kWriting;
    return true;
  }
  const bool some = writer_.RunOnce();
  failure_.Update(writer_.failure());
  if (writer_.busy()) return some;
  if (failure_.ok()) {
    std::vector<storage::Pager::Place> cleaned;
    for (const Copied& copied : copied_) {
      store_.space(copied.slot).SetHome(copied.number, copied.lsn);
      store_.space(copied.slot).NoteWritten();
      cleaned.push_back({copied.slot, copied.number});
    }
    if (store_.pager() != nullptr) store_.pager()->NoteCleaned(cleaned);
  }
  copied_.clear();
  hurries_ = false;
  batch_epoch_ = 0;
  state_ = State::kVisiting;
  return true;
}

void Cleaner::TakeCheckpoint() {
  if (store_.pager() != nullptr) store_.pager()->NoteCleaned({});  // whoever waits looks again
  state_ = State::kIdle;
  const bool blind = Planted(PlantedBug::kPassOpenBranches);
  const uint64_t bound = blind ? begin_ : std::min(begin_, oldest_open_());
  if (bound <= data_.checkpoint.bound) return;
  next_ = data_.checkpoint;
  ++next_.number;
  next_.snapshot = false;
  next_.bound = bound;
  next_.taken = board_.epoch();
  next_.position = PositionFor(bound);
  for (size_t slot = 0; slot < ends_.size(); ++slot) next_.sites[slot].pages = ends_[slot];
  state_ = State::kWaitingToMove;
}

// The last mark before which there is nothing of the bound's epoch or later; those before it are of no use
// any more. Without one, as before. A logger may have written again, in part, behind the position what
// another one had written before it: that is of epochs below the bound, and nobody needs the rest.
log::LogPosition Cleaner::PositionFor(uint64_t bound) {
  log::LogPosition position = data_.checkpoint.position;
  while (!marks_.empty() && marks_.front().reaches < bound) {
    position = std::max(position, marks_.front().position);
    marks_.pop_front();
  }
  return position;
}

void Cleaner::WriteCheckpoint() {
  checkpoint_bytes_ = EncodeCheckpoint(next_);
  Submit({.kind = IoKind::kWrite,
          .file = data_.files->checkpoint(),
          .offset = next_.number % 2 * checkpoint_bytes_.size(),
          .buffer = std::span(checkpoint_bytes_)},
         State::kWritingCheckpoint);
}

}  // namespace islands::recovery
