// A box of islands for tests of the log: rings in memory, workers that append records of which each says who
// and what it is, one logger on a simulated disk. It remembers what was appended, and compares after every
// loss of power what the disk gives back, and whether the manifest's cuts say of it what they must.
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

  LogBox(std::vector<uint32_t> workers, uint64_t seed, runtime::MemoryFileSystem& files)
      : workers_(std::move(workers)), random_(seed), files_(files) {
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
    const bool some = logger_->RunOnce();
    EXPECT_LE(board_->durable(), EpochOnDisk());
    if (logger_->failure().ok()) return some;
    return false;
  }
  // Until everything shown is durable, or nothing moves any more.
  void DrainAll() {
    for (int quiet = 0, steps = 0; quiet < 100 && steps < 5000; ++steps) quiet = StepLogger() ? 0 : quiet + 1;
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
  // Also while it writes; the rings stay.
  void KillLogger() {
    logger_.reset();
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
  void StartLogger() {
    auto opened = Logger::Open(files_, clock_, *board_,
                               {.directory = kDirectory,
                                .cluster = kCluster,
                                .segment_bytes = kLeastSegmentBytes,
                                .first_epoch = FirstEpoch(manifest_)});
    ASSERT_TRUE(opened.ok()) << opened.status();
    logger_ = std::move(*opened);
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
    std::string body(8 + random_.Below(random_.Below(8) == 0 ? 9000 : 200), '\0');
    for (char& c : body) c = static_cast<char>(random_());
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

  // What the disk says that was durable, against what was written.
  void CompareDisk(uint64_t promised) {
    const auto block =
        ReadEpochFile(files_, std::string(kDirectory) + "/" + kEpochFileName, kCluster, workers_.size());
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_GE(block->epoch, promised);
    std::map<StreamId, Stream> found;
    for (uint32_t island = 0; island < workers_.size(); ++island) {
      LogReader reader(
          files_, {.directory = IslandDirectory(kDirectory, island), .cluster = kCluster, .island = island},
          block->ends[island]);
      const absl::Status read = reader.Read([&](const StreamId& stream, const Record& record) {
        const uint64_t epoch = record.lsn >> 24;
        found[stream].push_back(
            {epoch, std::string(reinterpret_cast<const char*>(record.body.data()), record.body.size())});
        return absl::OkStatus();
      });
      ASSERT_TRUE(read.ok()) << read;
    }
    for (auto& [id, written] : streams_) Compare(id, written, found[id], block->epoch);
    for (const auto& [id, stream] : found) EXPECT_TRUE(streams_.contains(id));
  }
  // What is on disk is the beginning of what was written, at least as far as EPOCH reaches.
  void Compare(const StreamId& id, Stream& written, const Stream& found, uint64_t epoch) {
    const std::string where = "life " + std::to_string(id.life) + " island " + std::to_string(id.island);
    ASSERT_LE(found.size(), written.size()) << where;
    EXPECT_TRUE(std::equal(found.begin(), found.end(), written.begin())) << where;
    for (size_t number = 0; number < written.size(); ++number) {
      const bool counts = number < found.size() && written[number].epoch <= epoch;
      ++(counts ? kept_ : dropped_);
      if (written[number].epoch > epoch || !written[number].shown) continue;
      ASSERT_LT(number, found.size()) << where << ": a record of epoch " << written[number].epoch
                                      << " is lost, though EPOCH says " << epoch;
    }
    // They stay in the files, and the next comparison finds them again: what did not count never does.
    written.resize(found.size());
    for (Written& record : written) {
      if (!record.counts) record.counts = record.epoch <= epoch;
      EXPECT_NE(IsCut(record.epoch), *record.counts) << where << " epoch " << record.epoch;
    }
  }

  const std::vector<uint32_t> workers_;
  runtime::Random random_;
  runtime::MemoryFileSystem& files_;
  runtime::ManualClock clock_;
  std::unique_ptr<Board> board_;
  std::vector<Island> islands_;
  std::unique_ptr<Logger> logger_;
  std::map<StreamId, Stream> streams_;
  uint64_t life_ = 0;
  BoxManifest manifest_;  // as on disk
  uint64_t kept_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace islands::log
