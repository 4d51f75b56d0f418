// An engine that runs the microbenchmark's transactions, to be measured beside islands: LMDB, RocksDB,
// Berkeley DB, WiredTiger, SQLite, the servers PostgreSQL and MariaDB, and two bare loops over a B+tree that
// show what any engine could reach at most.
//
// All hold the same rows: keys 0 to range - 1, contents of FillMicroRow. A read copies the whole row to the
// client; an update copies it, adds 1 to its counter and writes the whole row back, as islands does; an add
// is each engine's own best way to add 1 to the counter. README.md says how each was set up.
//
// All data are in memory, unless `cache_bytes` says how much of them at most; `durability` is what a commit
// outlives.
//
// Thread safety: none; a peer belongs to one thread, and so does each of its sessions.
//
// Invariants:
//  1. A transaction that returned OK is committed; one that returned an error changed nothing, and after
//     ABORTED, for a conflict with another session's, it may be tried again (but the bare
//     loops, which have no transactions: those stop where the row is missing).
//  2. The sum of all counters is the number of rows that committed updates and adds named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/peers/huge_pages.h"

namespace islands::experiments {

// What every engine is set up for alike, as near as it can; its Facts() say how near that is.
enum class PeerDurability : uint8_t {
  kNone,  // nothing is promised: the fastest that the engine has, without a log where it can do without
  kLazy,  // a commit outlives its process, and the machine within about a second
  kSync,  // a commit outlives the machine before it is answered; sessions may share a sync
};

struct PeerOptions {
  std::string directory;  // exists, is empty and the peer's own; engines in memory leave it empty
  uint64_t range = 240'000;
  uint32_t row_bytes = 250;  // at least 8, at most kPeerMaxRowBytes
  // Of pages, by engines that have a cache of their own; the rest of what they may take is the kernel's page
  // cache. 0: larger than the data.
  uint64_t cache_bytes = 0;
  PeerDurability durability = PeerDurability::kNone;
  uint32_t threads = 1;  // sessions that will be asked for, 1: perhaps none
};

// What one has to know to compare: speed is bought with such things.
struct PeerFacts {
  std::string version;    // "LMDB 0.9.24"
  std::string keeps;      // what a commit outlives, as the engine is set up here
  std::string isolation;  // of the transactions as they are run here
  bool rolls_back = false;
};

inline constexpr uint32_t kPeerMaxRowBytes = 4000;  // so that a row fits into a page of 4 KiB

class Peer {
 public:
  virtual ~Peer() = default;
  virtual PeerFacts Facts() const = 0;
  // Opens the engine and loads the rows. To be called once, before anything else.
  virtual absl::Status Load() = 0;
  // One transaction that copies the rows of `keys` (distinct, ascending) to `rows`, one after the other.
  virtual absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) = 0;
  // One transaction that adds 1 to the counter of each row.
  virtual absl::Status Update(std::span<const uint64_t> keys) = 0;
  virtual absl::Status Add(std::span<const uint64_t> keys) = 0;
  // Housekeeping that the engine had put off: checkpoints, compaction. Between measurements, so that one
  // engine's debts do not slow the next one down.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  // The same data for one more thread; the peer outlives it. UNIMPLEMENTED: there is one thread only.
  virtual absl::StatusOr<std::unique_ptr<Peer>> Session() {
    return absl::UnimplementedError(Facts().version + " is set up for one thread: --threads 1");
  }
  // Lazy durability: what has been committed outlives the machine once this is over, unless the engine sees
  // to that itself. To be called beside sessions' transactions.
  virtual absl::Status Sync() { return absl::OkStatus(); }
  virtual absl::StatusOr<int64_t> SumCounters() = 0;
  // Of an engine that has processes of its own, what those take.
  virtual MemoryUse ServerMemory() const { return {}; }
};

// A row starts with a little-endian int64 counter.
inline int64_t CounterOf(const void* row) {
  int64_t counter;
  std::memcpy(&counter, row, sizeof(counter));
  return counter;
}

inline void AddToCounter(void* row) {
  const int64_t counter = CounterOf(row) + 1;
  std::memcpy(row, &counter, sizeof(counter));
}

// "lmdb", "rocksdb", "bdb", "wiredtiger", "descents", "interleaved": what `peers` and `make bench` measure.
std::vector<std::string> DefaultPeerNames();
// Those, and of "sqlite", "postgres", "mariadb" which were built.
std::vector<std::string> PeerNames();
// Error when an engine's server is not installed.
absl::Status PeerIsInstalled(std::string_view name);
// What an engine takes at most, in multiples of the rows' size: as files in its directory, and as memory.
struct PeerNeeds {
  double files = 0;
  double memory = 0;
  double fixed_bytes = 0;  // of files, however few rows
};
PeerNeeds NeedsOfPeer(std::string_view name);
// Error when there is no engine of that name, when it cannot keep as much, or when its server is not
// installed.
absl::StatusOr<std::unique_ptr<Peer>> MakePeer(std::string_view name, const PeerOptions& options);

// Whatever it runs.
PeerFacts LmdbFacts(PeerDurability durability);
PeerFacts RocksDbFacts(PeerDurability durability);
PeerFacts BerkeleyDbFacts(PeerDurability durability);
PeerFacts WiredTigerFacts(PeerDurability durability);
PeerFacts SqliteFacts(PeerDurability durability);

std::unique_ptr<Peer> MakeLmdbPeer(const PeerOptions& options);
std::unique_ptr<Peer> MakeRocksDbPeer(const PeerOptions& options);
std::unique_ptr<Peer> MakeBerkeleyDbPeer(const PeerOptions& options);
std::unique_ptr<Peer> MakeWiredTigerPeer(const PeerOptions& options);
std::unique_ptr<Peer> MakeDescentPeer(const PeerOptions& options, bool interleaved);
std::unique_ptr<Peer> MakeSqlitePeer(const PeerOptions& options);
std::unique_ptr<Peer> MakePostgresPeer(const PeerOptions& options);
std::unique_ptr<Peer> MakeMariaDbPeer(const PeerOptions& options);
// Paths of the servers' programs; "" if not installed.
std::string PostgresProgram(std::string_view program);
std::string MariaDbProgram();

}  // namespace islands::experiments
