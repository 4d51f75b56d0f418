// PostgreSQL as it is set up here, whatever it is to run: a server of its own in a scratch directory, reached
// over a Unix-domain socket, for measurements in memory or beside a disk.
//
// Thread safety: none. Sessions may be connected and used on threads of their own.
#pragma once

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/server_process.h"

namespace islands::experiments {

struct PostgresOptions {
  std::string directory;  // exists, is empty and the server's own
  uint64_t buffer_bytes = 0;
  bool is_in_memory = true;  // old versions of rows are removed only when that is asked for
  PeerDurability durability = PeerDurability::kNone;
  const char* isolation = "read committed";
  uint32_t connections = 1;
};

struct ClosePostgres {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using PostgresConnection = std::unique_ptr<PGconn, ClosePostgres>;
struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using PostgresResult = std::unique_ptr<PGresult, ClearResult>;

// Of version, and what commits outlive.
PeerFacts PostgresFacts(const PGconn* connection, PeerDurability durability);
absl::StatusOr<std::unique_ptr<ServerProcess>> StartPostgres(const PostgresOptions& options);
// Tries for so long, as long as the server runs. It may be null, when it is known to.
absl::StatusOr<PostgresConnection> ConnectToPostgres(const std::string& directory,
                                                     const ServerProcess* server,
                                                     std::chrono::seconds patience);
// Room in each page for new versions of its rows, which then need no entries in the index.
inline constexpr int kPostgresFillFactor = 85;
inline constexpr auto kPostgresStartPatience = std::chrono::seconds(60);

// ABORTED: in another session's way. NOT_FOUND: what the functions here raise for a row that is not there.
absl::Status CheckPostgres(PGconn* connection, const PGresult* result, ExecStatusType expected,
                           const char* what);
absl::Status ExecutePostgres(PGconn* connection, const std::string& sql);

}  // namespace islands::experiments
