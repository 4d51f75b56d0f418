#include "experiments/peers/row_store.h"

#include <fmt/format.h>

namespace islands::experiments {

std::vector<std::string> RowStoreNames() {
  std::vector<std::string> names = {"lmdb", "rocksdb", "bdb", "wiredtiger"};
#ifdef ISLANDS_PEERS_SQLITE
  names.emplace_back("sqlite");
#endif
  return names;
}

absl::StatusOr<std::unique_ptr<RowStore>> OpenRowStore(std::string_view engine, const StoreOptions& options) {
  if (engine == "lmdb") return OpenLmdbStore(options);
  if (engine == "rocksdb") return OpenRocksDbStore(options);
  if (engine == "bdb") return OpenBerkeleyDbStore(options);
  if (engine == "wiredtiger") return OpenWiredTigerStore(options);
#ifdef ISLANDS_PEERS_SQLITE
  if (engine == "sqlite") return OpenSqliteStore(options);
#endif
  return absl::NotFoundError(fmt::format("there is no engine '{}'", engine));
}

}  // namespace islands::experiments
