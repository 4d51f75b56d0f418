// MariaDB: a server of its own in the scratch directory, reached over a Unix-domain socket; InnoDB. A
// transaction is one prepared statement in the binary protocol, so one round trip: a SELECT, or a call of a
// stored procedure, because a change that does not find all its rows has to be taken back.
#include <fmt/format.h>

#include <map>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/mariadb_server.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {
namespace {

constexpr uint64_t kRowsPerLoad = 500;

struct CloseStatement {
  void operator()(MYSQL_STMT* statement) const { mysql_stmt_close(statement); }
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
    PeerFacts facts = MariaDbFacts(connection_.get(), options_.durability);
    facts.isolation =
        "repeatable read, and each of these transactions is one statement: it sees one snapshot, and "
        "locks the rows that it changes as they are now";
    return facts;
  }

  absl::Status Load() override {
    const uint64_t data = options_.range * (options_.row_bytes + 64);
    auto server =
        StartMariaDb({.directory = options_.directory,
                      .pool_bytes = options_.cache_bytes != 0 ? options_.cache_bytes : 2 * data + (128 << 20),
                      .durability = options_.durability,
                      .connections = options_.threads});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (absl::Status status = Connect(kMariaDbStartPatience); !status.ok()) return status;
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
    const absl::Status status = code == MYSQL_NO_DATA ? absl::OkStatus() : MariaDbError(statement, "read");
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

  absl::Status Settle() override { return SettleMariaDb(connection_.get()); }

  absl::StatusOr<int64_t> SumCounters() override {
    return MariaDbNumber(connection_.get(), "SELECT sum(counter) FROM bench.micro");
  }

  MemoryUse ServerMemory() const override { return server_ == nullptr ? MemoryUse{} : server_->Memory(); }

 private:
  using Statements = std::map<size_t, Prepared>;  // by their number of keys

  absl::Status Connect(std::chrono::seconds patience) {
    auto connection = ConnectToMariaDb(options_.directory, server_.get(), patience);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return absl::OkStatus();
  }
  absl::Status Execute(const std::string& sql) { return ExecuteMariaDb(connection_.get(), sql); }

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
    const absl::Status status = MariaDbError(statement, text);
    statements.erase(keys);
    return status;
  }

  absl::Status Execute(Prepared& prepared, std::span<const uint64_t> keys, const char* what) {
    for (size_t i = 0; i < keys.size(); ++i) prepared.keys[i] = static_cast<int64_t>(keys[i]);
    if (mysql_stmt_execute(prepared.statement.get()) == 0) return absl::OkStatus();
    return MariaDbError(prepared.statement.get(), what);
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
  MariaDbConnection connection_;
  Statements reads_, updates_, adds_;  // end before their connection
};

}  // namespace

std::unique_ptr<Peer> MakeMariaDbPeer(const PeerOptions& options) {
  return std::make_unique<MariaDbPeer>(options);
}

}  // namespace islands::experiments
