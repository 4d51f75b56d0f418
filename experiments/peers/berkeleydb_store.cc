// Berkeley DB: a B-tree for each tree, transactions with page locks; without mutexes where there is one
// thread only.
#include <db.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "experiments/peers/row_store.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kPageBytes = 4096;
constexpr uint32_t kLogBufferBytes = 32 << 20;
constexpr uint32_t kLogFileBytes = 128 << 20;
constexpr uint32_t kMostLocks = 200'000;

absl::Status Check(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  const std::string message = fmt::format("bdb: {}: {}", what, db_strerror(code));
  const bool conflict = code == DB_LOCK_DEADLOCK || code == DB_LOCK_NOTGRANTED;
  return conflict ? absl::AbortedError(message) : absl::InternalError(message);
}

DBT Given(RowView bytes) {
  DBT dbt{};
  dbt.data = const_cast<std::byte*>(bytes.data());
  dbt.size = static_cast<uint32_t>(bytes.size());
  return dbt;
}
bool Less(RowView left, RowView right) {
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

// Where Berkeley DB puts what it finds; its memory is used again.
class Taken {
 public:
  Taken() { dbt_.flags = DB_DBT_REALLOC; }
  ~Taken() { std::free(dbt_.data); }  // NOLINT: it comes from realloc
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  DBT* dbt() { return &dbt_; }
  void Set(RowView bytes) {
    dbt_.data = std::realloc(dbt_.data, std::max<size_t>(bytes.size(), 1));  // NOLINT
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(dbt_.data));
    dbt_.size = static_cast<uint32_t>(bytes.size());
  }
  RowView view() const { return {static_cast<const std::byte*>(dbt_.data), dbt_.size}; }

 private:
  DBT dbt_{};
};

struct Database {
  ~Database() {
    for (DB* tree : trees) tree->close(tree, DB_NOSYNC);
    if (environment != nullptr) environment->close(environment, 0);
  }
  DB_ENV* environment = nullptr;
  std::vector<DB*> trees;
};

class BerkeleyDbStore final : public RowStore {
 public:
  BerkeleyDbStore(const StoreOptions& options, std::shared_ptr<Database> database)
      : options_(options), database_(std::move(database)) {}
  ~BerkeleyDbStore() override { Rollback(); }

  PeerFacts Facts() const override { return BerkeleyDbFacts(options_.durability); }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    return std::make_unique<BerkeleyDbStore>(options_, database_);
  }

  absl::Status Begin(bool) override {
    return Check(database_->environment->txn_begin(database_->environment, nullptr, &transaction_, 0),
                 "begin");
  }
  absl::Status Commit() override {
    DB_TXN* const ended = std::exchange(transaction_, nullptr);
    return Check(ended->commit(ended, 0), "commit");
  }
  void Rollback() override {
    if (DB_TXN* const ended = std::exchange(transaction_, nullptr)) ended->abort(ended);
  }

  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool for_update) override {
    DBT at = Given(key);
    DB* const db = database_->trees[tree];
    const int code = db->get(db, transaction_, &at, row_.dbt(), for_update ? DB_RMW : 0);
    if (code == DB_NOTFOUND) return std::nullopt;
    if (code != 0) return Check(code, "get");
    return row_.view();
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    return Check(PutWith(tree, key, row, 0), "put");
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    const int code = PutWith(tree, key, row, DB_NOOVERWRITE);
    if (code == DB_KEYEXIST) return false;
    if (code != 0) return Check(code, "insert");
    return true;
  }
  absl::Status Delete(uint32_t tree, KeyView key) override {
    DBT at = Given(key);
    DB* const db = database_->trees[tree];
    return Check(db->del(db, transaction_, &at, 0), "delete");
  }

  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t /*limit*/,
                    Visit visit) override {
    DBC* cursor = nullptr;
    DB* const db = database_->trees[tree];
    int code = db->cursor(db, transaction_, &cursor, 0);
    if (code != 0) return Check(code, "scan");
    key_.Set(reverse ? end : first);
    code = cursor->get(cursor, key_.dbt(), row_.dbt(), DB_SET_RANGE);
    if (reverse) code = cursor->get(cursor, key_.dbt(), row_.dbt(), code == DB_NOTFOUND ? DB_LAST : DB_PREV);
    while (code == 0) {
      if (reverse ? Less(key_.view(), first) : !Less(key_.view(), end)) break;
      if (!visit(key_.view(), row_.view())) break;
      code = cursor->get(cursor, key_.dbt(), row_.dbt(), reverse ? DB_PREV : DB_NEXT);
    }
    const int closed = cursor->close(cursor);
    if (code == 0) code = closed;
    return code == DB_NOTFOUND ? absl::OkStatus() : Check(code, "scan");
  }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    return Check(database_->environment->log_flush(database_->environment, nullptr), "sync");
  }
  absl::Status Settle() override {
    return Check(database_->environment->txn_checkpoint(database_->environment, 0, 0, DB_FORCE),
                 "checkpoint");
  }

 private:
  int PutWith(uint32_t tree, KeyView key, RowView row, uint32_t flags) {
    DBT at = Given(key), value = Given(row);
    DB* const db = database_->trees[tree];
    return db->put(db, transaction_, &at, &value, flags);
  }

  const StoreOptions options_;
  const std::shared_ptr<Database> database_;
  DB_TXN* transaction_ = nullptr;  // null: there is none
  Taken key_, row_;
};

int OpenEnvironment(const StoreOptions& options, uint32_t for_threads, DB_ENV** opened) {
  int code = db_env_create(opened, 0);
  if (code != 0) return code;
  DB_ENV* const environment = *opened;
  code = environment->set_cachesize(environment, static_cast<uint32_t>(options.cache_bytes >> 30),
                                    static_cast<uint32_t>(options.cache_bytes & ((1 << 30) - 1)), 1);
  if (code == 0) code = environment->set_lg_bsize(environment, kLogBufferBytes);
  if (code == 0) code = environment->set_lg_max(environment, kLogFileBytes);
  if (options.durability != PeerDurability::kSync && code == 0) {
    const bool lazy = options.durability == PeerDurability::kLazy;
    code = environment->set_flags(environment, lazy ? DB_TXN_WRITE_NOSYNC : DB_TXN_NOSYNC, 1);
  }
  if (for_threads != 0) {
    if (code == 0) code = environment->set_lk_detect(environment, DB_LOCK_MINWRITE);
    if (code == 0) code = environment->set_tx_max(environment, 2 * options.threads + 10);
  }
  if (code == 0) code = environment->set_lk_max_lockers(environment, kMostLocks);
  if (code == 0) code = environment->set_lk_max_locks(environment, kMostLocks);
  if (code == 0) code = environment->set_lk_max_objects(environment, kMostLocks);
  if (code == 0) code = environment->log_set_config(environment, DB_LOG_AUTO_REMOVE, 1);
  const uint32_t flags =
      for_threads | DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN;
  if (code == 0) code = environment->open(environment, options.directory.c_str(), flags, 0600);
  return code;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenBerkeleyDbStore(const StoreOptions& options) {
  const bool in_threads = options.threads > 1 || options.durability != PeerDurability::kNone;
  const uint32_t for_threads = in_threads ? DB_THREAD : 0;
  auto database = std::make_shared<Database>();
  int code = OpenEnvironment(options, for_threads, &database->environment);
  for (const std::string& name : options.trees) {
    DB* tree = nullptr;
    if (code == 0) code = db_create(&tree, database->environment, 0);
    if (code != 0) break;
    database->trees.push_back(tree);
    code = tree->set_pagesize(tree, kPageBytes);
    const std::string file = name + ".db";
    const uint32_t flags = DB_CREATE | DB_AUTO_COMMIT | for_threads;
    if (code == 0) code = tree->open(tree, nullptr, file.c_str(), nullptr, DB_BTREE, flags, 0600);
  }
  if (absl::Status status = Check(code, "open"); !status.ok()) return status;
  return std::make_unique<BerkeleyDbStore>(options, std::move(database));
}

}  // namespace islands::experiments
