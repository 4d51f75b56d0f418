// RocksDB's TransactionDB: a column family for each tree. Everybody sees a snapshot; writers lock what they
// are about to write, and the second of two that write a row is told to begin again. The snapshot of one that
// begins with such a lock is of the moment in which it has it: who has waited need not begin again.
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rocksdb/version.h>

#include "experiments/peers/row_store.h"

namespace islands::experiments {
namespace {

constexpr double kFilterBits = 10;  // of a key

absl::Status Check(const rocksdb::Status& status, const char* what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = fmt::format("rocksdb: {}: {}", what, status.ToString());
  const bool conflict = status.IsBusy() || status.IsTimedOut() || status.IsTryAgain();
  return conflict ? absl::AbortedError(message) : absl::InternalError(message);
}

rocksdb::Slice SliceOf(RowView bytes) {
  return bytes.empty() ? rocksdb::Slice()
                       : rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
RowView ViewOf(const rocksdb::Slice& slice) {
  return {reinterpret_cast<const std::byte*>(slice.data()), slice.size()};
}

struct Database {
  ~Database() {
    for (rocksdb::ColumnFamilyHandle* tree : trees)
      db->DestroyColumnFamilyHandle(tree).PermitUncheckedError();
    if (db != nullptr) db->Close().PermitUncheckedError();
  }
  std::unique_ptr<rocksdb::TransactionDB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> trees;
};

class RocksDbStore final : public RowStore {
 public:
  RocksDbStore(const StoreOptions& options, std::shared_ptr<Database> database)
      : options_(options), database_(std::move(database)) {
    write_options_.disableWAL = options.durability == PeerDurability::kNone;
    write_options_.sync = options.durability == PeerDurability::kSync;
  }

  PeerFacts Facts() const override {
    PeerFacts facts = RocksDbFacts(options_.durability);
    facts.isolation =
        "snapshot: the second of two that write a row is rolled back; write skew goes unnoticed";
    return facts;
  }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    return std::make_unique<RocksDbStore>(options_, database_);
  }

  // The transaction object is used again and again.
  absl::Status Begin(bool writes) override {
    rocksdb::TransactionOptions options;
    options.deadlock_detect = writes;
    rocksdb::Transaction* begun =
        database_->db->BeginTransaction(write_options_, options, transaction_.get());
    if (begun != transaction_.get()) transaction_.reset(begun);
    read_options_ = rocksdb::ReadOptions();
    open_ = true;
    if (!writes) TakeSnapshot();
    return absl::OkStatus();
  }
  absl::Status Commit() override {
    const rocksdb::Status status = transaction_->Commit();
    if (status.ok()) open_ = false;
    return Check(status, "commit");
  }
  void Rollback() override {
    value_.Reset();
    if (std::exchange(open_, false)) transaction_->Rollback().PermitUncheckedError();
  }

  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool for_update) override {
    value_.Reset();
    for_update ? BeforeLock() : TakeSnapshot();
    const rocksdb::Status status =
        for_update ? transaction_->GetForUpdate(read_options_, Tree(tree), SliceOf(key), &value_)
                   : transaction_->Get(read_options_, Tree(tree), SliceOf(key), &value_);
    read_options_.snapshot = transaction_->GetSnapshot();
    if (status.IsNotFound()) return std::nullopt;
    if (!status.ok()) return Check(status, "get");
    return ViewOf(value_);
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    BeforeLock();
    return Check(transaction_->Put(Tree(tree), SliceOf(key), SliceOf(row)), "put");
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    const auto found = Get(tree, key, /*for_update=*/true);
    if (!found.ok()) return found.status();
    if (*found) return false;
    if (absl::Status status = Put(tree, key, row); !status.ok()) return status;
    return true;
  }
  absl::Status Delete(uint32_t tree, KeyView key) override {
    BeforeLock();
    return Check(transaction_->Delete(Tree(tree), SliceOf(key)), "delete");
  }

  // With what the transaction itself has written.
  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t /*limit*/,
                    Visit visit) override {
    TakeSnapshot();
    rocksdb::ReadOptions options = read_options_;
    const rocksdb::Slice lower = SliceOf(first), upper = SliceOf(end);
    options.iterate_lower_bound = &lower;
    options.iterate_upper_bound = &upper;
    const std::unique_ptr<rocksdb::Iterator> row(transaction_->GetIterator(options, Tree(tree)));
    reverse ? row->SeekForPrev(upper) : row->Seek(lower);
    // The transaction's own rows do not mind the bounds.
    if (reverse && row->Valid() && row->key().compare(upper) >= 0) row->Prev();
    for (; row->Valid(); reverse ? row->Prev() : row->Next()) {
      if (reverse ? row->key().compare(lower) < 0 : row->key().compare(upper) >= 0) break;
      if (!visit(ViewOf(row->key()), ViewOf(row->value()))) break;
    }
    return Check(row->status(), "scan");
  }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    const rocksdb::Status status = database_->db->SyncWAL();
    // While a memtable is being changed for the next, its log is synced by that.
    return status.IsIncomplete() ? absl::OkStatus() : Check(status, "sync");
  }
  // Everything in one sorted run.
  absl::Status Settle() override {
    rocksdb::CompactRangeOptions compact;
    compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    for (rocksdb::ColumnFamilyHandle* tree : database_->trees) {
      rocksdb::Status status = database_->db->Flush(rocksdb::FlushOptions(), tree);
      if (status.ok()) status = database_->db->CompactRange(compact, tree, nullptr, nullptr);
      if (!status.ok()) return Check(status, "compact");
    }
    return absl::OkStatus();
  }

 private:
  // Of the transaction, if it has none yet.
  void TakeSnapshot() {
    if (transaction_->GetSnapshot() == nullptr) transaction_->SetSnapshot();
    read_options_.snapshot = transaction_->GetSnapshot();
  }
  void BeforeLock() {
    if (transaction_->GetSnapshot() == nullptr) transaction_->SetSnapshotOnNextOperation();
  }
  rocksdb::ColumnFamilyHandle* Tree(uint32_t tree) const { return database_->trees[tree]; }

  const StoreOptions options_;
  const std::shared_ptr<Database> database_;
  rocksdb::WriteOptions write_options_;
  rocksdb::ReadOptions read_options_;  // of the transaction
  std::unique_ptr<rocksdb::Transaction> transaction_;
  bool open_ = false;
  rocksdb::PinnableSlice value_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenRocksDbStore(const StoreOptions& options) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBits));
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  rocksdb::Options settings;
  settings.create_if_missing = true;
  settings.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  settings.memtable_whole_key_filtering = true;
  settings.memtable_prefix_bloom_size_ratio = 0.02;
  settings.write_buffer_size = 64 << 20;
  settings.compression = rocksdb::kNoCompression;
  settings.max_open_files = -1;
  settings.keep_log_file_num = 1;
  settings.info_log_level = rocksdb::ERROR_LEVEL;
  settings.stats_dump_period_sec = 0;
  settings.stats_persist_period_sec = 0;
  auto database = std::make_shared<Database>();
  rocksdb::TransactionDB* db = nullptr;
  rocksdb::Status status =
      rocksdb::TransactionDB::Open(settings, rocksdb::TransactionDBOptions(), options.directory, &db);
  database->db.reset(db);
  for (const std::string& tree : options.trees) {
    if (!status.ok()) break;
    rocksdb::ColumnFamilyHandle* made = nullptr;
    status = db->CreateColumnFamily(settings, tree, &made);
    if (status.ok()) database->trees.push_back(made);
  }
  if (!status.ok()) return Check(status, "open");
  return std::make_unique<RocksDbStore>(options, std::move(database));
}

}  // namespace islands::experiments
