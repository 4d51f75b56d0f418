#include "instance/log/logger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::log {
namespace {

constexpr int64_t kFullRetryNs = 100 * runtime::kNsPerMs;  // after this a full disk is asked again
// The next round begins as long after one as that took, and so long after it at most: rounds that follow
// each other take half a core from workers, and where there is no core to spare nobody's answer comes sooner
// for it.
constexpr int64_t kMostRestNs = 2 * runtime::kNsPerMs;
constexpr int64_t kWantedNs = 10 * runtime::kNsPerMs;  // from round to round at most, while cleaners wait

using runtime::IoKind;
using runtime::IoRequest;
using runtime::Planted;
using runtime::PlantedBug;

}  // namespace

absl::Status Logger::Unsound(const Stream& stream) {
  const StreamId& id = stream.ring->stream();
  return absl::DataLossError(fmt::format(
      "the log ring of worker {} of island {} says that it is freed to {} and filled to {}, and {} is read",
      id.worker, id.island, stream.ring->head(), stream.ring->tail(), stream.added));
}

void Logger::Cover(Stream* stream) {
  stream->covers = board_.epoch();
  covers_ = std::max(covers_, stream->covers);
}

void Logger::OnIslandDead(uint32_t island, uint64_t life) {
  bool lives = false;  // again
  for (Stream& stream : streams_) {
    if (stream.ring->stream().island != island) continue;
    stream.dead |= stream.ring->stream().life <= life;
    lives |= !stream.dead;
  }
  if (lives) return;  // the holds are the next life's
  const size_t end = board_.Number(island + 1, 0);
  for (size_t worker = board_.Number(island, 0); worker < end; ++worker) board_.Hold(worker) = Board::kNoHold;
}

bool Logger::ReleaseDrained(uint32_t island) {
  const auto is_dead = [&](const Stream& stream) {
    return stream.dead && stream.ring->stream().island == island;
  };
  for (const Stream& stream : streams_) {
    if (!is_dead(stream)) continue;
    if (stream.ring->head() < stream.ring->tail()) return false;
    if (block_.epoch < stream.covers) return false;  // its records are on disk, and do not count yet
  }
  std::erase_if(streams_, is_dead);
  return true;
}

bool Logger::HasWork() const {
  if (block_.epoch < std::max(covers_, board_.wanted())) return true;
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return stream.added < stream.ring->tail(); });
}

int64_t Logger::RoundNs() const {
  const int64_t early_ns = block_.epoch < board_.wanted() ? options_.interval_ns - kWantedNs : 0;
  return next_round_ns_ - std::max<int64_t>(early_ns, 0);
}

bool Logger::Due() const {
  if (clock_.NowNs() >= RoundNs()) return true;
  if (!full_.ok()) return false;
  return std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) {
    return (stream.dead && stream.added < stream.ring->tail()) ||
           stream.ring->tail() - stream.ring->head() >= stream.ring->capacity() / 2;
  });
}

int64_t Logger::NextDeadlineNs() const {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  if (!failure_.ok() || busy()) return kNever;
  const int64_t prepare_ns = full_.ok() ? kNever : next_prepare_ns_;
  if (!HasWork()) return prepare_ns;
  return std::min(prepare_ns, Due() ? clock_.NowNs() : RoundNs());
}

bool Logger::RunOnce() {
  ISLANDS_CHECK(started_);
  if (!failure_.ok()) return false;
  if (state_ == State::kIdle) {
    const bool round = HasWork() && Due();
    const bool prepares = !full_.ok() && clock_.NowNs() >= next_prepare_ns_;
    if (round) {
      BeginRound();
    } else if (prepares) {
      PrepareSegments();
    } else if (!KeepsSpares()) {
      RemoveOldSegments();
    }
    return round || prepares;
  }
  if (state_ == State::kRaised) {
    Collect();
    return true;
  }
  completions_.clear();
  const bool some = queue_->Poll(&completions_) != 0;
  for (const runtime::IoCompletion& completion : completions_) {
    const bool overlooked = Planted(PlantedBug::kIgnoreSyncError) && state_ == State::kSyncing;
    if (!completion.status.ok() && !overlooked) Fail(completion.status);
    --under_way_;
  }
  if (failure_.ok() && under_way_ == 0) {
    Advance();
    return true;
  }
  return some;
}

void Logger::BeginRound() {
  begun_ns_ = clock_.NowNs();
  next_round_ns_ = begun_ns_ + options_.interval_ns;
  board_.RaiseEpoch(board_.epoch() + 1);
  state_ = State::kRaised;
}

void Logger::Collect() {
  const uint64_t complete = board_.Complete();  // first the epochs, then the tails (board.h)
  const bool all = Drain();
  if (!all) {
    next_round_ns_ += kFullRetryNs;
    RemoveOldSegments();
  }
  next_block_ = block_;
  next_block_.number = block_.number + 1;
  next_block_.reaches = covers_;
  if (all) next_block_.epoch = std::max(block_.epoch, complete);
  for (size_t island = 0; island < logs_.size(); ++island) next_block_.ends[island] = logs_[island].end();
  if (failure_.ok() && !Moved()) {
    state_ = State::kIdle;
    return;
  }
  std::vector<IoRequest> writes;
  for (LogFiles& log : logs_) {
    for (const IoRequest& request : log.Writes()) writes.push_back(request);
  }
  Submit(std::move(writes), State::kWriting);
}

bool Logger::Moved() const {
  return next_block_.epoch != block_.epoch || next_block_.reaches != block_.reaches ||
         next_block_.ends != block_.ends;
}

bool Logger::Drain() {
  absl::Status full;
  for (Stream& stream : streams_) {
    const uint64_t tail = stream.ring->tail();
    if (!stream.ring->IsSound(stream.added, tail)) {
      Fail(Unsound(stream));
      return false;
    }
    size_t added = 0;
    const uint64_t settled = Planted(PlantedBug::kSettleEarly) ? board_.epoch() : block_.epoch;
    absl::Status status = logs_[stream.ring->stream().island].Add(
        stream.ring->stream(), stream.added, stream.ring->Bytes(stream.added, tail), settled, &added);
    stream.added += added;
    if (added != 0) Cover(&stream);
    if (!status.ok() && !absl::IsResourceExhausted(status)) {
      Fail(std::move(status));
      return false;
    }
    full.Update(status);
  }
  if (full.ok()) return true;
  SetFull(std::move(full));
  return false;
}

void Logger::SetFull(absl::Status why) {
  full_ = std::move(why);
  if (!full_.ok()) next_prepare_ns_ = clock_.NowNs() + kFullRetryNs;
  board_.SetFull(!full_.ok());
}

void Logger::Submit(std::vector<IoRequest> requests, State state) {
  state_ = state;
  under_way_ = requests.size();
  for (const IoRequest& request : requests) queue_->Submit(request);
}

void Logger::Advance() {
  switch (state_) {
    case State::kIdle:
    case State::kRaised:
      return;
    case State::kWriting: {
      std::vector<IoRequest> syncs;
      for (const LogFiles& log : logs_) {
        for (const IoRequest& request : log.Syncs()) syncs.push_back(request);
      }
      if (Planted(PlantedBug::kSkipLogSync)) syncs.clear();
      if (Planted(PlantedBug::kFreeRingEarly)) FreeRings();
      return Submit(std::move(syncs), State::kSyncing);
    }
    case State::kSyncing:
      for (LogFiles& log : logs_) log.OnSynced();
      return WriteEpoch();
    case State::kWritingEpoch:
      return Submit({{.kind = IoKind::kSync, .file = epoch_file_}}, State::kSyncingEpoch);
    case State::kSyncingEpoch:
      return Finish();
  }
}

IoRequest Logger::EpochWrite(uint64_t number) {
  const uint64_t offset = number % 2 * epoch_bytes_.size();
  return {.kind = IoKind::kWrite, .file = epoch_file_, .offset = offset, .buffer = std::span(epoch_bytes_)};
}

void Logger::WriteEpoch() {
  epoch_bytes_ = EncodeEpochBlock(next_block_);
  Submit({EpochWrite(next_block_.number)}, State::kWritingEpoch);
}

void Logger::Finish() {
  state_ = State::kIdle;
  block_ = std::move(next_block_);
  board_.SetDurable(block_.epoch);
  const int64_t now_ns = clock_.NowNs();
  next_round_ns_ = std::max(next_round_ns_, now_ns + std::min(now_ns - begun_ns_, kMostRestNs));
  FreeRings();
  if (full_.ok() || clock_.NowNs() >= next_prepare_ns_) PrepareSegments();
}

void Logger::PrepareSegments() {
  RemoveOldSegments();
  if (!failure_.ok()) return;
  absl::Status full;
  for (uint32_t island = 0; island < logs_.size(); ++island) {
    absl::Status made = logs_[island].PrepareNext(Reserve(island));
    if (!made.ok() && !absl::IsResourceExhausted(made)) return Fail(std::move(made));
    full.Update(made);
  }
  SetFull(std::move(full));
}

absl::Status Logger::TakeShortage() {
  absl::Status shortage;
  for (LogFiles& log : logs_) shortage.Update(log.TakeShortage());
  return shortage;
}

uint64_t Logger::Reserve(uint32_t island) const {
  constexpr uint64_t kRings = 3;
  uint64_t bytes = 0;
  for (const Stream& stream : streams_) {
    if (stream.ring->stream().island == island) bytes += kRings * stream.ring->capacity();
  }
  return std::min(bytes, options_.segment_bytes);
}

bool Logger::KeepsSpares() const {
  bool keep = full_.ok();
  for (uint32_t island = 0; island < board_.islands(); ++island) keep &= !board_.pages_full(island);
  return keep;
}

void Logger::RemoveOldSegments() {
  const bool keep = KeepsSpares();
  for (uint32_t island = 0; island < needed_.size() && failure_.ok(); ++island) {
    const uint64_t needed = board_.needed_segment(island);
    if (needed <= needed_[island] && (keep || !logs_[island].keeps_some())) continue;
    needed_[island] = std::max(needed_[island], needed);
    const absl::Status removed = logs_[island].Release(needed_[island], keep);
    if (!removed.ok()) Fail(removed);
  }
}

void Logger::FreeRings() {
  for (Stream& stream : streams_) {
    if (stream.ring->head() > stream.added || !stream.ring->IsSound(stream.added, stream.ring->tail()))
      return Fail(Unsound(stream));
    stream.ring->SetHead(stream.added, block_.number);
  }
}

void Logger::Fail(absl::Status why) {
  if (!failure_.ok()) return;
  failure_ =
      absl::Status(why.code(), fmt::format("the log cannot go on: {}; nothing is made durable any more, "
                                           "stop the deployment and mend the disk",
                                           std::string(why.message())));
}

}  // namespace islands::log
