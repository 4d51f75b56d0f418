// A whole cluster in one thread, from a seed: instance/testing/'s, on a clock that only moves when everybody
// waits, with messages that take as long as the seed says, and processes that die when told to.
//
// Nothing of the islands is replaced; they get other seams (design: "seams that must exist from the first
// day").
//
// Thread safety: none.
//
// Invariants:
//  1. The same options and the same calls give the same run: trace() at the end is equal.
//  2. Simulated time never stands still over a Step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "instance/simulation/interleaver.h"
#include "instance/simulation/sim_log.h"
#include "instance/simulation/slow_disk.h"
#include "instance/testing/in_process_cluster.h"
#include "runtime/random.h"

namespace islands::simulation {

struct SimOptions : instance::ClusterOptions {
  SimOptions();

  int64_t max_delay_ns = 200 * runtime::kNsPerUs;  // of a message
  // That pass between two looks at the clock while workers run: else a worker's round takes no time, and
  // nobody in it has ever gone on for long.
  int64_t ns_by_look = 0;
  // What a packet takes, instead.
  std::function<int64_t(runtime::Random& random, messaging::Address from, messaging::Address to)> delay;
  uint32_t escalate_after = 0;  // 0 = the product's default
  // Workers of an island are interleaved inside their rounds, giving way at so many percent of the points
  // where they can (interleaver.h); 0: whole rounds. Only in the build with planted bugs.
  uint32_t interleave_percent = 0;
  // Islands keep what they have acknowledged; only where all have one worker.
  bool keeps = false;
  // With `keeps`: as SimLog::Options has them.
  bool answers_wait = false;
  bool votes_wait = false;
  bool commands = false;
  int64_t most_logger_pause_ns = 0;
  size_t ring_bytes = 4 << 20;
  size_t images_of_a_loss = 4;
  // Of islands that page (config.storage_mode), which then keep nothing.
  int64_t most_read_delay_ns = 0;
  uint32_t failing_reads_per_mille = 0;
  // After every step.
  std::function<void()> on_step;
  // Before an island loads its rows.
  std::function<void(uint32_t island, uint64_t boot_epoch)> on_boot;
};

class SimCluster final : public instance::InProcessCluster {
 public:
  static constexpr int64_t kLongestTurnNs = 20 * runtime::kNsPerUs;  // of a worker, in a step

  explicit SimCluster(SimOptions options);
  ~SimCluster() override;

  // One round of every worker that is not stalled, in random order.
  void Step() override;
  // UNAVAILABLE: the log fails while what the island has left is brought there.
  absl::Status Restart(uint32_t island) override;
  void Crash(uint32_t island) override { CrashWith(island, LastWords::kByChance); }
  // What it has sent and nobody has got: arrives, or is lost, as if it had died before it could send it.
  // kByChance: with `keeps` either, else it arrives.
  enum class LastWords : uint8_t { kByChance, kArrive, kAreLost };
  void CrashWith(uint32_t island, LastWords words);
  // With `keeps`: all processes end, as they do once the log has failed, and the islands can start again.
  void StopBox();
  // With `keeps`: all islands die, and what EPOCH does not cover is gone. Returns the epoch that it covers.
  uint64_t LosePower();
  // The worker is not stepped for a while, as if its core did something else.
  void Stall(uint32_t island, uint32_t worker, int64_t ns);
  int64_t StalledUntilNs(uint32_t island, uint32_t worker) const { return stalled_until_ns_[island][worker]; }

  // With `keeps`: all that was appended becomes durable, while workers stand still.
  void MakeDurable();
  SimLog& log() { return *log_; }
  uint64_t failed_reads() const { return disk_ ? disk_->failed() : 0; }
  uint64_t box_epoch() { return log_ ? log_->board().epoch() : 0; }
  runtime::PulseBoard& pulses() { return pulses_; }
  runtime::Random& random() { return random_; }
  int64_t ns_by_look() const { return options_.ns_by_look; }
  // A hash of every step taken so far.
  uint64_t trace() const { return trace_; }

 private:
  instance::Seams SeamsOf(uint32_t island) override;
  // What a dead island has appended is brought to where its next life reads it; that takes time, and room on
  // the disk, which somebody makes in the end.
  absl::Status DrainLog(uint32_t island);
  void LoseLastWords(uint32_t island);
  void StepWorkers();
  void CheckInvariants();
  // A round of every worker in turns_, in random order. Whether anybody had anything to do.
  bool RunWorkers();
  void Mix(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3ull; }

  const SimOptions options_;
  runtime::Random random_;
  runtime::PulseBoard pulses_;
  std::optional<SimLog> log_;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  std::optional<SlowDisk> disk_;
  std::vector<std::vector<int64_t>> stalled_until_ns_;  // by island and worker
  struct Turn {
    uint32_t island = 0;
    runtime::Runnable* worker = nullptr;  // null: has had it
  };
  std::vector<Turn> turns_;  // scratch
  uint64_t steps_ = 0;
  std::vector<runtime::Runnable*> together_;
  std::optional<Interleaver> interleaver_;
  uint64_t trace_ = 0xcbf29ce484222325ull;
};

}  // namespace islands::simulation
