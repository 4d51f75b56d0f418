// Any workload of islands on other engines, one measurement at a time: its own rows, generators, procedures
// and audit.
//
// Thread safety: none; everything happens in the calling thread, or in threads that a call starts and joins,
// each with a session of its own.
//
// Invariants:
//  1. What a thread's transactions are depends on seed and stream only: every engine gets the same.
//  2. After every measurement the workload's audit has seen all rows: what it sums up is what was committed,
//     and what it wants to be true is (of TPC-C: the specification's consistency conditions).
//  3. With durability lazy, commits are synced every second while transactions run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/peers/row_store.h"
#include "experiments/peers/store_transaction.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

struct WorkloadDriverOptions {
  std::vector<std::string> engines;
  std::string directory;  // exists; engines get directories inside
  uint64_t cache_bytes = 2u << 30;
  PeerDurability durability = PeerDurability::kNone;
  uint32_t threads = 1;
  uint64_t seed = 1;
  double warmup_s = 0.2;
};

struct WorkloadMeasurement {
  uint64_t committed = 0;
  uint64_t aborted = 0;     // at the procedure's own word: not enough money, say
  absl::Status last_abort;  // of those
  uint64_t conflicts = 0;   // attempts that were in another session's way
  double seconds = 0;
  double PerSecond() const { return static_cast<double>(committed) / seconds; }
};

class WorkloadDriver {
 public:
  using Opener = absl::StatusOr<std::unique_ptr<RowStore>> (*)(std::string_view engine, const StoreOptions&);
  // Loads every engine. The catalog outlives it.
  static absl::StatusOr<std::unique_ptr<WorkloadDriver>> Create(
      const WorkloadDriverOptions& options, const storage::Catalog& catalog,
      std::shared_ptr<const instance::Workload> workload, Opener open = OpenRowStore);
  ~WorkloadDriver();

  // In `threads` of those that there are, 0 = all. An error names the engine and what is wrong with it.
  absl::StatusOr<WorkloadMeasurement> Measure(const std::string& engine, double seconds, uint64_t stream,
                                              uint32_t threads = 0);
  std::map<std::string, PeerFacts> Facts() const;

 private:
  struct Session;
  struct Loaded;

  WorkloadDriver(const WorkloadDriverOptions& options, const storage::Catalog& catalog,
                 std::shared_ptr<const instance::Workload> workload);
  absl::Status Load(const std::string& engine, Opener open);
  absl::StatusOr<WorkloadMeasurement> RunFor(Loaded& loaded, double seconds, size_t threads);
  absl::Status RunPart(Session& session, double seconds, WorkloadMeasurement* measured);
  // The audited sum of all rows. DATA_LOSS: as RowAudit says.
  absl::StatusOr<int64_t> Audit(Loaded& loaded) const;

  const WorkloadDriverOptions options_;
  const storage::Catalog& catalog_;
  const Trees trees_;
  const std::shared_ptr<const instance::Workload> workload_;
  uint64_t runs_ = 0;
  std::map<std::string, std::unique_ptr<Loaded>> engines_;
};

}  // namespace islands::experiments
