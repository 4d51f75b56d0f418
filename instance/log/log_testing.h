// A box of islands for tests of the log: rings in memory, workers that append records of which each says who
// and what it is, one logger on a simulated disk. It remembers what was appended, and compares after every
// loss of power what the disk gives back from the islands' last checkpoints on, and whether the manifest's
// cuts say of it what they must.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/board.h"
#include "instance/log/box_manifest.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::log {

class LogBox {
 public:
  static constexpr uint64_t kCluster = 0x1234;
  static constexpr char kDirectory[] = "/log";

  struct Written {
    uint64_t epoch = 0;
    std::string body;
    bool shown = false;
    std::optional<bool> counts = {};  // once power was lost: whether it was durable
    friend bool operator==(const Written& a, const Written& b) {
      return a.epoch == b.epoch && a.body == b.body;
    }
  };
  // The records of a stream by their number, which begins with 0 and which each has in its body.
  using Stream = std::vector<Written>;

  // Less than that, of most records and of one of eight.
  struct BodyBytes {
    uint64_t usual = 200;
    uint64_t large = 9000;
  };

  LogBox(std::vector<uint32_t> workers, uint64_t seed, runtime::MemoryFileSystem& files)
      : LogBox(std::move(workers), seed, files, BodyBytes()) {}
  LogBox(std::vector<uint32_t> workers, uint64_t seed, runtime::MemoryFileSystem& files, BodyBytes body_bytes)
      : workers_(std::move(workers)),
        random_(seed),
        files_(files),
        body_bytes_(body_bytes),
        checkpoints_(workers_.size()),
        newest_(workers_.size()),
        needed_(workers_.size()) {
    StartBox();
  }

  // One worker does the next small thing: takes the hold, appends, shows or lets go.
  void StepWorker() {
    const auto island = static_cast<uint32_t>(random_.Below(workers_.size()));
    Worker& worker = islands_[island].workers[random_.Below(workers_[island])];
    if (worker.hold == nullptr) return;  // its island is down
    if (!worker.hold->held()) {
      worker.epoch = worker.hold->Take();
      return;
    }
    switch (random_.Below(4)) {
      case 0:
      case 1:
        return Append(worker);
      case 2:
        return Show(worker);
      default:
        Show(worker);
        worker.hold->Release();
    }
  }
  // Every worker shows what it has and lets go.
  void Quiesce() {
    for (Island& island : islands_) {
      for (Worker& worker : island.workers) {
        if (worker.hold == nullptr) continue;
        Show(worker);
        worker.hold->Release();
      }
    }
  }
  bool StepLogger() {
    clock_.AdvanceNs(runtime::kNsPerMs / 10);
    const uint64_t disk_steps = files_.steps();
    const bool some = logger_->RunOnce();
    EXPECT_LE(board_->durable(), EpochOnDisk());
    if (files_.steps() != disk_steps) LookAtNewSegments();
    LookForKeptSegments();
    if (logger_->failure().ok()) return some;
    return false;
  }
  // Until everything shown is durable, or nothing moves any more.
  void DrainAll() {
    for (int quiet = 0, steps = 0; quiet < 100 && steps < 5000; ++steps) quiet = StepLogger() ? 0 : quiet + 1;
  }

  // As the island's cleaner does, on disk at once: its log is needed from a segment on that chance picks.
  // Nobody does if the island is down, or WrittenAgainInPart.
  void Checkpoint(uint32_t island) {
    if (islands_[island].workers[0].hold == nullptr) return;
    Begin& begin = checkpoints_[island];
    const LogPosition end = logger_->epoch_block().ends[island];  // as on disk
    const auto segments = Reader(island, begin.segment, end).Segments();
    ASSERT_TRUE(segments.ok()) << segments.status();
    if (segments->empty()) return;
    const uint64_t segment = (*segments)[random_.Below(segments->size())].segment;
    if (segment == begin.segment) return;
    std::map<StreamId, Found> before, after;
    Read(island, begin.segment, end, &before);
    Read(island, segment, end, &after);
    for (const auto& [id, found] : before) ExpectWritten(id, streams_[id], found);
    if (testing::Test::HasFatalFailure() || WrittenAgainInPart(before, after)) return;
    for (const auto& [id, found] : before)
      begin.first[id] = after.contains(id) ? after[id].first : found.end();
    for (const auto& [id, found] : after) EXPECT_TRUE(before.contains(id));
    begin.segment = segment;
    board_->SetNeededSegment(island, segment);
  }

  // kill -9. What was appended and not shown is gone; the next life begins once the ring is drained.
  void KillIsland(uint32_t island) {
    for (Worker& worker : islands_[island].workers) {
      if (worker.hold == nullptr) continue;
      std::erase_if(*worker.written, [](const Written& written) { return !written.shown; });
      worker.hold.reset();  // what it holds stays on the board
      worker.writer.reset();
    }
    logger_->OnIslandDead(island, islands_[island].workers[0].ring->stream().life);
  }
  bool TryRestartIsland(uint32_t island) {
    if (islands_[island].workers[0].hold != nullptr || !logger_->ReleaseDrained(island)) return false;
    StartIsland(island);
    return true;
  }
  // Also while it writes; the rings stay. `left`: what it has in flight happens when the test says so
  // (MemoryFileSystem::FinishLeft), or before the next one can have the lock.
  void KillLogger(bool left = false) {
    files_.LeaveInFlight(left);
    logger_.reset();
    files_.LeaveInFlight(false);
    StartLogger();
  }
  // The whole box: rings and board are gone, and the disk is what it is. Then everything starts again.
  template <typename Lose>
  void PowerLoss(Lose lose) {
    const uint64_t promised = board_->durable();
    lose();  // with whatever the logger has in flight
    logger_.reset();
    islands_.clear();
    MakeCut();
    CompareDisk(promised);
    StartBox();
  }

  Logger& logger() { return *logger_; }
  Board& board() { return *board_; }
  Ring& ring(uint32_t island) { return *islands_[island].workers[0].ring; }
  runtime::Random& random() { return random_; }
  size_t islands() const { return workers_.size(); }
  // Records that a loss of power may take, by whether it did.
  uint64_t kept() const { return kept_; }
  uint64_t dropped() const { return dropped_; }
  // Segments that were made of older ones, and looks at whether some were kept from those who had no room.
  uint64_t recycled() const { return recycled_; }
  uint64_t looks_without_room() const { return looks_without_room_; }

 private:
  struct Worker {
    std::shared_ptr<Ring> ring;
    std::unique_ptr<RingWriter> writer;
    std::unique_ptr<EpochHold> hold;
    Stream* written = nullptr;
    uint64_t epoch = 0;
  };
  struct Island {
    std::vector<Worker> workers;
  };
  // From where on a log is read: an island's checkpoint.
  struct Begin {
    uint64_t segment = 0;                // 0: from the first one on
    std::map<StreamId, uint64_t> first;  // number of the record that comes first then; none: 0
  };
  // What was read of a stream: the numbers follow each other.
  struct Found {
    uint64_t first = 0;
    Stream records;
    uint64_t end() const { return first + records.size(); }
  };

  void StartBox() {
    const absl::StatusOr<BoxManifest> manifest = ReadManifest();
    if (manifest.ok()) {
      manifest_ = *manifest;
    } else {
      ASSERT_TRUE(absl::IsNotFound(manifest.status())) << manifest.status();
      WriteManifest({.cluster = kCluster, .lives = Lives()});
    }
    board_ = std::make_unique<Board>(workers_);
    islands_.resize(workers_.size());
    for (uint32_t island = 0; island < workers_.size(); ++island)
      islands_[island].workers.resize(workers_[island]);
    StartLogger();
    for (uint32_t island = 0; island < workers_.size(); ++island) StartIsland(island);
  }
  std::vector<uint64_t> Lives() const { return std::vector<uint64_t>(workers_.size()); }
  absl::StatusOr<BoxManifest> ReadManifest() {
    return ReadBoxManifest(files_, kDirectory, kCluster, workers_.size());
  }
  void WriteManifest(const BoxManifest& manifest) {
    const absl::Status written = WriteBoxManifest(files_, kDirectory, manifest);
    ASSERT_TRUE(written.ok()) << written;
    manifest_ = manifest;
  }
  void MakeCut() {
    absl::StatusOr<BoxManifest> manifest = ReadManifest();
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(*manifest, manifest_);
    const auto block =
        ReadEpochFile(files_, std::string(kDirectory) + "/" + kEpochFileName, kCluster, workers_.size());
    ASSERT_TRUE(block.ok()) << block.status();
    Cut(&*manifest, *block);
    WriteManifest(*manifest);
  }
  bool IsCut(uint64_t epoch) const {
    return std::any_of(manifest_.cuts.begin(), manifest_.cuts.end(),
                       [&](const EpochCut& cut) { return epoch > cut.durable && epoch < cut.next; });
  }
  void StartIsland(uint32_t island) {
    ++life_;
    board_->SetNeededSegment(island, checkpoints_[island].segment);
    for (uint32_t number = 0; number < workers_[island]; ++number) {
      Worker& worker = islands_[island].workers[number];
      const StreamId id{life_, island, number};
      worker.ring = Ring::InMemory(id, Ring::kLeastCapacity);
      worker.writer = std::make_unique<RingWriter>(*worker.ring);
      worker.hold = std::make_unique<EpochHold>(*board_, island, number);
      worker.written = &streams_[id];
      EXPECT_TRUE(logger_->Add(worker.ring).ok());
    }
  }
  absl::StatusOr<std::unique_ptr<Logger>> OpenLogger() {
    return Logger::Open(files_, clock_, *board_,
                        {.directory = kDirectory,
                         .cluster = kCluster,
                         .segment_bytes = kLeastSegmentBytes,
                         .first_epoch = FirstEpoch(manifest_)});
  }
  void StartLogger() {
    auto opened = OpenLogger();
    if (absl::IsUnavailable(opened.status())) files_.FinishLeft(), opened = OpenLogger();
    ASSERT_TRUE(opened.ok()) << opened.status();
    logger_ = std::move(*opened);
    steps_without_room_ = 0;
    for (uint32_t island = 0; island < workers_.size(); ++island) {
      newest_[island] = 0;
      for (const uint64_t number : SegmentsOf(island)) newest_[island] = number;
    }
    for (uint32_t island = 0; island < islands_.size(); ++island) {
      for (Worker& worker : islands_[island].workers) {
        if (worker.ring == nullptr) continue;
        EXPECT_TRUE(logger_->Add(worker.ring).ok());
      }
      if (!islands_[island].workers.empty() && islands_[island].workers[0].ring != nullptr &&
          islands_[island].workers[0].hold == nullptr) {
        logger_->OnIslandDead(island, islands_[island].workers[0].ring->stream().life);
      }
    }
    const absl::Status started = logger_->Start();
    EXPECT_TRUE(started.ok()) << started;
  }

  void Append(Worker& worker) {
    std::string body(8 + random_.Below(random_.Below(8) == 0 ? body_bytes_.large : body_bytes_.usual), '\0');
    for (size_t at = 0; at < body.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(body.data() + at, &word, std::min(sizeof(word), body.size() - at));
    }
    const uint64_t number = worker.written->size();
    std::memcpy(body.data(), &number, sizeof(number));
    if (worker.writer->Room() < RecordBytes(body.size())) return;
    worker.epoch = worker.hold->Take();
    log::Append(*worker.writer, 1, worker.epoch << 24 | number, {std::as_bytes(std::span(body))});
    worker.written->push_back({worker.epoch, std::move(body)});
  }
  void Show(Worker& worker) {
    worker.writer->Show();
    for (auto written = worker.written->rbegin(); written != worker.written->rend() && !written->shown;
         ++written)
      written->shown = true;
  }

  uint64_t EpochOnDisk() {
    const auto block =
        ReadEpochFile(files_, std::string(kDirectory) + "/" + kEpochFileName, kCluster, workers_.size());
    EXPECT_TRUE(block.ok()) << block.status();
    return block.ok() ? block->epoch : 0;
  }

  // Ascending.
  std::vector<uint64_t> SegmentsOf(uint32_t island) {
    std::vector<uint64_t> numbers;
    const auto names = files_.List(IslandDirectory(kDirectory, island));
    if (names.ok()) {
      for (const std::string& name : *names) numbers.push_back(SegmentNumber(name));
    }
    return numbers;
  }
  // Right after they have been made: nothing has been written to them. What is in one that was an earlier
  // segment passes for that one's, and not for the new one's.
  void LookAtNewSegments() {
    for (uint32_t island = 0; island < workers_.size(); ++island) {
      for (const uint64_t number : SegmentsOf(island)) {
        if (number > newest_[island]) LookAtNewSegment(island, number);
        newest_[island] = std::max(newest_[island], number);
      }
    }
  }
  void LookAtNewSegment(uint32_t island, uint64_t number) {
    const auto content = files_.ReadFile(IslandDirectory(kDirectory, island) + "/" + SegmentName(number));
    ASSERT_TRUE(content.ok()) << content.status();
    const std::span<const std::byte> bytes = std::as_bytes(std::span(*content));
    const absl::StatusOr<SegmentHeader> header = DecodeSegmentHeader(bytes);
    if (!header.ok()) return;
    ++recycled_;
    size_t taken = 0;
    const auto frame = [&](uint64_t as) {
      return DecodeFrame(island, {as, kSegmentHeaderBytes}, bytes.subspan(kSegmentHeaderBytes), &taken);
    };
    EXPECT_TRUE(frame(header->number).ok()) << header->number;
    EXPECT_FALSE(frame(number).ok()) << "a frame of segment " << header->number << " in " << number;
    EXPECT_FALSE(Reader(island, 0, {number, bytes.size()}).Segments().ok()) << number;
  }
  // Where log or pages find no room the logger soon has removed all segments that nobody needed.
  void LookForKeptSegments() {
    constexpr uint64_t kSoon = 100;  // steps
    bool room = !board_->full();
    for (uint32_t island = 0; island < workers_.size(); ++island) room &= !board_->pages_full(island);
    steps_without_room_ = room || !logger_->failure().ok() ? 0 : steps_without_room_ % kSoon + 1;
    if (steps_without_room_ == kSoon) ++looks_without_room_;
    for (uint32_t island = 0; island < workers_.size(); ++island) {
      if (steps_without_room_ == 1) needed_[island] = board_->needed_segment(island);
      if (steps_without_room_ != kSoon) continue;
      for (const uint64_t number : SegmentsOf(island))
        EXPECT_GE(number, needed_[island]) << "is kept, island " << island;
    }
  }

  LogReader Reader(uint32_t island, uint64_t segment, const LogPosition& end) {
    return LogReader(files_,
                     {.directory = IslandDirectory(kDirectory, island),
                      .cluster = kCluster,
                      .island = island,
                      .begin = segment == 0 ? LogPosition()
                                            : LogPosition{.segment = segment, .offset = kSegmentHeaderBytes}},
                     end);
  }
  void Read(uint32_t island, uint64_t segment, const LogPosition& end, std::map<StreamId, Found>* found) {
    const absl::Status read =
        Reader(island, segment, end).Read([&](const StreamId& id, const Record& record) {
          std::string body(reinterpret_cast<const char*>(record.body.data()), record.body.size());
          uint64_t number = 0;
          std::memcpy(&number, body.data(), sizeof(number));
          Found& stream = (*found)[id];
          if (stream.records.empty()) stream.first = number;
          EXPECT_EQ(number, stream.end()) << Where(id);
          stream.records.push_back({record.lsn >> 24, std::move(body)});
          return absl::OkStatus();
        });
    ASSERT_TRUE(read.ok()) << read;
  }
  // Whether a logger has begun to write again what EPOCH covers and lies before the segment, or may yet,
  // because a ring is not free of it. It may not come to the end: whoever reads from the segment on would
  // take the last of it for lost. The cleaner's checkpoint waits until a later epoch is durable.
  bool WrittenAgainInPart(const std::map<StreamId, Found>& before, const std::map<StreamId, Found>& after) {
    for (const auto& [id, found] : before) {
      const auto again = after.find(id);
      if (again != after.end() && again->second.end() != found.end()) return true;
      const Ring& ring = *islands_[id.island].workers[id.worker].ring;
      if (again != after.end() || ring.stream() != id) continue;
      uint64_t bytes = 0;
      for (uint64_t number = 0; number < found.end(); ++number)
        bytes += RecordBytes(streams_[id][number].body.size());
      if (ring.head() < bytes) return true;
    }
    return false;
  }
  static std::string Where(const StreamId& id) {
    return "life " + std::to_string(id.life) + " island " + std::to_string(id.island);
  }

  // What the disk says that was durable, against what was written.
  void CompareDisk(uint64_t promised) {
    const auto block =
        ReadEpochFile(files_, std::string(kDirectory) + "/" + kEpochFileName, kCluster, workers_.size());
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_GE(block->epoch, promised);
    std::map<StreamId, Found> found;
    for (uint32_t island = 0; island < workers_.size(); ++island)
      Read(island, checkpoints_[island].segment, block->ends[island], &found);
    if (testing::Test::HasFatalFailure()) return;
    for (const auto& [id, stream] : found) EXPECT_TRUE(streams_.contains(id)) << Where(id);
    for (auto& [id, written] : streams_) {
      Found& stream = found[id];
      if (stream.records.empty()) stream.first = checkpoints_[id.island].first[id];
      Compare(id, written, stream, block->epoch);
    }
  }
  // From the checkpoint's first record on, or from one before it, which a logger has written again.
  void ExpectWritten(const StreamId& id, const Stream& written, const Found& found) {
    const uint64_t first = checkpoints_[id.island].first[id];
    EXPECT_LE(found.first, first) << Where(id);
    ASSERT_GE(found.end(), first) << Where(id);
    ASSERT_LE(found.end(), written.size()) << Where(id);
    const auto begin = written.begin() + static_cast<ptrdiff_t>(found.first);
    EXPECT_TRUE(std::equal(found.records.begin(), found.records.end(), begin)) << Where(id);
  }
  // What is on disk is what was written, without gaps, at least as far as EPOCH reaches.
  void Compare(const StreamId& id, Stream& written, const Found& found, uint64_t epoch) {
    ExpectWritten(id, written, found);
    if (testing::Test::HasFatalFailure()) return;
    for (size_t number = checkpoints_[id.island].first[id]; number < written.size(); ++number) {
      const bool counts = number < found.end() && written[number].epoch <= epoch;
      ++(counts ? kept_ : dropped_);
      if (written[number].epoch > epoch || !written[number].shown) continue;
      ASSERT_LT(number, found.end()) << Where(id) << ": a record of epoch " << written[number].epoch
                                     << " is lost, though EPOCH says " << epoch;
    }
    // They stay in the files, and the next comparison finds them again: what did not count never does.
    written.resize(found.end());
    for (Written& record : written) {
      if (!record.counts) record.counts = record.epoch <= epoch;
      EXPECT_NE(IsCut(record.epoch), *record.counts) << Where(id) << " epoch " << record.epoch;
    }
  }

  const std::vector<uint32_t> workers_;
  runtime::Random random_;
  runtime::MemoryFileSystem& files_;
  const BodyBytes body_bytes_;
  runtime::ManualClock clock_;
  std::unique_ptr<Board> board_;
  std::vector<Island> islands_;
  std::unique_ptr<Logger> logger_;
  std::map<StreamId, Stream> streams_;
  uint64_t life_ = 0;
  std::vector<Begin> checkpoints_;  // by island, on disk
  BoxManifest manifest_;            // as on disk
  std::vector<uint64_t> newest_;    // by island: the last segment of which something is known
  uint64_t steps_without_room_ = 0;
  std::vector<uint64_t> needed_;  // by island: at the first of those steps
  uint64_t looks_without_room_ = 0;
  uint64_t recycled_ = 0;
  uint64_t kept_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace islands::log
