// An engine as workloads need it: rows of several trees by their keys, in key order, in transactions. Every
// workload of islands runs on it then as it is (store_transaction.h).
//
// Thread safety: none; a RowStore belongs to one thread. Sessions share the data, and the store outlives
// them.
//
// Invariants:
//  1. What a transaction that has committed wrote is there for all that begin later; of one that was rolled
//     back, or whose Commit has failed, nothing is.
//  2. After ABORTED, for a conflict with another session's, a transaction can only be rolled back, and may be
//     tried again. No other error may come from what a workload does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/peers/peer.h"
#include "instance/workload/operation.h"

namespace islands::experiments {

using instance::KeyView;
using instance::RowView;

struct StoreOptions {
  std::string directory;            // exists, is empty and the store's own
  std::vector<std::string> trees;   // by their numbers: what engines may call them, [a-z0-9_.-]
  uint64_t cache_bytes = 2u << 30;  // at most, of pages; the data should fit
  PeerDurability durability = PeerDurability::kNone;
  uint32_t threads = 1;  // sessions that will be asked for
};

class RowStore {
 public:
  // False: no more rows are wanted. What it is given is valid during the call.
  using Visit = absl::FunctionRef<bool(KeyView key, RowView row)>;

  virtual ~RowStore() = default;
  virtual PeerFacts Facts() const = 0;
  // The same data for one more thread.
  virtual absl::StatusOr<std::unique_ptr<RowStore>> Session() = 0;

  // One transaction at a time. Unless it `writes`, it does nothing but Get and Scan.
  virtual absl::Status Begin(bool writes) = 0;
  virtual absl::Status Commit() = 0;
  virtual void Rollback() = 0;

  // Keys and bounds have a byte or more: not all engines know empty ones.

  // The row, valid until the next call; nothing: there is none. `for_update`: it will be written.
  virtual absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool for_update) = 0;
  // Whether there is a row or not.
  virtual absl::Status Put(uint32_t tree, KeyView key, RowView row) = 0;
  // False: there is a row already.
  virtual absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) = 0;
  // Of a key that is there.
  virtual absl::Status Delete(uint32_t tree, KeyView key) = 0;
  // Rows with first <= key < end, in key order or against it; more than `limit` are not wanted, 0: all are.
  // That is for engines that send many at a time: others may show more. `visit` calls nothing of the store.
  virtual absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t limit,
                            Visit visit) = 0;

  // What is asked for next, in this order, with nothing else between but puts and deletes of other keys: it
  // may be done at once. In vain, and left out, unless an engine WantsToExpect.
  struct Wanted {
    enum Kind : uint8_t { kGet, kLock, kInsert, kScan } kind;
    uint32_t tree;
    KeyView first;
    RowView second = {};  // an insert's row, a scan's end
    bool reverse = false;
    uint64_t limit = 0;
  };
  virtual bool WantsToExpect() const { return false; }
  virtual absl::Status Expect(std::span<const Wanted>) { return absl::OkStatus(); }

  // As Insert, of a row that is not there, before anything else runs. That it is may be told by Commit.
  virtual absl::Status Load(uint32_t tree, KeyView key, RowView row);

  // As Peer has them.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  virtual absl::Status Sync() { return absl::OkStatus(); }
};

// "lmdb", "rocksdb", "bdb", "wiredtiger", "sqlite": those of a program's own, which are built.
std::vector<std::string> DefaultRowStoreNames();
// And "postgres", "mariadb", where they are built. PeerIsInstalled says of which there is a server.
std::vector<std::string> RowStoreNames();
// Opened, with empty trees.
absl::StatusOr<std::unique_ptr<RowStore>> OpenRowStore(std::string_view engine, const StoreOptions& options);

absl::StatusOr<std::unique_ptr<RowStore>> OpenLmdbStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenRocksDbStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenBerkeleyDbStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenWiredTigerStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenSqliteStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenPostgresStore(const StoreOptions& options);
absl::StatusOr<std::unique_ptr<RowStore>> OpenMariaDbStore(const StoreOptions& options);

}  // namespace islands::experiments
