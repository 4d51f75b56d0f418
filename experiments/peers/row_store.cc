#include "experiments/peers/row_store.h"

#include <fmt/format.h>

namespace islands::experiments {

absl::Status RowStore::Load(uint32_t tree, KeyView key, RowView row) {
  const absl::StatusOr<bool> inserted = Insert(tree, key, row);
  if (!inserted.ok()) return inserted.status();
  return *inserted ? absl::OkStatus() : absl::AlreadyExistsError("a row is loaded twice");
}

std::vector<std::string> DefaultRowStoreNames() {
  std::vector<std::string> names = {"lmdb", "rocksdb", "bdb", "wiredtiger"};
#ifdef ISLANDS_PEERS_SQLITE
  names.emplace_back("sqlite");
#endif
  return names;
}

std::vector<std::string> RowStoreNames() {
  std::vector<std::string> names = DefaultRowStoreNames();
#ifdef ISLANDS_PEERS_POSTGRES
  names.emplace_back("postgres");
#endif
#ifdef ISLANDS_PEERS_MARIADB
  names.emplace_back("mariadb");
#endif
  return names;
}

absl::StatusOr<std::unique_ptr<RowStore>> OpenRowStore(std::string_view engine, const StoreOptions& options) {
  if (absl::Status status = PeerIsInstalled(engine); !status.ok()) return status;
  if (engine == "lmdb") return OpenLmdbStore(options);
  if (engine == "rocksdb") return OpenRocksDbStore(options);
  if (engine == "bdb") return OpenBerkeleyDbStore(options);
  if (engine == "wiredtiger") return OpenWiredTigerStore(options);
#ifdef ISLANDS_PEERS_SQLITE
  if (engine == "sqlite") return OpenSqliteStore(options);
#endif
#ifdef ISLANDS_PEERS_POSTGRES
  if (engine == "postgres") return OpenPostgresStore(options);
#endif
#ifdef ISLANDS_PEERS_MARIADB
  if (engine == "mariadb") return OpenMariaDbStore(options);
#endif
  return absl::NotFoundError(fmt::format("there is no engine '{}'", engine));
}

}  // namespace islands::experiments
