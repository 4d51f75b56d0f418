// MariaDB: a server of its own in the scratch directory, reached over a Unix-domain socket; InnoDB. A
// transaction is one prepared statement in the binary protocol, so one round trip: a SELECT, or a call of a
// stored procedure, because a change that does not find all its rows has to be taken back.
#include <fmt/format.h>
#include <mysql.h>
#include <signal.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/server_process.h"

namespace islands::experiments {
namespace {

constexpr char kSystemTables[] = "/usr/share/mysql/mysql_system_tables.sql";
constexpr auto kStartPatience = std::chrono::seconds(60);
constexpr auto kSettlePatience = std::chrono::seconds(10);
constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr uint64_t kRowsPerLoad = 500;
constexpr char kNoSuchRow[] = "45000";  // what the procedures raise
constexpr int kOldVersions = 100;       // of rows, that need not be waited for

struct CloseConnection {
  void operator()(MYSQL* connection) const { mysql_close(connection); }
};
struct CloseStatement {
  void operator()(MYSQL_STMT* statement) const { mysql_stmt_close(statement); }
};
struct FreeResult {
  void operator()(MYSQL_RES* result) const { mysql_free_result(result); }
};

// A statement for some number of keys, with its parameters and, of a read, where a row goes.
struct Prepared {
  std::unique_ptr<MYSQL_STMT, CloseStatement> statement;
  std::vector<int64_t> keys;
  std::vector<MYSQL_BIND> parameters;
  int64_t counter = 0;
  std::vector<std::byte> content;
  unsigned long content_bytes = 0;
};

// "?,?,?", "k0,k1,k2": `each` has the number, if it wants it.
std::string Listed(size_t count, const char* each) {
  std::string list;
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) list += ',';
    list += fmt::format(fmt::runtime(each), i);
  }
  return list;
}

class MariaDbPeer final : public Peer {
 public:
  explicit MariaDbPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {}

  PeerFacts Facts() const override {
    const char* const told = connection_ == nullptr ? "" : mysql_get_server_info(connection_.get());
    return {.version = fmt::format("MariaDB {}, InnoDB", told),
            .keeps = Keeps(),
            .isolation =
                "repeatable read, and each of these transactions is one statement: it sees one snapshot, and "
                "locks the rows that it changes as they are now",
            .rolls_back = true};
  }

  absl::Status Load() override {
    if (absl::Status status = StartServer(); !status.ok()) return status;
    if (absl::Status status = Connect(kStartPatience); !status.ok()) return status;
    const std::string table = fmt::format(
        "CREATE TABLE bench.micro (id BIGINT PRIMARY KEY, counter BIGINT NOT NULL, content VARBINARY({}) NOT "
        "NULL) "
        "ENGINE=InnoDB STATS_PERSISTENT=0 CHARACTER SET binary",
        options_.row_bytes);
    for (const std::string& sql : {std::string("CREATE DATABASE bench"), table, std::string("USE bench")}) {
      if (absl::Status status = Execute(sql); !status.ok()) return status;
    }
    for (uint64_t begin = 0; begin < options_.range; begin += kRowsPerLoad) {
      absl::Status status = LoadRows(begin, std::min(options_.range, begin + kRowsPerLoad));
      if (!status.ok()) return status;
    }
    return Settle();
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<MariaDbPeer>(options_);
    if (absl::Status status = session->Connect({}); !status.ok()) return status;
    if (absl::Status status = session->Execute("USE bench"); !status.ok()) return status;
    return session;
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    const auto prepared = PreparedFor(reads_, keys.size(), [&] { return Reading(keys.size()); });
    if (!prepared.ok()) return prepared.status();
    Prepared& read = **prepared;
    MYSQL_STMT* const statement = read.statement.get();
    if (absl::Status status = Execute(read, keys, "read"); !status.ok()) return status;
    size_t found = 0;
    int code = 0;
    while ((code = mysql_stmt_fetch(statement)) == 0) {
      std::byte* const row = rows + found++ * options_.row_bytes;
      std::memcpy(row, &read.counter, sizeof(read.counter));
      std::memcpy(row + sizeof(read.counter), read.content.data(), read.content_bytes);
    }
    const absl::Status status = code == MYSQL_NO_DATA ? absl::OkStatus() : StatementError(statement, "read");
    mysql_stmt_free_result(statement);
    if (!status.ok()) return status;
    return found == keys.size() ? absl::OkStatus() : absl::NotFoundError("mariadb: read: no such row");
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Change(updates_, "update", "counter = counter + 1, content = content", keys);
  }

  absl::Status Add(std::span<const uint64_t> keys) override {
    return Change(adds_, "add", "counter = counter + 1", keys);
  }

  // Its purge removes old versions of rows in the background.
  absl::Status Settle() override {
    const auto deadline = std::chrono::steady_clock::now() + kSettlePatience;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto left = Number(
          "SELECT variable_value FROM information_schema.global_status "
          "WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH'");
      if (!left.ok() || *left <= kOldVersions) return left.status();
      std::this_thread::sleep_for(kLookEvery);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> SumCounters() override { return Number("SELECT sum(counter) FROM bench.micro"); }

  MemoryUse ServerMemory() const override { return server_ == nullptr ? MemoryUse{} : server_->Memory(); }

 private:
  using Statements = std::map<size_t, Prepared>;  // by their number of keys

  const char* Keeps() const {
    switch (options_.durability) {
      case PeerDurability::kNone:
        return "a commit outlives its process within a second: the log, which InnoDB cannot do without, is "
               "written "
               "once a second, to a file in memory";
      case PeerDurability::kLazy:
        return "a commit outlives the process; the machine, once the log is synced: every second";
      case PeerDurability::kSync:
        break;
    }
    return "a commit outlives the machine: the log is synced, for several at a time";
  }

  std::string Socket() const { return options_.directory + "/socket"; }

  std::vector<std::string> Settings() const {
    const uint64_t data = options_.range * (options_.row_bytes + 64);
    const uint64_t pool = options_.cache_bytes != 0 ? options_.cache_bytes : 2 * data + (128 << 20);
    const bool keeps = options_.durability != PeerDurability::kNone;
    const char* const flush = !keeps ? "0" : options_.durability == PeerDurability::kLazy ? "2" : "1";
    std::vector<std::string> settings = {
        "--datadir=" + options_.directory + "/data",
        "--socket=" + Socket(),
        "--pid-file=" + options_.directory + "/pid",
        "--skip-networking",
        "--skip-grant-tables",
        "--skip-log-bin",
        "--skip-slave-start",
        "--performance-schema=OFF",
        fmt::format("--max-connections={}", options_.threads + 10),
        fmt::format("--thread-cache-size={}", options_.threads + 10),
        "--back-log=1000",
        "--large-pages",
        fmt::format("--innodb-buffer-pool-size={}M", pool >> 20),
        "--innodb-log-file-size=1G",
        "--innodb-log-buffer-size=64M",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--innodb-buffer-pool-load-at-startup=OFF",
        fmt::format("--innodb-flush-method={}", keeps ? "O_DIRECT" : "nosync"),
        fmt::format("--innodb-doublewrite={}", keeps ? "ON" : "OFF"),
        fmt::format("--innodb-flush-log-at-trx-commit={}", flush),
    };
    if (geteuid() == 0) settings.emplace_back("--user=root");
    return settings;
  }

  // What mariadb-install-db does, without the accounts: the server that is asked only by us has none.
  absl::Status StartServer() {
    if (Socket().size() >= sizeof(sockaddr_un::sun_path))
      return absl::InvalidArgumentError(
          fmt::format("'{}' is too long for a socket; use --directory", Socket()));
    const std::string log = options_.directory + "/log", input = options_.directory + "/system.sql";
    std::ifstream system_tables(kSystemTables);
    std::ofstream(input) << "CREATE DATABASE mysql;\nUSE mysql;\n" << system_tables.rdbuf();
    ServerCommand command = {.words = {MariaDbProgram(), "--no-defaults", "--bootstrap"},
                             .log = log,
                             .input = input,
                             .user = std::nullopt,
                             .stop_signal = SIGKILL};
    for (const std::string& setting : Settings()) command.words.push_back(setting);
    std::error_code error;
    std::filesystem::create_directory(options_.directory + "/data", error);
    if (absl::Status status = RunToEnd(command); !status.ok()) return status;
    command.words.erase(command.words.begin() + 2);  // --bootstrap
    command.input.clear();
    auto server = ServerProcess::Start(command);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  // Tries until then, as long as the server runs.
  absl::Status Connect(std::chrono::seconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      connection_.reset(mysql_init(nullptr));
      if (mysql_real_connect(connection_.get(), nullptr, "root", "", nullptr, 0, Socket().c_str(), 0) !=
          nullptr)
        return absl::OkStatus();
      if (std::chrono::steady_clock::now() >= deadline)
        return absl::UnavailableError(fmt::format("mariadb: {}", mysql_error(connection_.get())));
      if (absl::Status status = server_->Runs(); !status.ok()) return status;
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  static absl::Status ErrorOf(unsigned code, const char* state, const char* message, std::string_view what) {
    const std::string text = fmt::format("mariadb: {}: {}", what, message);
    constexpr unsigned kDeadlock = 1213, kLockWait = 1205;
    if (code == kDeadlock || code == kLockWait) return absl::AbortedError(text);
    return std::string_view(state) == kNoSuchRow ? absl::NotFoundError(text) : absl::InternalError(text);
  }

  static absl::Status StatementError(MYSQL_STMT* statement, std::string_view what) {
    return ErrorOf(mysql_stmt_errno(statement), mysql_stmt_sqlstate(statement), mysql_stmt_error(statement),
                   what);
  }

  absl::Status Execute(const std::string& sql) {
    MYSQL* const connection = connection_.get();
    if (mysql_real_query(connection, sql.data(), sql.size()) == 0) return absl::OkStatus();
    return ErrorOf(mysql_errno(connection), mysql_sqlstate(connection), mysql_error(connection),
                   sql.substr(0, 80));
  }

  absl::StatusOr<int64_t> Number(const std::string& sql) {
    if (absl::Status status = Execute(sql); !status.ok()) return status;
    const std::unique_ptr<MYSQL_RES, FreeResult> result(mysql_store_result(connection_.get()));
    const MYSQL_ROW row = result == nullptr ? nullptr : mysql_fetch_row(result.get());
    if (row == nullptr || row[0] == nullptr) return absl::InternalError("mariadb: no answer to " + sql);
    return std::strtoll(row[0], nullptr, 10);
  }

  absl::Status LoadRows(uint64_t begin, uint64_t end) {
    std::string sql = "INSERT INTO micro VALUES ";
    std::string escaped(2 * options_.row_bytes + 1, '\0');
    for (uint64_t key = begin; key < end; ++key) {
      FillMicroRow(key, row_);
      const auto content = std::span(row_).subspan(sizeof(int64_t));
      const size_t bytes = mysql_real_escape_string(
          connection_.get(), escaped.data(), reinterpret_cast<const char*>(content.data()), content.size());
      sql += fmt::format("{}({},{},'{}')", key == begin ? "" : ",", key, CounterOf(row_.data()),
                         std::string_view(escaped).substr(0, bytes));
    }
    return Execute(sql);
  }

  static std::string Reading(size_t keys) {
    return fmt::format("SELECT counter, content FROM micro WHERE id IN ({}) ORDER BY id", Listed(keys, "?"));
  }

  // One for each number of keys: it has no arrays. Sessions may do this at the same time.
  absl::Status CreateProcedure(const char* name, std::string_view set, size_t keys) {
    return Execute(
        fmt::format("CREATE PROCEDURE IF NOT EXISTS {}_{}({}) BEGIN START TRANSACTION; UPDATE micro SET {} "
                    "WHERE id IN ({}); "
                    "IF ROW_COUNT() = {} THEN COMMIT; ELSE ROLLBACK; SIGNAL SQLSTATE '{}'; END IF; END",
                    name, keys, Listed(keys, "k{} BIGINT"), set, Listed(keys, "k{}"), keys, kNoSuchRow));
  }

  template <typename Sql>
  absl::StatusOr<Prepared*> PreparedFor(Statements& statements, size_t keys, const Sql& sql) {
    Prepared& prepared = statements[keys];
    if (prepared.statement != nullptr) return &prepared;
    const std::string text = sql();
    prepared.statement.reset(mysql_stmt_init(connection_.get()));
    MYSQL_STMT* const statement = prepared.statement.get();
    prepared.keys.resize(keys);
    prepared.parameters.resize(keys);
    for (size_t i = 0; i < keys; ++i) {
      prepared.parameters[i].buffer_type = MYSQL_TYPE_LONGLONG;
      prepared.parameters[i].buffer = &prepared.keys[i];
    }
    prepared.content.resize(options_.row_bytes);
    MYSQL_BIND columns[2] = {};
    columns[0].buffer_type = MYSQL_TYPE_LONGLONG;
    columns[0].buffer = &prepared.counter;
    columns[1].buffer_type = MYSQL_TYPE_BLOB;
    columns[1].buffer = prepared.content.data();
    columns[1].buffer_length = prepared.content.size();
    columns[1].length = &prepared.content_bytes;
    bool failed = mysql_stmt_prepare(statement, text.data(), text.size()) != 0 ||
                  mysql_stmt_bind_param(statement, prepared.parameters.data()) != 0;
    if (!failed && mysql_stmt_field_count(statement) == 2)
      failed = mysql_stmt_bind_result(statement, columns) != 0;
    if (!failed) return &prepared;
    const absl::Status status = StatementError(statement, text);
    statements.erase(keys);
    return status;
  }

  absl::Status Execute(Prepared& prepared, std::span<const uint64_t> keys, const char* what) {
    for (size_t i = 0; i < keys.size(); ++i) prepared.keys[i] = static_cast<int64_t>(keys[i]);
    if (mysql_stmt_execute(prepared.statement.get()) == 0) return absl::OkStatus();
    return StatementError(prepared.statement.get(), what);
  }

  absl::Status Change(Statements& statements, const char* name, std::string_view set,
                      std::span<const uint64_t> keys) {
    if (!statements.contains(keys.size())) {
      if (absl::Status status = CreateProcedure(name, set, keys.size()); !status.ok()) return status;
    }
    const auto prepared = PreparedFor(statements, keys.size(), [&] {
      return fmt::format("CALL {}_{}({})", name, keys.size(), Listed(keys.size(), "?"));
    });
    if (!prepared.ok()) return prepared.status();
    const absl::Status status = Execute(**prepared, keys, name);
    // A lock that was waited for in vain leaves the transaction open.
    if (absl::IsAborted(status)) (void)Execute("ROLLBACK");
    return status;
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  std::unique_ptr<ServerProcess> server_;  // of the peer, not of its sessions
  std::unique_ptr<MYSQL, CloseConnection> connection_;
  Statements reads_, updates_, adds_;  // end before their connection
};

}  // namespace

std::string MariaDbProgram() {
  return FindServerProgram("mariadbd", {"/usr/sbin", "/usr/libexec", "/usr/local/sbin"});
}

std::unique_ptr<Peer> MakeMariaDbPeer(const PeerOptions& options) {
  return std::make_unique<MariaDbPeer>(options);
}

}  // namespace islands::experiments
