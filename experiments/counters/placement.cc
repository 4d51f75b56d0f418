#include "experiments/counters/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "experiments/program.h"

namespace islands::experiments {
namespace {

using topology::Core;
using topology::Machine;
using topology::WorkerOrder;

constexpr size_t kMaxListedCounters = 16;

struct Slot {  // where one thread runs
  uint32_t cpu = 0;
  uint32_t socket = 0;  // index into Machine::packages
  std::optional<uint32_t> node;
};

std::optional<uint32_t> NodeOf(const Machine& machine, const Core& core) {
  if (core.nodes.empty()) return std::nullopt;
  return machine.nodes[core.nodes[0]].os_index;
}

// Threads of one counter that is alone, and threads that share nothing, fill one socket after the other when
// grouped; otherwise every socket gets its part of the threads.
bool IsDealt(const CountersRequest& request) {
  return request.workers == CounterWorkers::kSpread || request.setup == CounterSetup::kPerSocket;
}

absl::StatusOr<std::vector<Slot>> ChooseSlots(const Machine& machine, const CountersRequest& request) {
  const WorkerOrder order = IsDealt(request) ? WorkerOrder::kSpread : WorkerOrder::kGrouped;
  const absl::StatusOr<std::vector<uint32_t>> cpus = ChooseCpus(machine, request.cores, order);
  if (!cpus.ok()) return cpus.status();
  const size_t threads = request.threads == 0 ? cpus->size() : request.threads;
  std::vector<Slot> slots;
  for (size_t t = 0; t < threads; ++t) {
    const uint32_t cpu = (*cpus)[t % cpus->size()];
    const Core& core = *CoreOfCpu(machine, cpu);
    slots.push_back({cpu, core.package, NodeOf(machine, core)});
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.socket < b.socket; });
  return slots;
}

// Gives every slot its counter, and every counter the node of the first slot of its home socket.
CountersPlan Assign(const CountersRequest& request, const std::vector<Slot>& slots) {
  std::map<uint32_t, std::pair<uint32_t, std::optional<uint32_t>>> homes;  // socket -> counter, node
  for (const Slot& slot : slots) homes.try_emplace(slot.socket, homes.size(), slot.node);
  const auto sockets = static_cast<uint32_t>(homes.size());
  CountersPlan plan;
  for (uint32_t t = 0; t < slots.size(); ++t) {
    uint32_t counter = 0;
    if (request.setup == CounterSetup::kPerCore) {
      counter = t;
    } else if (request.setup == CounterSetup::kPerSocket) {
      counter = request.workers == CounterWorkers::kGrouped ? homes[slots[t].socket].first : t % sockets;
    }
    plan.threads.push_back({counter, {slots[t].cpu}});
  }
  switch (request.setup) {
    case CounterSetup::kSingle:
      plan.counter_nodes = {slots[0].node};
      break;
    case CounterSetup::kPerSocket:
      for (const auto& [socket, home] : homes) plan.counter_nodes.push_back(home.second);
      break;
    case CounterSetup::kPerCore:
      for (const Slot& slot : slots) plan.counter_nodes.push_back(slot.node);
      break;
  }
  return plan;
}

void Unbind(const std::vector<uint32_t>& cpus, CountersPlan& plan) {
  for (CountersPlan::Thread& thread : plan.threads) thread.cpus = cpus;
  for (std::optional<uint32_t>& node : plan.counter_nodes) node.reset();
}

std::string DescribeCounters(const CountersPlan& plan) {
  const size_t counters = plan.counter_nodes.size();
  if (counters == plan.threads.size() && counters > 1) return "each thread has a counter on its core's node";
  if (counters > kMaxListedCounters) return fmt::format("{} counters", counters);
  std::string text;
  for (uint32_t c = 0; c < counters; ++c) {
    std::vector<uint32_t> cpus;
    for (const auto& thread : plan.threads) {
      if (thread.counter == c) cpus.insert(cpus.end(), thread.cpus.begin(), thread.cpus.end());
    }
    std::sort(cpus.begin(), cpus.end());
    cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
    const std::string node = plan.counter_nodes[c] ? fmt::format(" (node {})", *plan.counter_nodes[c]) : "";
    text += fmt::format("{}counter {}{}: CPU {}", c == 0 ? "" : "; ", c, node, topology::FormatCpuList(cpus));
  }
  return text;
}

std::string Describe(const CountersPlan& plan, size_t cpus) {
  const std::string shared =
      plan.threads.size() > cpus ? fmt::format(" sharing {} core{}", cpus, cpus == 1 ? "" : "s") : "";
  return fmt::format("{} thread{}{}, {}", plan.threads.size(), plan.threads.size() == 1 ? "" : "s", shared,
                     DescribeCounters(plan));
}

std::string WhySame(const std::vector<Slot>& slots, size_t counters) {
  std::set<uint32_t> sockets;
  for (const Slot& slot : slots) sockets.insert(slot.socket);
  if (sockets.size() == 1) return "all these cores are in one socket";
  return counters == slots.size() ? "no counter is shared" : "each counter's threads are the same either way";
}

}  // namespace

absl::StatusOr<CountersPlan> PlanCounters(const Machine& machine, const CountersRequest& request) {
  const absl::StatusOr<std::vector<uint32_t>> cpus =
      ChooseCpus(machine, request.cores, WorkerOrder::kGrouped);
  if (!cpus.ok()) return cpus.status();
  const absl::StatusOr<std::vector<Slot>> slots = ChooseSlots(machine, request);
  if (!slots.ok()) return slots.status();
  CountersPlan plan = Assign(request, *slots);
  if (request.workers == CounterWorkers::kOs) {
    Unbind(*cpus, plan);
    plan.text = fmt::format("{} threads where the kernel puts them on CPU {}, {} counter{} likewise",
                            plan.threads.size(), topology::FormatCpuList(*cpus), plan.counter_nodes.size(),
                            plan.counter_nodes.size() == 1 ? "" : "s");
    return plan;
  }
  plan.text = Describe(plan, cpus->size());
  CountersRequest other = request;
  other.workers =
      request.workers == CounterWorkers::kSpread ? CounterWorkers::kGrouped : CounterWorkers::kSpread;
  const absl::StatusOr<std::vector<Slot>> other_slots = ChooseSlots(machine, other);
  if (!other_slots.ok()) return other_slots.status();
  const CountersPlan other_plan = Assign(other, *other_slots);
  if (other_plan.threads == plan.threads && other_plan.counter_nodes == plan.counter_nodes) {
    plan.text +=
        fmt::format("; spread and grouped are the same here: {}", WhySame(*slots, plan.counter_nodes.size()));
  }
  return plan;
}

}  // namespace islands::experiments
