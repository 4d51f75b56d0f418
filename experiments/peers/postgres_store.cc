// PostgreSQL: a table of two bytea columns for each tree, statements prepared once for each session and sent
// in libpq's pipeline mode.
#include <endian.h>
#include <fmt/format.h>

#include <array>

#include "experiments/peers/postgres_server.h"
#include "experiments/peers/server_store.h"

namespace islands::experiments {
namespace {

constexpr int kBinary = 1;

// A null pointer would be NULL.
const char* PointerTo(RowView bytes) {
  return bytes.empty() ? "" : reinterpret_cast<const char*>(bytes.data());
}

class PostgresStore final : public ServerStore {
 public:
  PostgresStore(const StoreOptions& options, std::shared_ptr<ServerProcess> server)
      : options_(options), server_(std::move(server)) {}

  absl::Status Connect(std::chrono::seconds patience) {
    auto connection = ConnectToPostgres(options_.directory, server_.get(), patience);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return absl::OkStatus();
  }

  absl::Status CreateTables() {
    const bool keeps = options_.durability != PeerDurability::kNone;
    for (size_t tree = 0; tree < options_.trees.size(); ++tree) {
      absl::Status status = ExecutePostgres(
          connection_.get(),
          fmt::format("CREATE {} TABLE t{} (k bytea PRIMARY KEY, v bytea NOT NULL) WITH (fillfactor = {}); "
                      "ALTER TABLE t{} ALTER k SET STORAGE PLAIN, ALTER v SET STORAGE PLAIN",
                      keeps ? "" : "UNLOGGED", tree, kPostgresFillFactor, tree));
      if (!status.ok()) return status;
    }
    return Prepare();
  }

  absl::Status Prepare() {
    std::vector<std::pair<std::string, std::string>> wanted = {{"begin", "BEGIN"},
                                                               {"begin_reading", "BEGIN READ ONLY"},
                                                               {"commit", "COMMIT"},
                                                               {"rollback", "ROLLBACK"}};
    for (size_t tree = 0; tree < options_.trees.size(); ++tree) {
      const auto add = [&](std::string_view what, std::string_view sql) {
        wanted.emplace_back(fmt::format("{}{}", what, tree), fmt::format(fmt::runtime(sql), tree));
      };
      add("get", "SELECT v FROM t{} WHERE k = $1");
      add("lock", "SELECT v FROM t{} WHERE k = $1 FOR NO KEY UPDATE");
      add("put", "INSERT INTO t{} VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v");
      add("load", "INSERT INTO t{} VALUES ($1, $2)");
      add("insert", "INSERT INTO t{} VALUES ($1, $2) ON CONFLICT DO NOTHING");
      add("delete", "DELETE FROM t{} WHERE k = $1");
      add("scan", "SELECT k, v FROM t{} WHERE k >= $1 AND k < $2 ORDER BY k LIMIT $3::bigint");
      add("back", "SELECT k, v FROM t{} WHERE k >= $1 AND k < $2 ORDER BY k DESC LIMIT $3::bigint");
    }
    for (const auto& [name, sql] : wanted) {
      const PostgresResult result(PQprepare(connection_.get(), name.c_str(), sql.c_str(), 0, nullptr));
      absl::Status status = CheckPostgres(connection_.get(), result.get(), PGRES_COMMAND_OK, sql.c_str());
      if (!status.ok()) return status;
    }
    return EnterPipeline();
  }

  PeerFacts Facts() const override {
    PeerFacts facts = PostgresFacts(connection_.get(), options_.durability);
    facts.isolation =
        "repeatable read: a transaction sees one snapshot, and is tried again when it would change what "
        "another has changed since; prepared statements, a batch's sent together";
    return facts;
  }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    auto session = std::make_unique<PostgresStore>(options_, server_);
    if (absl::Status status = session->Connect({}); !status.ok()) return status;
    if (absl::Status status = session->Prepare(); !status.ok()) return status;
    return session;
  }

  // Old versions of rows are removed.
  absl::Status Settle() override {
    if (PQexitPipelineMode(connection_.get()) != 1) return Failed("to settle");
    absl::Status status = ExecutePostgres(connection_.get(), "VACUUM (ANALYZE)");
    status.Update(EnterPipeline());
    return status;
  }

 private:
  absl::Status Failed(const char* what) const {
    return absl::InternalError(fmt::format("postgres: {}: {}", what, PQerrorMessage(connection_.get())));
  }
  absl::Status EnterPipeline() {
    return PQenterPipelineMode(connection_.get()) == 1 ? absl::OkStatus() : Failed("pipeline mode");
  }
  std::string_view Value(const PGresult* result, int row, int column) const {
    return {PQgetvalue(result, row, column), static_cast<size_t>(PQgetlength(result, row, column))};
  }

  absl::Status Send(const Statement& statement) override {
    static constexpr std::array<std::string_view, 12> kNames = {
        "begin",  "begin_reading", "commit", "rollback", "get",  "lock",
        "delete", "put",           "insert", "load",     "scan", "back"};
    const Kind kind = statement.kind;
    name_.assign(kNames[static_cast<size_t>(kind)]);
    if (kind >= Kind::kGet) fmt::format_to(std::back_inserter(name_), "{}", statement.tree);
    const uint64_t limit = htobe64(statement.limit);
    const int count = kind < Kind::kGet ? 0 : kind < Kind::kPut ? 1 : kind < Kind::kScan ? 2 : 3;
    const std::array<const char*, 3> values = {
        PointerTo(statement.first), PointerTo(statement.second),
        statement.limit == 0 ? nullptr : reinterpret_cast<const char*>(&limit)};
    const std::array<int, 3> lengths = {static_cast<int>(statement.first.size()),
                                        static_cast<int>(statement.second.size()), sizeof(limit)};
    const std::array<int, 3> formats = {kBinary, kBinary, kBinary};
    if (PQsendQueryPrepared(connection_.get(), name_.c_str(), count, values.data(), lengths.data(),
                            formats.data(), kBinary) != 1)
      return Failed(name_.c_str());
    ++sent_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Answer>> Receive() override {
    std::vector<Answer> answers;
    if (sent_ == 0) return answers;
    if (PQpipelineSync(connection_.get()) != 1) return Failed("send");
    absl::Status status;
    for (; sent_ > 0; --sent_) {
      const PostgresResult result(PQgetResult(connection_.get()));
      if (result == nullptr) return Failed("receive");
      const ExecStatusType code = PQresultStatus(result.get());
      if (code == PGRES_TUPLES_OK || code == PGRES_COMMAND_OK) {
        answers.push_back(AnswerOf(result.get()));
      } else if (status.ok()) {
        status = CheckPostgres(connection_.get(), result.get(), PGRES_COMMAND_OK, "a statement");
      }
      PQclear(PQgetResult(connection_.get()));  // null: no more of this one
    }
    const PostgresResult end(PQgetResult(connection_.get()));
    if (!status.ok()) return status;
    if (PQresultStatus(end.get()) != PGRES_PIPELINE_SYNC) return Failed("receive");
    return answers;
  }

  Answer AnswerOf(PGresult* result) const {
    Answer answer;
    const std::string_view changed = PQcmdTuples(result);
    if (!changed.empty()) answer.rows_changed = changed == "1" ? 1 : 0;
    const int rows = PQntuples(result), columns = PQnfields(result);
    answer.rows.reserve(static_cast<size_t>(rows));
    for (int row = 0; row < rows; ++row)
      answer.rows.emplace_back(columns == 1 ? "" : Value(result, row, 0), Value(result, row, columns - 1));
    return answer;
  }

  const StoreOptions options_;
  const std::shared_ptr<ServerProcess> server_;
  PostgresConnection connection_;
  int sent_ = 0;
  std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenPostgresStore(const StoreOptions& options) {
  auto server = StartPostgres({.directory = options.directory,
                               .buffer_bytes = options.cache_bytes,
                               .is_in_memory = true,
                               .durability = options.durability,
                               .isolation = "repeatable read",
                               .connections = options.threads + 1});
  if (!server.ok()) return server.status();
  auto store = std::make_unique<PostgresStore>(options, *std::move(server));
  if (absl::Status status = store->Connect(kPostgresStartPatience); !status.ok()) return status;
  if (absl::Status status = store->CreateTables(); !status.ok()) return status;
  return store;
}

}  // namespace islands::experiments
