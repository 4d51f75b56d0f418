// A box with one island of one or two workers, its log, logger and cleaner, of which at any point
// (crash_points_testing.h) images can be taken: what would be left if all of it died there, killed or without
// power. The box goes on; another one comes back from each image and is compared with what must be there.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/log/journal.h"
#include "instance/log/log_files.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/recovery/cleaner.h"
#include "instance/recovery/crash_points_testing.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::recovery {

// What must be there.
class CrashModel {
 public:
  void Begin(const Changes& changes) {
    ending_ = changes;
    shown_ = false;
  }
  // The ring has its record: no kill takes it.
  void Show() { shown_ = ending_.has_value(); }
  void LosePower() { shown_ = false; }
  void Acknowledge(uint64_t epoch) { commits_.push_back({*std::exchange(ending_, std::nullopt), epoch}); }
  // Epochs above it do not count any more. What is ending may be of any.
  void Cut(uint64_t durable) {
    std::erase_if(commits_, [&](const Commit& commit) { return commit.epoch > durable; });
  }
  Rows Acknowledged() const {
    Rows rows = settled_;
    for (const Commit& commit : commits_) Apply(commit.changes, &rows);
    return rows;
  }
  Rows WithTheOneThatEnds() const {
    Rows rows = Acknowledged();
    if (ending_) Apply(*ending_, &rows);
    return rows;
  }
  bool MayHaveEnded() const { return ending_.has_value(); }
  bool MustHaveEnded() const { return shown_; }
  // Whether the one that was ending has ended; `epoch`: not below that of its record.
  void Settle(bool ended, uint64_t epoch) {
    if (ended) Acknowledge(epoch);
    ending_.reset();
    shown_ = false;
  }
  // What can be lost no more takes less room.
  void Forget(uint64_t durable) {
    size_t count = 0;
    for (; count < commits_.size() && commits_[count].epoch <= durable; ++count)
      Apply(commits_[count].changes, &settled_);
    commits_.erase(commits_.begin(), commits_.begin() + static_cast<ptrdiff_t>(count));
  }

 private:
  struct Commit {
    Changes changes;
    uint64_t epoch;
  };
  Rows settled_;
  std::vector<Commit> commits_;  // in their order, and that of their epochs
  std::optional<Changes> ending_;
  bool shown_ = false;  // its record
};

struct CrashImage {
  std::unique_ptr<runtime::MemoryFileSystem> files;
  std::vector<std::shared_ptr<log::Ring>> rings;  // none: power was lost
  size_t ring_bytes = log::Ring::kLeastCapacity;  // of each
  std::vector<log::EpochCut> cuts;
  uint64_t life = 0;
  uint64_t promised = 0;    // to be durable
  uint64_t pool_pages = 0;  // 0: it has room for all
  CrashModel model;
};

// Of one moment.
struct CrashImages {
  Point point;
  bool before;
  CrashImage killed;
  std::vector<CrashImage> without_power;
};

class CrashBox {
 public:
  // Whether images are to be taken here.
  using Wants = std::function<bool(Point point, bool before)>;

  // On an empty disk.
  CrashBox(uint32_t workers, size_t ring_bytes, uint32_t sector_bytes, uint64_t pool_pages, uint64_t seed)
      : CrashBox(workers,
                 {.files = MakeFiles(sector_bytes, seed), .ring_bytes = ring_bytes, .pool_pages = pool_pages},
                 seed) {}
  CrashBox(uint32_t workers, CrashImage image, uint64_t seed)
      : workers_(workers),
        random_(seed),
        came_back_(image.life != 0),
        disk_(std::move(image.files)),
        files_(*disk_, [this](auto act, const std::string& path, bool before) { Look(act, path, before); }),
        rings_(std::move(image.rings)),
        ring_bytes_(image.ring_bytes),
        cuts_(std::move(image.cuts)),
        life_(image.life),
        promised_(image.promised),
        pool_pages_(image.pool_pages),
        model_(std::move(image.model)) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(kKeys);
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("by_first_bytes");
    index->add_key("row:0:uint32");
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, kSites));
  }
  ~CrashBox() {
    wants_ = nullptr;
    storage::page_change_sink = nullptr;
    cleaner_.reset();
    all_.clear();
    store_.reset();
    logger_.reset();
  }
  CrashBox(const CrashBox&) = delete;
  CrashBox& operator=(const CrashBox&) = delete;

  // `images`: without power, of each moment that is wanted.
  void Watch(Wants wants, size_t images) {
    wants_ = std::move(wants);
    images_ = images;
  }
  std::vector<CrashImages> TakeImages() { return std::exchange(taken_, {}); }

  // Recovers, and is as it must be.
  void ComeUp() {
    doing_ = Doing::kDraining;
    board_ = std::make_unique<log::Board>(std::array<uint32_t, 1>{workers_});
    const bool without_power = rings_.empty() && life_ != 0;
    ASSERT_NO_FATAL_FAILURE(without_power ? MakeCut() : void());
    ASSERT_NO_FATAL_FAILURE(StartLogger());
    ASSERT_NO_FATAL_FAILURE(Drain());
    ASSERT_NO_FATAL_FAILURE(Recover());
    ASSERT_NO_FATAL_FAILURE(Compare());
    doing_ = Doing::kLiving;
  }
  // Steps of all of it.
  void Live(int steps, bool cleans) {
    for (; steps > 0 && !testing::Test::HasFailure(); --steps) {
      StepWorker();
      for (uint64_t left = random_.Below(4); left > 0; --left) StepLogger();
      for (uint64_t left = cleans ? random_.Below(12) : 0; left > 0; --left) StepCleaner();
    }
    model_.Forget(board_->durable());
  }
  uint64_t evicted() const { return store_->pager() == nullptr ? 0 : store_->pager()->counters().evicted; }
  // What was left if it were killed now.
  CrashImage Killed() { return ImageOf(disk_->AfterKill(), CopiesOfRings()); }

 private:
  using Branch = instance::Branch;
  using Batch = instance::Batch;
  using Key = partitioner::Uint64Key;

  static constexpr uint64_t kKeys = 600;
  static constexpr uint32_t kSites = 2;
  static constexpr char kLog[] = "/log", kData[] = "/data";
  static constexpr size_t kManyBytes = 160 << 10;  // of records: more than a batch of redo

  enum class Doing : uint8_t { kDraining, kReadingPages, kReadingLog, kUndoing, kLiving };
  struct Transaction {
    std::unique_ptr<Branch> branch;
    Changes changes;
  };
  struct Worker {
    std::shared_ptr<log::Ring> ring;
    std::unique_ptr<log::Journal> journal;
    std::unique_ptr<instance::Executor> executor;
    std::unique_ptr<WatchedPages> pages;
    std::array<Transaction, 2> transactions;
  };

  static std::unique_ptr<runtime::MemoryFileSystem> MakeFiles(uint32_t sector_bytes, uint64_t seed) {
    return std::make_unique<runtime::MemoryFileSystem>(
        runtime::SimulatedDisk{.seed = seed, .sector_bytes = sector_bytes});
  }
  bool alone() const { return workers_ == 1; }

  // ---- Points and images ----

  void Reach(Point point, bool before) {
    if (point == Point::kCommit && !before) model_.Show();
    if (!wants_ || !wants_(point, before)) return;
    CrashImages images{.point = point, .before = before, .killed = Killed(), .without_power = {}};
    for (size_t i = 0; i < images_; ++i) {
      images.without_power.push_back(ImageOf(disk_->AfterPowerLoss(random_()), {}));
      images.without_power.back().model.LosePower();
    }
    taken_.push_back(std::move(images));
  }
  CrashImage ImageOf(std::unique_ptr<runtime::MemoryFileSystem> files,
                     std::vector<std::shared_ptr<log::Ring>> rings) const {
    return {.files = std::move(files),
            .rings = std::move(rings),
            .ring_bytes = ring_bytes_,
            .cuts = cuts_,
            .life = life_,
            .promised = board_->durable(),
            .pool_pages = pool_pages_,
            .model = model_};
  }
  std::vector<std::shared_ptr<log::Ring>> CopiesOfRings() const {
    std::vector<std::shared_ptr<log::Ring>> copies;
    for (const std::shared_ptr<log::Ring>& ring : rings_) {
      copies.push_back(log::Ring::InMemory(ring->stream(), ring->capacity()));
      log::Ring& copy = *copies.back();
      const uint64_t head = ring->head(), tail = ring->tail();
      log::RingWriter beginning(copy);
      beginning.Advance(head);
      beginning.Show();
      copy.SetHead(head);
      log::RingWriter writer(copy);
      const std::span<const std::byte> bytes = ring->Bytes(head, tail);
      std::memcpy(writer.Next(bytes.size()), bytes.data(), bytes.size());
      writer.Advance(bytes.size());
      writer.Show();
    }
    return copies;
  }
  void Look(WatchedFiles::Act act, const std::string& path, bool before) {
    if (!wants_) return;
    if (doing_ == Doing::kDraining) {
      if (act == WatchedFiles::Act::kWrite) Reach(Point::kDraining, before);
    } else if (doing_ == Doing::kReadingPages) {
      if (act == WatchedFiles::Act::kWrite) Reach(Point::kRestoring, before);
    } else if (doing_ == Doing::kLiving || doing_ == Doing::kUndoing) {
      path.starts_with(kLog) ? LookAtLog(act, path, before) : LookAtData(act, path, before);
    }
  }
  void LookAtLog(WatchedFiles::Act act, const std::string& path, bool before) {
    using Act = WatchedFiles::Act;
    if (path.ends_with(log::kEpochFileName)) {
      if (act == Act::kRead && before) Reach(Point::kPassBegins, before);
      if (act == Act::kRead && before) batches_ = 0;
      if (act == Act::kWrite) Reach(Point::kEpoch, before);
      if (act == Act::kSync) Reach(Point::kEpochSync, before);
    } else if (act == Act::kMake) {
      Reach(Point::kNewSegment, before);
    } else if (act == Act::kRemove) {
      Reach(Point::kRemoveSegment, before);
    } else if (act == Act::kWrite && path != segment_) {
      if (!segment_.empty()) Reach(Point::kSwitchSegment, before);
      if (!before) segment_ = path;
    }
  }
  void LookAtData(WatchedFiles::Act act, const std::string& path, bool before) {
    using Act = WatchedFiles::Act;
    if (act != Act::kWrite && act != Act::kSync) return;
    if (came_back_ && cleaner_ != nullptr && cleaner_->checkpoint().number == first_checkpoint_)
      Reach(Point::kCleaningAfter, before);
    const bool write = act == Act::kWrite;
    if (path.ends_with("checkpoint"))
      return Reach(write ? Point::kCheckpoint : Point::kCheckpointSync, before);
    if (path.ends_with("double-write")) {
      if (write && before) home_ = 0;
      if (write && before) ++batches_;
      if (write && batches_ > 1) Reach(Point::kPassMiddle, before);
      return Reach(write ? Point::kCopies : Point::kCopiesSync, before);
    }
    if (!write) return Reach(Point::kHomeSync, before);
    if (home_ == 0 || !before) Reach(Point::kHome, before);
    if (!before) ++home_;
  }

  // ---- Coming up ----

  absl::StatusOr<log::EpochBlock> ReadEpoch() {
    return log::ReadEpochFile(files_, std::string(kLog) + "/" + log::kEpochFileName, 1, 1);
  }
  void MakeCut() {
    const absl::StatusOr<log::EpochBlock> block = ReadEpoch();
    ASSERT_TRUE(block.ok()) << block.status();
    ASSERT_GE(block->epoch, promised_);
    model_.Cut(block->epoch);
    cuts_.push_back({block->epoch, block->reaches + 1});
  }
  void StartLogger() {
    auto logger = log::Logger::Open(files_, clock_, *board_,
                                    {.directory = kLog,
                                     .cluster = 1,
                                     .segment_bytes = log::kLeastSegmentBytes,
                                     .first_epoch = cuts_.empty() ? 1 : cuts_.back().next});
    ASSERT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
    for (const std::shared_ptr<log::Ring>& ring : rings_) ASSERT_TRUE(logger_->Add(ring).ok());
    ASSERT_TRUE(logger_->Start().ok());
  }
  void Drain() {
    if (rings_.empty()) return;
    for (const std::shared_ptr<log::Ring>& ring : rings_) logger_->OnIslandDead(0, ring->stream().life);
    for (int i = 0; !logger_->ReleaseDrained(0); ++i) {
      ASSERT_LT(i, 10'000);
      ASSERT_NO_FATAL_FAILURE(StepLogger());
    }
    rings_.clear();
  }
  void Recover() {
    doing_ = Doing::kReadingPages;
    storage::StoreOptions options{.sites = {0, kSites}, .pool_bytes = 16 << 20, .alone = alone()};
    const storage::StoreOptions with_room = options;
    if (pool_pages_ != 0) {
      options.pool_bytes = pool_pages_ * storage::kPageBytes;
      options.paged = true;
    }
    auto store = storage::Store::CreateForRedo(*catalog_, options);
    ASSERT_TRUE(store.ok());
    store_ = *std::move(store);
    const absl::StatusOr<log::EpochBlock> block = ReadEpoch();
    ASSERT_TRUE(block.ok()) << block.status();
    const IslandDataOptions where{.directory = kData, .cluster = 1};
    if (life_ == 0) {
      const auto created = storage::Store::Create(*catalog_, with_room, files_);
      ASSERT_TRUE(created.ok());
      ASSERT_TRUE(WriteGeneration(files_, *catalog_, where, **created,
                                  {board_->durable() + 1, block->ends[0]}, NoProgress)
                      .ok());
    }
    absl::StatusOr<IslandData> data = ReadGeneration(files_, *catalog_, where, *store_, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    doing_ = Doing::kReadingLog;
    Recovery recovery(*catalog_, *store_, cuts_, workers_);
    recovery.BeginFrom(data->checkpoint);
    const absl::Status repeated = Repeat(recovery, data->checkpoint.position, block->ends[0]);
    ASSERT_TRUE(repeated.ok()) << repeated;
    last_ = recovery.last();
    MakeWorkers();
    Undo(recovery);
    first_checkpoint_ = data->checkpoint.number;
    auto cleaner = Cleaner::Create(files_, *store_, *board_, *std::move(data),
                                   {.log_directory = kLog, .pages_per_call = 40, .batch_pages = 12},
                                   [this] { return OldestOpen(); });
    ASSERT_TRUE(cleaner.ok()) << cleaner.status();
    cleaner_ = *std::move(cleaner);
  }
  absl::Status Repeat(Recovery& recovery, const log::LogPosition& begin, const log::LogPosition& end) {
    log::LogReader reader(
        files_, {.directory = log::IslandDirectory(kLog, 0), .cluster = 1, .island = 0, .begin = begin}, end);
    StreamMerge merge;
    size_t bytes = 0;
    const auto redo = [&](const log::StreamId& stream, const log::Record& record) {
      const absl::Status redone = recovery.Redo(stream, record);
      bytes += record.body.size();
      Reach(!alone() && bytes > kManyBytes ? Point::kLanes : Point::kRedoing, /*before=*/true);
      return redone;
    };
    absl::Status status = reader.Read([&](const log::StreamId& stream, const log::Record& record) {
      Reach(Point::kReading, /*before=*/true);
      return merge.Add(stream, record, redo);
    });
    if (status.ok()) status = merge.Finish(redo);
    if (status.ok()) status = recovery.FindTrees();
    if (status.ok()) status = recovery.CheckUndo();
    return status;
  }
  void MakeWorkers() {
    EXPECT_GT(board_->epoch(), last_.epoch());
    ++life_;
    shared_.emplace(workers_, last_.epoch(), last_);
    all_.resize(workers_);
    for (uint32_t number = 0; number < workers_; ++number) {
      Worker& worker = all_[number];
      worker.ring = log::Ring::InMemory({life_, 0, number}, ring_bytes_);
      rings_.push_back(worker.ring);
      EXPECT_TRUE(logger_->Add(worker.ring).ok());
      worker.journal =
          std::make_unique<log::Journal>(*board_, *worker.ring, last_, alone() ? nullptr : &*shared_);
      worker.pages = std::make_unique<WatchedPages>(
          *worker.journal, *worker.ring, [this](Point point, bool before) { Reach(point, before); });
      worker.executor = std::make_unique<instance::Executor>(
          *catalog_, *store_, locks_,
          instance::ExecutorOptions{
              .worker = number, .alone = alone(), .journal = worker.journal.get(), .wait_for_room = [this] {
                StepLogger();
              }});
    }
  }
  void Undo(Recovery& recovery) {
    doing_ = Doing::kUndoing;
    Worker& worker = Listen(0);
    size_t undone = 0;
    const bool whole = recovery.UndoLosers(*worker.executor, [&] {
      Reach(Point::kUndoing, /*before=*/undone++ == 0);
      if (!alone()) Reach(Point::kCompensate, /*before=*/true);
      return true;
    });
    EXPECT_TRUE(whole);
    EndStep(worker);
  }
  void Compare() {
    const Rows found = AllRows();
    const bool ended = model_.MayHaveEnded() && found == model_.WithTheOneThatEnds();
    if (!ended) {
      const Rows wanted = model_.MustHaveEnded() ? model_.WithTheOneThatEnds() : model_.Acknowledged();
      EXPECT_EQ(found.size(), wanted.size());
      EXPECT_TRUE(found == wanted);
    }
    model_.Settle(ended, last_.epoch());
    rows_ = found;
    const absl::Status sound = store_->Check();
    EXPECT_TRUE(sound.ok()) << sound;
    EXPECT_EQ(locks_.LocksHeld(), 0u);
  }
  Rows AllRows() const {
    Rows rows;
    for (uint32_t site = 0; site < kSites; ++site) rows.merge(RowsOf(*store_, site));
    return rows;
  }

  // ---- Living ----

  Worker& Listen(size_t number) {
    Worker& worker = all_[number];
    worker.journal->Listen();
    storage::page_change_sink = worker.pages.get();
    return worker;
  }
  void EndStep(Worker& worker) {
    worker.executor->EndStep();
    worker.pages->LookAtRing();
    storage::page_change_sink = worker.journal.get();
    worker.journal->EndListening();
    worker.executor->CheckInvariants();
  }
  void StepLogger() {
    clock_.AdvanceNs(runtime::kNsPerMs / 3);
    logger_->RunOnce();
    ASSERT_TRUE(logger_->failure().ok()) << logger_->failure();
  }
  void StepCleaner() {
    board_->Want(cleaner_->waits_for());
    const uint64_t before = cleaner_->checkpoint().number;
    cleaner_->RunOnce();
    ASSERT_TRUE(cleaner_->failure().ok()) << cleaner_->failure();
    if (cleaner_->checkpoint().number == before) return;
    const absl::Status removed =
        log::RemoveSegmentsBefore(files_, log::IslandDirectory(kLog, 0), cleaner_->checkpoint().position);
    ASSERT_TRUE(removed.ok()) << removed;
  }
  uint64_t OldestOpen() const {
    uint64_t oldest = UINT64_MAX;
    for (const Worker& worker : all_) oldest = std::min(oldest, worker.journal->open().oldest());
    return oldest;
  }

  // Rows come for a while, and then they go, so that trees grow and shrink.
  void StepWorker() {
    ++steps_;
    const size_t number = random_.Below(workers_);
    Worker& worker = Listen(number);
    Transaction& transaction = worker.transactions[random_.Below(worker.transactions.size())];
    if (!transaction.branch) Begin(number, transaction);
    if (transaction.changes.empty() || random_.Below(3) != 0) {
      Change(worker, transaction);
    } else {
      End(worker, transaction, /*commit=*/
          random_.Below(!grows()                          ? 30
                        : transaction.changes.size() > 80 ? 2
                                                          : 12) != 0);
    }
    worker.executor->EndQuiet();
    if (worker.executor->ghosts() != 0 && random_.Below(2) == 0) worker.executor->RemoveGhosts(&wakeups_);
    wakeups_.clear();
    EndStep(worker);
  }
  bool grows() const { return steps_ / 250 % 2 == 0; }
  void Begin(size_t number, Transaction& transaction) {
    transaction.branch = std::make_unique<Branch>();
    transaction.branch->locks.transaction = {0, static_cast<uint32_t>(number), life_, ++sequence_};
    transaction.branch->locks.wake_token = sequence_;
    transaction.branch->locks.worker = static_cast<uint32_t>(number);
    transaction.changes.clear();
  }
  void Change(Worker& worker, Transaction& transaction) {
    Batch batch;
    std::vector<std::pair<uint64_t, std::optional<std::string>>> wanted;
    std::vector<instance::RoutedOperation> routes;
    const bool large = grows() && random_.Below(8) == 0;  // to undo it takes more than one record
    for (uint64_t left = 1 + random_.Below(large ? 100 : grows() ? 10 : 16); left > 0; --left) {
      const uint64_t key = grows() ? random_.Below(kKeys) : ++gone_ % kKeys;
      const uint64_t what = random_.Below(100);
      std::string row(8 + random_.Below(random_.Below(2) == 0 ? 900 : 60),
                      static_cast<char>('a' + random_.Below(26)));
      if (grows() && what < (large ? 30 : 60)) {
        batch.Insert(0, Key(key), Bytes(row));
        wanted.emplace_back(key, row);
      } else if (what >= 90 || !grows()) {
        batch.Delete(0, Key(key));
        wanted.emplace_back(key, std::nullopt);
      } else if (what >= 80) {
        batch.Write(0, Key(key), 0, Bytes(row.substr(0, 4)));
        wanted.emplace_back(key, row.substr(0, 4));
      } else {
        batch.Replace(0, Key(key), Bytes(row));
        wanted.emplace_back(key, row);
      }
      const uint32_t site = key < kKeys / kSites ? 0 : 1;
      routes.push_back({static_cast<uint32_t>(routes.size()), site, site});
    }
    batch.ResetResults();
    size_t cursor = 0;
    instance::Failure failure;
    // Where it would wait, or has failed.
    if (worker.executor->Run(*transaction.branch, batch, routes, &cursor, &failure) !=
        instance::Progress::kDone)
      return End(worker, transaction, /*commit=*/false);
    for (uint32_t i = 0; i < batch.size(); ++i) {
      auto& [key, row] = wanted[i];
      if (batch.code(i) != absl::StatusCode::kOk) continue;
      if (row && row->size() == 4) *row += RowOf(transaction, key).substr(4);
      transaction.changes[key] = row;
    }
  }
  std::string RowOf(const Transaction& transaction, uint64_t key) const {
    const auto own = transaction.changes.find(key);
    return own != transaction.changes.end() ? *own->second : rows_.at(key);
  }
  void End(Worker& worker, Transaction& transaction, bool commit) {
    if (commit) {
      model_.Begin(transaction.changes);
      worker.pages->Expect(Point::kCommit);
      worker.executor->Commit(*transaction.branch, &wakeups_);
      worker.pages->LookAtRing();
      model_.Acknowledge(worker.journal->commit_epoch());
      Apply(transaction.changes, &rows_);
    } else {
      if (!alone() && transaction.branch->published) Reach(Point::kCompensate, /*before=*/true);
      worker.executor->Rollback(*transaction.branch, &wakeups_);
    }
    transaction.branch.reset();
    transaction.changes.clear();
  }

  const uint32_t workers_;
  runtime::Random random_;
  const bool came_back_;
  const std::unique_ptr<runtime::MemoryFileSystem> disk_;
  WatchedFiles files_;
  std::vector<std::shared_ptr<log::Ring>> rings_;  // not all of which is in EPOCH
  const size_t ring_bytes_;
  std::vector<log::EpochCut> cuts_;
  uint64_t life_;
  const uint64_t promised_;
  const uint64_t pool_pages_;
  CrashModel model_;
  std::unique_ptr<storage::Catalog> catalog_;
  runtime::ManualClock clock_;
  Wants wants_;
  size_t images_ = 0;
  std::vector<CrashImages> taken_;

  Doing doing_ = Doing::kDraining;
  std::string segment_;  // that was written to last
  size_t batches_ = 0;   // of the cleaner's pass
  size_t home_ = 0;      // writes of the batch
  uint64_t first_checkpoint_ = 0;
  log::Lsn last_;
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::Logger> logger_;
  std::unique_ptr<storage::Store> store_;
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::optional<log::IslandLog> shared_;
  std::vector<Worker> all_;
  std::unique_ptr<Cleaner> cleaner_;

  Rows rows_;  // as transactions that have committed leave them
  uint64_t steps_ = 0;
  uint64_t gone_ = 0;
  uint64_t sequence_ = 0;
  std::vector<locks::Wakeup> wakeups_;
};

}  // namespace islands::recovery
