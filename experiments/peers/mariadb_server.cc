#include "experiments/peers/mariadb_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace islands::experiments {
namespace {

constexpr char kSystemTables[] = "/usr/share/mysql/mysql_system_tables.sql";
constexpr auto kSettlePatience = std::chrono::seconds(10);
constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr int kOldVersions = 100;  // of rows, that need not be waited for

std::string SocketIn(const std::string& directory) { return directory + "/socket"; }

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit outlives its process within a second: the log, which InnoDB cannot do without, is "
             "written once a second, to a file in memory";
    case PeerDurability::kLazy:
      return "a commit outlives the process; the machine, once the log is synced: every second";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: the log is synced, for several at a time";
}

std::vector<std::string> Settings(const MariaDbOptions& options) {
  const bool keeps = options.durability != PeerDurability::kNone;
  const char* const flush = !keeps ? "0" : options.durability == PeerDurability::kLazy ? "2" : "1";
  std::vector<std::string> settings = {
      "--datadir=" + options.directory + "/data",
      "--socket=" + SocketIn(options.directory),
      "--pid-file=" + options.directory + "/pid",
      "--skip-networking",
      "--skip-grant-tables",
      "--skip-log-bin",
      "--skip-slave-start",
      "--performance-schema=OFF",
      fmt::format("--max-connections={}", options.connections + 10),
      fmt::format("--thread-cache-size={}", options.connections + 10),
      "--back-log=1000",
      "--large-pages",
      fmt::format("--innodb-buffer-pool-size={}M", options.pool_bytes >> 20),
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

absl::Status ErrorOf(unsigned code, const char* state, const char* message, std::string_view what) {
  const std::string text = fmt::format("mariadb: {}: {}", what, message);
  constexpr unsigned kDeadlock = 1213, kLockWait = 1205;
  if (code == kDeadlock || code == kLockWait) return absl::AbortedError(text);
  return std::string_view(state) == kNoSuchRow ? absl::NotFoundError(text) : absl::InternalError(text);
}

}  // namespace

PeerFacts MariaDbFacts(MYSQL* connection, PeerDurability durability) {
  const char* const told = connection == nullptr ? "" : mysql_get_server_info(connection);
  return {.version = fmt::format("MariaDB {}, InnoDB", told),
          .keeps = Keeps(durability),
          .isolation = "",
          .rolls_back = true};
}

// What mariadb-install-db does, without the accounts: the server that is asked only by us has none.
absl::StatusOr<std::unique_ptr<ServerProcess>> StartMariaDb(const MariaDbOptions& options) {
  if (SocketIn(options.directory).size() >= sizeof(sockaddr_un::sun_path))
    return absl::InvalidArgumentError(
        fmt::format("'{}' is too long for a socket; use --directory", SocketIn(options.directory)));
  const std::string log = options.directory + "/log", input = options.directory + "/system.sql";
  std::ifstream system_tables(kSystemTables);
  std::ofstream(input) << "CREATE DATABASE mysql;\nUSE mysql;\n" << system_tables.rdbuf();
  ServerCommand command = {.words = {MariaDbProgram(), "--no-defaults", "--bootstrap"},
                           .log = log,
                           .input = input,
                           .user = std::nullopt,
                           .stop_signal = SIGKILL};
  for (const std::string& setting : Settings(options)) command.words.push_back(setting);
  std::error_code error;
  std::filesystem::create_directory(options.directory + "/data", error);
  if (absl::Status status = RunToEnd(command); !status.ok()) return status;
  command.words.erase(command.words.begin() + 2);  // --bootstrap
  command.input.clear();
  return ServerProcess::Start(command);
}

absl::StatusOr<MariaDbConnection> ConnectToMariaDb(const std::string& directory, const ServerProcess* server,
                                                   std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    MariaDbConnection connection(mysql_init(nullptr));
    if (mysql_real_connect(connection.get(), nullptr, "root", "", nullptr, 0, SocketIn(directory).c_str(),
                           CLIENT_MULTI_STATEMENTS) != nullptr)
      return connection;
    if (std::chrono::steady_clock::now() >= deadline)
      return absl::UnavailableError(fmt::format("mariadb: {}", mysql_error(connection.get())));
    if (server != nullptr) {
      if (absl::Status status = server->Runs(); !status.ok()) return status;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

absl::Status MariaDbError(MYSQL_STMT* statement, std::string_view what) {
  return ErrorOf(mysql_stmt_errno(statement), mysql_stmt_sqlstate(statement), mysql_stmt_error(statement),
                 what);
}

absl::Status MariaDbError(MYSQL* connection, std::string_view what) {
  return ErrorOf(mysql_errno(connection), mysql_sqlstate(connection), mysql_error(connection), what);
}

absl::Status ExecuteMariaDb(MYSQL* connection, const std::string& sql) {
  if (mysql_real_query(connection, sql.data(), sql.size()) == 0) return absl::OkStatus();
  return MariaDbError(connection, std::string_view(sql).substr(0, 80));
}

absl::StatusOr<int64_t> MariaDbNumber(MYSQL* connection, const std::string& sql) {
  if (absl::Status status = ExecuteMariaDb(connection, sql); !status.ok()) return status;
  const MariaDbResult result(mysql_store_result(connection));
  const MYSQL_ROW row = result == nullptr ? nullptr : mysql_fetch_row(result.get());
  if (row == nullptr || row[0] == nullptr) return absl::InternalError("mariadb: no answer to " + sql);
  return std::strtoll(row[0], nullptr, 10);
}

absl::Status SettleMariaDb(MYSQL* connection) {
  const auto deadline = std::chrono::steady_clock::now() + kSettlePatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto left = MariaDbNumber(connection,
                                    "SELECT variable_value FROM information_schema.global_status "
                                    "WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH'");
    if (!left.ok() || *left <= kOldVersions) return left.status();
    std::this_thread::sleep_for(kLookEvery);
  }
  return absl::OkStatus();
}

std::string MariaDbProgram() {
  return FindServerProgram("mariadbd", {"/usr/sbin", "/usr/libexec", "/usr/local/sbin"});
}

}  // namespace islands::experiments
