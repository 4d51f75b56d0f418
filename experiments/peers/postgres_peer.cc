// PostgreSQL: a server of its own in the scratch directory, reached over a Unix-domain socket. A transaction
// is one prepared statement with an array of keys, so one round trip, in binary.
#include <endian.h>
#include <fmt/format.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/un.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/server_process.h"

namespace islands::experiments {
namespace {

constexpr char kUser[] = "islands";
constexpr int kBinary = 1;
constexpr uint32_t kInt8 = 20;  // the number of a type: bigint
constexpr uint32_t kInt8Array = 1016;
constexpr auto kStartPatience = std::chrono::seconds(60);
constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr size_t kCopyBytes = 1 << 20;  // handed over at a time

struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ClearResult>;

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

  ~PostgresPeer() override { PQfinish(connection_); }

  PeerFacts Facts() const override {
    const char* const told =
        connection_ == nullptr ? nullptr : PQparameterStatus(connection_, "server_version");
    return {.version = fmt::format("PostgreSQL {}", told == nullptr ? "" : told),
            .keeps = Keeps(),
            .isolation =
                "read committed, and each of these transactions is one statement: it sees one snapshot, and "
                "locks the rows that it changes as they are now",
            .rolls_back = true};
  }

  absl::Status Load() override {
    if (absl::Status status = StartServer(); !status.ok()) return status;
    if (absl::Status status = Connect(kStartPatience); !status.ok()) return status;
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
    const Result result = Call("read", keys);
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
    const Result result(PQexecParams(connection_, "SELECT coalesce(sum(counter), 0)::bigint FROM micro", 0,
                                     nullptr, nullptr, nullptr, nullptr, kBinary));
    if (absl::Status status = Check(result, PGRES_TUPLES_OK, "scan"); !status.ok()) return status;
    return NumberAt(result.get(), 0, 0);
  }

  MemoryUse ServerMemory() const override { return server_ == nullptr ? MemoryUse{} : server_->Memory(); }

 private:
  const char* Keeps() const {
    switch (options_.durability) {
      case PeerDurability::kNone:
        return "a commit outlives its session, not a crash of the server: the table is unlogged";
      case PeerDurability::kLazy:
        return "a commit outlives process and machine within 0.6 s: synchronous_commit = off";
      case PeerDurability::kSync:
        break;
    }
    return "a commit outlives the machine: synchronous_commit = on, the log is synced for several at a time";
  }

  std::vector<std::string> Settings() const {
    const uint64_t data = options_.range * (options_.row_bytes + 96);
    const uint64_t buffers = options_.cache_bytes != 0 ? options_.cache_bytes : 2 * data + (128 << 20);
    const bool keeps = options_.durability != PeerDurability::kNone;
    return {
        "listen_addresses=",
        "unix_socket_directories=" + options_.directory,
        fmt::format("shared_buffers={}MB", buffers >> 20),
        "huge_pages=try",
        "dynamic_shared_memory_type=mmap",  // in its directory
        fmt::format("max_connections={}", options_.threads + 5),
        "superuser_reserved_connections=0",
        "max_wal_senders=0",
        "wal_level=minimal",
        "wal_buffers=64MB",
        "max_wal_size=1GB",
        "checkpoint_timeout=15min",
        fmt::format("fsync={}", keeps ? "on" : "off"),
        fmt::format("full_page_writes={}", keeps ? "on" : "off"),
        fmt::format("synchronous_commit={}", options_.durability == PeerDurability::kSync ? "on" : "off"),
        // In memory Settle() does its work, so that it is in no measurement.
        fmt::format("autovacuum={}", options_.cache_bytes != 0 ? "on" : "off"),
        "max_parallel_workers_per_gather=0",
        "jit=off",
        "plan_cache_mode=force_generic_plan",
        // Keys are looked up in the index one after the other, and rows locked in their order: no deadlocks.
        "enable_seqscan=off",
        "enable_bitmapscan=off",
        "update_process_title=off",
        "track_activities=off",
        "track_counts=off",
        "log_min_messages=error",
        "log_checkpoints=off",
    };
  }

  absl::Status StartServer() {
    const std::string socket = options_.directory + "/.s.PGSQL.5432";
    if (socket.size() >= sizeof(sockaddr_un::sun_path))
      return absl::InvalidArgumentError(
          fmt::format("'{}' is too long for a socket; use --directory", socket));
    const auto user = UserForServer("postgres", options_.directory);
    if (!user.ok()) return user.status();
    const std::string data = options_.directory + "/data", log = options_.directory + "/log";
    ServerCommand command = {.words = {PostgresProgram("initdb"), "-D", data, "-U", kUser, "-A", "trust",
                                       "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"},
                             .log = log,
                             .user = *user,
                             .stop_signal = SIGQUIT};
    if (absl::Status status = RunToEnd(command); !status.ok()) return status;
    command.words = {PostgresProgram("postgres"), "-D", data};
    for (const std::string& setting : Settings()) command.words.insert(command.words.end(), {"-c", setting});
    auto server = ServerProcess::Start(command);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  // Tries until then, as long as the server runs.
  absl::Status Connect(std::chrono::seconds patience) {
    const std::string to = fmt::format("host='{}' user={} dbname=postgres sslmode=disable gssencmode=disable",
                                       options_.directory, kUser);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      PQfinish(connection_);
      connection_ = PQconnectdb(to.c_str());
      if (PQstatus(connection_) == CONNECTION_OK) break;
      if (std::chrono::steady_clock::now() >= deadline)
        return absl::UnavailableError(fmt::format("postgres: {}", PQerrorMessage(connection_)));
      if (absl::Status status = server_->Runs(); !status.ok()) return status;
      std::this_thread::sleep_for(kLookEvery);
    }
    PQsetNoticeProcessor(
        connection_, [](void*, const char*) {}, nullptr);
    return absl::OkStatus();
  }

  absl::Status Execute(const std::string& sql) {
    const Result result(PQexec(connection_, sql.c_str()));
    const bool rows = PQresultStatus(result.get()) == PGRES_TUPLES_OK;
    return Check(result, rows ? PGRES_TUPLES_OK : PGRES_COMMAND_OK, sql.c_str());
  }

  absl::Status Check(const Result& result, ExecStatusType expected, const char* what) const {
    if (PQresultStatus(result.get()) == expected) return absl::OkStatus();
    const std::string message = fmt::format("postgres: {}: {}", what, PQerrorMessage(connection_));
    const char* const told = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
    const std::string_view state = told == nullptr ? "" : told;
    if (state == "P0002") return absl::NotFoundError(message);  // raised by the functions
    const bool conflict = state == "40P01" || state == "40001";
    return conflict ? absl::AbortedError(message) : absl::InternalError(message);
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
      const Result result(PQprepare(connection_, name, sql.c_str(), 1, types));
      if (absl::Status status = Check(result, PGRES_COMMAND_OK, name); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  Result Call(const char* statement, std::span<const uint64_t> keys) {
    WriteArray(keys, &array_);
    const char* const values[] = {array_.data()};
    const int lengths[] = {static_cast<int>(array_.size())};
    const int formats[] = {kBinary};
    return Result(PQexecPrepared(connection_, statement, 1, values, lengths, formats, kBinary));
  }

  // In the transaction that makes the table, so that nothing is logged.
  absl::Status LoadRows() {
    const std::string table = fmt::format(
        "BEGIN; CREATE {} TABLE micro (key bigint PRIMARY KEY, counter bigint NOT NULL, content bytea NOT "
        "NULL) "
        "WITH (fillfactor = {}); ALTER TABLE micro ALTER content SET STORAGE PLAIN",
        options_.durability == PeerDurability::kNone ? "UNLOGGED" : "", kFillFactor);
    if (absl::Status status = Execute(table); !status.ok()) return status;
    const Result begun(PQexec(connection_, "COPY micro FROM STDIN (FORMAT binary)"));
    if (absl::Status status = Check(begun, PGRES_COPY_IN, "copy"); !status.ok()) return status;
    std::string data("PGCOPY\n\377\r\n\0", 11);
    Append32(&data, 0);
    Append32(&data, 0);
    for (uint64_t key = 0; key < options_.range; ++key) {
      AppendRow(key, &data);
      if (data.size() < kCopyBytes) continue;
      PQputCopyData(connection_, data.data(), static_cast<int>(data.size()));
      data.clear();
    }
    Append16(&data, 0xffff);
    PQputCopyData(connection_, data.data(), static_cast<int>(data.size()));
    PQputCopyEnd(connection_, nullptr);
    const Result copied(PQgetResult(connection_));
    if (absl::Status status = Check(copied, PGRES_COMMAND_OK, "copy"); !status.ok()) return status;
    while (Result(PQgetResult(connection_)) != nullptr) {
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

  // Room in each page for new versions of its rows, which then need no entries in the index.
  static constexpr int kFillFactor = 85;

  const PeerOptions options_;
  std::vector<std::byte> row_;
  std::unique_ptr<ServerProcess> server_;  // of the peer, not of its sessions
  PGconn* connection_ = nullptr;
  std::string array_;
};

}  // namespace

std::string PostgresProgram(std::string_view program) {
  return FindServerProgram(program, {"/usr/lib/postgresql/*/bin"});
}

std::unique_ptr<Peer> MakePostgresPeer(const PeerOptions& options) {
  return std::make_unique<PostgresPeer>(options);
}

}  // namespace islands::experiments
