// LMDB: a database for each tree, keys as bytes. A transaction that only reads takes its session's reader,
// which is reset and renewed; one that writes has the environment to itself.
#include <fmt/format.h>
#include <lmdb.h>

#include "experiments/peers/huge_pages.h"
#include "experiments/peers/row_store.h"

namespace islands::experiments {
namespace {

constexpr unsigned kMostReaders = 1100;
constexpr uint64_t kMapBytes = uint64_t{1} << 36;  // address space, not memory

absl::Status Check(int code, const char* what) {
  if (code == MDB_SUCCESS) return absl::OkStatus();
  return absl::InternalError(fmt::format("lmdb: {}: {}", what, mdb_strerror(code)));
}

MDB_val ValueOf(RowView bytes) { return {bytes.size(), const_cast<std::byte*>(bytes.data())}; }
RowView ViewOf(const MDB_val& value) { return {static_cast<const std::byte*>(value.mv_data), value.mv_size}; }

struct Environment {
  ~Environment() {
    if (env != nullptr) mdb_env_close(env);
  }
  MDB_env* env = nullptr;
  std::vector<MDB_dbi> trees;
};

class LmdbStore final : public RowStore {
 public:
  LmdbStore(const StoreOptions& options, std::shared_ptr<Environment> environment)
      : options_(options), environment_(std::move(environment)) {}
  ~LmdbStore() override {
    Rollback();
    if (reader_ != nullptr) mdb_txn_abort(reader_);
  }

  PeerFacts Facts() const override { return LmdbFacts(options_.durability); }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    return std::make_unique<LmdbStore>(options_, environment_);
  }

  absl::Status Begin(bool writes) override {
    if (writes) {
      writes_ = true;
      return Check(mdb_txn_begin(environment_->env, nullptr, 0, &transaction_), "begin");
    }
    const int code = reader_ == nullptr ? mdb_txn_begin(environment_->env, nullptr, MDB_RDONLY, &reader_)
                                        : mdb_txn_renew(reader_);
    transaction_ = reader_;
    return Check(code, "begin to read");
  }
  absl::Status Commit() override {
    MDB_txn* const ended = std::exchange(transaction_, nullptr);
    if (std::exchange(writes_, false)) return Check(mdb_txn_commit(ended), "commit");
    mdb_txn_reset(ended);
    return absl::OkStatus();
  }
  void Rollback() override {
    MDB_txn* const ended = std::exchange(transaction_, nullptr);
    if (ended == nullptr) return;
    std::exchange(writes_, false) ? mdb_txn_abort(ended) : mdb_txn_reset(ended);
  }

  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool) override {
    MDB_val at = ValueOf(key), row;
    const int code = mdb_get(transaction_, environment_->trees[tree], &at, &row);
    if (code == MDB_NOTFOUND) return std::nullopt;
    if (code != 0) return Check(code, "get");
    return ViewOf(row);
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    MDB_val at = ValueOf(key), value = ValueOf(row);
    return Check(mdb_put(transaction_, environment_->trees[tree], &at, &value, 0), "put");
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    MDB_val at = ValueOf(key), value = ValueOf(row);
    const int code = mdb_put(transaction_, environment_->trees[tree], &at, &value, MDB_NOOVERWRITE);
    if (code == MDB_KEYEXIST) return false;
    if (code != 0) return Check(code, "insert");
    return true;
  }
  absl::Status Delete(uint32_t tree, KeyView key) override {
    MDB_val at = ValueOf(key);
    return Check(mdb_del(transaction_, environment_->trees[tree], &at, nullptr), "delete");
  }

  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t /*limit*/,
                    Visit visit) override {
    MDB_cursor* cursor = nullptr;
    int code = mdb_cursor_open(transaction_, environment_->trees[tree], &cursor);
    if (code != 0) return Check(code, "scan");
    MDB_val key = ValueOf(reverse ? end : first), row;
    code = mdb_cursor_get(cursor, &key, &row, MDB_SET_RANGE);
    if (reverse) code = mdb_cursor_get(cursor, &key, &row, code == MDB_NOTFOUND ? MDB_LAST : MDB_PREV);
    const MDB_val bound = ValueOf(reverse ? first : end);
    while (code == 0) {
      const int order = mdb_cmp(transaction_, environment_->trees[tree], &key, &bound);
      if (reverse ? order < 0 : order >= 0) break;
      if (!visit(ViewOf(key), ViewOf(row))) break;
      code = mdb_cursor_get(cursor, &key, &row, reverse ? MDB_PREV : MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? absl::OkStatus() : Check(code, "scan");
  }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    return Check(mdb_env_sync(environment_->env, /*force=*/1), "sync");
  }
  absl::Status Settle() override {
    if (options_.durability != PeerDurability::kNone) return absl::OkStatus();
    MDB_envinfo info;
    MDB_stat statistics;
    int code = mdb_env_info(environment_->env, &info);
    if (code == 0) code = mdb_env_stat(environment_->env, &statistics);
    if (code != 0) return Check(code, "ask for the size");
    CollapseMapping(options_.directory + "/data.mdb", (info.me_last_pgno + 1) * statistics.ms_psize);
    return absl::OkStatus();
  }

 private:
  const StoreOptions options_;
  const std::shared_ptr<Environment> environment_;
  MDB_txn* reader_ = nullptr;       // reset unless it is the transaction
  MDB_txn* transaction_ = nullptr;  // null: there is none
  bool writes_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenLmdbStore(const StoreOptions& options) {
  auto environment = std::make_shared<Environment>();
  const bool on_disk = options.durability != PeerDurability::kNone;
  const bool syncs = options.durability == PeerDurability::kSync;
  const unsigned flags =
      (on_disk ? 0 : MDB_WRITEMAP) | (syncs ? 0 : MDB_NOSYNC | MDB_NOMETASYNC) | MDB_NORDAHEAD | MDB_NOTLS;
  int code = mdb_env_create(&environment->env);
  if (code == 0) code = mdb_env_set_maxreaders(environment->env, kMostReaders);
  if (code == 0) code = mdb_env_set_maxdbs(environment->env, static_cast<MDB_dbi>(options.trees.size()));
  if (code == 0) code = mdb_env_open(environment->env, options.directory.c_str(), flags, 0600);
  MakeGapForMapping(kMapBytes);
  if (code == 0) code = mdb_env_set_mapsize(environment->env, kMapBytes);
  MDB_txn* transaction = nullptr;
  if (code == 0) code = mdb_txn_begin(environment->env, nullptr, 0, &transaction);
  for (const std::string& tree : options.trees) {
    if (code == 0)
      code = mdb_dbi_open(transaction, tree.c_str(), MDB_CREATE, &environment->trees.emplace_back());
  }
  if (code == 0) {
    code = mdb_txn_commit(transaction);
  } else if (transaction != nullptr) {
    mdb_txn_abort(transaction);
  }
  if (absl::Status status = Check(code, "open"); !status.ok()) return status;
  return std::make_unique<LmdbStore>(options, std::move(environment));
}

}  // namespace islands::experiments
