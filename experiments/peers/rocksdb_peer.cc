// RocksDB's TransactionDB: pessimistic row locks. In memory without write-ahead log, everything in the block
// cache; on a disk with both, the log written at every commit and synced now and then.
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kRowsPerLoad = 1000;
constexpr double kFilterBits = 10;  // of a key

absl::Status Check(const rocksdb::Status& status, const char* what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = fmt::format("rocksdb: {}: {}", what, status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  const bool conflict = status.IsBusy() || status.IsTimedOut() || status.IsTryAgain();
  return conflict ? absl::AbortedError(message) : absl::InternalError(message);
}

rocksdb::Slice SliceOf(const Uint64Key& key) {
  return {reinterpret_cast<const char*>(key.bytes), sizeof(key.bytes)};
}

int64_t CounterIn(const rocksdb::Slice& bytes) { return CounterOf(bytes.data()); }

// What an add leaves in the database: eight bytes, added to the row's counter when somebody reads the row, or
// when a compaction meets it.
class CounterMerge final : public rocksdb::MergeOperator {
 public:
  const char* Name() const override { return "islands.counter"; }
  bool FullMergeV2(const MergeOperationInput& in, MergeOperationOutput* out) const override {
    if (in.existing_value == nullptr || in.existing_value->size() < sizeof(int64_t)) return false;
    out->new_value.assign(in.existing_value->data(), in.existing_value->size());
    int64_t counter = CounterIn(*in.existing_value);
    for (const rocksdb::Slice& added : in.operand_list) counter += CounterIn(added);
    std::memcpy(out->new_value.data(), &counter, sizeof(counter));
    return true;
  }
  bool PartialMerge(const rocksdb::Slice&, const rocksdb::Slice& left, const rocksdb::Slice& right,
                    std::string* both, rocksdb::Logger*) const override {
    const int64_t sum = CounterIn(left) + CounterIn(right);
    both->assign(reinterpret_cast<const char*>(&sum), sizeof(sum));
    return true;
  }
};

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit outlives the process when it has been flushed: no write-ahead log";
    case PeerDurability::kLazy:
      return "a commit outlives the process; the machine, once the log is synced: every second";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: the log is synced, for several at a time";
}

class RocksDbPeer final : public Peer {
 public:
  explicit RocksDbPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {
    write_options_.disableWAL = !has_log();
    write_options_.sync = options.durability == PeerDurability::kSync;
  }

  ~RocksDbPeer() override {
    transaction_.reset();
    if (db_ != nullptr && db_.use_count() == 1) db_->Close().PermitUncheckedError();
  }

  PeerFacts Facts() const override { return RocksDbFacts(options_.durability); }

  absl::Status Load() override {
    rocksdb::TransactionDB* db = nullptr;
    rocksdb::Status status =
        rocksdb::TransactionDB::Open(Options(), rocksdb::TransactionDBOptions(), options_.directory, &db);
    db_.reset(db);
    if (!status.ok()) return Check(status, "open");
    for (uint64_t begin = 0; begin < options_.range; begin += kRowsPerLoad) {
      status = LoadRows(begin, std::min(options_.range, begin + kRowsPerLoad));
      if (!status.ok()) return Check(status, "load");
    }
    return Settle();
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<RocksDbPeer>(options_);
    session->db_ = db_;
    return session;
  }

  absl::Status Sync() override {
    const rocksdb::Status status = db_->SyncWAL();
    // While a memtable is being changed for the next, its log is synced by that.
    return status.IsIncomplete() ? absl::OkStatus() : Check(status, "sync");
  }

  // MultiGet looks all keys up together: faster by a third than one Get after the other. A snapshot is enough
  // for a transaction that only reads; locks would only add to its cost.
  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    Prepare(keys);
    Begin();
    transaction_->SetSnapshot();
    rocksdb::ReadOptions read_options;
    read_options.snapshot = transaction_->GetSnapshot();
    transaction_->MultiGet(read_options, db_->DefaultColumnFamily(), keys.size(), slices_.data(),
                           values_.data(), statuses_.data(), /*sorted_input=*/true);
    rocksdb::Status status;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (statuses_[i].ok()) {
        std::memcpy(rows + i * options_.row_bytes, values_[i].data(), options_.row_bytes);
      } else {
        status = statuses_[i];
      }
      values_[i].Reset();
    }
    return End(status, "read");
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    Begin();
    rocksdb::Status status;
    for (size_t i = 0; i < keys.size() && status.ok(); ++i) status = UpdateRow(Uint64Key(keys[i]));
    return End(status, "update");
  }

  // Locks the row and reads nothing: whether it is there shows later.
  absl::Status Add(std::span<const uint64_t> keys) override {
    static constexpr int64_t kOne = 1;
    const rocksdb::Slice one(reinterpret_cast<const char*>(&kOne), sizeof(kOne));
    Begin();
    rocksdb::Status status;
    for (size_t i = 0; i < keys.size() && status.ok(); ++i) {
      status = transaction_->Merge(SliceOf(Uint64Key(keys[i])), one);
    }
    return End(status, "add");
  }

  // Everything in one sorted run, as after loading.
  absl::Status Settle() override {
    rocksdb::Status status = db_->Flush(rocksdb::FlushOptions());
    rocksdb::CompactRangeOptions compact;
    compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    if (status.ok()) status = db_->CompactRange(compact, nullptr, nullptr);
    return Check(status, "compact");
  }

  absl::StatusOr<int64_t> SumCounters() override {
    int64_t sum = 0;
    const std::unique_ptr<rocksdb::Iterator> row(db_->NewIterator(rocksdb::ReadOptions()));
    for (row->SeekToFirst(); row->Valid(); row->Next()) sum += CounterOf(row->value().data());
    if (!row->status().ok()) return Check(row->status(), "scan");
    return sum;
  }

 private:
  bool has_log() const { return options_.durability != PeerDurability::kNone; }

  rocksdb::Options Options() const {
    const uint64_t data_mib = (options_.range * (options_.row_bytes + 64) >> 20) + 1;
    rocksdb::Options options;
    options.create_if_missing = true;
    // Bloom filters, hash index in blocks, bloom filter of the memtable, and this block cache.
    options.OptimizeForPointLookup(2 * data_mib + 64);
    options.write_buffer_size = 128 << 20;
    if (options_.cache_bytes != 0) LimitMemory(options);
    options.merge_operator = std::make_shared<CounterMerge>();
    options.compression = rocksdb::kNoCompression;
    options.max_open_files = -1;
    options.keep_log_file_num = 1;
    options.info_log_level = rocksdb::ERROR_LEVEL;
    options.stats_dump_period_sec = 0;
    options.stats_persist_period_sec = 0;
    return options;
  }

  // Indexes, filters and memtables have their memory in the cache, too.
  void LimitMemory(rocksdb::Options& options) const {
    rocksdb::LRUCacheOptions cache;
    cache.capacity = options_.cache_bytes;
    cache.num_shard_bits = 2;  // else a filter is a large part of a shard
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(cache);
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBits));
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    table.cache_index_and_filter_blocks = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options.write_buffer_size = options_.cache_bytes / 8;
    options.write_buffer_manager =
        std::make_shared<rocksdb::WriteBufferManager>(options_.cache_bytes / 3, table.block_cache);
  }

  rocksdb::Status LoadRows(uint64_t begin, uint64_t end) {
    rocksdb::WriteBatch batch;
    rocksdb::Status status;
    for (uint64_t row = begin; row < end && status.ok(); ++row) {
      FillMicroRow(row, row_);
      status = batch.Put(SliceOf(Uint64Key(row)), RowSlice());
    }
    rocksdb::TransactionDBWriteOptimizations no_locks;
    no_locks.skip_concurrency_control = true;
    rocksdb::WriteOptions load = write_options_;
    load.sync = false;  // Settle() flushes it all
    return status.ok() ? db_->Write(load, no_locks, &batch) : status;
  }

  void Prepare(std::span<const uint64_t> keys) {
    keys_.clear();
    slices_.clear();
    for (const uint64_t key : keys) keys_.emplace_back(key);
    for (const Uint64Key& key : keys_) slices_.push_back(SliceOf(key));
    values_.resize(keys.size());
    statuses_.resize(keys.size());
  }

  // The transaction object is used again and again.
  void Begin() {
    rocksdb::Transaction* begun =
        db_->BeginTransaction(write_options_, rocksdb::TransactionOptions(), transaction_.get());
    if (begun != transaction_.get()) transaction_.reset(begun);
    transaction_->DisableIndexing();  // no transaction reads what it wrote
  }

  absl::Status End(const rocksdb::Status& status, const char* what) {
    if (status.ok()) return Check(transaction_->Commit(), what);
    transaction_->Rollback().PermitUncheckedError();
    return Check(status, what);
  }

  rocksdb::Status UpdateRow(const Uint64Key& key) {
    rocksdb::ColumnFamilyHandle* table = db_->DefaultColumnFamily();
    rocksdb::Status status = transaction_->GetForUpdate(rocksdb::ReadOptions(), table, SliceOf(key), &value_);
    if (status.ok()) {
      std::memcpy(row_.data(), value_.data(), row_.size());
      AddToCounter(row_.data());
      status = transaction_->Put(table, SliceOf(key), RowSlice(), /*assume_tracked=*/true);
    }
    value_.Reset();
    return status;
  }

  rocksdb::Slice RowSlice() const { return {reinterpret_cast<const char*>(row_.data()), row_.size()}; }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  rocksdb::WriteOptions write_options_;
  std::shared_ptr<rocksdb::TransactionDB> db_;  // of the peer and its sessions
  std::unique_ptr<rocksdb::Transaction> transaction_;
  rocksdb::PinnableSlice value_;
  // Of the read that is going on, kept for their memory.
  std::vector<Uint64Key> keys_;
  std::vector<rocksdb::Slice> slices_;
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> statuses_;
};

}  // namespace

PeerFacts RocksDbFacts(PeerDurability durability) {
  return {.version = fmt::format("RocksDB {}", rocksdb::GetRocksVersionAsString()),
          .keeps = Keeps(durability),
          .isolation = "row locks for writers, readers see a snapshot",
          .rolls_back = true};
}

std::unique_ptr<Peer> MakeRocksDbPeer(const PeerOptions& options) {
  return std::make_unique<RocksDbPeer>(options);
}

}  // namespace islands::experiments
