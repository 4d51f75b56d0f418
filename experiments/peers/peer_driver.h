// Runs the microbenchmark's transactions on several engines, one measurement at a time.
//
// Thread safety: none; everything happens in the calling thread, or, with several threads or durability lazy
// or sync, in threads that a call starts and joins, each with a session of its own.
//
// Invariants:
//  1. What a thread's transactions are depends on seed, stream and parameters only: every engine gets the
//     same.
//  2. After every measurement of updates or adds the counters' sum has been compared with what was committed.
//  3. With durability lazy, commits are synced every second while transactions run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/micro/micro_generator.h"
#include "experiments/peers/huge_pages.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {

struct PeerDriverOptions {
  std::vector<std::string> engines;
  std::string directory;  // exists; engines get directories inside
  uint64_t range = 240'000;
  uint32_t row_bytes = 250;
  uint32_t rows = 10;
  double zipf = 0;
  uint64_t seed = 1;
  double warmup_s = 0.5;
  uint32_t threads = 1;      // transactions in flight
  uint64_t cache_bytes = 0;  // as PeerOptions
  PeerDurability durability = PeerDurability::kNone;
};

struct PeerMeasurement {
  uint64_t transactions = 0;
  double seconds = 0;  // as measured
  double PerSecond() const { return static_cast<double>(transactions) / seconds; }
};

class PeerDriver {
 public:
  // Loads every engine. Error when there is not enough room, or an engine fails.
  using Maker = absl::StatusOr<std::unique_ptr<Peer>> (*)(std::string_view name, const PeerOptions& options);
  static absl::StatusOr<std::unique_ptr<PeerDriver>> Create(const PeerDriverOptions& options,
                                                            Maker make = MakePeer);

  // Warms up, then counts transactions for `seconds`, in `threads` of those that there are, 0 = all. Error
  // also when the engine lost an update.
  absl::StatusOr<PeerMeasurement> Measure(const std::string& engine, MicroOp op, double seconds,
                                          uint64_t stream, uint32_t threads = 0);

  // By engine: what it is, and what memory it takes, as loading it showed.
  struct Description {
    PeerFacts facts;
    MemoryUse memory;
  };
  std::map<std::string, Description> Describe() const;

 private:
  struct Loaded {
    std::unique_ptr<Peer> peer;
    std::vector<std::unique_ptr<Peer>> sessions;  // of each thread; none: the peer is the only thread's
    int64_t committed = 0;                        // rows changed since loading
    MemoryUse memory;
  };

  // What a thread makes transactions with, whatever the engine.
  struct Caller {
    runtime::Random random{0};
    std::map<MicroOp, std::unique_ptr<MicroGenerator>> generators;
    std::vector<std::byte> rows;  // where reads go
  };
  struct Part {
    absl::Status status;
    PeerMeasurement measured;
    int64_t committed = 0;
  };

  explicit PeerDriver(const PeerDriverOptions& options) : options_(options) {}
  absl::Status MakeCallers();
  bool in_threads() const { return options_.threads > 1 || options_.durability != PeerDurability::kNone; }
  absl::Status Load(const std::string& engine, Maker make);
  // Calls `work` for every number below `threads`, in a thread each, and syncs meanwhile.
  template <typename Work>
  absl::Status InThreads(Loaded& loaded, size_t threads, const Work& work);
  absl::StatusOr<PeerMeasurement> RunFor(Loaded& loaded, MicroOp op, double seconds, size_t threads);
  Part RunPart(Caller& caller, Peer& peer, MicroOp op, double seconds, uint32_t transactions_per_look) const;
  absl::StatusOr<int64_t> Sum(Loaded& loaded);
  absl::Status CheckSum(const std::string& engine, Loaded& loaded);

  const PeerDriverOptions options_;
  std::map<std::string, Loaded> engines_;
  std::vector<Caller> callers_;  // of each thread
};

}  // namespace islands::experiments
