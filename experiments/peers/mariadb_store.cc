// MariaDB with InnoDB: a table of two columns of bytes for each tree. Its prepared statements have a round
// trip each, which costs more than to parse what is so short: they are sent as text, many in a packet.
#include <fmt/format.h>

#include "experiments/peers/mariadb_server.h"
#include "experiments/peers/server_store.h"
#include "instance/storage/pages/limits.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {
namespace {

constexpr size_t kMostKeyBytes = 3 * partitioner::kMaxKeyBytes;  // an index's entry has a key at its end
constexpr size_t kMostRowBytes = 2048;
static_assert(kMostRowBytes >= storage::kMaxRowBytes);

class MariaDbStore final : public ServerStore {
 public:
  MariaDbStore(const StoreOptions& options, std::shared_ptr<ServerProcess> server)
      : options_(options), server_(std::move(server)) {}

  absl::Status Connect(std::chrono::seconds patience) {
    auto connection = ConnectToMariaDb(options_.directory, server_.get(), patience);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return absl::OkStatus();
  }

  absl::Status CreateTables() {
    if (absl::Status status = Execute("CREATE DATABASE bench"); !status.ok()) return status;
    for (size_t tree = 0; tree < options_.trees.size(); ++tree) {
      absl::Status status = Execute(
          fmt::format("CREATE TABLE bench.t{} (k VARBINARY({}) PRIMARY KEY, v VARBINARY({}) NOT NULL) "
                      "ENGINE=InnoDB STATS_PERSISTENT=0 CHARACTER SET binary",
                      tree, kMostKeyBytes, kMostRowBytes));
      if (!status.ok()) return status;
    }
    return Prepare();
  }

  // Procedures are written for serializable transactions. With InnoDB's repeatable read two deliveries of
  // TPC-C find the same order: what is read is of a snapshot, and what is changed is not.
  absl::Status Prepare() {
    for (const char* sql : {"USE bench", "SET autocommit = 0", "SET SESSION tx_isolation = 'SERIALIZABLE'"}) {
      if (absl::Status status = Execute(sql); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  PeerFacts Facts() const override {
    PeerFacts facts = MariaDbFacts(connection_.get(), options_.durability);
    facts.isolation = "serializable, by locks; a batch's statements sent together, as text";
    return facts;
  }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    auto session = std::make_unique<MariaDbStore>(options_, server_);
    if (absl::Status status = session->Connect({}); !status.ok()) return status;
    if (absl::Status status = session->Prepare(); !status.ok()) return status;
    return session;
  }

  absl::Status Settle() override {
    absl::Status status = SettleMariaDb(connection_.get());
    mysql_rollback(connection_.get());  // the question was a transaction
    return status;
  }

 private:
  absl::Status Execute(const std::string& sql) { return ExecuteMariaDb(connection_.get(), sql); }
  static void AppendHex(RowView bytes, std::string* to) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (const std::byte byte : bytes) {
      to->push_back(kDigits[static_cast<uint8_t>(byte) >> 4]);
      to->push_back(kDigits[static_cast<uint8_t>(byte) & 15]);
    }
  }

  // Transactions begin by themselves.
  absl::Status Send(const Statement& statement) override {
    const auto add = [&](std::string_view text) { sql_ += text; };
    const auto add_bytes = [&](RowView bytes) {
      sql_ += "x'";
      AppendHex(bytes, &sql_);
      sql_ += '\'';
    };
    const auto add_table = [&](std::string_view before, std::string_view behind) {
      fmt::format_to(std::back_inserter(sql_), "{} t{} {}", before, statement.tree, behind);
    };
    const auto add_values = [&](std::string_view before) {
      add_table(before, "VALUES (");
      add_bytes(statement.first);
      add(",");
      add_bytes(statement.second);
      add(")");
    };
    if (statement.kind == Kind::kBegin || statement.kind == Kind::kBeginReading) {
      ++begun_;
      return absl::OkStatus();
    }
    if (!sql_.empty()) add(";");
    ++sent_;
    switch (statement.kind) {
      case Kind::kBegin:
      case Kind::kBeginReading:
        break;
      case Kind::kCommit:
        add("COMMIT");
        break;
      case Kind::kRollback:
        add("ROLLBACK");
        break;
      case Kind::kGet:
      case Kind::kLock:
        add_table("SELECT v FROM", "WHERE k = ");
        add_bytes(statement.first);
        if (statement.kind == Kind::kLock) add(" FOR UPDATE");
        break;
      case Kind::kDelete:
        add_table("DELETE FROM", "WHERE k = ");
        add_bytes(statement.first);
        break;
      case Kind::kPut:
        add_values("INSERT INTO");
        add(" ON DUPLICATE KEY UPDATE v = VALUES(v)");
        break;
      case Kind::kInsert:
        add_values("INSERT IGNORE INTO");
        break;
      case Kind::kLoad:
        add_values("INSERT INTO");
        break;
      case Kind::kScan:
      case Kind::kScanBack:
        add_table("SELECT k, v FROM", "WHERE k >= ");
        add_bytes(statement.first);
        add(" AND k < ");
        add_bytes(statement.second);
        add(statement.kind == Kind::kScan ? " ORDER BY k" : " ORDER BY k DESC");
        if (statement.limit != 0) fmt::format_to(std::back_inserter(sql_), " LIMIT {}", statement.limit);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Answer>> Receive() override {
    std::vector<Answer> answers(static_cast<size_t>(std::exchange(begun_, 0)));
    if (std::exchange(sent_, 0) == 0) return answers;
    MYSQL* const connection = connection_.get();
    absl::Status status = ExecuteMariaDb(connection, sql_);
    sql_.clear();
    while (status.ok()) {
      const MariaDbResult result(mysql_store_result(connection));
      Answer& answer = answers.emplace_back();
      if (result == nullptr) {
        answer.rows_changed = mysql_affected_rows(connection);
      } else {
        const unsigned value = mysql_num_fields(result.get()) - 1;
        while (const MYSQL_ROW row = mysql_fetch_row(result.get())) {
          const unsigned long* const bytes = mysql_fetch_lengths(result.get());
          answer.rows.emplace_back(std::string_view(row[0], value == 0 ? 0 : bytes[0]),
                                   std::string_view(row[value], bytes[value]));
        }
      }
      const int next = mysql_next_result(connection);
      if (next < 0) return answers;
      if (next > 0) status = MariaDbError(connection, "a statement");
    }
    return status;
  }

  const StoreOptions options_;
  const std::shared_ptr<ServerProcess> server_;
  MariaDbConnection connection_;
  std::string sql_;  // to be sent
  int sent_ = 0, begun_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenMariaDbStore(const StoreOptions& options) {
  auto server = StartMariaDb({.directory = options.directory,
                              .pool_bytes = options.cache_bytes,
                              .durability = options.durability,
                              .connections = options.threads + 1});
  if (!server.ok()) return server.status();
  auto store = std::make_unique<MariaDbStore>(options, *std::move(server));
  if (absl::Status status = store->Connect(kMariaDbStartPatience); !status.ok()) return status;
  if (absl::Status status = store->CreateTables(); !status.ok()) return status;
  return store;
}

}  // namespace islands::experiments
