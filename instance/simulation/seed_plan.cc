#include "instance/simulation/seed_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "instance/storage/pages/page.h"

namespace islands::simulation {

using messaging::Address;
using runtime::kNsPerMs;
using runtime::kNsPerUs;
using runtime::Random;
using CoordinatorState = coordinator::Coordinator::State;
using ParticipantState = coordinator::Participant::State;

namespace {

template <typename T, size_t n>
T Pick(Random& random, const std::array<T, n>& choices) {
  return choices[random.Below(n)];
}

int64_t Between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random.Below(static_cast<uint64_t>(most - least + 1)));
}

uint32_t Percent(Random& random, uint32_t least, uint32_t most) {
  return least + static_cast<uint32_t>(random.Below(most - least + 1));
}

void PlanCluster(Random& random, SeedPlan* plan) {
  SimOptions& cluster = plan->cluster;
  cluster.islands = 3 + static_cast<uint32_t>(random.Below(4));
  const bool all_alone = random.Below(4) == 0;
  for (uint32_t i = 0; i < cluster.islands; ++i) {
    const bool alone = all_alone || random.Below(2) == 0;
    cluster.workers_of.push_back(alone ? 1 : 1 + static_cast<uint32_t>(random.Below(3)));
  }
  cluster.sites = cluster.islands * (1 + static_cast<uint32_t>(random.Below(3))) +
                  static_cast<uint32_t>(random.Below(cluster.islands));
  // One packet may exceed the limit; the smallest one lets every second message wait for the first.
  cluster.hub.connection_bytes = Pick<size_t>(random, std::array<size_t, 4>{64, 400, 4000, 256 << 10});
  cluster.config.set_transaction_timeout_ms(
      Pick<uint64_t>(random, std::array<uint64_t, 4>{400, 1000, 2000, 2000}));
  plan->keys = cluster.sites * (9 + random.Below(40));
  plan->mpl = 1 + static_cast<uint32_t>(random.Below(6));
}

void PlanMix(Random& random, SeedPlan* plan) {
  LedgerMix& mix = plan->mix;
  mix.hot = Pick<uint32_t>(random, std::array<uint32_t, 4>{0, 20, 50, 80});
  mix.hot_per_site = 1 + static_cast<uint32_t>(random.Below(3));
  mix.local = Percent(random, 0, 60);
  mix.multisite = Percent(random, 0, 40);
  mix.scans = Percent(random, 0, 40);
  mix.churn = Percent(random, 0, 25);
  mix.blind = Percent(random, 0, 15);
  mix.reads = Percent(random, 0, 20);
  mix.longer = Pick<uint32_t>(random, std::array<uint32_t, 3>{0, 3, 15});
  mix.failing = Pick<uint32_t>(random, std::array<uint32_t, 3>{0, 5, 15});
}

void PlanNetwork(Random& random, SeedPlan* plan) {
  NetworkPlan& network = plan->network;
  network.seed = random();
  network.base_ns = Pick<int64_t>(random, std::array<int64_t, 3>{20, 100, 400}) * kNsPerUs;
  network.jitter_ns = Pick<int64_t>(random, std::array<int64_t, 3>{10, 100, 1000}) * kNsPerUs;
  network.tail_percent = Pick<uint32_t>(random, std::array<uint32_t, 4>{0, 0, 1, 5});
  network.tail_ns = Between(random, 1, 25) * kNsPerMs;
}

// Where storage has its own ways: entries of indexes, locks on whole sites instead of many keys, no room.
void PlanStorage(Random& random, SeedPlan* plan) {
  SimOptions& cluster = plan->cluster;
  if (random.Below(2) == 0) plan->mix.by_colour = Percent(random, 20, 60);
  cluster.escalate_after = Pick<uint32_t>(random, std::array<uint32_t, 4>{0, 0, 3, 8});
  if (random.Below(3) != 0) return;
  const uint64_t sites = (cluster.sites + cluster.islands - 1) / cluster.islands;
  // A third of the keys is loaded, with rows of half the greatest length: leaves, their root, the index.
  const uint64_t leaves = 1 + plan->keys / cluster.sites * kMostRowBytes / 6 / (storage::kPageBytes / 2);
  const uint64_t pages = leaves + (leaves > 1 ? 1 : 0) + 1;
  cluster.config.set_pool_bytes((sites * pages + 4 + random.Below(2 * sites)) * storage::kPageBytes);
}

// Islands that hold a part of their rows in memory: room for what one operation needs, and a little more.
// Their disk is fast or slow, and in some of them it fails.
void PlanPages(Random& random, SeedPlan* plan) {
  SimOptions& cluster = plan->cluster;
  if (cluster.keeps || random.Below(5) != 0) return;
  plan->keys *= 8;
  const uint64_t sites = (cluster.sites + cluster.islands - 1) / cluster.islands;
  cluster.config.set_storage_mode("paged");
  cluster.config.set_data_directory("/data");
  cluster.config.set_pool_bytes((sites + 12 + random.Below(20)) * storage::kPageBytes);
  cluster.most_read_delay_ns = Pick<int64_t>(random, std::array<int64_t, 3>{20, 200, 2000}) * kNsPerUs;
  cluster.failing_reads_per_mille = Pick<uint32_t>(random, std::array<uint32_t, 3>{0, 0, 5});
}

PlannedFault::Kind KindOf(Fault fault) {
  if (IsCrash(fault)) return PlannedFault::kCrash;
  if (fault == Fault::kBreak) return PlannedFault::kBreak;
  return fault == Fault::kCut ? PlannedFault::kCut : PlannedFault::kStall;
}

void PlanTimes(Random& random, PlannedFault* fault) {
  fault->wait_ns = Between(random, 1, 40) * kNsPerMs;
  switch (fault->kind) {
    case PlannedFault::kCrash:
      fault->duration_ns = random.Below(4) == 0 ? 0 : Between(random, 0, 300) * kNsPerMs;
      fault->stays_dead = random.Below(8) == 0;
      break;
    case PlannedFault::kBreak:
      break;
    case PlannedFault::kCut:
    case PlannedFault::kSever:
      fault->duration_ns = Between(random, 1, random.Below(3) == 0 ? 1500 : 80) * kNsPerMs;
      break;
    case PlannedFault::kStall:  // now and then beyond the timeout of locks
    case PlannedFault::kHang:
      fault->duration_ns = Between(random, 1, random.Below(4) == 0 ? 500 : 40) * kNsPerMs;
      break;
    default:  // of the box: planned by themselves
      break;
  }
  const bool lasts = fault->kind != PlannedFault::kCrash && fault->kind != PlannedFault::kBreak;
  if (lasts && random.Below(12) == 0)
    fault->duration_ns = kLongFaultNs + Between(random, 1, 15) * runtime::kNsPerSecond;
  if (fault->aim == Fault::kRestartPeer) fault->duration_ns = 0, fault->stays_dead = false;
}

// States that a fault has to bring about first.
std::optional<PlannedFault> PlanFaultBefore(Random& random, StateIndex state, Fault aim) {
  PlannedFault before;
  before.wait_ns = Between(random, 1, 20) * kNsPerMs;
  if (state == IndexOf(CoordinatorState::kInquiring)) {
    // A coordinator inquires when the link went down while it waited for the one who decides.
    before.state = IndexOf(CoordinatorState::kOnePhase);
    before.aim = Fault::kCut;
    before.kind = PlannedFault::kCut;
    before.duration_ns = aim == Fault::kCut ? 1 * kNsPerMs : Between(random, 1, 40) * kNsPerMs;
    return before;
  }
  if (state == IndexOf(ParticipantState::kOrphaned)) {
    // Its coordinator dies when it has asked, or told only some. It comes back when the orphans are no more.
    before.state = IndexOf(random.Below(3) == 0 ? CoordinatorState::kVoting : CoordinatorState::kCommitting);
    before.aim = Fault::kCrashSelf;
    before.kind = PlannedFault::kCrash;
    before.duration_ns = Between(random, 0, 300) * kNsPerMs;
    return before;
  }
  return std::nullopt;
}

// The pair of state and fault that this seed is aimed at. The numbers of states (10) and faults (7) have no
// factor in common, so consecutive seeds go through all pairs, and a few of them through all of either.
void PlanAimed(uint64_t seed, Random& random, SeedPlan* plan) {
  const std::vector<StateIndex> states = LastingStates();
  PlannedFault fault;
  fault.state = states[seed % states.size()];
  fault.aim = static_cast<Fault>(seed % kFaults);
  fault.kind = KindOf(fault.aim);
  // Few deaths of a coordinator leave an orphan that has a fellow.
  const int rounds = fault.state == IndexOf(ParticipantState::kOrphaned) ? 6 : 1;
  for (int round = 0; round < rounds; ++round) {
    const std::optional<PlannedFault> before = PlanFaultBefore(random, *fault.state, fault.aim);
    if (before) plan->faults.push_back(*before);
    PlanTimes(random, &fault);
    if (before) fault.wait_ns = 0;
    // A broken connection is dialled again at once, so there is room for several.
    plan->faults.insert(plan->faults.end(), fault.kind == PlannedFault::kBreak ? 3 : 1, fault);
  }
}

void PlanOthers(Random& random, SeedPlan* plan) {
  const bool may_crash = IsCrash(plan->faults.back().aim) || random.Below(5) == 0;
  // Deadlocks are judged while nothing is disturbed: in some seeds that is most of the time.
  const bool calm = plan->faults.back().kind == PlannedFault::kStall && random.Below(2) == 0;
  for (uint64_t n = random.Below(4); n > 0; --n) {
    PlannedFault fault;
    fault.kind = static_cast<PlannedFault::Kind>(random.Below(6));
    if (calm || (fault.kind == PlannedFault::kCrash && !may_crash)) fault.kind = PlannedFault::kStall;
    PlanTimes(random, &fault);
    if (calm) fault.duration_ns = std::min(fault.duration_ns, 20 * kNsPerMs);
    plan->faults.push_back(fault);
  }
}

// At most two: of versions there are so many kinds (ledger.h).
void PlanLosses(Random& random, SeedPlan* plan) {
  plan->mix.deletes = false;  // serializability.h says why
  // One that would not wait for itself, and may have seen what is not durable elsewhere.
  if (random.Below(4) != 0) {
    plan->mix.reading_island = static_cast<uint32_t>(random.Below(plan->cluster.islands));
    plan->mix.local = Percent(random, 45, 75);
    plan->mix.hot = std::max<uint32_t>(plan->mix.hot, 50);
  }
  plan->cluster.most_logger_pause_ns =
      Pick<int64_t>(random, std::array<int64_t, 4>{20, 200, 1000, 3000}) * kNsPerUs;
  for (uint64_t n = 1 + random.Below(2); n > 0; --n) {
    const auto at = static_cast<ptrdiff_t>(random.Below(plan->faults.size() + 1));
    const PlannedFault loss{.kind = PlannedFault::kPowerLoss, .wait_ns = Between(random, 5, 60) * kNsPerMs};
    plan->faults.insert(plan->faults.begin() + at, loss);
  }
}

// In half of the seeds. A full disk is noticed where the log needs a segment, which it does when it begins:
// with the first fault, or after a loss of power.
void PlanDiskFaults(Random& random, SeedPlan* plan) {
  if (random.Below(2) == 0) return;
  std::vector<PlannedFault>& faults = plan->faults;
  const auto insert = [&](ptrdiff_t at, PlannedFault::Kind kind, int64_t wait_ns) {
    faults.insert(faults.begin() + at,
                  {.kind = kind, .wait_ns = wait_ns, .duration_ns = Between(random, 10, 200) * kNsPerMs});
  };
  const auto anywhere = [&] { return static_cast<ptrdiff_t>(random.Below(faults.size())); };
  for (uint64_t n = random.Below(3); n > 0; --n)
    insert(anywhere(), PlannedFault::kDiskError, Between(random, 0, 40) * kNsPerMs);
  if (random.Below(2) == 0) insert(anywhere(), PlannedFault::kShortWrites, Between(random, 0, 40) * kNsPerMs);
  if (random.Below(2) == 0) return;
  insert(0, PlannedFault::kDiskFull, 0);
  for (size_t i = 1; i < faults.size(); ++i) {
    if (faults[i].kind != PlannedFault::kPowerLoss) continue;
    insert(static_cast<ptrdiff_t>(i) + 1, PlannedFault::kDiskFull, 0);
    return;
  }
}

}  // namespace

int64_t NetworkPlan::Delay(Random& random, Address from, Address to) const {
  const uint64_t pair =
      uint64_t{from.island} << 48 | uint64_t{from.worker} << 32 | to.island << 16 | to.worker;
  Random own = Random::Stream(seed, pair);
  const auto base = static_cast<int64_t>(own.Below(static_cast<uint64_t>(base_ns) + 1));
  const auto jitter = static_cast<int64_t>(random.Below(static_cast<uint64_t>(jitter_ns) + 1));
  const bool late = random.Below(100) < tail_percent;
  return base + jitter + (late ? static_cast<int64_t>(random.Below(static_cast<uint64_t>(tail_ns))) : 0);
}

std::string SeedPlan::Describe() const {
  std::string workers;
  for (const uint32_t count : cluster.workers_of)
    workers += fmt::format("{}{}", workers.empty() ? "" : "+", count);
  return fmt::format(
      "{} islands with {} workers, {} sites, {} keys, mpl {}, timeout {} ms, {} bytes under way per "
      "connection\n"
      "  packets: up to {} us, jitter {} us, {} % up to {} ms more\n"
      "  load: {} % local, {} % multisite, {} % hot keys, {} % scans, {} % insertions and deletions, {} % "
      "long, "
      "{} % failing\n"
      "  storage: {} % of scans by the index, escalation after {} locks, pools of {} KiB{}\n"
      "  workers of an island interleaved at {} % of latches (built with planted bugs); {} ns by look\n"
      "  log: its logger pauses for up to {} us{}{}{}\n"
      "  faults planned: {}",
      cluster.islands, workers, cluster.sites, keys, mpl, cluster.config.transaction_timeout_ms(),
      cluster.hub.connection_bytes, network.base_ns / kNsPerUs, network.jitter_ns / kNsPerUs,
      network.tail_percent, network.tail_ns / kNsPerMs, mix.local, mix.multisite, mix.hot, mix.scans,
      mix.churn, mix.longer, mix.failing, mix.by_colour, cluster.escalate_after,
      cluster.config.pool_bytes() >> 10,
      cluster.config.storage_mode().empty()
          ? ""
          : fmt::format(" that page, reads take up to {} us, {} in 1000 fail",
                        cluster.most_read_delay_ns / kNsPerUs, cluster.failing_reads_per_mille),
      cluster.interleave_percent, cluster.ns_by_look, cluster.most_logger_pause_ns / kNsPerUs,
      cluster.answers_wait ? ", answers wait" : "", cluster.votes_wait ? ", votes wait" : "",
      cluster.commands ? ", commands" : "", faults.size());
}

SeedPlan MakePlan(uint64_t seed, Keeps keeps) {
  Random random = Random::Stream(seed, 0x15a);
  SeedPlan plan;
  plan.cluster.seed = seed;
  PlanCluster(random, &plan);
  PlanMix(random, &plan);
  PlanNetwork(random, &plan);
  PlanStorage(random, &plan);
  Random interleaving = Random::Stream(seed, 0x1e4e);
  Random looks = Random::Stream(seed, 0x100c);
  plan.cluster.ns_by_look = Pick<int64_t>(looks, std::array<int64_t, 4>{0, 100, 1 * kNsPerUs, 20 * kNsPerUs});
  plan.cluster.interleave_percent = Pick<uint32_t>(interleaving, std::array<uint32_t, 3>{0, 3, 20});
  PlanAimed(seed, random, &plan);
  PlanOthers(random, &plan);
  plan.cluster.keeps = keeps != Keeps::kNothing;
  Random pages = Random::Stream(seed, 0x9a6e);
  PlanPages(pages, &plan);
  if (!plan.cluster.keeps) return plan;
  plan.cluster.workers_of.assign(plan.cluster.islands, 1);
  for (PlannedFault& fault : plan.faults) fault.stays_dead = false;
  plan.cluster.commands = keeps == Keeps::kCommand;
  if (keeps == Keeps::kWhatWasAppended) return plan;
  Random losses = Random::Stream(seed, 0x105e);
  PlanLosses(losses, &plan);
  plan.cluster.answers_wait = keeps == Keeps::kSync;
  plan.cluster.votes_wait = losses.Below(3) == 0 || keeps == Keeps::kForced;
  Random disk = Random::Stream(seed, 0xd15c);
  PlanDiskFaults(disk, &plan);
  if (keeps == Keeps::kForced) plan.cluster.answers_wait = disk.Below(2) == 0;
  return plan;
}

}  // namespace islands::simulation
