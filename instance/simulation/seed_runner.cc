#include "instance/simulation/seed_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "instance/simulation/deadlock_watch.h"
#include "instance/simulation/fault_injector.h"
#include "instance/simulation/seed_plan.h"
#include "instance/simulation/serializability.h"

namespace islands::simulation {

using messaging::Address;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

namespace {

constexpr uint64_t kLeastEnded = 200;
// Simulated. A seed that has not ended its transactions by then hangs.
constexpr int64_t kLongestRunNs = 120 * kNsPerSecond;
// A branch that hears nothing ends after twice the longest deadline.
constexpr int64_t kLongestDrainNs = 8 * kNsPerSecond;
// How long the load goes on when a long fault has begun.
constexpr int64_t kLoadIntoLongFaultNs = 300 * kNsPerMs;
// By how much an answer may come after the deadline, besides stalls: the longest pause before a retry, after
// which the deadline is noticed, and a few sweeps.
constexpr int64_t kSlackNs = 60 * kNsPerMs;

constexpr uint64_t kOnlyLife = 1;

class SeedRun {
 public:
  SeedRun(uint64_t seed, Keeps keeps)
      : plan_(MakePlan(seed, keeps)), random_(runtime::Random::Stream(seed, 0xfa017)) {
    report_.seed = seed;
    report_.plan = plan_.Describe();
    MakeCluster();
  }

  SeedReport Run() {
    if (absl::Status status = cluster_->Start(); !status.ok()) {
      Fail(fmt::format("the cluster does not start: {}", std::string(status.message())));
    } else {
      StartRun();
      HurtAndServe();
      Settle();
      Summarize();
      Judge();
    }
    return std::move(report_);
  }

 private:
  struct FollowUp {
    enum Kind : uint8_t { kHeal, kRestart, kRest, kWork, kStopBox, kMakeRoom };
    int64_t at_ns = 0;
    Kind kind = kHeal;
    uint32_t island = 0;  // kRestart
  };

  void MakeCluster();
  void Fail(std::string what) { report_.violations.push_back(std::move(what)); }
  void StartRun();
  void HurtAndServe();
  bool TryFault(const PlannedFault& fault);
  bool TryAimed(const PlannedFault& fault);
  bool TryAnywhere(const PlannedFault& fault);
  // Where islands keep what they have promised, rows outlive them.
  uint64_t LifeOfRows(uint64_t boot_epoch) const { return plan_.cluster.keeps ? kOnlyLife : boot_epoch; }
  bool MayCrash() const { return injector_->dead() + 2 < cluster_->islands(); }
  void PlanFollowUp(const PlannedFault& fault, std::optional<uint32_t> crashed);
  void DoFollowUps();
  bool LosePower();
  bool HurtDisk(const PlannedFault& fault);
  // What the log's disk has come to: its errors end the box, a while later.
  void LookAtLog();
  void StopBox();
  void GoOnServing();
  void WitnessRows();
  void Settle();
  void WaitForCoordinators();
  void Judge();
  void JudgeAnswers();
  void CheckStores();
  std::vector<FinalRow> ReadRows();
  void CountLost(const Verdict& verdict);
  void JudgeSum(const std::vector<FinalRow>& rows, const Verdict& verdict);
  void Summarize();

  const SeedPlan plan_;
  runtime::Random random_;
  History history_;
  std::shared_ptr<LedgerContext> ledger_;
  std::unique_ptr<SimCluster> cluster_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<DeadlockWatch> watch_;
  std::vector<FollowUp> follow_ups_;
  std::optional<uint32_t> just_crashed_;
  int64_t armed_ns_ = 0;  // since when the next fault may happen
  bool disk_full_ = false;
  SeedReport report_;
};

void SeedRun::MakeCluster() {
  const auto sites = partitioner::SiteMap::Create(plan_.cluster.sites, plan_.cluster.islands);
  ledger_ =
      std::make_shared<LedgerContext>(LedgerContext{.mix = plan_.mix, .keys = plan_.keys, .sites = *sites});
  ledger_->history = &history_;
  ledger_->now_ns = [this] { return cluster_->NowNs(); };
  ledger_->life_of = [this](const coordinator::TransactionId& id, uint32_t island) {
    if (plan_.cluster.keeps) return kOnlyLife;
    if (island == id.island) return id.boot_epoch;
    return cluster_->island(id.island).workers()[id.worker]->links().BootEpoch(island);
  };
  SimOptions options = plan_.cluster;
  *options.config.add_tables() = LedgerTable(plan_.keys, plan_.mix.by_colour != 0);
  options.open = [this](const storage::Catalog& catalog) { return OpenLedger(catalog, ledger_); };
  options.on_boot = [this](uint32_t, uint64_t life) { ledger_->booting_life = LifeOfRows(life); };
  options.delay = [this](runtime::Random& random, Address from, Address to) {
    return plan_.network.Delay(random, from, to);
  };
  options.on_step = [this] {
    watch_->Look();
    history_.NoteEpoch(cluster_->box_epoch());
  };
  cluster_ = std::make_unique<SimCluster>(options);
  watch_ = std::make_unique<DeadlockWatch>(*cluster_, plan_.network.SlowestNs());
  injector_ = std::make_unique<FaultInjector>(*cluster_, history_, plan_.cluster.keeps);
  for (uint64_t key = 0; key < plan_.keys; ++key) {
    if (IsLoadedKey(key)) history_.SetLoaded(key);
  }
}

void SeedRun::StartRun() {
  if (absl::Status status = cluster_->StartRun(plan_.mpl); !status.ok())
    Fail(fmt::format("the load does not start: {}", std::string(status.message())));
}

// Serves, and carries out one planned fault after the other, until the seed counts.
void SeedRun::HurtAndServe() {
  size_t next = 0;
  const int64_t begun_ns = armed_ns_ = cluster_->NowNs();
  while (next < plan_.faults.size() || !follow_ups_.empty() || history_.ended() < kLeastEnded) {
    cluster_->Step();
    LookAtLog();
    DoFollowUps();
    if (next < plan_.faults.size() && TryFault(plan_.faults[next])) {
      ++next;
      armed_ns_ = cluster_->NowNs();
    }
    if (cluster_->NowNs() - begun_ns < kLongestRunNs) continue;
    return Fail(fmt::format("no progress: {} transactions ended in {} s", history_.ended(),
                            kLongestRunNs / kNsPerSecond));
  }
}

bool SeedRun::TryFault(const PlannedFault& fault) {
  const int64_t waited_ns = cluster_->NowNs() - armed_ns_;
  if (waited_ns < fault.wait_ns) return false;
  just_crashed_.reset();
  const bool patient = fault.state && waited_ns < fault.wait_ns + kPatienceNs;
  if (patient ? !TryAimed(fault) : !TryAnywhere(fault)) return false;
  PlanFollowUp(fault, just_crashed_);
  return true;
}

bool SeedRun::TryAimed(const PlannedFault& fault) {
  std::vector<Machine> machines = Machines(*cluster_);
  std::erase_if(machines, [&](const Machine& machine) {
    return machine.state != *fault.state || machine.peers.empty();
  });
  if (machines.empty()) return false;
  const Machine machine = machines[random_.Below(machines.size())];
  const Address peer = machine.peers[random_.Below(machine.peers.size())];
  if (IsCrash(fault.aim)) {
    if (!MayCrash()) return false;
    just_crashed_ = fault.aim == Fault::kCrashSelf ? machine.where.island : peer.island;
  }
  return injector_->Inject(machine, peer, fault.aim, random_.Below(2) == 0, fault.duration_ns);
}

bool SeedRun::TryAnywhere(const PlannedFault& fault) {
  const auto island = static_cast<uint32_t>(random_.Below(cluster_->islands()));
  const auto other = static_cast<uint32_t>(random_.Below(cluster_->islands()));
  switch (fault.kind) {
    case PlannedFault::kCrash:
      if (!MayCrash()) return follow_ups_.empty();  // never, if nobody comes back
      just_crashed_ = island;
      return injector_->Crash(island);
    case PlannedFault::kBreak: {
      const auto worker = static_cast<uint32_t>(random_.Below(cluster_->workers_of(island)));
      return injector_->Break({island, worker}, other);
    }
    case PlannedFault::kCut:
      return injector_->Cut(island, other);
    case PlannedFault::kSever:
      return injector_->Sever(island);
    case PlannedFault::kStall: {
      const auto worker = static_cast<uint32_t>(random_.Below(cluster_->workers_of(island)));
      return injector_->Stall({island, worker}, fault.duration_ns);
    }
    case PlannedFault::kHang:
      return injector_->Hang(island, fault.duration_ns);
    case PlannedFault::kPowerLoss:
      return LosePower();
    case PlannedFault::kDiskError:
    case PlannedFault::kDiskFull:
    case PlannedFault::kShortWrites:
      return HurtDisk(fault);
  }
  return false;
}

bool SeedRun::HurtDisk(const PlannedFault& fault) {
  runtime::MemoryFileSystem& disk = cluster_->log().disk();
  if (fault.kind == PlannedFault::kDiskError) {
    disk.Inject(random_.Below(30), runtime::DiskFault::kEio);
    ++report_.disk_errors;
    injector_->NoteOfDisk("an error is near");
  } else if (fault.kind == PlannedFault::kShortWrites) {
    for (int i = 0; i < 5; ++i) disk.Inject(random_.Below(60), runtime::DiskFault::kShort);
    injector_->NoteOfDisk("short writes are near");
  } else {
    const uint64_t segments = random_.Below(2 * cluster_->islands());
    disk.SetRoom(segments * log::kLeastSegmentBytes);
    follow_ups_.push_back({cluster_->NowNs() + fault.duration_ns, FollowUp::kMakeRoom});
    injector_->NoteOfDisk(fmt::format("there is room for {} segments", segments));
  }
  return true;
}

void SeedRun::LookAtLog() {
  if (!plan_.cluster.keeps) return;
  const bool full = cluster_->log().board().full();
  if (full && !disk_full_) ++report_.full_disks;
  disk_full_ = full;
  if (cluster_->log().failure().ok()) return;
  const auto stops = [](const FollowUp& later) { return later.kind == FollowUp::kStopBox; };
  if (std::any_of(follow_ups_.begin(), follow_ups_.end(), stops)) return;
  follow_ups_.push_back(
      {cluster_->NowNs() + static_cast<int64_t>(random_.Below(20)) * kNsPerMs, FollowUp::kStopBox});
}

void SeedRun::StopBox() {
  if (cluster_->log().failure().ok()) return;  // power was lost meanwhile
  injector_->StopBox();
  ++report_.box_stops;
  if (report_.box_stops > report_.disk_errors) Fail("the log has failed, and its disk had no error");
  GoOnServing();
}

bool SeedRun::LosePower() {
  history_.LosePower(injector_->LosePower(), plan_.cluster.answers_wait);
  ++report_.power_losses;
  ledger_->version_step <<= kVersionStepBits;
  WitnessRows();
  GoOnServing();
  return true;
}

// The load begins again, unless it rests.
void SeedRun::GoOnServing() {
  const auto due = [this](FollowUp::Kind kind) {
    return std::any_of(follow_ups_.begin(), follow_ups_.end(),
                       [kind](const FollowUp& later) { return later.kind == kind; });
  };
  const bool rests = due(FollowUp::kWork) && !due(FollowUp::kRest);
  if (!rests) StartRun();
}

// One transaction more, that reads all rows when the islands have recovered, but for those of branches in
// doubt: so every answer that was given before binds.
void SeedRun::WitnessRows() {
  std::set<uint64_t> in_doubt;
  for (uint32_t island = 0; island < cluster_->islands(); ++island) {
    if (!cluster_->alive(island)) return;  // it is a failure already
    for (const instance::ParticipantEntry* entry : cluster_->island(island).workers()[0]->branches().All()) {
      entry->branch.undo.VisitKeys(
          [&](instance::TableId, uint32_t, instance::KeyView key) { in_doubt.insert(LedgerKey(key)); });
    }
  }
  const coordinator::TransactionId id{0, 0, /*boot_epoch=*/0, report_.power_losses};
  const size_t witness = history_.Begin(id, cluster_->NowNs());
  for (const FinalRow& row : ReadRows()) {
    if (in_doubt.contains(row.key)) continue;
    Access access{.kind = Access::kRead, .island = row.island, .key = row.key, .life = row.life};
    access.before = access.after = row.word;
    access.has_amount = row.word != kAbsent;
    access.amount = row.amount;
    history_.Learn(witness, access);
  }
  history_.Finish(witness);
  history_.End(id, coordinator::Outcome::kCommitted, cluster_->NowNs());
}

void SeedRun::PlanFollowUp(const PlannedFault& fault, std::optional<uint32_t> crashed) {
  const int64_t now_ns = cluster_->NowNs();
  const int64_t end_ns = now_ns + fault.duration_ns;
  if (fault.duration_ns > kLongFaultNs) {
    follow_ups_.push_back({now_ns + kLoadIntoLongFaultNs, FollowUp::kRest});
    follow_ups_.push_back({end_ns + 50 * kNsPerMs, FollowUp::kWork});
  }
  if (fault.kind == PlannedFault::kCut || fault.kind == PlannedFault::kSever)
    follow_ups_.push_back({end_ns, FollowUp::kHeal});
  if (crashed && !fault.stays_dead) follow_ups_.push_back({end_ns, FollowUp::kRestart, *crashed});
  DoFollowUps();
}

void SeedRun::DoFollowUps() {
  for (size_t i = 0; i < follow_ups_.size();) {
    if (follow_ups_[i].at_ns > cluster_->NowNs()) {
      ++i;
      continue;
    }
    const FollowUp now = follow_ups_[i];
    follow_ups_.erase(follow_ups_.begin() + static_cast<ptrdiff_t>(i));
    switch (now.kind) {
      case FollowUp::kHeal:
        injector_->HealAll();
        break;
      case FollowUp::kRestart:
        if (injector_->Restart(now.island)) GoOnServing();
        break;
      case FollowUp::kStopBox:
        StopBox();
        break;
      case FollowUp::kMakeRoom:
        injector_->NoteOfDisk("there is room again");
        cluster_->log().disk().SetRoom(UINT64_MAX);
        break;
      case FollowUp::kRest:
        cluster_->RequestStop();
        break;
      case FollowUp::kWork:
        StartRun();
        break;
    }
  }
}

// Everything heals, the load goes on for a moment and ends.
void SeedRun::Settle() {
  injector_->HealAll();
  if (plan_.cluster.keeps) {
    StopBox();
    cluster_->log().disk().ForgetFaults();
  }
  cluster_->RunFor(static_cast<int64_t>(random_.Below(60)) * kNsPerMs);
  if (!cluster_->Drain(kLongestDrainNs)) {
    const SimCluster::Totals totals = cluster_->Sum();
    Fail(fmt::format("not at rest {} s after the load was stopped: {} locks held, {} branches open",
                     kLongestDrainNs / kNsPerSecond, totals.locks_held, totals.branches_open));
    for (const Machine& machine : Machines(*cluster_)) {
      Fail(fmt::format("  left: {} of {} on island {} worker {}", StateName(machine.state),
                       machine.id.ToString(), machine.where.island, machine.where.worker));
    }
    return;
  }
  if (injector_->dead() == 0) WaitForCoordinators();
}

// With everybody alive every acknowledgement comes in; who stays dead would be waited for.
void SeedRun::WaitForCoordinators() {
  const int64_t until_ns = cluster_->NowNs() + kLongestDrainNs;
  std::vector<Machine> machines;
  do {
    machines = Machines(*cluster_);
    for (int i = 0; i < 20 && !machines.empty(); ++i) cluster_->Step();
  } while (!machines.empty() && cluster_->NowNs() < until_ns);
  for (const Machine& machine : machines) {
    Fail(fmt::format("never forgotten: {} of {} on island {} worker {}", StateName(machine.state),
                     machine.id.ToString(), machine.where.island, machine.where.worker));
  }
  for (uint32_t island = 0; machines.empty() && island < cluster_->islands(); ++island) {
    for (const auto& worker : cluster_->island(island).workers()) {
      if (worker->OldestOpen() == log::OpenTransactions::kNone) continue;
      Fail(fmt::format("island {} worker {} needs the log since epoch {}, and nothing is open there", island,
                       worker->options().index, worker->OldestOpen()));
    }
  }
}

void SeedRun::Judge() {
  CheckStores();
  const std::vector<FinalRow> rows = ReadRows();
  JudgeAnswers();
  for (const std::string& violation : watch_->violations()) Fail(violation);
  Verdict verdict = CheckHistory(history_, rows);
  for (std::string& violation : verdict.violations) Fail(std::move(violation));
  CountLost(verdict);
  if (injector_->crashes() == 0 || plan_.cluster.keeps) JudgeSum(rows, verdict);
  for (const std::string& failure : injector_->failures()) Fail(failure);
  if (history_.ended() < kLeastEnded || injector_->faults() == 0) Fail("the seed does not count");
}

void SeedRun::JudgeAnswers() {
  const int64_t timeout_ns = static_cast<int64_t>(plan_.cluster.config.transaction_timeout_ms()) * kNsPerMs;
  const int64_t most_ns = timeout_ns + kSlackNs + injector_->stalled_ns();
  for (const Attempt& attempt : history_.attempts()) {
    const uint32_t island = attempt.id.island;
    const bool same_life = cluster_->alive(island) && cluster_->boot_epoch(island) == attempt.id.boot_epoch;
    if (attempt.fate == Attempt::kOpen && same_life) {
      Fail(fmt::format("never answered: {}", attempt.id.ToString()));
    } else if (attempt.fate != Attempt::kOpen && attempt.ended_ns - attempt.asked_ns > most_ns) {
      Fail(fmt::format("answered late: {} after {} ms, its deadline was {} ms", attempt.id.ToString(),
                       (attempt.ended_ns - attempt.asked_ns) / kNsPerMs, timeout_ns / kNsPerMs));
    }
  }
}

void SeedRun::CheckStores() {
  for (uint32_t island = 0; island < cluster_->islands(); ++island) {
    if (!cluster_->alive(island)) continue;
    if (absl::Status status = cluster_->island(island).store().Check(); !status.ok())
      Fail(fmt::format("island {}: {}", island, std::string(status.message())));
  }
}

// Of every living island what its trees hold.
std::vector<FinalRow> SeedRun::ReadRows() {
  std::vector<FinalRow> rows;
  const auto range =
      partitioner::RangePartition::Create(0, static_cast<int64_t>(plan_.keys), plan_.cluster.sites);
  for (uint32_t island = 0; island < cluster_->islands(); ++island) {
    if (!cluster_->alive(island)) continue;
    std::map<uint64_t, LedgerRow> found;
    const partitioner::SiteRun own = ledger_->sites.SitesOf(island);
    for (uint32_t site = own.first; site < own.first + own.count; ++site) {
      cluster_->island(island).store().At(0, site)->Scan({}, {}, false,
                                                         [&](instance::KeyView key, instance::RowView row) {
                                                           found[LedgerKey(key)] = ParseLedgerRow(row);
                                                           return true;
                                                         });
      for (int64_t key = range->SiteBegin(site); key < range->SiteBegin(site + 1); ++key) {
        const LedgerRow row = found[static_cast<uint64_t>(key)];
        rows.push_back({island, static_cast<uint64_t>(key), LifeOfRows(cluster_->boot_epoch(island)),
                        row.word, row.amount});
      }
    }
  }
  return rows;
}

void SeedRun::CountLost(const Verdict& verdict) {
  for (size_t i = 0; history_.lossy() && i < history_.attempts().size(); ++i) {
    const Attempt& attempt = history_.attempts()[i];
    if (!attempt.finished || attempt.fate == Attempt::kAborted || verdict.committed[i]) continue;
    ++report_.lost;
    if (attempt.fate == Attempt::kCommitted) ++report_.lost_answers;
  }
}

void SeedRun::JudgeSum(const std::vector<FinalRow>& rows, const Verdict& verdict) {
  int64_t expected = 0, sum = 0;
  for (uint64_t key = 0; key < plan_.keys; ++key) expected += IsLoadedKey(key) ? kLoadedAmount : 0;
  for (size_t i = 0; i < history_.attempts().size(); ++i) {
    if (!verdict.committed[i]) continue;
    for (const Access& access : history_.attempts()[i].accesses) expected += access.delta;
  }
  for (const FinalRow& row : rows) sum += row.amount;
  if (sum != expected)
    Fail(fmt::format("the rows add up to {}, committed transactions make it {}", sum, expected));
}

void SeedRun::Summarize() {
  report_.events = injector_->events();
  if (plan_.cluster.keeps) {
    report_.images = cluster_->log().images();
    report_.commands = cluster_->log().commands();
  }
  report_.coverage = injector_->coverage();
  report_.faults = injector_->faults();
  report_.crashes = injector_->crashes();
  report_.simulated_ns = cluster_->NowNs();
  report_.ended = history_.ended();
  report_.committed = history_.committed();
  report_.attempts = history_.attempts().size();
  uint64_t trace = cluster_->trace();
  const auto mix = [&trace](uint64_t value) { trace = (trace ^ value) * 0x100000001b3ull; };
  for (const Attempt& attempt : history_.attempts()) {
    report_.unknown += attempt.fate == Attempt::kUnknown ? 1 : 0;
    report_.torn += attempt.torn ? 1 : 0;
    for (const uint64_t value : {attempt.id.sequence, attempt.begun, attempt.ended, uint64_t{attempt.fate}})
      mix(value);
    for (const Access& access : attempt.accesses) mix(access.before * 31 + access.after + access.key);
  }
  report_.trace = trace;
  report_.failed_reads = cluster_->failed_reads();
  for (uint32_t island = 0; island < cluster_->islands(); ++island) {
    if (!cluster_->alive(island)) continue;
    report_.escalations += cluster_->island(island).locks().Escalations();
    for (const auto& site : cluster_->island(island).MovedPages().sites)
      report_.pages_read += site.paged.read;
    for (const auto& worker : cluster_->island(island).workers()) {
      const auto aborts = [&](instance::AbortReason reason) {
        return worker->counters().aborts[static_cast<uint8_t>(reason)].Get();
      };
      report_.deadlocks += aborts(instance::AbortReason::kDeadlock);
      report_.lock_timeouts += aborts(instance::AbortReason::kLockTimeout);
      report_.probes += worker->counters().probes_sent.Get();
      report_.probe_victims += worker->counters().probe_victims.Get();
      report_.waits_for_pages += worker->counters().pages.waits.Get();
      report_.no_room += aborts(instance::AbortReason::kStorage);
      report_.distributed += worker->counters().scopes[2].committed.Get();
    }
  }
}

}  // namespace

std::string SeedReport::Text() const {
  std::string text = fmt::format("seed {}: {}\n", seed, plan);
  for (const std::string& event : events) text += "  " + event + "\n";
  text += fmt::format(
      "  {} attempts, {} ended, {} committed ({} distributed), {} unknown, {} torn, {} deadlocks, {} lock "
      "timeouts, "
      "{} faults, {} crashes, {} losses of power that took {} transactions, {} of them answered, {} errors "
      "of "
      "the disk, {} of which stopped the box, {} times a full one, "
      "{} ms simulated, trace {:016x}\n",
      attempts, ended, committed, distributed, unknown, torn, deadlocks, lock_timeouts, faults, crashes,
      power_losses, lost, lost_answers, disk_errors, box_stops, full_disks, simulated_ns / kNsPerMs, trace);
  for (const std::string& violation : violations) text += "  VIOLATION: " + violation + "\n";
  return text;
}

SeedReport RunSeed(uint64_t seed, Keeps keeps) { return SeedRun(seed, keeps).Run(); }

}  // namespace islands::simulation
