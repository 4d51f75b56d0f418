// One island with one worker, its executor, its log and a disk that loses power: whatever dies when, every
// transaction that was acknowledged is there, and of the others each is whole or gone.
#include "instance/recovery/recovery.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "instance/log/journal.h"
#include "instance/log/log_files.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/recovery/cleaner.h"
#include "instance/recovery/island_data.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"
#include "runtime/latch_site.h"
#include "runtime/random.h"

namespace islands::recovery {
namespace {

using instance::Batch;
using instance::Branch;
using instance::Executor;
using instance::Progress;
using partitioner::Uint64Key;

constexpr char kLogDirectory[] = "/log";
constexpr uint64_t kKeys = 600;
constexpr size_t kRingBytes = 4 << 20;
constexpr std::array<uint32_t, 1> kWorkers = {1};

storage::RowView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string Text(storage::RowView row) { return {reinterpret_cast<const char*>(row.data()), row.size()}; }

using Rows = std::map<uint64_t, std::string>;
// A transaction's changes; no text: the row is gone.
using Changes = std::map<uint64_t, std::optional<std::string>>;

void Apply(const Changes& changes, Rows* rows) {
  for (const auto& [key, row] : changes) {
    rows->erase(key);
    if (row) (*rows)[key] = *row;
  }
}

class Box {
 public:
  // `pages`: they go to disk, and recovery begins from a checkpoint.
  explicit Box(uint64_t seed, bool pages = false)
      : random_(seed), pages_(pages), files_({.seed = seed, .sector_bytes = seed % 4 < 2 ? 512u : 4096u}) {
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

  // The next thing that the worker does.
  void Step() {
    works_ = true;
    DoStep();
    works_ = false;
  }
  void DoStep() {
    Transaction& transaction = transactions_[random_.Below(transactions_.size())];
    if (!transaction.branch) Begin(transaction);
    switch (random_.Below(12)) {
      case 0:
      case 1:
        End(transaction, /*commit=*/true);
        break;
      case 2:
        if (random_.Below(2) == 0) End(transaction, /*commit=*/false);
        break;
      default:
        Change(transaction);
        if (transaction.branch && random_.Below(3) == 0) End(transaction, random_.Below(8) != 0);
    }
    executor_->EndQuiet();  // control goes back
    if (random_.Below(3) == 0) EndStep();
    if (random_.Below(4) == 0 && executor_->ghosts() != 0) {
      executor_->RemoveGhosts(&wakeups_);
      EndStep();
    }
    executor_->CheckInvariants();
  }
  void StepLogger() {
    clock_.AdvanceNs(runtime::kNsPerMs / 3);
    logger_->RunOnce();
    ASSERT_TRUE(logger_->failure().ok()) << logger_->failure();
  }
  void StepCleaner() {
    EndStep();
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
    Compare(committed_);
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
    Compare(committed_);
  }
  void LosePower() {
    const uint64_t promised = board_->durable();
    files_.PowerLoss(random_());
    Die();
    logger_.reset();
    ring_.reset();
    const absl::StatusOr<log::EpochBlock> block = ReadEpoch();
    ASSERT_TRUE(block.ok()) << block.status();
    ASSERT_GE(block->epoch, promised);
    // As if they had never been.
    std::erase_if(committed_, [&](const Committed& one) { return one.epoch > block->epoch; });
    lost_power_ = block->epoch;
    next_epoch_ = block->reaches + 1;  // above all that can still be found
    StartBox();
    Compare(committed_);
  }

  uint64_t losers() const { return losers_; }
  uint64_t restarts_of_recovery() const { return restarts_of_recovery_; }
  uint64_t commits() const { return commits_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t checkpoints() const { return checkpoints_; }
  uint64_t removed_segments() const { return removed_segments_; }
  uint64_t lost_in_recovery() const { return lost_in_recovery_; }

 private:
  struct Transaction {
    std::unique_ptr<Branch> branch;
    uint64_t began = 0;  // G then
    Changes changes;
  };
  struct Committed {
    uint64_t epoch;
    Changes changes;
  };

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
  void StartIsland(const std::vector<Cut>& cuts) {
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
  bool TryStartIsland(const std::vector<Cut>& cuts) {
    const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 16 << 20, .alone = true};
    auto store = storage::Store::CreateForRedo(*catalog_, options);
    EXPECT_TRUE(store.ok());
    Recovery recovery(*catalog_, **store, cuts);
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
    ring_ = log::Ring::InMemory({++life_, 0, 0}, kRingBytes);
    EXPECT_TRUE(logger_->Add(ring_).ok());
    EXPECT_GT(board_->epoch(), recovery.last().epoch());
    journal_ = std::make_unique<log::Journal>(*board_, *ring_, recovery.last());
    journal_->Listen();
    if (recovery.records() == 0 && !pages_) {
      auto created = storage::Store::Create(*catalog_, options, files_);
      EXPECT_TRUE(created.ok());
      store_ = *std::move(created);
      journal_->AppendDone();
    } else {
      store_ = *std::move(store);
      const absl::Status found = recovery.FindTrees();
      EXPECT_TRUE(found.ok()) << found;
    }
    locks_ = std::make_unique<locks::LockTable>(locks::LockTableOptions{.buckets = 1024});
    executor_ = std::make_unique<Executor>(
        *catalog_, *store_, *locks_, instance::ExecutorOptions{.alone = true, .journal = journal_.get()});
    losers_ += recovery.losers();
    dropped_ += recovery.dropped();
    const bool whole = recovery.UndoLosers(*executor_, [&] { return random_.Below(3) != 0; });
    if (!whole && random_.Below(2) == 0) {
      journal_->EndStep();  // or it dies before it could show that
    }
    if (whole) EndStep();
    if (whole && pages_) StartCleaner(*std::move(data));
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
  void StartCleaner(IslandData data) {
    const Cleaner::Options options{.log_directory = kLogDirectory,
                                   .pages_per_call = 1 + random_.Below(30),
                                   .batch_pages = 1 + random_.Below(40)};
    const auto oldest_open = [this] {
      uint64_t oldest = UINT64_MAX;
      for (const Transaction& each : transactions_) {
        if (each.branch && each.branch->published) oldest = std::min(oldest, each.began);
      }
      return oldest;
    };
    auto cleaner = Cleaner::Create(files_, *store_, *board_, std::move(data), options, oldest_open);
    ASSERT_TRUE(cleaner.ok()) << cleaner.status();
    cleaner_ = *std::move(cleaner);
    RemoveSegments();
  }
  void Die() {
    cleaner_.reset();
    transactions_ = std::vector<Transaction>(3);
    shown_.clear();
    executor_.reset();
    locks_.reset();
    storage::page_change_sink = nullptr;
    journal_.reset();
    store_.reset();
  }

  void Begin(Transaction& transaction) {
    transaction.branch = std::make_unique<Branch>();
    transaction.began = board_->epoch();
    transaction.branch->locks.transaction = {0, 0, life_, ++sequence_};
    transaction.branch->locks.wake_token = sequence_;
    transaction.changes.clear();
  }
  void Change(Transaction& transaction) {
    Batch batch;
    std::vector<std::pair<uint64_t, std::optional<std::string>>> wanted;
    for (uint64_t left = 1 + random_.Below(random_.Below(30) == 0 ? 200 : 6); left > 0; --left) {
      const uint64_t key = random_.Below(kKeys);
      std::string row(4 + random_.Below(random_.Below(4) == 0 ? 900 : 60),
                      static_cast<char>('a' + random_.Below(26)));
      switch (random_.Below(4)) {
        case 0:
          batch.Insert(0, Uint64Key(key), Bytes(row));
          break;
        case 1:
          batch.Replace(0, Uint64Key(key), Bytes(row));
          break;
        case 2:
          batch.Delete(0, Uint64Key(key));
          wanted.emplace_back(key, std::nullopt);
          continue;
        default:
          batch.Write(0, Uint64Key(key), 0, Bytes(row.substr(0, 4)));
          wanted.emplace_back(key, row.substr(0, 4) + "+");  // "+": the rest stays
          continue;
      }
      wanted.emplace_back(key, row);
    }
    batch.ResetResults();
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    instance::Failure failure;
    if (executor_->Run(*transaction.branch, batch, routes, &cursor, &failure) != Progress::kDone) {
      return End(transaction, /*commit=*/false);  // it would wait, or has failed
    }
    for (uint32_t i = 0; i < batch.size(); ++i) {
      if (batch.code(i) != absl::StatusCode::kOk) continue;
      auto [key, row] = wanted[i];
      if (row && row->ends_with('+')) {
        row->pop_back();
        const std::optional<std::string> before = RowOf(transaction, key);
        ASSERT_TRUE(before.has_value());
        row = *row + before->substr(row->size());
      }
      transaction.changes[key] = row;
    }
  }
  std::optional<std::string> RowOf(const Transaction& transaction, uint64_t key) {
    const auto own = transaction.changes.find(key);
    if (own != transaction.changes.end()) return own->second;
    const auto committed = rows_.find(key);
    return committed == rows_.end() ? std::nullopt : std::optional(committed->second);
  }
  void End(Transaction& transaction, bool commit) {
    if (!transaction.branch) return;
    if (commit) {
      executor_->Commit(*transaction.branch, &wakeups_);
      if (!transaction.changes.empty()) {
        Apply(transaction.changes, &rows_);
        shown_.push_back({journal_->commit_epoch(), std::move(transaction.changes)});
        ++commits_;
      }
    } else {
      executor_->Rollback(*transaction.branch, &wakeups_);
    }
    wakeups_.clear();
    transaction.branch.reset();
  }
  // From here on a kill takes nothing of it.
  void EndStep() {
    journal_->EndStep();
    for (Committed& one : shown_) committed_.push_back(std::move(one));
    shown_.clear();
  }

  void Compare(const std::vector<Committed>& committed) {
    if (testing::Test::HasFailure()) return;  // there may be nothing to compare
    rows_.clear();
    for (const Committed& one : committed) Apply(one.changes, &rows_);
    Rows found;
    store_->At(0, 0)->Scan({}, {}, false, [&](storage::KeyView key, storage::RowView row) {
      uint64_t number = 0;
      for (const std::byte byte : key) number = number << 8 | static_cast<uint64_t>(byte);
      found[number] = Text(row);
      return true;
    });
    EXPECT_EQ(found.size(), rows_.size());
    EXPECT_TRUE(found == rows_);
    const absl::Status sound = store_->Check();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  runtime::Random random_;
  runtime::Random interleaving_{7};
  bool interleaves_ = false;  // now
  bool works_ = false;        // the worker is within a step
  const bool pages_;
  runtime::MemoryFileSystem files_;
  runtime::ManualClock clock_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::Logger> logger_;
  std::shared_ptr<log::Ring> ring_;
  std::unique_ptr<log::Journal> journal_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<locks::LockTable> locks_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Cleaner> cleaner_;
  std::vector<locks::Wakeup> wakeups_;
  std::vector<Transaction> transactions_ = std::vector<Transaction>(3);
  Rows rows_;                         // as the transactions that have committed leave them
  std::vector<Committed> shown_;      // in this step
  std::vector<Committed> committed_;  // and acknowledged
  std::vector<Cut> cuts_;
  std::optional<uint64_t> lost_power_;
  uint64_t next_epoch_ = 1;
  uint64_t life_ = 0;
  uint64_t sequence_ = 0;
  uint64_t losers_ = 0;
  uint64_t restarts_of_recovery_ = 0;
  uint64_t commits_ = 0;
  uint64_t dropped_ = 0;
  bool without_power_ = false;  // since recovery was tried
  uint64_t checkpoints_ = 0;
  uint64_t removed_segments_ = 0;
  uint64_t lost_in_recovery_ = 0;
};

// A log may be sound and belong to another catalog: undo would look for tables that are not there.
TEST(Recovery, FindTrees_RefusesUndoOfWhatIsNotThere) {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(kKeys);
  const storage::Catalog catalog = *storage::Catalog::Create(specs, 1);
  const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true};
  for (const uint32_t number : {0u, 9u}) {
    log::Board board(kWorkers);
    const auto ring = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
    log::Journal journal(board, *ring, {});
    journal.Listen();
    runtime::MemoryFileSystem files;
    const auto original = storage::Store::Create(catalog, options, files);
    ASSERT_TRUE(original.ok());
    journal.AppendDone();
    instance::UndoLog undo;
    undo.RecordInsert(number, 0, Uint64Key(1));
    std::vector<std::byte> encoded;
    undo.Encode(0, 1, &encoded);
    journal.AppendUpdate({0, 0, 1, 1}, encoded);
    journal.EndStep();
    journal.EndListening();
    const auto store = storage::Store::CreateForRedo(catalog, options);
    ASSERT_TRUE(store.ok());
    Recovery recovery(catalog, **store, {});
    for (size_t at = 0, taken = 0; at < ring->tail(); at += taken) {
      const auto record = log::ParseRecord(ring->stream(), at, ring->Bytes(at, ring->tail()), &taken);
      ASSERT_TRUE(record.ok()) << record.status();
      const absl::Status redone = recovery.Redo(ring->stream(), *record);
      ASSERT_TRUE(redone.ok()) << redone;
    }
    const absl::StatusCode code = number == 0 ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss;
    EXPECT_EQ(recovery.FindTrees().code(), code) << "table " << number;
  }
}

// ISLANDS_SEEDS=FIRST:COUNT, as for the simulation's.
std::pair<uint64_t, uint64_t> Seeds(uint64_t count) {
  std::pair<uint64_t, uint64_t> seeds{1, count};
  if (const char* wanted = std::getenv("ISLANDS_SEEDS")) {
    EXPECT_EQ(std::sscanf(wanted, "%lu:%lu", &seeds.first, &seeds.second), 2) << "ISLANDS_SEEDS=FIRST:COUNT";
  }
  return seeds;
}

// What happens in a box; `cleans`: and its cleaner has turns.
void Live(Box& box, uint64_t seed, bool cleans) {
  runtime::Random random(seed + 1000);
  const uint64_t logger_share = seed % 5;  // of the cleaner's turns: the log may be far behind
  for (int step = 0; step < 1500 && !testing::Test::HasFailure(); ++step) {
    const uint64_t what = random.Below(1000);
    if (what < 4) {
      box.Kill();
    } else if (what < 6) {
      box.KillLogger();
    } else if (what < 9) {
      box.KillAll();
    } else if (what < 12) {
      box.LosePower();
    } else if (what < 20) {
      for (int i = 0; i < 80; ++i) box.StepLogger();  // while the worker stands still
    } else if (what < 500) {
      box.Step();
    } else {
      box.StepLogger();
    }
    if (!cleans || random.Below(3) != 0) continue;
    for (uint64_t left = random.Below(20); left > 0 && !testing::Test::HasFailure(); --left)
      random.Below(16) < logger_share ? box.StepLogger() : box.StepCleaner();
  }
}

TEST(Recovery, Property_CommittedIsThereAndNothingElse) {
  uint64_t losers = 0, restarts = 0, commits = 0, dropped = 0;
  const auto [first, count] = Seeds(60);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed);
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/false);
    losers += box.losers();
    restarts += box.restarts_of_recovery();
    commits += box.commits();
    dropped += box.dropped();
  }
  if (count < 30) return;
  EXPECT_GT(losers, 50u);
  EXPECT_GT(restarts, 10u);
  EXPECT_GT(commits, 3000u);
  EXPECT_GT(dropped, 100u);
}

// The same with data files, checkpoints and a log that is let go of.
TEST(Recovery, Property_FromPagesOnDisk) {
  uint64_t losers = 0, dropped = 0, checkpoints = 0, segments = 0, lost_in_recovery = 0;
  const auto [first, count] = Seeds(240);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed, /*pages=*/true);
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/true);
    losers += box.losers();
    dropped += box.dropped();
    checkpoints += box.checkpoints();
    segments += box.removed_segments();
    lost_in_recovery += box.lost_in_recovery();
  }
  if (count < 30) return;
  EXPECT_GT(losers, 50u);
  EXPECT_GT(dropped, 50u);
  EXPECT_GT(checkpoints, 1000u);
  EXPECT_GT(segments, 200u);
  EXPECT_GT(lost_in_recovery, 30u);
}

}  // namespace
}  // namespace islands::recovery
