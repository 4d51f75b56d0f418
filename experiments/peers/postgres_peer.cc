// PostgreSQL: a server of its own in the scratch directory, reached over a Unix-domain socket. A transaction
// is one prepared statement with an array of keys, so one round trip, in binary.
#include <endian.h>
#include <fmt/format.h>
#include <libpq-fe.h>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/postgres_server.h"

namespace islands::experiments {
namespace {

constexpr int kBinary = 1;
constexpr uint32_t kInt8 = 20;  // the number of a type: bigint
constexpr uint32_t kInt8Array = 1016;
constexpr size_t kCopyBytes = 1 << 20;  // handed over at a time

template <typename Number>
void Append(std::string* to, Number big_endian) {
  to->append(reinterpret_cast<const char*>(&big_endian), sizeof(big_endian));
}
void Append16(std::string* to, uint16_t value) { Append(to, htobe16(value)); }
void Append32(std::string* to, uint32_t value) { Append(to, htobe32(value)); }
void Append64(std::string* to, uint64_t value) { Append(to, htobe64(value)); }

// An array of bigint as the protocol has it.
void WriteArray(std::span<const uint64_t> keys, std::string* to) {
  to->clear();
  Append32(to, 1);  // dimension
  Append32(to, 0);  // no nulls
  Append32(to, kInt8);
  Append32(to, static_cast<uint32_t>(keys.size()));
  Append32(to, 1);  // the first one's index
  for (const uint64_t key : keys) {
    Append32(to, sizeof(key));
    Append64(to, key);
  }
}

int64_t NumberAt(const PGresult* result, int row, int column) {
  uint64_t number = 0;
  std::memcpy(&number, PQgetvalue(result, row, column), sizeof(number));
  return static_cast<int64_t>(be64toh(number));
}

class PostgresPeer final : public Peer {
 public:
  explicit PostgresPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {}

  PeerFacts Facts() const override {
    PeerFacts facts = PostgresFacts(connection_.get(), options_.durability);
    facts.isolation =
        "read committed, and each of these transactions is one statement: it sees one snapshot, and locks "
        "the "
        "rows that it changes as they are now";
    return facts;
  }

  absl::Status Load() override {
    const uint64_t data = options_.range * (options_.row_bytes + 96);
    auto server = StartPostgres(
        {.directory = options_.directory,
         .buffer_bytes = options_.cache_bytes != 0 ? options_.cache_bytes : 2 * data + (128 << 20),
         .is_in_memory = options_.cache_bytes == 0,
         .durability = options_.durability,
         .connections = options_.threads});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (absl::Status status = Connect(kPostgresStartPatience); !status.ok()) return status;
    if (absl::Status status = LoadRows(); !status.ok()) return status;
    // What was loaded went through a small ring of buffers.
    if (options_.cache_bytes == 0) {
      absl::Status status = Execute("CREATE EXTENSION pg_prewarm");
      if (status.ok()) status = Execute("SELECT pg_prewarm('micro'), pg_prewarm('micro_pkey')");
      if (!status.ok()) return status;
    }
    // What is not named keeps its bytes: to PostgreSQL both write a new version of the whole row.
    absl::Status status = CreateFunction("update_rows", "counter = counter + 1, content = content");
    if (status.ok()) status = CreateFunction("add_rows", "counter = counter + 1");
    return status.ok() ? PrepareStatements() : status;
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<PostgresPeer>(options_);
    if (absl::Status status = session->Connect({}); !status.ok()) return status;
    if (absl::Status status = session->PrepareStatements(); !status.ok()) return status;
    return session;
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    const PostgresResult result = Call("read", keys);
    if (absl::Status status = Check(result, PGRES_TUPLES_OK, "read"); !status.ok()) return status;
    if (PQntuples(result.get()) != static_cast<int>(keys.size()))
      return absl::NotFoundError("postgres: read: no such row");
    for (size_t i = 0; i < keys.size(); ++i) {
      const int at = static_cast<int>(i);
      std::byte* const row = rows + i * options_.row_bytes;
      const int64_t counter = NumberAt(result.get(), at, 0);
      std::memcpy(row, &counter, sizeof(counter));
      std::memcpy(row + sizeof(counter), PQgetvalue(result.get(), at, 1),
                  static_cast<size_t>(PQgetlength(result.get(), at, 1)));
    }
    return absl::OkStatus();
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Check(Call("update", keys), PGRES_TUPLES_OK, "update");
  }

  absl::Status Add(std::span<const uint64_t> keys) override {
    return Check(Call("add", keys), PGRES_TUPLES_OK, "add");
  }

  // Old versions of rows are removed. Checkpoints are left alone: after each, pages are logged as a whole
  // when they are first changed, which in a measurement of a second would be most of its log.
  absl::Status Settle() override { return Execute("VACUUM micro"); }

  absl::StatusOr<int64_t> SumCounters() override {
    const PostgresResult result(PQexecParams(connection_.get(),
                                             "SELECT coalesce(sum(counter), 0)::bigint FROM micro", 0,
                                             nullptr, nullptr, nullptr, nullptr, kBinary));
    if (absl::Status status = Check(result, PGRES_TUPLES_OK, "scan"); !status.ok()) return status;
    return NumberAt(result.get(), 0, 0);
  }

  MemoryUse ServerMemory() const override { return server_ == nullptr ? MemoryUse{} : server_->Memory(); }

 private:
  absl::Status Connect(std::chrono::seconds patience) {
    auto connection = ConnectToPostgres(options_.directory, server_.get(), patience);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return absl::OkStatus();
  }
  absl::Status Execute(const std::string& sql) { return ExecutePostgres(connection_.get(), sql); }
  absl::Status Check(const PostgresResult& result, ExecStatusType expected, const char* what) const {
    return CheckPostgres(connection_.get(), result.get(), expected, what);
  }

  // A missing row makes it fail, and so takes everything back. That the count is looked at costs a tenth; a
  // single statement with a common table expression that divides by zero then is slower by some per cent.
  absl::Status CreateFunction(std::string_view name, std::string_view set) {
    return Execute(fmt::format(
        "CREATE FUNCTION {}(keys bigint[]) RETURNS void LANGUAGE plpgsql AS $$ DECLARE found bigint; BEGIN "
        "UPDATE micro SET {} WHERE key = ANY(keys); GET DIAGNOSTICS found = ROW_COUNT; "
        "IF found <> cardinality(keys) THEN RAISE no_data_found; END IF; END $$",
        name, set));
  }

  absl::Status PrepareStatements() {
    const std::pair<const char*, std::string> wanted[] = {
        {"read", "SELECT counter, content FROM micro WHERE key = ANY($1) ORDER BY key"},
        {"update", "SELECT update_rows($1)"},
        {"add", "SELECT add_rows($1)"}};
    for (const auto& [name, sql] : wanted) {
      const Oid types[] = {kInt8Array};
      const PostgresResult result(PQprepare(connection_.get(), name, sql.c_str(), 1, types));
      if (absl::Status status = Check(result, PGRES_COMMAND_OK, name); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  PostgresResult Call(const char* statement, std::span<const uint64_t> keys) {
    WriteArray(keys, &array_);
    const char* const values[] = {array_.data()};
    const int lengths[] = {static_cast<int>(array_.size())};
    const int formats[] = {kBinary};
    return PostgresResult(PQexecPrepared(connection_.get(), statement, 1, values, lengths, formats, kBinary));
  }

  // In the transaction that makes the table, so that nothing is logged.
  absl::Status LoadRows() {
    const std::string table = fmt::format(
        "BEGIN; CREATE {} TABLE micro (key bigint PRIMARY KEY, counter bigint NOT NULL, content bytea NOT "
        "NULL) "
        "WITH (fillfactor = {}); ALTER TABLE micro ALTER content SET STORAGE PLAIN",
        options_.durability == PeerDurability::kNone ? "UNLOGGED" : "", kPostgresFillFactor);
    if (absl::Status status = Execute(table); !status.ok()) return status;
    const PostgresResult begun(PQexec(connection_.get(), "COPY micro FROM STDIN (FORMAT binary)"));
    if (absl::Status status = Check(begun, PGRES_COPY_IN, "copy"); !status.ok()) return status;
    std::string data("PGCOPY\n\377\r\n\0", 11);
    Append32(&data, 0);
    Append32(&data, 0);
    for (uint64_t key = 0; key < options_.range; ++key) {
      AppendRow(key, &data);
      if (data.size() < kCopyBytes) continue;
      PQputCopyData(connection_.get(), data.data(), static_cast<int>(data.size()));
      data.clear();
    }
    Append16(&data, 0xffff);
    PQputCopyData(connection_.get(), data.data(), static_cast<int>(data.size()));
    PQputCopyEnd(connection_.get(), nullptr);
    const PostgresResult copied(PQgetResult(connection_.get()));
    if (absl::Status status = Check(copied, PGRES_COMMAND_OK, "copy"); !status.ok()) return status;
    while (PostgresResult(PQgetResult(connection_.get())) != nullptr) {
    }
    if (absl::Status status = Execute("COMMIT"); !status.ok()) return status;
    if (absl::Status status = Execute("VACUUM (FREEZE, ANALYZE) micro"); !status.ok()) return status;
    return Execute("CHECKPOINT");
  }

  void AppendRow(uint64_t key, std::string* data) {
    FillMicroRow(key, row_);
    Append16(data, 3);
    Append32(data, sizeof(key));
    Append64(data, key);
    Append32(data, sizeof(int64_t));
    Append64(data, static_cast<uint64_t>(CounterOf(row_.data())));
    const auto content = std::span(row_).subspan(sizeof(int64_t));
    Append32(data, static_cast<uint32_t>(content.size()));
    data->append(reinterpret_cast<const char*>(content.data()), content.size());
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  std::unique_ptr<ServerProcess> server_;  // of the peer, not of its sessions
  PostgresConnection connection_;
  std::string array_;
};

}  // namespace

std::unique_ptr<Peer> MakePostgresPeer(const PeerOptions& options) {
  return std::make_unique<PostgresPeer>(options);
}

}  // namespace islands::experiments
