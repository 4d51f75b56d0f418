#include "experiments/peers/postgres_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/un.h>

#include <thread>

namespace islands::experiments {
namespace {

constexpr char kUser[] = "islands";
constexpr auto kLookEvery = std::chrono::milliseconds(10);

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit outlives its session, not a crash of the server: tables are unlogged";
    case PeerDurability::kLazy:
      return "a commit outlives process and machine within 0.6 s: synchronous_commit = off";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: synchronous_commit = on, the log is synced for several at a time";
}

std::vector<std::string> Settings(const PostgresOptions& options) {
  const bool keeps = options.durability != PeerDurability::kNone;
  return {
      "listen_addresses=",
      "unix_socket_directories=" + options.directory,
      fmt::format("shared_buffers={}MB", options.buffer_bytes >> 20),
      "huge_pages=try",
      "dynamic_shared_memory_type=mmap",  // in its directory
      fmt::format("max_connections={}", options.connections + 5),
      "superuser_reserved_connections=0",
      "max_wal_senders=0",
      "wal_level=minimal",
      "wal_buffers=64MB",
      "max_wal_size=1GB",
      "checkpoint_timeout=15min",
      fmt::format("fsync={}", keeps ? "on" : "off"),
      fmt::format("full_page_writes={}", keeps ? "on" : "off"),
      fmt::format("synchronous_commit={}", options.durability == PeerDurability::kSync ? "on" : "off"),
      fmt::format("default_transaction_isolation={}", options.isolation),
      fmt::format("autovacuum={}", options.is_in_memory ? "off" : "on"),
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

}  // namespace

PeerFacts PostgresFacts(const PGconn* connection, PeerDurability durability) {
  const char* const told = connection == nullptr ? nullptr : PQparameterStatus(connection, "server_version");
  return {.version = fmt::format("PostgreSQL {}", told == nullptr ? "" : told),
          .keeps = Keeps(durability),
          .isolation = "",
          .rolls_back = true};
}

absl::StatusOr<std::unique_ptr<ServerProcess>> StartPostgres(const PostgresOptions& options) {
  const std::string socket = options.directory + "/.s.PGSQL.5432";
  if (socket.size() >= sizeof(sockaddr_un::sun_path))
    return absl::InvalidArgumentError(fmt::format("'{}' is too long for a socket; use --directory", socket));
  const auto user = UserForServer("postgres", options.directory);
  if (!user.ok()) return user.status();
  const std::string data = options.directory + "/data", log = options.directory + "/log";
  ServerCommand command = {.words = {PostgresProgram("initdb"), "-D", data, "-U", kUser, "-A", "trust", "-E",
                                     "UTF8", "--locale=C", "--no-sync", "--no-instructions"},
                           .log = log,
                           .user = *user,
                           .stop_signal = SIGQUIT};
  if (absl::Status status = RunToEnd(command); !status.ok()) return status;
  command.words = {PostgresProgram("postgres"), "-D", data};
  for (const std::string& setting : Settings(options))
    command.words.insert(command.words.end(), {"-c", setting});
  return ServerProcess::Start(command);
}

absl::StatusOr<PostgresConnection> ConnectToPostgres(const std::string& directory,
                                                     const ServerProcess* server,
                                                     std::chrono::seconds patience) {
  const std::string to =
      fmt::format("host='{}' user={} dbname=postgres sslmode=disable gssencmode=disable", directory, kUser);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    PostgresConnection connection(PQconnectdb(to.c_str()));
    if (PQstatus(connection.get()) == CONNECTION_OK) {
      PQsetNoticeProcessor(
          connection.get(), [](void*, const char*) {}, nullptr);
      return connection;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return absl::UnavailableError(fmt::format("postgres: {}", PQerrorMessage(connection.get())));
    if (server != nullptr) {
      if (absl::Status status = server->Runs(); !status.ok()) return status;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

absl::Status CheckPostgres(PGconn* connection, const PGresult* result, ExecStatusType expected,
                           const char* what) {
  if (PQresultStatus(result) == expected) return absl::OkStatus();
  const std::string message = fmt::format("postgres: {}: {}", what, PQerrorMessage(connection));
  const char* const told = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const std::string_view state = told == nullptr ? "" : told;
  if (state == "P0002") return absl::NotFoundError(message);  // raised by the functions
  const bool conflict = state == "40P01" || state == "40001";
  return conflict ? absl::AbortedError(message) : absl::InternalError(message);
}

absl::Status ExecutePostgres(PGconn* connection, const std::string& sql) {
  const PostgresResult result(PQexec(connection, sql.c_str()));
  const bool rows = PQresultStatus(result.get()) == PGRES_TUPLES_OK;
  return CheckPostgres(connection, result.get(), rows ? PGRES_TUPLES_OK : PGRES_COMMAND_OK, sql.c_str());
}

std::string PostgresProgram(std::string_view program) {
  return FindServerProgram(program, {"/usr/lib/postgresql/*/bin"});
}

}  // namespace islands::experiments
