// Operations on a table's trees against a sorted map: rows come, change, grow and go, alone and by the
// hundred, in transactions that commit and others that do not, while logger and cleaner have their turns; and
// the island, its logger, all processes or the power die, during recovery too. Whenever it comes back, the
// trees are sound and hold what the map holds.
//
// The input is a list of things that happen, each a byte and what it needs.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/log/box_manifest.h"
#include "instance/log/journal.h"
#include "instance/log/log_files.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/recovery/cleaner.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/recovery.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"
#include "runtime/fuzz_input_testing.h"

namespace islands::recovery {
namespace {

using instance::Batch;
using instance::Branch;
using instance::Progress;

constexpr uint64_t kCluster = 1;
constexpr char kLogDirectory[] = "/log";
constexpr std::array<uint32_t, 1> kWorkers = {1};
const storage::StoreOptions kStore{.sites = {0, 1}, .pool_bytes = 6 << 20, .alone = true};
constexpr size_t kMostBytes = 600;  // of an input: so many things happen in a fraction of a second

using Rows = std::map<std::string, std::string>;
using Changes = std::map<std::string, std::optional<std::string>>;  // no row: it is gone

storage::RowView View(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void Apply(const Changes& changes, Rows* rows) {
  for (const auto& [key, row] : changes) {
    rows->erase(key);
    if (row) (*rows)[key] = *row;
  }
}

const storage::Catalog& MakeCatalog() {
  static const storage::Catalog catalog = [] {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->add_key("string");
    table->set_range_end(9);
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("by_first_bytes");
    index->add_key("row:0:uint32");
    return *storage::Catalog::Create(specs, 1);
  }();
  return catalog;
}

// An island of one worker, its logger and its disk.
class Box {
 public:
  explicit Box(runtime::FuzzInput input)
      : input_(input), files_({.seed = input.left(), .sector_bytes = input.left() % 2 == 0 ? 512u : 4096u}) {
    StartBox();
  }
  ~Box() { Die(); }

  void Live() {
    while (!input_.empty()) Step(input_.Byte());
    Kill();
    LosePower(input_.left());
  }

 private:
  struct Transaction {
    std::unique_ptr<Branch> branch;
    Changes changes;
  };
  struct Committed {
    uint64_t epoch;
    Changes changes;
  };

  void Step(uint8_t what) {
    // One gives control back before the other has it.
    if (std::exchange(turn_, what / 128) != what / 128) executor_->EndQuiet();
    Transaction& transaction = transactions_[what / 128];
    switch (what % 32) {
      default:
        return Change(transaction, what % 32);
      case 16:
      case 17:
        return End(transaction, /*commit=*/true);
      case 18:
        return End(transaction, /*commit=*/false);
      case 19:
        executor_->EndQuiet();
        return EndStep();
      case 20:
        executor_->EndQuiet();
        EndStep();
        executor_->RemoveGhosts(&wakeups_);
        return EndStep();
      case 21:
      case 22:
        for (uint8_t left = input_.Byte(); left > 0; --left) StepLogger();
        return;
      case 23:
      case 24:
        return Clean(input_.Byte());
      case 25:
        return Kill();
      case 26:
        return LosePower(input_.Byte());
      case 27:
        logger_.reset();
        return StartLogger();
      case 28:
        return KillAll();
      case 29:
        undo_steps_ = input_.Byte() % 8;
        return;
      case 30:
        disk_steps_ = input_.Byte() % 64;
        return;
      case 31:
        files_.Inject(input_.Byte(), runtime::DiskFault::kShort);
        return;
    }
  }

  // ---- What the worker does ----

  static std::string KeyOf(uint8_t shape, uint8_t number) {
    std::string key;
    partitioner::AppendUnsigned(partitioner::KeyType::kUint64, shape % 4, &key);
    std::string rest(shape / 4 * 3, static_cast<char>('a' + shape % 3));
    rest.push_back(static_cast<char>(number));
    if (shape % 8 == 7) std::swap(rest.front(), rest.back());
    partitioner::AppendString(rest, &key);
    return key;
  }
  // By `kind`: one row, or as many as a byte says.
  void Change(Transaction& transaction, uint8_t kind) {
    if (!transaction.branch) Begin(transaction);
    const uint8_t shape = input_.Byte(), number = input_.Byte(), size = input_.Byte();
    const int rows = kind < 8 ? 1 : 1 + input_.Byte() % 64;
    Batch batch;
    std::vector<std::pair<std::string, std::optional<std::string>>> wanted;
    for (int i = 0; i < rows; ++i) {
      const std::string key = KeyOf(shape, static_cast<uint8_t>(number + i * 7));
      std::string row(4 + size * 6, static_cast<char>(number + i));
      switch (kind % 4) {
        case 0:
          batch.Insert(0, View(key), View(row));
          break;
        case 1:
          batch.Replace(0, View(key), View(row));
          break;
        case 2:
          batch.Delete(0, View(key));
          wanted.emplace_back(key, std::nullopt);
          continue;
        default:
          row.resize(4);
          batch.Write(0, View(key), 0, View(row));
      }
      wanted.emplace_back(key, row);
    }
    if (Run(*transaction.branch, batch) != Progress::kDone) return End(transaction, /*commit=*/false);
    for (size_t i = 0; i < wanted.size(); ++i) Note(transaction, batch, i, kind % 4, wanted[i]);
  }
  void Note(Transaction& transaction, const Batch& batch, size_t i, int kind,
            const std::pair<std::string, std::optional<std::string>>& wanted) {
    const auto& [key, row] = wanted;
    const std::optional<std::string> before = RowOf(transaction, key);
    const bool done = kind == 0 ? !before.has_value() : before.has_value();
    ISLANDS_CHECK((batch.code(i) == absl::StatusCode::kOk) == done);
    if (!done) return;
    transaction.changes[key] = row;
    if (kind == 3) transaction.changes[key] = *row + before->substr(row->size());
  }
  std::optional<std::string> RowOf(const Transaction& transaction, const std::string& key) const {
    const auto own = transaction.changes.find(key);
    if (own != transaction.changes.end()) return own->second;
    const auto row = rows_.find(key);
    return row == rows_.end() ? std::nullopt : std::optional(row->second);
  }
  void Begin(Transaction& transaction) {
    transaction = {.branch = std::make_unique<Branch>()};
    transaction.branch->locks.transaction = {0, 0, life_, ++sequence_};
    transaction.branch->locks.wake_token = sequence_;
  }
  Progress Run(Branch& branch, Batch& batch) {
    batch.ResetResults();
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    instance::Failure failure;
    return executor_->Run(branch, batch, routes, &cursor, &failure);
  }
  // A commit is shown at once.
  void End(Transaction& transaction, bool commit) {
    if (!transaction.branch) return;
    if (commit) {
      executor_->Commit(*transaction.branch, &wakeups_);
      Apply(transaction.changes, &rows_);
      committed_.push_back({journal_->commit_epoch(), std::move(transaction.changes)});
    } else {
      executor_->Rollback(*transaction.branch, &wakeups_);
    }
    wakeups_.clear();
    transaction = {};
    executor_->EndQuiet();
  }
  void EndStep() { journal_->EndStep(); }

  // ---- Who else has turns ----

  void StepLogger() {
    clock_.AdvanceNs(runtime::kNsPerMs / 3);
    logger_->RunOnce();
    ISLANDS_CHECK(logger_->failure().ok());
  }
  void Clean(uint8_t steps) {
    executor_->EndQuiet();
    EndStep();
    for (; steps > 0; --steps) {
      if (!cleaner_->RunOnce() && cleaner_->waits_for() != 0) board_->Want(cleaner_->waits_for());
      if (steps % 4 == 0) StepLogger();
      ISLANDS_CHECK(cleaner_->failure().ok());
    }
    const std::string log = log::IslandDirectory(kLogDirectory, 0);
    ISLANDS_CHECK(log::RemoveSegmentsBefore(files_, log, cleaner_->checkpoint().position).ok());
  }

  // ---- Who dies ----

  void Kill() {
    Die();
    Drain();
    StartIsland();
  }
  void KillAll() {
    Die();
    logger_.reset();
    board_ = std::make_unique<log::Board>(kWorkers);
    StartLogger();
    Drain();
    StartIsland();
  }
  void LosePower(uint64_t seed) {
    const uint64_t promised = board_->durable();
    files_.PowerLoss(seed);
    Die();
    logger_.reset();
    ring_.reset();
    const log::EpochBlock block = ReadEpoch();
    ISLANDS_CHECK(block.epoch >= promised);
    std::erase_if(committed_, [&](const Committed& each) { return each.epoch > block.epoch; });
    log::Cut(&manifest_, block);
    StartBox();
  }
  void Drain() {
    logger_->OnIslandDead(0, life_);
    for (int i = 0; !logger_->ReleaseDrained(0); ++i) {
      ISLANDS_CHECK(i < 100'000);
      StepLogger();
    }
  }
  void Die() {
    cleaner_.reset();
    for (Transaction& transaction : transactions_) transaction = {};
    executor_.reset();
    locks_.reset();
    storage::page_change_sink = nullptr;
    journal_.reset();
    store_.reset();
  }

  // ---- How they come back ----

  log::EpochBlock ReadEpoch() {
    const auto block =
        log::ReadEpochFile(files_, std::string(kLogDirectory) + "/" + log::kEpochFileName, kCluster, 1);
    ISLANDS_CHECK(block.ok());
    return *block;
  }
  void StartBox() {
    board_ = std::make_unique<log::Board>(kWorkers);
    StartLogger();
    StartIsland();
  }
  void StartLogger() {
    auto logger = log::Logger::Open(files_, clock_, *board_,
                                    {.directory = kLogDirectory,
                                     .cluster = kCluster,
                                     .segment_bytes = log::kLeastSegmentBytes,
                                     .first_epoch = log::FirstEpoch(manifest_)});
    ISLANDS_CHECK(logger.ok());
    logger_ = *std::move(logger);
    if (ring_ != nullptr) ISLANDS_CHECK(logger_->Add(ring_).ok());
    ISLANDS_CHECK(logger_->Start().ok());
  }
  void StartIsland() {
    while (!TryStartIsland()) {
      if (std::exchange(without_disk_, false)) return LosePower(life_);
      Die();
      Drain();
    }
  }
  bool TryStartIsland() {
    store_ = *storage::Store::CreateForRedo(MakeCatalog(), kStore);
    Recovery recovery(MakeCatalog(), *store_, manifest_.cuts);
    const log::EpochBlock block = ReadEpoch();
    std::optional<IslandData> data = ReadData(block);
    if (!data) return false;
    recovery.BeginFrom(data->checkpoint);
    log::LogReader reader(files_,
                          {.directory = log::IslandDirectory(kLogDirectory, 0),
                           .cluster = kCluster,
                           .begin = data->checkpoint.position},
                          block.ends[0]);
    const absl::Status read = reader.Read([&](const log::StreamId& stream, const log::Record& record) {
      return recovery.Redo(stream, record);
    });
    ISLANDS_CHECK(read.ok());
    ISLANDS_CHECK(recovery.FindTrees().ok() && recovery.CheckUndo().ok());
    ring_ = log::Ring::InMemory({++life_, 0, 0}, log::Ring::kLeastCapacity);
    ISLANDS_CHECK(logger_->Add(ring_).ok());
    journal_ = std::make_unique<log::Journal>(*board_, *ring_, recovery.last());
    journal_->Listen();
    locks_ = std::make_unique<locks::LockTable>(locks::LockTableOptions{.buckets = 256});
    const instance::ExecutorOptions options{
        .alone = true, .journal = journal_.get(), .wait_for_room = [this] { StepLogger(); }};
    executor_ = std::make_unique<instance::Executor>(MakeCatalog(), *store_, *locks_, options);
    const bool whole =
        recovery.UndoLosers(*executor_, [this] { return !undo_steps_ || (*undo_steps_)-- > 0; });
    undo_steps_.reset();
    if (whole || life_ % 2 == 0) journal_->EndStep();  // or it dies before it could show that
    if (!whole) return false;
    Compare();
    const auto oldest_open = [this] { return journal_->open().oldest(); };
    auto cleaner = Cleaner::Create(files_, *store_, *board_, *std::move(data),
                                   {.log_directory = kLogDirectory, .batch_pages = 16}, oldest_open);
    ISLANDS_CHECK(cleaner.ok());
    cleaner_ = *std::move(cleaner);
    return true;
  }
  // None: the disk has failed meanwhile.
  std::optional<IslandData> ReadData(const log::EpochBlock& block) {
    const IslandDataOptions where{.directory = "/data", .cluster = kCluster};
    const bool first = !IsGenerationWhole(files_, where.directory, where.generation);
    if (disk_steps_) files_.FailAfter(*std::exchange(disk_steps_, std::nullopt));
    absl::Status made;
    if (first) {
      const auto created = storage::Store::Create(MakeCatalog(), kStore, files_);
      ISLANDS_CHECK(created.ok());
      const LogBegin begin{board_->durable() + 1, block.ends[0]};
      made = WriteGeneration(files_, MakeCatalog(), where, **created, begin, NoProgress).status();
    }
    absl::StatusOr<IslandData> data = made.ok() ? absl::UnknownError("") : made;
    if (made.ok()) data = ReadGeneration(files_, MakeCatalog(), where, *store_, NoProgress);
    files_.FailAfter(UINT32_MAX);
    if (data.ok()) return *std::move(data);
    ISLANDS_CHECK(absl::IsUnavailable(data.status()));
    without_disk_ = true;
    return std::nullopt;
  }
  void Compare() {
    rows_.clear();
    for (const Committed& each : committed_) Apply(each.changes, &rows_);
    Rows found;
    store_->At(0, 0)->Scan({}, {}, false, [&](storage::KeyView key, storage::RowView row) {
      found[Text(key)] = Text(row);
      return true;
    });
    ISLANDS_CHECK(found == rows_);
    ISLANDS_CHECK(store_->Check().ok());
  }

  runtime::FuzzInput input_;
  runtime::MemoryFileSystem files_;
  runtime::ManualClock clock_;
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::Logger> logger_;
  std::shared_ptr<log::Ring> ring_;
  std::unique_ptr<log::Journal> journal_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<locks::LockTable> locks_;
  std::unique_ptr<instance::Executor> executor_;
  std::unique_ptr<Cleaner> cleaner_;
  log::BoxManifest manifest_;  // its cuts
  uint64_t life_ = 0;
  uint64_t sequence_ = 0;
  std::array<Transaction, 2> transactions_;
  int turn_ = 0;  // whose it was last
  std::vector<locks::Wakeup> wakeups_;
  std::vector<Committed> committed_;  // in their order
  Rows rows_;                         // as they leave them
  // The next recovery: after so many undo entries it dies, after so many steps its disk.
  std::optional<int> undo_steps_;
  std::optional<uint64_t> disk_steps_;
  bool without_disk_ = false;
};

}  // namespace
}  // namespace islands::recovery

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  islands::recovery::Box({data, std::min<size_t>(size, islands::recovery::kMostBytes)}).Live();
  return 0;
}
