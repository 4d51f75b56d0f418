#include "instance/simulation/deadlock_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "instance/simulation/graph.h"

namespace islands::simulation {

using runtime::kNsPerMs;

namespace {

constexpr int64_t kLookNs = 5 * kNsPerMs;
// probes.h: a wait's chases through queues are 32 ms apart, and begin with a round, every 2 ms.
// They may be taken for those of another wait of the same transaction, from before the cycle, for 8 ms and
// a round.
constexpr int64_t kChaseNs = 44 * kNsPerMs;
// Wake-ups take no message.
constexpr int64_t kWakeNs = 10 * kNsPerMs;
// At the clock, in the rounds of a worker in which those have their turn who are ready before somebody.
constexpr int64_t kMostLooks = 1000;
constexpr size_t kMostViolations = 5;

}  // namespace

// What is there for a worker has to wait for the turns of all once, or twice if its own turn just was. A
// packet may find the connection full of another, that one has to be taken first. Then the probe is handed to
// another worker of that island, if the one that serves the link is not the one.
DeadlockWatch::DeadlockWatch(SimCluster& cluster, int64_t slowest_packet_ns) : cluster_(cluster) {
  int64_t workers = 0;
  for (uint32_t island = 0; island < cluster.islands(); ++island) workers += cluster.workers_of(island);
  const int64_t turns_ns = 2 * workers * SimCluster::kLongestTurnNs;
  const int64_t looks_ns = kMostLooks * workers * cluster.ns_by_look();
  wake_ns_ = kWakeNs + looks_ns;
  chase_ns_ = kChaseNs + turns_ns + looks_ns;
  message_ns_ = 2 * (slowest_packet_ns + turns_ns) + turns_ns + looks_ns;
}

int64_t DeadlockWatch::MayStandNs(size_t members) const {
  return chase_ns_ + 2 * static_cast<int64_t>(members) * message_ns_;
}

void DeadlockWatch::Look() {
  now_ns_ = cluster_.NowNs();
  if (now_ns_ - last_look_ns_ < kLookNs) return;
  if (!Calm()) calm_since_ns_ = now_ns_;
  last_look_ns_ = now_ns_;
  Waits waits;
  std::map<Place, int64_t> untold;
  for (uint32_t island = 0; island < cluster_.islands(); ++island) {
    if (!cluster_.alive(island)) continue;
    for (const auto& worker : cluster_.island(island).workers()) {
      LookAtWorker(island, *worker, &waits, &untold);
    }
  }
  waits_ = std::move(waits);
  untold_ = std::move(untold);
  JudgeCycles();
}

bool DeadlockWatch::Calm() const {
  for (uint32_t island = 0; island < cluster_.islands(); ++island) {
    if (!cluster_.alive(island)) continue;
    for (const auto& worker : cluster_.island(island).workers()) {
      if (cluster_.StalledUntilNs(island, worker->options().index) > last_look_ns_) return false;
      for (uint32_t peer = 0; peer < cluster_.islands(); ++peer) {
        const bool should = peer != island && cluster_.alive(peer);
        if (peer != island && worker->links().IsUp(peer) != should) return false;
      }
    }
  }
  return true;
}

// What ends by itself is left out: a transaction that has failed somewhere, or is not executing any more, or
// whose coordinator has died.
void DeadlockWatch::LookAtWorker(uint32_t island, instance::Worker& worker, Waits* waits,
                                 std::map<Place, int64_t>* untold) {
  std::vector<TransactionId> blockers;
  for (const auto& [token, waiter] : worker.lock_waits().Sorted()) {
    if (waiter->failure.set()) continue;
    const locks::LockOwner& owner = waiter->branch.locks;
    if (!owner.waiting()) {
      const Place place{island, worker.options().index, token};
      const auto before = untold_.find(place);
      const int64_t since_ns = before != untold_.end() ? before->second : now_ns_;
      untold->emplace(place, since_ns);
      if (AgeNs(since_ns) > wake_ns_ && violations_.size() < kMostViolations) {
        violations_.push_back(fmt::format("{} was not told on island {} that its wait for a lock is over",
                                          owner.transaction.ToString(), island));
      }
      continue;
    }
    if (!Executes(owner.transaction)) continue;
    blockers.clear();
    cluster_.island(island).locks().Blockers(owner, locks::BlockerSet::kAll, &blockers);
    for (const TransactionId& blocker : blockers) {
      const auto before = waits_.find({owner.transaction, blocker});
      const int64_t since_ns = before != waits_.end() ? before->second.since_ns : now_ns_;
      waits->emplace(std::pair(owner.transaction, blocker), Wait{island, since_ns});
    }
  }
}

bool DeadlockWatch::Executes(const TransactionId& id) const {
  if (!cluster_.alive(id.island) || cluster_.boot_epoch(id.island) != id.boot_epoch) return false;
  return cluster_.island(id.island).workers()[id.worker]->clients().FindExecuting(id) != nullptr;
}

std::vector<coordinator::TransactionId> DeadlockWatch::OldCycle(int64_t age_ns) const {
  Graph graph;
  std::vector<TransactionId> ids;
  std::map<TransactionId, uint32_t> nodes;
  const auto node_of = [&](const TransactionId& id) {
    const auto [found, fresh] = nodes.try_emplace(id, static_cast<uint32_t>(ids.size()));
    if (fresh) {
      ids.push_back(id);
      graph.AddNode();
    }
    return found->second;
  };
  for (const auto& [ends, wait] : waits_) {
    if (AgeNs(wait.since_ns) < age_ns) continue;
    const uint32_t from = node_of(ends.first);
    graph.AddEdge(from, {.to = node_of(ends.second)});
  }
  std::vector<TransactionId> cycle;
  for (const Graph::Step& step : graph.SmallestCycle(/*with_real_time=*/false))
    cycle.push_back(ids[step.node]);
  return cycle;
}

void DeadlockWatch::JudgeCycles() {
  size_t members = 2;
  while (violations_.size() < kMostViolations) {
    const std::vector<TransactionId> cycle = OldCycle(MayStandNs(members));
    if (cycle.empty()) return;
    if (cycle.size() <= members) return Report(cycle);
    members = cycle.size();
  }
}

void DeadlockWatch::Report(const std::vector<TransactionId>& cycle) {
  int64_t since_ns = 0;
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const TransactionId& next = cycle[(i + 1) % cycle.size()];
    const auto at = waits_.find({cycle[i], next});
    since_ns = std::max(since_ns, at->second.since_ns);
    text += fmt::format("{} {} waits on island {} for {}", i == 0 ? ":" : ",", cycle[i].ToString(),
                        at->second.island, next.ToString());
    at->second.since_ns = now_ns_;  // not again at every look
  }
  violations_.push_back(fmt::format("at {} ms a deadlock of {} transactions has stood for {} ms{}",
                                    last_look_ns_ / kNsPerMs, cycle.size(), AgeNs(since_ns) / kNsPerMs,
                                    text));
}

}  // namespace islands::simulation
