#include "instance/simulation/sim_cluster.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

#include <algorithm>
#include <utility>

namespace islands::simulation {

using runtime::kNsPerMs;
using runtime::kNsPerUs;

namespace {
// Nothing is due later than that without being announced; a limit all the same.
constexpr int64_t kLongestJumpNs = 20 * kNsPerMs;
// Lock tables are looked at as a whole only now and then: that takes as long as many steps.
constexpr uint64_t kStepsPerLockCheck = 256;
constexpr int64_t kLongestFullDiskNs = 200 * kNsPerMs;  // for who wants to start

}  // namespace

SimOptions::SimOptions() {
  pace = instance::Pace::kSimulated;
  islands = 3;
  sites = 6;
}

SimCluster::SimCluster(SimOptions options)
    : InProcessCluster(options),
      options_(std::move(options)),
      random_(options_.seed),
      pulses_(workers_per_island()) {
  if (options_.keeps) {
    log_.emplace(simulated_clock(), workers_per_island(),
                 SimLog::Options{.seed = options_.seed,
                                 .most_pause_ns = options_.most_logger_pause_ns,
                                 .answers_wait = options_.answers_wait,
                                 .votes_wait = options_.votes_wait,
                                 .commands = options_.commands,
                                 .ring_bytes = options_.ring_bytes,
                                 .images_of_a_loss = options_.images_of_a_loss});
  }
  if (options_.config.storage_mode() == "paged") {
    disk_.emplace(*files_, simulated_clock(),
                  SlowDisk::Options{.seed = options_.seed,
                                    .most_delay_ns = options_.most_read_delay_ns,
                                    .fails_per_mille = options_.failing_reads_per_mille});
  }
#ifdef ISLANDS_PLANTED_BUGS
  if (options_.interleave_percent != 0) interleaver_.emplace(options_.seed, options_.interleave_percent);
#endif
  for (uint32_t i = 0; i < islands(); ++i) stalled_until_ns_.emplace_back(workers_of(i));
  hub().SetDelay([this](messaging::Address from, messaging::Address to) {
    if (options_.delay) return options_.delay(random_, from, to);
    return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.max_delay_ns) + 1));
  });
}

SimCluster::~SimCluster() { EndIslands(); }

instance::Seams SimCluster::SeamsOf(uint32_t island) {
  instance::Seams seams = InProcessCluster::SeamsOf(island);
  seams.begun_in_a_row = 1;
  if (options_.escalate_after != 0) seams.escalate_after = options_.escalate_after;
  seams.pulses = &pulses_;
  if (log_) seams.log = &log_->seam();
  if (disk_) seams.files = &*disk_;
  seams.proven_dead = [this](uint32_t other, uint64_t epoch) {
    return boot_epoch(other) > epoch || (boot_epoch(other) == epoch && !alive(other));
  };
  return seams;
}

absl::Status SimCluster::Restart(uint32_t island) {
  stalled_until_ns_[island].assign(workers_of(island), 0);
  if (log_ && boot_epoch(island) != 0) {
    if (absl::Status drained = DrainLog(island); !drained.ok()) return drained;
  }
  if (options_.on_boot) options_.on_boot(island, boot_epoch(island) + 1);
  return InProcessCluster::Restart(island);
}

absl::Status SimCluster::DrainLog(uint32_t island) {
  const int64_t patience_ns = NowNs() + kLongestFullDiskNs;
  while (!log_->Drained(island)) {
    if (!log_->failure().ok()) return absl::UnavailableError("the log has failed");
    if (NowNs() > patience_ns) log_->disk().SetRoom(UINT64_MAX);
    log_->Step();
    simulated_clock().AdvanceNs(20 * kNsPerUs);
  }
  return absl::OkStatus();
}

// As if it had died with what it says in its log, before it could send what it says to others.
void SimCluster::LoseLastWords(uint32_t island) {
  for (uint32_t other = 0; other < islands(); ++other) {
    if (other == island) continue;
    for (uint32_t w = 0; w < workers_of(island); ++w) hub().Break({island, w}, other);
    for (uint32_t w = 0; w < workers_of(other); ++w) hub().Break({other, w}, island);
  }
}

void SimCluster::MakeDurable() {
  const uint64_t epoch = log_->board().epoch();  // nobody has stamped with a later one
  log_->board().Want(epoch);
  while (log_->board().durable() < epoch) {
    ISLANDS_CHECK(log_->failure().ok());
    log_->Step();
    simulated_clock().AdvanceNs(20 * kNsPerUs);
  }
}

void SimCluster::CrashWith(uint32_t island, LastWords words) {
  const bool by_chance = words == LastWords::kByChance && log_ && random_.Below(2) == 0;
  if (by_chance || words == LastWords::kAreLost) LoseLastWords(island);
  InProcessCluster::Crash(island);
  if (log_) log_->OnCrash(island, boot_epoch(island));
  Mix(0xdead + island);
}

void SimCluster::StopBox() {
  for (uint32_t i = 0; i < islands(); ++i) {
    if (alive(i)) InProcessCluster::Crash(i);
  }
  Mix(0xdead'd15c);
  log_->StartAgain();
}

uint64_t SimCluster::LosePower() {
  for (uint32_t i = 0; i < islands(); ++i) {
    if (alive(i)) InProcessCluster::Crash(i);
  }
  Mix(0xdead'dead);
  return log_->LosePower(random_());
}

void SimCluster::Stall(uint32_t island, uint32_t worker, int64_t ns) {
  int64_t& until_ns = stalled_until_ns_[island][worker];
  until_ns = std::max(until_ns, NowNs() + ns);
  Mix(0x57a11 + island);
}

bool SimCluster::RunWorkers() {
  for (size_t n = turns_.size(); n > 1; --n) std::swap(turns_[n - 1], turns_[random_.Below(n)]);
  bool worked = false;
  const auto note = [&](bool busy) {
    worked |= busy;
    simulated_clock().AdvanceNs(static_cast<int64_t>(1 + random_.Below(busy ? kLongestTurnNs : 100)));
    Mix(busy ? 2 : 1);
  };
  simulated_clock().AdvanceByLook(options_.ns_by_look);
  for (size_t n = 0; n < turns_.size(); ++n) {
    if (turns_[n].worker == nullptr) continue;
    together_ = {turns_[n].worker};
    for (size_t m = n + 1; interleaver_ && m < turns_.size(); ++m) {
      if (turns_[m].island != turns_[n].island) continue;
      together_.push_back(std::exchange(turns_[m].worker, nullptr));
    }
    if (together_.size() == 1) {
      note(together_.front()->RunOnce());
    } else {
      for (const bool busy : interleaver_->Run(together_)) note(busy);
    }
  }
  simulated_clock().AdvanceByLook(0);
  return worked;
}

// Everybody gets a turn, in random order; if nobody had anything to do, time jumps to the next thing that
// happens.
void SimCluster::StepWorkers() {
  const int64_t now_ns = NowNs();
  int64_t next_ns = now_ns + kLongestJumpNs;
  turns_.clear();
  for (uint32_t i = 0; i < islands(); ++i) {
    for (uint32_t w = 0; alive(i) && w < workers_of(i); ++w) {
      if (StalledUntilNs(i, w) > now_ns) {
        next_ns = std::min(next_ns, StalledUntilNs(i, w));
      } else {
        turns_.push_back({i, island(i).workers()[w].get()});
      }
    }
  }
  if (RunWorkers()) return;
  // What was due before this round and is still there is for a stalled worker.
  next_ns = std::min(next_ns, hub().NextDeliveryNs(now_ns));
  for (uint32_t i = 0; i < islands(); ++i) {
    for (uint32_t w = 0; alive(i) && w < workers_of(i); ++w) {
      if (StalledUntilNs(i, w) <= now_ns)
        next_ns = std::min(next_ns, island(i).workers()[w]->NextDeadlineNs());
    }
  }
  simulated_clock().AdvanceNs(std::max<int64_t>(kNsPerUs, next_ns - NowNs()));
  Mix(static_cast<uint64_t>(NowNs()));
}

// With a planted bug it is for the tests' own judges to find it.
void SimCluster::CheckInvariants() {
  if (runtime::AnyPlanted()) return;
  const bool locks_too = ++steps_ % kStepsPerLockCheck == 0;
  for (uint32_t i = 0; i < islands(); ++i) {
    if (!alive(i)) continue;
    if constexpr (!runtime::kCheckEveryRound) {  // else they do it themselves
      for (const auto& worker : island(i).workers()) worker->CheckInvariants();
    }
    if (locks_too) island(i).locks().CheckInvariants();
  }
}

void SimCluster::Step() {
  StepWorkers();
  if (log_) log_->Step();
  CheckInvariants();
  if (options_.on_step) options_.on_step();
}

}  // namespace islands::simulation
