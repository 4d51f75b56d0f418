#include "experiments/counters/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "experiments/program.h"

namespace islands::experiments {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

topology::Machine Synthetic(const std::string& description) {
  auto machine = topology::LoadMachineSynthetic(description);
  EXPECT_TRUE(machine.ok()) << machine.status();
  return *std::move(machine);
}

// The paper's octo-socket machine; CPUs 10s to 10s + 9 are socket s, on node s.
topology::Machine OctoSocket() { return Synthetic("pack:8 [numa] core:10 pu:1"); }

CountersPlan Plan(const topology::Machine& machine, const CountersRequest& request) {
  auto plan = PlanCounters(machine, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Per counter, how many of its threads run on each socket.
std::vector<std::map<uint32_t, int>> Sockets(const topology::Machine& machine, const CountersPlan& plan) {
  std::vector<std::map<uint32_t, int>> sockets(plan.counter_nodes.size());
  for (const auto& thread : plan.threads) {
    ++sockets[thread.counter][CoreOfCpu(machine, thread.cpus.at(0))->package];
  }
  return sockets;
}

std::set<uint32_t> Cpus(const CountersPlan& plan) {
  std::set<uint32_t> cpus;
  for (const auto& thread : plan.threads) cpus.insert(thread.cpus.begin(), thread.cpus.end());
  return cpus;
}

TEST(PlanCounters, GroupedPerSocket_ThreadsAndMemoryOfACounterOnOneSocket) {
  const auto machine = OctoSocket();
  const auto plan = Plan(machine, {});
  EXPECT_THAT(plan.threads, SizeIs(80));
  EXPECT_THAT(Cpus(plan), SizeIs(80));
  const auto sockets = Sockets(machine, plan);
  ASSERT_THAT(sockets, SizeIs(8));
  for (uint32_t c = 0; c < 8; ++c) {
    EXPECT_THAT(sockets[c], ElementsAre(testing::Pair(c, 10)));
    EXPECT_EQ(plan.counter_nodes[c], c);
  }
  EXPECT_THAT(plan.text, HasSubstr("counter 1 (node 1): CPU 10-19"));
  EXPECT_THAT(plan.text, Not(HasSubstr("same here")));
}

TEST(PlanCounters, SpreadPerSocket_ThreadsOfACounterOnAllSockets) {
  const auto machine = OctoSocket();
  const auto plan = Plan(machine, {.workers = CounterWorkers::kSpread});
  EXPECT_THAT(Cpus(plan), SizeIs(80));
  for (const auto& sockets : Sockets(machine, plan)) {
    EXPECT_THAT(sockets, SizeIs(8));
    for (const auto& [socket, threads] : sockets) EXPECT_LE(threads, 2);
  }
  EXPECT_EQ(plan.counter_nodes, Plan(machine, {}).counter_nodes);
}

TEST(PlanCounters, Os_AllCpusAndNoNode) {
  const auto plan = Plan(OctoSocket(), {.workers = CounterWorkers::kOs});
  std::map<uint32_t, int> threads_of;
  for (const auto& thread : plan.threads) {
    EXPECT_THAT(thread.cpus, SizeIs(80));
    ++threads_of[thread.counter];
  }
  for (const auto& [counter, threads] : threads_of) EXPECT_EQ(threads, 10);
  EXPECT_THAT(plan.counter_nodes, testing::Each(std::nullopt));
}

TEST(PlanCounters, FewerThreadsThanCores_SameCoresForBothOrders) {
  const auto machine = Synthetic("pack:4 [numa] core:6 pu:1");
  const auto grouped = Plan(machine, {.threads = 8});
  const auto spread = Plan(machine, {.workers = CounterWorkers::kSpread, .threads = 8});
  EXPECT_EQ(Cpus(grouped), Cpus(spread));
  for (const auto& sockets : Sockets(machine, grouped)) EXPECT_THAT(sockets, SizeIs(1));
  for (const auto& sockets : Sockets(machine, spread)) EXPECT_THAT(sockets, SizeIs(2));
}

TEST(PlanCounters, SingleWithFewThreads_GroupedStaysInOneSocket) {
  const auto machine = Synthetic("pack:4 [numa] core:6 pu:1");
  const CountersRequest request{.setup = CounterSetup::kSingle, .threads = 4};
  EXPECT_THAT(Sockets(machine, Plan(machine, request)).at(0), ElementsAre(testing::Pair(0, 4)));
  CountersRequest spread = request;
  spread.workers = CounterWorkers::kSpread;
  EXPECT_THAT(Sockets(machine, Plan(machine, spread)).at(0), SizeIs(4));
}

TEST(PlanCounters, PerCore_OwnCounterOnOwnNode) {
  const auto machine = OctoSocket();
  const auto plan = Plan(machine, {.setup = CounterSetup::kPerCore});
  ASSERT_THAT(plan.counter_nodes, SizeIs(80));
  for (uint32_t t = 0; t < 80; ++t) {
    EXPECT_EQ(plan.threads[t].counter, t);
    EXPECT_EQ(plan.counter_nodes[t], plan.threads[t].cpus.at(0) / 10);
  }
  EXPECT_THAT(plan.text, HasSubstr("same here: no counter is shared"));
}

TEST(PlanCounters, OneSocket_SaysThatOrdersCoincide) {
  const auto plan = Plan(Synthetic("pack:1 [numa] core:2 pu:1"), {});
  EXPECT_EQ(plan.counter_nodes.size(), 1);
  EXPECT_THAT(plan.text,
              HasSubstr("spread and grouped are the same here: all these cores are in one socket"));
}

TEST(PlanCounters, MoreThreadsThanCores_ShareThem) {
  const auto plan = Plan(Synthetic("pack:1 [numa] core:2 pu:1"), {.threads = 5});
  EXPECT_THAT(plan.threads, SizeIs(5));
  EXPECT_THAT(plan.text, HasSubstr("5 threads sharing 2 cores"));
}

TEST(PlanCounters, Cores_NumberListAndNonsense) {
  const auto machine = OctoSocket();
  EXPECT_THAT(Cpus(Plan(machine, {.cores = "3"})), ElementsAre(0, 1, 2));
  EXPECT_THAT(Cpus(Plan(machine, {.cores = "5,70-71"})), ElementsAre(5, 70, 71));
  for (const char* cores : {"0", "81", "80-81", "x", "", "-1", "99999999999"}) {
    const auto plan = PlanCounters(machine, {.cores = cores});
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << cores;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("--cores")) << cores;
  }
}

}  // namespace
}  // namespace islands::experiments
