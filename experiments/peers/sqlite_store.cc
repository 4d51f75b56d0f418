// SQLite: a table for each tree, keyed by bytes and stored in key order (WITHOUT ROWID); one connection,
// statements prepared once.
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <mutex>

#include "experiments/peers/row_store.h"

namespace islands::experiments {
namespace {

constexpr int kPagesPerCheckpoint = 16'384;  // of the log: 64 MiB

struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, CloseStatement>;

struct Tree {
  Statement get, put, insert, remove, scan, scan_back;
};

struct Database {
  ~Database() {
    trees.clear();
    begin.reset(), begin_write.reset(), commit.reset(), rollback.reset();
    sqlite3_close(connection);
    if (log >= 0) close(log);
  }
  sqlite3* connection = nullptr;
  std::vector<Tree> trees;
  Statement begin, begin_write, commit, rollback;
  int log = -1;  // the file of the write-ahead log
  bool has_session = false;
};

RowView Column(sqlite3_stmt* statement, int column) {
  return {static_cast<const std::byte*>(sqlite3_column_blob(statement, column)),
          static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}
void Bind(sqlite3_stmt* statement, int number, RowView bytes) {
  // A null pointer would be NULL.
  sqlite3_bind_blob64(statement, number, bytes.empty() ? static_cast<const void*>("") : bytes.data(),
                      bytes.size(), SQLITE_STATIC);
}

class SqliteStore final : public RowStore {
 public:
  SqliteStore(const StoreOptions& options, std::shared_ptr<Database> database)
      : options_(options), database_(std::move(database)) {}

  absl::Status Open() {
    const bool in_memory = options_.durability == PeerDurability::kNone;
    const std::string file = in_memory ? ":memory:" : options_.directory + "/rows.db";
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(file.c_str(), &database_->connection, flags, nullptr) != SQLITE_OK)
      return Error("open");
    std::vector<std::string> settings = {fmt::format("PRAGMA cache_size = -{}", options_.cache_bytes >> 10),
                                         "PRAGMA temp_store = MEMORY"};
    if (in_memory) {
      settings.insert(settings.end(), {"PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF"});
    } else {
      const bool syncs = options_.durability == PeerDurability::kSync;
      settings.insert(settings.end(), {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL",
                                       fmt::format("PRAGMA mmap_size = {}", options_.cache_bytes),
                                       fmt::format("PRAGMA synchronous = {}", syncs ? "FULL" : "NORMAL"),
                                       fmt::format("PRAGMA wal_autocheckpoint = {}", kPagesPerCheckpoint)});
    }
    for (const std::string& tree : options_.trees)
      settings.push_back(fmt::format(
          "CREATE TABLE \"{}\" (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL) WITHOUT ROWID", tree));
    for (const std::string& sql : settings) {
      if (sqlite3_exec(database_->connection, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
        return Error(sql.c_str());
    }
    if (absl::Status status = Prepare(); !status.ok()) return status;
    if (in_memory) return absl::OkStatus();
    database_->log = open((file + "-wal").c_str(), O_RDONLY | O_CLOEXEC);
    if (database_->log < 0) return absl::ErrnoToStatus(errno, "sqlite: there is no write-ahead log");
    return absl::OkStatus();
  }

  PeerFacts Facts() const override { return SqliteFacts(options_.durability); }

  // A second connection could not have the file to itself, and writers would take turns anyway.
  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    if (std::exchange(database_->has_session, true))
      return absl::UnimplementedError("SQLite is set up for one thread: --threads 1");
    return std::make_unique<SqliteStore>(options_, database_);
  }

  absl::Status Begin(bool writes) override {
    open_ = true;
    return Run((writes ? database_->begin_write : database_->begin).get(), "begin");
  }
  absl::Status Commit() override {
    Release();
    absl::Status status = Run(database_->commit.get(), "commit");
    if (status.ok()) open_ = false;
    return status;
  }
  void Rollback() override {
    Release();
    if (std::exchange(open_, false)) Run(database_->rollback.get(), "rollback").IgnoreError();
  }

  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool) override {
    Release();
    sqlite3_stmt* const get = database_->trees[tree].get.get();
    Bind(get, 1, key);
    const int code = sqlite3_step(get);
    held_ = get;
    if (code == SQLITE_ROW) return Column(get, 0);
    if (code == SQLITE_DONE) return std::nullopt;
    return Error("get");
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    sqlite3_stmt* const put = database_->trees[tree].put.get();
    Bind(put, 1, key), Bind(put, 2, row);
    absl::Status status = Run(put, "put");
    Release();  // `row` may be what was read
    return status;
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    sqlite3_stmt* const insert = database_->trees[tree].insert.get();
    Bind(insert, 1, key), Bind(insert, 2, row);
    if (absl::Status status = Run(insert, "insert"); !status.ok()) return status;
    return sqlite3_changes(database_->connection) == 1;
  }
  absl::Status Delete(uint32_t tree, KeyView key) override {
    sqlite3_stmt* const remove = database_->trees[tree].remove.get();
    Bind(remove, 1, key);
    return Run(remove, "delete");
  }

  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t /*limit*/,
                    Visit visit) override {
    Release();
    const Tree& rows = database_->trees[tree];
    sqlite3_stmt* const scan = (reverse ? rows.scan_back : rows.scan).get();
    Bind(scan, 1, first), Bind(scan, 2, end);
    int code = sqlite3_step(scan);
    while (code == SQLITE_ROW && visit(Column(scan, 0), Column(scan, 1))) code = sqlite3_step(scan);
    absl::Status status = code == SQLITE_ROW || code == SQLITE_DONE ? absl::OkStatus() : Error("scan");
    sqlite3_reset(scan);
    return status;
  }

  // Another thread than the connection's: it uses its own descriptor.
  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy || fdatasync(database_->log) == 0)
      return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "sqlite: sync");
  }
  absl::Status Settle() override {
    if (options_.durability == PeerDurability::kNone) return absl::OkStatus();
    const char* const checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    const int code = sqlite3_exec(database_->connection, checkpoint, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : Error(checkpoint);
  }

 private:
  absl::Status Error(const char* what) const {
    return absl::InternalError(fmt::format("sqlite: {}: {}", what, sqlite3_errmsg(database_->connection)));
  }
  absl::Status PrepareOne(const std::string& sql, Statement* statement) {
    sqlite3_stmt* made = nullptr;
    const int code =
        sqlite3_prepare_v3(database_->connection, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr);
    statement->reset(made);
    return code == SQLITE_OK ? absl::OkStatus() : Error(sql.c_str());
  }
  absl::Status Prepare() {
    absl::Status status = PrepareOne("BEGIN", &database_->begin);
    status.Update(PrepareOne("BEGIN IMMEDIATE", &database_->begin_write));
    status.Update(PrepareOne("COMMIT", &database_->commit));
    status.Update(PrepareOne("ROLLBACK", &database_->rollback));
    for (const std::string& name : options_.trees) {
      Tree& tree = database_->trees.emplace_back();
      status.Update(PrepareOne(fmt::format("SELECT v FROM \"{}\" WHERE k = ?1", name), &tree.get));
      status.Update(PrepareOne(fmt::format("REPLACE INTO \"{}\" VALUES (?1, ?2)", name), &tree.put));
      status.Update(
          PrepareOne(fmt::format("INSERT OR IGNORE INTO \"{}\" VALUES (?1, ?2)", name), &tree.insert));
      status.Update(PrepareOne(fmt::format("DELETE FROM \"{}\" WHERE k = ?1", name), &tree.remove));
      const std::string scan =
          fmt::format("SELECT k, v FROM \"{}\" WHERE k >= ?1 AND k < ?2 ORDER BY k", name);
      status.Update(PrepareOne(scan, &tree.scan));
      status.Update(PrepareOne(scan + " DESC", &tree.scan_back));
    }
    return status;
  }
  absl::Status Run(sqlite3_stmt* statement, const char* what) {
    const int code = sqlite3_step(statement);
    absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(what);
    sqlite3_reset(statement);
    return status;
  }
  // The row that Get has given belongs to its statement.
  void Release() {
    if (held_ != nullptr) sqlite3_reset(std::exchange(held_, nullptr));
  }

  const StoreOptions options_;
  const std::shared_ptr<Database> database_;
  sqlite3_stmt* held_ = nullptr;
  bool open_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenSqliteStore(const StoreOptions& options) {
  static std::once_flag once;
  // Counts of its memory, under a mutex, that nobody asks for.
  std::call_once(once, [] { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); });
  auto store = std::make_unique<SqliteStore>(options, std::make_shared<Database>());
  if (absl::Status status = store->Open(); !status.ok()) return status;
  return store;
}

}  // namespace islands::experiments
