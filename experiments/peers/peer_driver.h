// Runs the microbenchmark's transactions on several engines, one measurement at a time.
//
// Thread safety: none; everything happens in the calling thread.
//
// Invariants:
//  1. A measurement's transactions depend on seed, stream and parameters only: every engine gets the same.
//  2. After every measurement of updates or adds the counters' sum has been compared with what was committed.
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

  // Warms up, then counts transactions for `seconds`. Error also when the engine lost an update.
  absl::StatusOr<PeerMeasurement> Measure(const std::string& engine, MicroOp op, double seconds,
                                          uint64_t stream);

  // By engine: what it is, and what memory it takes, as loading it showed.
  struct Description {
    PeerFacts facts;
    MemoryUse memory;
  };
  std::map<std::string, Description> Describe() const;

 private:
  struct Loaded {
    std::unique_ptr<Peer> peer;
    int64_t committed = 0;  // rows changed since loading
    MemoryUse memory;
  };

  explicit PeerDriver(const PeerDriverOptions& options);
  absl::Status Load(const std::string& engine, Maker make);
  absl::StatusOr<PeerMeasurement> RunFor(Loaded& loaded, MicroOp op, double seconds, runtime::Random& random);
  absl::Status RunOne(Peer& peer, const MicroRequest& request);
  static absl::Status CheckSum(const std::string& engine, Loaded& loaded);

  const PeerDriverOptions options_;
  std::map<std::string, Loaded> engines_;
  std::map<MicroOp, std::unique_ptr<MicroGenerator>> generators_;
  std::vector<std::byte> rows_;  // where reads go
};

}  // namespace islands::experiments
