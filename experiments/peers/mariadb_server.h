// MariaDB with InnoDB as it is set up here, whatever it is to run: a server of its own in a scratch
// directory, reached over a Unix-domain socket.
//
// Thread safety: none. Sessions may be connected and used on threads of their own.
#pragma once

#include <mysql.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/server_process.h"

namespace islands::experiments {

struct MariaDbOptions {
  std::string directory;  // exists, is empty and the server's own
  uint64_t pool_bytes = 0;
  PeerDurability durability = PeerDurability::kNone;
  uint32_t connections = 1;
};

struct CloseMariaDb {
  void operator()(MYSQL* connection) const { mysql_close(connection); }
};
using MariaDbConnection = std::unique_ptr<MYSQL, CloseMariaDb>;

struct FreeMariaDbResult {
  void operator()(MYSQL_RES* result) const { mysql_free_result(result); }
};
using MariaDbResult = std::unique_ptr<MYSQL_RES, FreeMariaDbResult>;

// Of version, and what commits outlive.
PeerFacts MariaDbFacts(MYSQL* connection, PeerDurability durability);
absl::StatusOr<std::unique_ptr<ServerProcess>> StartMariaDb(const MariaDbOptions& options);
// Tries for so long, as long as the server runs. It may be null, when it is known to.
absl::StatusOr<MariaDbConnection> ConnectToMariaDb(const std::string& directory, const ServerProcess* server,
                                                   std::chrono::seconds patience);
inline constexpr auto kMariaDbStartPatience = std::chrono::seconds(60);

inline constexpr char kNoSuchRow[] = "45000";  // what procedures here raise
// ABORTED: in another session's way. NOT_FOUND: kNoSuchRow was raised.
absl::Status MariaDbError(MYSQL_STMT* statement, std::string_view what);
absl::Status MariaDbError(MYSQL* connection, std::string_view what);
// Several, apart by semicolons, may be sent; what is told is of the first, and others wait to be taken.
absl::Status ExecuteMariaDb(MYSQL* connection, const std::string& sql);
absl::StatusOr<int64_t> MariaDbNumber(MYSQL* connection, const std::string& sql);
// Until its purge, in the background, has removed the old versions of rows, but for a few.
absl::Status SettleMariaDb(MYSQL* connection);

}  // namespace islands::experiments
