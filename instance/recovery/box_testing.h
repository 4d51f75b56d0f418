// A box with one island of one worker, its executor, log, logger and cleaner, on a disk that loses power. Who
// steps it says what dies when; whenever the island comes back, it is compared with what must be there
// (box_work_testing.h).
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/journal.h"
#include "instance/log/log_files.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/recovery/box_work_testing.h"
#include "instance/recovery/cleaner.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/recovery.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"
#include "runtime/latch_site.h"
#include "runtime/random.h"

namespace islands::recovery {

inline constexpr char kLogDirectory[] = "/log";
inline constexpr std::array<uint32_t, 1> kWorkers = {1};

class Box {
 public:
  struct Options {
    bool pages = false;  // they go to disk, and recovery begins from a checkpoint
    bool two_phases = false;
    bool commands = false;  // most lives log what can be repeated as commands
  };
  explicit Box(uint64_t seed) : Box(seed, Options()) {}
  Box(uint64_t seed, Options options)
      : random_(seed),
        pages_(options.pages),
        commands_(options.commands),
        work_(random_, options.two_phases),
        files_({.seed = seed, .sector_bytes = seed % 4 < 2 ? 512u : 4096u}) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(kKeys);
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("by_first_bytes");
    index->add_key("row:0:uint32");
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    StartBox();
  }
  ~Box() {
    Die();
    StopInterleaving();
  }

#ifdef ISLANDS_PLANTED_BUGS
  // Where that engine has scheduling points (latch_site.h) the logger has turns within the worker's.
  void Interleave() {
    interleaved = this;
    runtime::interleave = [](bool) {
      Box& box = *interleaved;
      if (box.interleaves_ || !box.works_ || box.interleaving_.Below(3) != 0) return;
      box.interleaves_ = true;
      box.clock_.AdvanceNs(runtime::kNsPerMs);
      box.logger_->RunOnce();
      box.interleaves_ = false;
    };
  }
  static void StopInterleaving() { runtime::interleave = nullptr; }
  static inline Box* interleaved = nullptr;
#else
  void Interleave() {}
  static void StopInterleaving() {}
#endif

  // The worker's.
  void Step() {
    works_ = true;
    work_.Step();
    works_ = false;
  }
  // The worker shows what it has appended.
  void EndStep() { work_.EndStep(); }
  void StepLogger() {
    clock_.AdvanceNs(runtime::kNsPerMs / 3);
    logger_->RunOnce();
    ASSERT_TRUE(logger_->failure().ok()) << logger_->failure();
  }
  void StepCleaner() {
    work_.EndStep();
    works_ = true;
    const uint64_t before = cleaner_->checkpoint().number;
    cleaner_->RunOnce();
    works_ = false;
    ASSERT_TRUE(cleaner_->failure().ok()) << cleaner_->failure();
    checkpoints_ += cleaner_->checkpoint().number - before;
    if (random_.Below(20) == 0) RemoveSegments();
  }
  void RemoveSegments() {
    const std::string log = log::IslandDirectory(kLogDirectory, 0);
    const size_t segments = files_.List(log)->size();
    const absl::Status removed = log::RemoveSegmentsBefore(files_, log, cleaner_->checkpoint().position);
    ASSERT_TRUE(removed.ok()) << removed;
    removed_segments_ += segments - files_.List(log)->size();
  }
  void DrainAll() {
    for (int i = 0; i < 200; ++i) StepLogger();
  }

  // kill -9: what the last step has not shown is gone, and with it everything it did.
  void Kill() {
    Die();
    logger_->OnIslandDead(0, life_);
    for (int i = 0; !logger_->ReleaseDrained(0); ++i) {
      ASSERT_LT(i, 10'000);
      StepLogger();
    }
    StartIsland(cuts_);
    Compare();
  }
  void KillLogger() {
    logger_.reset();
    StartLogger();
  }
  // All processes die, and with them G; the rings stay, and the machine.
  void KillAll() {
    Die();
    logger_.reset();
    board_ = std::make_unique<log::Board>(kWorkers);
    StartLogger();
    logger_->OnIslandDead(0, life_);
    while (!logger_->ReleaseDrained(0)) StepLogger();
    StartIsland(cuts_);
    Compare();
  }
  void LosePower() {
    ++power_losses_;
    const uint64_t promised = board_->durable();
    files_.PowerLoss(random_());
    Die();
    logger_.reset();
    ring_.reset();
    const absl::StatusOr<log::EpochBlock> block = ReadEpoch();
    ASSERT_TRUE(block.ok()) << block.status();
    ASSERT_GE(block->epoch, promised);
    work_.LosePower(block->epoch);
    lost_power_ = block->epoch;
    next_epoch_ = block->reaches + 1;  // above all that can still be found
    StartBox();
    Compare();
  }

  // Every process has ended. `drained`: what the worker has appended is on disk before; otherwise it may be
  // in the ring alone. The box goes nowhere from here.
  void Stop(bool drained) {
    if (drained) EndStep();
    if (drained) DrainAll();
    Die();
    logger_.reset();
  }
  // The cleaner waits for an epoch; while nobody appends it has to be asked for.
  void WantWhatCleanerWaitsFor() { board_->Want(cleaner_->waits_for()); }
  runtime::MemoryFileSystem& files() { return files_; }
  const storage::Catalog& catalog() const { return *catalog_; }
  const std::shared_ptr<log::Ring>& ring() const { return ring_; }
  const std::vector<log::EpochCut>& cuts() const { return cuts_; }
  uint64_t life() const { return life_; }

  uint64_t losers() const { return losers_; }
  uint64_t repeated_commands() const { return repeated_; }
  uint64_t restarts_of_recovery() const { return restarts_of_recovery_; }
  const Work& work() const { return work_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t checkpoints() const { return checkpoints_; }
  uint64_t removed_segments() const { return removed_segments_; }
  uint64_t lost_in_recovery() const { return lost_in_recovery_; }
  uint64_t power_losses() const { return power_losses_; }

 private:
  absl::StatusOr<log::EpochBlock> ReadEpoch() {
    return log::ReadEpochFile(files_, std::string(kLogDirectory) + "/" + log::kEpochFileName, 1, 1);
  }

  void StartBox() {
    board_ = std::make_unique<log::Board>(kWorkers);
    if (lost_power_) cuts_.push_back({*lost_power_, next_epoch_});
    lost_power_.reset();
    StartLogger();
    StartIsland(cuts_);
  }
  void StartLogger() {
    auto logger = log::Logger::Open(files_, clock_, *board_,
                                    {.directory = kLogDirectory,
                                     .cluster = 1,
                                     .segment_bytes = log::kLeastSegmentBytes,
                                     .first_epoch = cuts_.empty() ? 1 : cuts_.back().next});
    ASSERT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
    if (ring_ != nullptr) {
      EXPECT_TRUE(logger_->Add(ring_).ok());
    }
    EXPECT_TRUE(logger_->Start().ok());
  }

  // Recovers, and dies now and then while it does.
  void StartIsland(const std::vector<log::EpochCut>& cuts) {
    while (!TryStartIsland(cuts)) {
      ASSERT_FALSE(testing::Test::HasFailure());
      ++restarts_of_recovery_;
      if (without_power_ || (pages_ && random_.Below(3) == 0)) {
        ++lost_in_recovery_;
        without_power_ = false;
        return LosePower();
      }
      Die();
      logger_->OnIslandDead(0, life_);
      while (!logger_->ReleaseDrained(0)) StepLogger();
    }
  }
  bool TryStartIsland(const std::vector<log::EpochCut>& cuts) {
    const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 16 << 20, .alone = true};
    auto store = storage::Store::CreateForRedo(*catalog_, options);
    EXPECT_TRUE(store.ok());
    Recovery recovery(*catalog_, **store, cuts, /*lanes=*/1, OpenGiven);
    const absl::StatusOr<log::EpochBlock> block = ReadEpoch();
    EXPECT_TRUE(block.ok());
    std::optional<IslandData> data;
    if (pages_) {
      data = ReadData(options, *block, &*store);
      if (!data) return false;
      recovery.BeginFrom(data->checkpoint);
    }
    log::LogReader reader(files_,
                          {.directory = log::IslandDirectory(kLogDirectory, 0),
                           .cluster = 1,
                           .island = 0,
                           .begin = data ? data->checkpoint.position : log::LogPosition()},
                          block->ends[0]);
    const absl::Status read = reader.Read([&](const log::StreamId& stream, const log::Record& record) {
      return recovery.Redo(stream, record);
    });
    EXPECT_TRUE(read.ok()) << read;
    const bool empty = recovery.records() == 0 && !pages_;
    if (!empty) {
      const absl::Status found = recovery.FindTrees();
      EXPECT_TRUE(found.ok()) << found;
    }
    ring_ = log::Ring::InMemory({++life_, 0, 0}, size_t{4} << 20);
    EXPECT_TRUE(logger_->Add(ring_).ok());
    EXPECT_GT(board_->epoch(), recovery.last().epoch());
    journal_ = std::make_unique<log::Journal>(*board_, *ring_, recovery.last());
    logs_commands_ = commands_ && random_.Below(4) != 0;
    repeated_ += recovery.commands();
    work_.LogCommands(logs_commands_);
    journal_->Listen();
    if (empty) {
      auto created = storage::Store::Create(*catalog_, options, files_);
      EXPECT_TRUE(created.ok());
      store_ = *std::move(created);
      journal_->AppendDone();
    } else {
      store_ = *std::move(store);
    }
    locks_ = std::make_unique<locks::LockTable>(locks::LockTableOptions{.buckets = 1024});
    executor_ = std::make_unique<instance::Executor>(
        *catalog_, *store_, *locks_, instance::ExecutorOptions{.alone = true, .journal = journal_.get()});
    losers_ += recovery.losers();
    dropped_ += recovery.dropped();
    const absl::Status suits = recovery.CheckUndo();
    EXPECT_TRUE(suits.ok()) << suits;
    const bool whole = recovery.UndoLosers(*executor_, [&] { return random_.Below(3) != 0; });
    if (!whole && random_.Below(2) == 0) {
      journal_->EndStep();  // or it dies before it could show that
    }
    if (whole) journal_->EndStep();
    if (whole) work_.BeginLife(*executor_, *journal_, *ring_, recovery.unsettled());
    if (whole && pages_) StartCleaner(*std::move(data), logs_commands_ || recovery.commands() != 0);
    return whole;
  }
  // Power may die meanwhile. The first time there are no files, or none that are whole.
  std::optional<IslandData> ReadData(const storage::StoreOptions& options, const log::EpochBlock& block,
                                     std::unique_ptr<storage::Store>* store) {
    const IslandDataOptions where{.directory = "/data", .cluster = 1};
    const bool first = !IsGenerationWhole(files_, where.directory, where.generation);
    if (random_.Below(4) == 0) files_.FailAfter(random_.Below(25));
    absl::Status made;
    if (first) {
      auto created = storage::Store::Create(*catalog_, options, files_);
      EXPECT_TRUE(created.ok());
      made = WriteGeneration(files_, *catalog_, where, **created, {board_->durable() + 1, block.ends[0]},
                             NoProgress)
                 .status();
    }
    absl::StatusOr<IslandData> data = made.ok() ? absl::UnknownError("") : made;
    if (made.ok()) data = ReadGeneration(files_, *catalog_, where, **store, NoProgress);
    files_.FailAfter(UINT32_MAX);
    if (data.ok()) return *std::move(data);
    EXPECT_EQ(data.status().code(), absl::StatusCode::kUnavailable) << data.status();
    without_power_ = true;
    return std::nullopt;
  }
  void StartCleaner(IslandData data, bool snapshots) {
    const Cleaner::Options options{.log_directory = kLogDirectory,
                                   .pages_per_call = 1 + random_.Below(30),
                                   .batch_pages = 1 + random_.Below(40),
                                   .snapshots = snapshots ? journal_.get() : nullptr,
                                   .first_only = !logs_commands_};
    const auto oldest_open = [this] { return journal_->open().oldest(); };
    auto cleaner = Cleaner::Create(files_, *store_, *board_, std::move(data), options, oldest_open);
    ASSERT_TRUE(cleaner.ok()) << cleaner.status();
    cleaner_ = *std::move(cleaner);
    RemoveSegments();
  }
  void Die() {
    cleaner_.reset();
    work_.EndLife();
    executor_.reset();
    locks_.reset();
    storage::page_change_sink = nullptr;
    journal_.reset();
    store_.reset();
  }

  void Compare() {
    if (testing::Test::HasFailure()) return;  // there may be nothing to compare
    work_.Compare(*store_);
    const absl::Status sound = store_->Check();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  runtime::Random random_;
  runtime::Random interleaving_{7};
  bool interleaves_ = false;  // now
  bool works_ = false;        // the worker is within a step
  const bool pages_;
  const bool commands_;
  bool logs_commands_ = false;  // this life
  Work work_;
  runtime::MemoryFileSystem files_;
  runtime::ManualClock clock_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::Logger> logger_;
  std::shared_ptr<log::Ring> ring_;
  std::unique_ptr<log::Journal> journal_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<locks::LockTable> locks_;
  std::unique_ptr<instance::Executor> executor_;
  std::unique_ptr<Cleaner> cleaner_;
  std::vector<log::EpochCut> cuts_;
  std::optional<uint64_t> lost_power_;
  uint64_t next_epoch_ = 1;
  uint64_t life_ = 0;
  uint64_t losers_ = 0;
  uint64_t repeated_ = 0;
  uint64_t restarts_of_recovery_ = 0;
  uint64_t dropped_ = 0;
  bool without_power_ = false;  // since recovery was tried
  uint64_t checkpoints_ = 0;
  uint64_t removed_segments_ = 0;
  uint64_t lost_in_recovery_ = 0;
  uint64_t power_losses_ = 0;
};

}  // namespace islands::recovery
