// Berkeley DB: B-tree, transactions with page locks. With one thread and durability none without mutexes, and
// the log in a buffer; else written or synced at every commit.
#include <db.h>
#include <fmt/format.h>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kRowsPerLoad = 1000;
constexpr uint32_t kPageBytes = 4096;
constexpr uint32_t kLogBufferBytes = 32 << 20;
constexpr uint32_t kLogFileBytes = 128 << 20;
constexpr uint32_t kMostLocks = 50'000;

absl::Status Check(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  const std::string message = fmt::format("bdb: {}: {}", what, db_strerror(code));
  if (code == DB_NOTFOUND) return absl::NotFoundError(message);
  const bool conflict = code == DB_LOCK_DEADLOCK || code == DB_LOCK_NOTGRANTED;
  return conflict ? absl::AbortedError(message) : absl::InternalError(message);
}

DBT KeyOf(Uint64Key& key) {
  DBT dbt{};
  dbt.data = key.bytes;
  dbt.size = sizeof(key.bytes);
  return dbt;
}

// Where Berkeley DB puts a row, and takes it from.
DBT RowAt(std::byte* row, uint32_t bytes) {
  DBT dbt{};
  dbt.data = row;
  dbt.size = bytes;
  dbt.ulen = bytes;
  dbt.flags = DB_DBT_USERMEM;
  return dbt;
}

std::string Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return fmt::format(
          "a commit outlives the process when its log buffer of {} MiB has been written: no sync",
          kLogBufferBytes >> 20);
    case PeerDurability::kLazy:
      return "a commit outlives the process; the machine, once the log is synced: every second";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: the log is synced, for several at a time";
}

class BerkeleyDbPeer final : public Peer {
 public:
  explicit BerkeleyDbPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {}

  ~BerkeleyDbPeer() override {
    if (is_session_) return;
    if (db_ != nullptr) db_->close(db_, DB_NOSYNC);
    if (environment_ != nullptr) environment_->close(environment_, 0);
  }

  PeerFacts Facts() const override { return BerkeleyDbFacts(options_.durability); }

  absl::Status Load() override {
    if (absl::Status status = OpenEnvironment(); !status.ok()) return status;
    int code = db_create(&db_, environment_, 0);
    if (code == 0) code = db_->set_pagesize(db_, kPageBytes);
    const uint32_t flags = DB_CREATE | DB_AUTO_COMMIT | ForThreads();
    if (code == 0) code = db_->open(db_, nullptr, "micro.db", nullptr, DB_BTREE, flags, 0600);
    if (code != 0) return Check(code, "create the table");
    for (uint64_t begin = 0; begin < options_.range; begin += kRowsPerLoad) {
      absl::Status status = LoadRows(begin, std::min(options_.range, begin + kRowsPerLoad));
      if (!status.ok()) return status;
    }
    return Settle();
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<BerkeleyDbPeer>(options_);
    session->environment_ = environment_;
    session->db_ = db_;
    session->is_session_ = true;
    return session;
  }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    return Check(environment_->log_flush(environment_, nullptr), "sync");
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    return Transact("read", [&](DB_TXN* transaction) {
      int code = 0;
      for (size_t i = 0; i < keys.size() && code == 0; ++i) {
        Uint64Key encoded(keys[i]);
        DBT key = KeyOf(encoded);
        DBT row = RowAt(rows + i * options_.row_bytes, options_.row_bytes);
        code = db_->get(db_, transaction, &key, &row, 0);
      }
      return code;
    });
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Change("update", keys, RowAt(row_.data(), options_.row_bytes));
  }

  // Reads and writes eight bytes of each row, and logs no more.
  absl::Status Add(std::span<const uint64_t> keys) override {
    DBT counter = RowAt(row_.data(), sizeof(int64_t));
    counter.flags |= DB_DBT_PARTIAL;
    counter.dlen = sizeof(int64_t);
    return Change("add", keys, counter);
  }

  // A checkpoint; then log files from before it are removed.
  absl::Status Settle() override {
    return Check(environment_->txn_checkpoint(environment_, 0, 0, DB_FORCE), "checkpoint");
  }

  absl::StatusOr<int64_t> SumCounters() override {
    DBC* cursor = nullptr;
    if (const int code = db_->cursor(db_, nullptr, &cursor, 0); code != 0) return Check(code, "scan");
    int64_t sum = 0;
    int code = 0;
    while (code == 0) {
      Uint64Key number(0);
      DBT key = KeyOf(number);
      key.ulen = key.size;
      key.flags = DB_DBT_USERMEM;
      DBT row = RowAt(row_.data(), options_.row_bytes);
      code = cursor->get(cursor, &key, &row, DB_NEXT);
      if (code == 0) sum += CounterOf(row.data);
    }
    cursor->close(cursor);
    if (code != DB_NOTFOUND) return Check(code, "scan");
    return sum;
  }

 private:
  // Other threads: sessions, or who syncs.
  bool in_threads() const { return options_.threads > 1 || options_.durability != PeerDurability::kNone; }
  uint32_t ForThreads() const { return in_threads() ? DB_THREAD : 0; }

  // Sessions are many lockers, with a lock for each page; who waits in a circle is found at once.
  int SetForThreads() {
    if (!in_threads()) return 0;
    int code = environment_->set_lk_detect(environment_, DB_LOCK_MINWRITE);
    if (code == 0) code = environment_->set_lk_max_lockers(environment_, kMostLocks);
    if (code == 0) code = environment_->set_lk_max_locks(environment_, kMostLocks);
    if (code == 0) code = environment_->set_lk_max_objects(environment_, kMostLocks);
    if (code == 0) code = environment_->set_tx_max(environment_, 2 * options_.threads + 10);
    return code;
  }

  absl::Status OpenEnvironment() {
    int code = db_env_create(&environment_, 0);
    if (code != 0) return Check(code, "create the environment");
    // Pages are at worst half full.
    const uint64_t in_memory = options_.range * (options_.row_bytes + 64) * 2 + (64 << 20);
    const uint64_t cache = options_.cache_bytes != 0 ? options_.cache_bytes : in_memory;
    code = environment_->set_cachesize(environment_, static_cast<uint32_t>(cache >> 30),
                                       static_cast<uint32_t>(cache & ((1 << 30) - 1)), 1);
    if (code == 0) code = environment_->set_lg_bsize(environment_, kLogBufferBytes);
    if (code == 0) code = environment_->set_lg_max(environment_, kLogFileBytes);
    if (options_.durability != PeerDurability::kSync && code == 0) {
      const bool lazy = options_.durability == PeerDurability::kLazy;
      code = environment_->set_flags(environment_, lazy ? DB_TXN_WRITE_NOSYNC : DB_TXN_NOSYNC, 1);
    }
    if (code == 0) code = SetForThreads();
    if (code == 0) code = environment_->log_set_config(environment_, DB_LOG_AUTO_REMOVE, 1);
    const uint32_t flags =
        ForThreads() | DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN;
    if (code == 0) code = environment_->open(environment_, options_.directory.c_str(), flags, 0600);
    return Check(code, "open the environment");
  }

  absl::Status LoadRows(uint64_t begin, uint64_t end) {
    return Transact("load", [&](DB_TXN* transaction) {
      int code = 0;
      for (uint64_t row = begin; row < end && code == 0; ++row) {
        FillMicroRow(row, row_);
        Uint64Key encoded(row);
        DBT key = KeyOf(encoded);
        DBT value = RowAt(row_.data(), options_.row_bytes);
        code = db_->put(db_, transaction, &key, &value, 0);
      }
      return code;
    });
  }

  template <typename Body>
  absl::Status Transact(const char* what, const Body& body) {
    DB_TXN* transaction = nullptr;
    int code = environment_->txn_begin(environment_, nullptr, &transaction, 0);
    if (code != 0) return Check(code, what);
    code = body(transaction);
    if (code == 0) return Check(transaction->commit(transaction, 0), what);
    transaction->abort(transaction);
    return Check(code, what);
  }

  // Adds 1 to the counters by reading and writing `part` of each row, which is in row_.
  absl::Status Change(const char* what, std::span<const uint64_t> keys, const DBT& part) {
    return Transact(what, [&](DB_TXN* transaction) {
      DBC* cursor = nullptr;
      int code = db_->cursor(db_, transaction, &cursor, 0);
      if (code != 0) return code;
      for (size_t i = 0; i < keys.size() && code == 0; ++i) code = ChangeRow(cursor, keys[i], part);
      const int closed = cursor->close(cursor);
      return code != 0 ? code : closed;
    });
  }

  int ChangeRow(DBC* cursor, uint64_t number, DBT part) {
    Uint64Key encoded(number);
    DBT key = KeyOf(encoded);
    if (const int code = cursor->get(cursor, &key, &part, DB_SET | DB_RMW); code != 0) return code;
    AddToCounter(row_.data());
    return cursor->put(cursor, &key, &part, DB_CURRENT);
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  DB_ENV* environment_ = nullptr;
  DB* db_ = nullptr;
  bool is_session_ = false;  // both are the peer's
};

}  // namespace

PeerFacts BerkeleyDbFacts(PeerDurability durability) {
  int major = 0, minor = 0, patch = 0;
  db_version(&major, &minor, &patch);
  return {.version = fmt::format("Berkeley DB {}.{}.{}", major, minor, patch),
          .keeps = Keeps(durability),
          .isolation = "serializable: two-phase locking of pages",
          .rolls_back = true};
}

std::unique_ptr<Peer> MakeBerkeleyDbPeer(const PeerOptions& options) {
  return std::make_unique<BerkeleyDbPeer>(options);
}

}  // namespace islands::experiments
