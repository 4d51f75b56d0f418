// SQLite: one connection with prepared statements, all pages in its cache. Durability none in memory with a
// rollback journal there; else a file with a write-ahead log that no other connection shares.
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <mutex>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {
namespace {

constexpr uint64_t kMmapMore = 64 << 20;
constexpr int kPagesPerCheckpoint = 16'384;  // of the log: 64 MiB

struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, CloseStatement>;

// What the peer and its session share; one of them uses it at a time.
struct Database {
  ~Database() {
    read.reset();
    write.reset();
    add.reset();
    begin.reset();
    begin_write.reset();
    commit.reset();
    rollback.reset();
    sqlite3_close(connection);
    if (log >= 0) close(log);
  }
  sqlite3* connection = nullptr;
  Statement read, write, add, begin, begin_write, commit, rollback;
  int log = -1;  // the file of the write-ahead log
  bool has_session = false;
};

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit does not outlive the process: no file";
    case PeerDurability::kLazy:
      return "a commit outlives the process; the machine, once the log is synced: every second";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: the log is synced at each";
}

class SqlitePeer final : public Peer {
 public:
  explicit SqlitePeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {
    static std::once_flag once;
    // Counts of its memory, under a mutex, that nobody asks for.
    std::call_once(once, [] { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); });
  }

  PeerFacts Facts() const override { return SqliteFacts(options_.durability); }

  absl::Status Load() override {
    database_ = std::make_shared<Database>();
    const std::string file = in_memory() ? ":memory:" : options_.directory + "/micro.db";
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(file.c_str(), &database_->connection, flags, nullptr) != SQLITE_OK)
      return Error("open");
    for (const std::string& setting : Settings()) {
      if (absl::Status status = Execute(setting); !status.ok()) return status;
    }
    const std::string table =
        "CREATE TABLE micro (key INTEGER PRIMARY KEY, counter INTEGER NOT NULL, content BLOB)";
    if (absl::Status status = Execute(table); !status.ok()) return status;
    if (absl::Status status = Prepare(); !status.ok()) return status;
    if (absl::Status status = LoadRows(); !status.ok()) return status;
    if (!in_memory()) {
      database_->log = open((file + "-wal").c_str(), O_RDONLY | O_CLOEXEC);
      if (database_->log < 0) return absl::ErrnoToStatus(errno, "sqlite: there is no write-ahead log");
    }
    return Settle();
  }

  // A second connection could not have the file to itself, and writers would take turns anyway.
  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    if (database_->has_session) return Peer::Session();
    auto session = std::make_unique<SqlitePeer>(options_);
    session->database_ = database_;
    database_->has_session = true;
    return session;
  }

  // Another thread than the connection's: it uses its own descriptor.
  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy || fdatasync(database_->log) == 0)
      return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "sqlite: sync");
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    return Transact(database_->begin, "read", [&] {
      for (size_t i = 0; i < keys.size(); ++i) {
        absl::Status status = ReadRow(keys[i], rows + i * options_.row_bytes);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Transact(database_->begin_write, "update", [&] {
      for (const uint64_t key : keys) {
        absl::Status status = ReadRow(key, row_.data());
        if (!status.ok()) return status;
        AddToCounter(row_.data());
        status = WriteRow(database_->write.get(), key);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  absl::Status Add(std::span<const uint64_t> keys) override {
    return Transact(database_->begin_write, "add", [&] {
      for (const uint64_t key : keys) {
        sqlite3_stmt* const add = database_->add.get();
        sqlite3_bind_int64(add, 1, static_cast<int64_t>(key));
        if (absl::Status status = Run(add, "add"); !status.ok()) return status;
        if (sqlite3_changes(database_->connection) != 1)
          return absl::NotFoundError("sqlite: add: no such row");
      }
      return absl::OkStatus();
    });
  }

  // The log's pages into the file.
  absl::Status Settle() override {
    return in_memory() ? absl::OkStatus() : Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  }

  absl::StatusOr<int64_t> SumCounters() override {
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v2(database_->connection, "SELECT sum(counter) FROM micro", -1, &made, nullptr);
    const Statement sum(made);
    if (sqlite3_step(made) != SQLITE_ROW) return Error("scan");
    return sqlite3_column_int64(made, 0);
  }

 private:
  bool in_memory() const { return options_.durability == PeerDurability::kNone; }

  std::vector<std::string> Settings() const {
    const uint64_t data = options_.range * (options_.row_bytes + 64);
    const uint64_t cache_kib =
        (options_.cache_bytes != 0 ? options_.cache_bytes : 2 * data + (64 << 20)) >> 10;
    std::vector<std::string> settings = {fmt::format("PRAGMA cache_size = -{}", cache_kib),
                                         "PRAGMA temp_store = MEMORY"};
    if (in_memory()) {
      settings.insert(settings.end(), {"PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF"});
      return settings;
    }
    const bool syncs = options_.durability == PeerDurability::kSync;
    const uint64_t mmap = options_.cache_bytes != 0 ? 0 : 2 * data + kMmapMore;
    settings.insert(settings.end(), {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL",
                                     fmt::format("PRAGMA mmap_size = {}", mmap),
                                     fmt::format("PRAGMA synchronous = {}", syncs ? "FULL" : "NORMAL"),
                                     fmt::format("PRAGMA wal_autocheckpoint = {}", kPagesPerCheckpoint)});
    return settings;
  }

  absl::Status Error(const char* what) const {
    return absl::InternalError(fmt::format("sqlite: {}: {}", what, sqlite3_errmsg(database_->connection)));
  }

  absl::Status Execute(const std::string& sql) {
    const int code = sqlite3_exec(database_->connection, sql.c_str(), nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : Error(sql.c_str());
  }

  absl::Status Prepare() {
    const std::pair<Statement*, const char*> wanted[] = {
        {&database_->read, "SELECT counter, content FROM micro WHERE key = ?1"},
        {&database_->write, "UPDATE micro SET counter = ?2, content = ?3 WHERE key = ?1"},
        {&database_->add, "UPDATE micro SET counter = counter + 1 WHERE key = ?1"},
        {&database_->begin, "BEGIN"},
        {&database_->begin_write, "BEGIN IMMEDIATE"},
        {&database_->commit, "COMMIT"},
        {&database_->rollback, "ROLLBACK"}};
    for (const auto& [statement, sql] : wanted) {
      sqlite3_stmt* made = nullptr;
      const int code =
          sqlite3_prepare_v3(database_->connection, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr);
      if (code != SQLITE_OK) return Error(sql);
      statement->reset(made);
    }
    return absl::OkStatus();
  }

  absl::Status Run(sqlite3_stmt* statement, const char* what) {
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? absl::OkStatus() : Error(what);
  }

  absl::Status LoadRows() {
    return Transact(database_->begin_write, "load", [&] {
      sqlite3_stmt* made = nullptr;
      sqlite3_prepare_v2(database_->connection, "INSERT INTO micro VALUES (?1, ?2, ?3)", -1, &made, nullptr);
      const Statement insert(made);
      for (uint64_t key = 0; key < options_.range; ++key) {
        FillMicroRow(key, row_);
        if (absl::Status status = WriteRow(made, key); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }

  // row_ into the three parameters.
  absl::Status WriteRow(sqlite3_stmt* statement, uint64_t key) {
    sqlite3_bind_int64(statement, 1, static_cast<int64_t>(key));
    sqlite3_bind_int64(statement, 2, CounterOf(row_.data()));
    const auto content = std::span(row_).subspan(sizeof(int64_t));
    sqlite3_bind_blob(statement, 3, content.data(), static_cast<int>(content.size()), SQLITE_STATIC);
    return Run(statement, "write");
  }

  absl::Status ReadRow(uint64_t key, std::byte* row) {
    sqlite3_stmt* const read = database_->read.get();
    sqlite3_bind_int64(read, 1, static_cast<int64_t>(key));
    const int code = sqlite3_step(read);
    if (code == SQLITE_ROW) {
      const int64_t counter = sqlite3_column_int64(read, 0);
      std::memcpy(row, &counter, sizeof(counter));
      const void* const content = sqlite3_column_blob(read, 1);
      const auto bytes = static_cast<size_t>(sqlite3_column_bytes(read, 1));
      if (bytes != 0) std::memcpy(row + sizeof(counter), content, bytes);
    }
    sqlite3_reset(read);
    if (code == SQLITE_ROW) return absl::OkStatus();
    return code == SQLITE_DONE ? absl::NotFoundError("sqlite: read: no such row") : Error("read");
  }

  template <typename Body>
  absl::Status Transact(const Statement& begin, const char* what, const Body& body) {
    absl::Status status = Run(begin.get(), what);
    if (!status.ok()) return status;
    status = body();
    if (status.ok()) status = Run(database_->commit.get(), what);
    if (!status.ok()) (void)Run(database_->rollback.get(), what);
    return status;
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  std::shared_ptr<Database> database_;
};

}  // namespace

PeerFacts SqliteFacts(PeerDurability durability) {
  return {.version = fmt::format("SQLite {}", sqlite3_libversion()),
          .keeps = Keeps(durability),
          .isolation = "serializable: one connection, one transaction at a time",
          .rolls_back = true};
}

std::unique_ptr<Peer> MakeSqlitePeer(const PeerOptions& options) {
  return std::make_unique<SqlitePeer>(options);
}

}  // namespace islands::experiments
