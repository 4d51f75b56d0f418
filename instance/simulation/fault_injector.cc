#include "instance/simulation/fault_injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace islands::simulation {

using coordinator::Coordinator;
using coordinator::Participant;
using messaging::Address;

bool Machine::HasPeer(uint32_t island) const {
  return std::any_of(peers.begin(), peers.end(), [&](const Address& peer) { return peer.island == island; });
}

std::vector<Machine> Machines(SimCluster& cluster) {
  std::vector<Machine> machines;
  for (uint32_t island = 0; island < cluster.islands(); ++island) {
    if (!cluster.alive(island)) continue;
    for (const auto& worker : cluster.island(island).workers()) {
      const Address where{island, worker->options().index};
      for (const instance::CoordinatorEntry* entry : worker->coordinated().All()) {
        if (entry->machine.done()) continue;
        const bool voted = std::any_of(entry->peers.begin(), entry->peers.end(), [&](const auto& peer) {
          return entry->machine.VotedYes(peer.island);
        });
        const bool early = voted && entry->machine.state() == Coordinator::State::kExecuting;
        Machine machine{early ? kVotedEarly : IndexOf(entry->machine.state()), where, entry->id, {}};
        for (const auto& peer : entry->peers) {
          machine.peers.push_back({peer.island, where.worker % cluster.workers_of(peer.island)});
        }
        machines.push_back(std::move(machine));
      }
      for (const instance::ParticipantEntry* entry : worker->branches().All()) {
        if (entry->machine.done()) continue;
        Machine machine{IndexOf(entry->machine.state()), where, entry->id, {entry->coordinator().peer}};
        if (entry->machine.orphaned()) {
          machine.peers.clear();
          for (const auto& fellow : entry->fellows) {
            machine.peers.push_back({fellow.island, entry->id.worker % cluster.workers_of(fellow.island)});
          }
        }
        machines.push_back(std::move(machine));
      }
    }
  }
  return machines;
}

void FaultInjector::Note(const std::string& what) {
  events_.push_back(fmt::format("{:10.3f} ms  {}", static_cast<double>(cluster_.NowNs()) / 1e6, what));
}

// What dies with an island, as far as the history has to know (history.h: torn, doomed).
void FaultInjector::Lose(uint32_t island) {
  const std::vector<Machine> machines = Machines(cluster_);
  std::set<coordinator::TransactionId> voted;  // of the branches there
  for (const Machine& machine : machines) {
    if (machine.where.island == island && machine.state == IndexOf(Participant::State::kPrepared))
      voted.insert(machine.id);
  }
  for (const Machine& machine : machines) {
    const bool here = machine.where.island == island;
    const bool peer = !here && machine.HasPeer(island);
    if (here) coverage_.Add(machine.state, Fault::kCrashSelf);
    if (peer) coverage_.Add(machine.state, Fault::kCrashPeer), bereft_[island].insert(machine.id);
    Attempt* attempt = IsCoordinators(machine.state) ? history_.Find(machine.id) : nullptr;
    if (attempt == nullptr || keeps_) continue;
    if (here && machine.state == IndexOf(Coordinator::State::kCommitting)) attempt->torn = true;
    const bool executes =
        machine.state == IndexOf(Coordinator::State::kExecuting) || machine.state == kVotedEarly;
    if (peer && executes && !voted.contains(machine.id)) attempt->doomed = true;
  }
}

bool FaultInjector::Crash(uint32_t island) {
  if (!cluster_.alive(island)) return false;
  Lose(island);
  Note(fmt::format("crash of island {} (life {})", island, cluster_.boot_epoch(island)));
  cluster_.Crash(island);
  ++faults_;
  ++crashes_;
  return true;
}

uint64_t FaultInjector::LosePower() {
  for (uint32_t island = 0; island < cluster_.islands(); ++island) {
    if (cluster_.alive(island)) Lose(island);
  }
  const uint64_t durable = cluster_.LosePower();
  Note(fmt::format("power is lost: epochs above {} do not count", durable));
  ++faults_;
  ++crashes_;
  for (uint32_t island = 0; island < cluster_.islands(); ++island) Restart(island);
  return durable;
}

void FaultInjector::StopBox() {
  for (uint32_t island = 0; island < cluster_.islands(); ++island) {
    if (cluster_.alive(island)) Lose(island);
  }
  Note(fmt::format("the box stops: {}", std::string(cluster_.log().failure().message())));
  cluster_.StopBox();
  ++faults_;
  ++crashes_;
  for (uint32_t island = 0; island < cluster_.islands(); ++island) Restart(island);
}

bool FaultInjector::Restart(uint32_t island) {
  if (cluster_.alive(island)) return false;
  for (const Machine& machine : Machines(cluster_)) {
    const bool bereft = machine.HasPeer(island) && bereft_[island].contains(machine.id);
    if (bereft) coverage_.Add(machine.state, Fault::kRestartPeer);
  }
  bereft_[island].clear();
  Note(fmt::format("restart of island {}", island));
  const absl::Status status = cluster_.Restart(island);
  if (absl::IsUnavailable(status)) {
    Note(fmt::format("it does not: {}", std::string(status.message())));
    return false;  // StopBox will start it
  }
  if (!status.ok()) {
    failures_.push_back(fmt::format("island {} does not restart: {}", island, std::string(status.message())));
  }
  return status.ok();
}

bool FaultInjector::IsCut(uint32_t a, uint32_t b) const {
  return severed_.contains(a) || severed_.contains(b) || cut_.contains(std::minmax(a, b));
}

bool FaultInjector::Break(Address dialler, uint32_t to) {
  if (dialler.island == to || !cluster_.alive(dialler.island) || !cluster_.alive(to)) return false;
  const auto& workers = cluster_.island(dialler.island).workers();
  if (!workers[dialler.worker]->links().IsUp(to)) return false;
  const Address server{to, dialler.worker % cluster_.workers_of(to)};
  for (const Machine& machine : Machines(cluster_)) {
    if ((machine.where == dialler && machine.HasPeer(to)) ||
        (machine.where == server && machine.HasPeer(dialler.island))) {
      coverage_.Add(machine.state, Fault::kBreak);
    }
  }
  Note(fmt::format("the connection from worker {} of island {} to island {} breaks", dialler.worker,
                   dialler.island, to));
  cluster_.hub().Break(dialler, to);
  ++faults_;
  return true;
}

bool FaultInjector::Cut(uint32_t a, uint32_t b) {
  if (a == b || IsCut(a, b)) return false;
  for (const Machine& machine : Machines(cluster_)) {
    const uint32_t at = machine.where.island;
    if ((at == a && machine.HasPeer(b)) || (at == b && machine.HasPeer(a))) {
      coverage_.Add(machine.state, Fault::kCut);
    }
  }
  Note(fmt::format("cut between islands {} and {}", a, b));
  cut_.insert(std::minmax(a, b));
  cluster_.hub().Partition(a, b);
  ++faults_;
  return true;
}

bool FaultInjector::Sever(uint32_t island) {
  if (severed_.contains(island)) return false;
  for (const Machine& machine : Machines(cluster_)) {
    const bool cuts = machine.where.island == island || machine.HasPeer(island);
    if (cuts) coverage_.Add(machine.state, Fault::kCut);
  }
  Note(fmt::format("island {} severed from all others", island));
  severed_.insert(island);
  cluster_.hub().Sever(island);
  ++faults_;
  return true;
}

void FaultInjector::HealAll() {
  if (cut_.empty() && severed_.empty()) return;
  Note("all links heal");
  cut_.clear();
  severed_.clear();
  cluster_.hub().HealAll();
}

bool FaultInjector::Stall(Address worker, int64_t ns) {
  if (!cluster_.alive(worker.island)) return false;
  for (const Machine& machine : Machines(cluster_)) {
    if (machine.where == worker) coverage_.Add(machine.state, Fault::kStallSelf);
    if (std::find(machine.peers.begin(), machine.peers.end(), worker) != machine.peers.end()) {
      coverage_.Add(machine.state, Fault::kStallPeer);
    }
  }
  Note(fmt::format("worker {} of island {} stalls for {:.1f} ms", worker.worker, worker.island,
                   static_cast<double>(ns) / 1e6));
  cluster_.Stall(worker.island, worker.worker, ns);
  stalled_ns_ += ns;
  ++faults_;
  return true;
}

bool FaultInjector::Hang(uint32_t island, int64_t ns) {
  if (!cluster_.alive(island)) return false;
  for (uint32_t worker = 0; worker < cluster_.workers_of(island); ++worker) Stall({island, worker}, ns);
  stalled_ns_ -= (cluster_.workers_of(island) - 1) * ns;  // all at the same time
  return true;
}

bool FaultInjector::Inject(const Machine& machine, Address peer, Fault fault, bool dialled,
                           int64_t stall_ns) {
  Note(fmt::format("at {} of {} on island {} worker {}:", StateName(machine.state), machine.id.ToString(),
                   machine.where.island, machine.where.worker));
  const auto inject = [&] {
    switch (fault) {
      case Fault::kCrashSelf:
        return Crash(machine.where.island);
      case Fault::kCrashPeer:
      case Fault::kRestartPeer:
        return Crash(peer.island);
      case Fault::kBreak:
        return dialled ? Break(machine.where, peer.island) : Break(peer, machine.where.island);
      case Fault::kCut:
        return Cut(machine.where.island, peer.island);
      case Fault::kStallSelf:
        return Stall(machine.where, stall_ns);
      case Fault::kStallPeer:
        return Stall(peer, stall_ns);
    }
    return false;
  };
  if (inject()) return true;
  events_.pop_back();
  return false;
}

uint32_t FaultInjector::dead() const {
  uint32_t dead = 0;
  for (uint32_t island = 0; island < cluster_.islands(); ++island) dead += cluster_.alive(island) ? 0 : 1;
  return dead;
}

}  // namespace islands::simulation
