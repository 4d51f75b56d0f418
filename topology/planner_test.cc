#include "topology/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/machine.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// `packages` with `cores` each, one L3 and one node of 16 GiB per package; PU numbers of second threads
// follow all first ones.
Machine Box(uint32_t packages, uint32_t cores, uint32_t threads = 1) {
  Machine machine;
  for (uint32_t p = 0; p < packages; ++p) {
    machine.packages.push_back({.os_index = p, .cpu_model = ""});
    machine.nodes.push_back({.os_index = p, .package = static_cast<int32_t>(p), .memory_bytes = 16 * kGiB});
    machine.cache_groups.push_back({.package = p, .bytes = 1 << 20});
    for (uint32_t c = 0; c < cores; ++c) {
      Core core{.package = p, .cache_group = p, .nodes = {p}, .pus = {}};
      for (uint32_t t = 0; t < threads; ++t) core.pus.push_back(t * packages * cores + p * cores + c);
      machine.cores.push_back(core);
    }
  }
  machine.memory_bytes = packages * 16 * kGiB;
  return machine;
}

Plan Must(const Machine& machine, const PlanRequest& request) {
  absl::StatusOr<Plan> plan = MakePlan(machine, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

std::string ErrorOf(const Machine& machine, const PlanRequest& request) {
  absl::StatusOr<Plan> plan = MakePlan(machine, request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
}

TEST(ParseLayout, Words) {
  EXPECT_EQ(*ParseLayout("4ISL"), 4u);
  EXPECT_EQ(*ParseLayout("24ISL"), 24u);
  EXPECT_EQ(*ParseLayout("auto"), std::nullopt);
  for (const char* bad :
       {"", "4", "ISL", "0ISL", "04ISL", "-1ISL", "4isl", "4ISL ", "4.5ISL", "99999999999ISL", "5000ISL"}) {
    EXPECT_THAT(std::string(ParseLayout(bad).status().message()), HasSubstr(std::string("'") + bad + "'"))
        << bad;
  }
}

TEST(ParsePlacement, NamesRoundTrip) {
  for (Placement p : {Placement::kIslands, Placement::kSpread, Placement::kOs}) {
    EXPECT_EQ(*ParsePlacement(PlacementName(p)), p);
  }
  for (WorkerOrder o : {WorkerOrder::kGrouped, WorkerOrder::kSpread, WorkerOrder::kMix, WorkerOrder::kOs}) {
    EXPECT_EQ(*ParseWorkerOrder(WorkerOrderName(o)), o);
  }
  EXPECT_THAT(std::string(ParsePlacement("island").status().message()),
              HasSubstr("expected islands, spread or os"));
  EXPECT_THAT(std::string(ParseWorkerOrder("x").status().message()),
              HasSubstr("expected grouped, spread, mix or os"));
}

TEST(MakePlan, Auto_OnePerSocketElsePerL3) {
  EXPECT_EQ(Must(Box(4, 6), {}).layout, "4ISL");
  EXPECT_EQ(Must(*LoadMachineSynthetic("pack:1 l3:3 core:4 pu:2"), {}).layout, "3ISL");
  EXPECT_EQ(Must(Box(1, 4), {}).layout, "1ISL");
  // Only the sockets that are used count.
  EXPECT_EQ(Must(Box(4, 6), {.core_count = 12}).layout, "2ISL");
}

TEST(MakePlan, CoresRestrictedByCount) {
  Plan plan = Must(Box(4, 6), {.islands = 2, .core_count = 8});
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(plan.cores_used, 8);
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("16 of 24 usable cores stay unused")));
  EXPECT_THAT(ErrorOf(Box(4, 6), {.core_count = 25}), HasSubstr("expected 1 to 24"));
  EXPECT_THAT(ErrorOf(Box(4, 6), {.core_count = 0}), HasSubstr("expected 1 to 24"));
}

TEST(MakePlan, CoresRestrictedByList) {
  Plan plan = Must(Box(2, 4), {.islands = 2, .cpus = std::vector<uint32_t>{2, 3, 4, 5}});
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(2, 3));
  EXPECT_THAT(plan.islands[1].cpus, ElementsAre(4, 5));
  EXPECT_THAT(ErrorOf(Box(2, 4), {.cpus = std::vector<uint32_t>{2, 99}}), HasSubstr("CPU 99 does not exist"));
  EXPECT_THAT(ErrorOf(Box(2, 4), {.cpus = std::vector<uint32_t>{}}), HasSubstr("empty"));
  Machine restricted = Box(1, 2);
  restricted.disallowed_cpus = {7};
  EXPECT_THAT(ErrorOf(restricted, {.cpus = std::vector<uint32_t>{7}}), HasSubstr("offline or not allowed"));
  // A core of which only the second thread is listed is used through that one.
  EXPECT_THAT(Must(Box(1, 2, 2), {.islands = 1, .cpus = std::vector<uint32_t>{0, 3}}).islands[0].cpus,
              ElementsAre(0, 3));
}

TEST(MakePlan, OnePuPerCoreUnlessAskedOtherwise) {
  Machine machine = Box(1, 4, 2);
  EXPECT_THAT(Must(machine, {.islands = 2}).islands[1].cpus, ElementsAre(2, 3));
  Plan all = Must(machine, {.islands = 2, .use_all_pus = true});
  EXPECT_THAT(all.islands[0].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(all.islands[0].workers, 4);
}

TEST(MakePlan, MoreIslandsThanCores_ShareRoundRobin) {
  Plan plan = Must(Box(1, 2), {.islands = 5});
  EXPECT_TRUE(plan.cores_shared);
  EXPECT_EQ(plan.cores_used, 2);
  EXPECT_THAT(plan.islands[4].cpus, ElementsAre(0));
  EXPECT_THAT(plan.islands[3].cpus, ElementsAre(1));
  EXPECT_THAT(plan.notes, ElementsAre("5 islands share 2 cores, up to 3 on one: they take turns"));
}

TEST(MakePlan, MoreIslandsThanCores_AllPusDivideTheCore) {
  Plan plan = Must(Box(1, 2, 2), {.islands = 4, .use_all_pus = true});
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(0));
  EXPECT_THAT(plan.islands[1].cpus, ElementsAre(1));
  EXPECT_THAT(plan.islands[2].cpus, ElementsAre(2));
  EXPECT_THAT(plan.islands[3].cpus, ElementsAre(3));
  // The only island on its core keeps both of its PUs.
  EXPECT_THAT(Must(Box(1, 2, 2), {.islands = 3, .use_all_pus = true}).islands[1].cpus, ElementsAre(1, 3));
}

TEST(MakePlan, WorkerOrder) {
  auto order = [](WorkerOrder worker_order) {
    return Must(Box(2, 4), {.islands = 1, .worker_order = worker_order}).islands[0].cpus;
  };
  EXPECT_THAT(order(WorkerOrder::kGrouped), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(order(WorkerOrder::kSpread), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(order(WorkerOrder::kMix), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_THAT(order(WorkerOrder::kOs), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(MakePlan, Os_BindsNothing) {
  Plan plan = Must(Box(2, 4), {.islands = 3, .placement = Placement::kOs, .memory_bytes = 3 * kGiB});
  EXPECT_EQ(plan.islands[0].workers, 3);
  EXPECT_EQ(plan.islands[2].workers, 2);
  EXPECT_THAT(plan.islands[0].cpus, IsEmpty());
  EXPECT_EQ(plan.islands[1].memory_bytes, kGiB);
  EXPECT_EQ(
      Must(Box(2, 4, 2), {.islands = 3, .placement = Placement::kOs, .use_all_pus = true}).islands[0].workers,
      6);
}

TEST(MakePlan, StraddlingIsNotedWhereItSurprises) {
  EXPECT_THAT(Must(Box(4, 6), {.islands = 5}).notes,
              ElementsAre("island 1 spans packages: 5 equal islands do not all fit inside one each"));
  EXPECT_THAT(Must(Box(4, 6), {.islands = 1}).notes, IsEmpty());
  EXPECT_THAT(Must(Box(4, 6), {.islands = 3}).notes, IsEmpty());
}

TEST(MakePlan, MixedSpeedsAreNoted) {
  Machine machine = Box(1, 4);
  for (uint32_t i = 0; i < 4; ++i) machine.cores[i].efficiency_class = i < 2 ? 1 : 0;
  EXPECT_THAT(Must(machine, {.islands = 1}).notes, ElementsAre("island 0 mixes faster and slower cores"));
  EXPECT_THAT(Must(machine, {.islands = 2}).notes, ElementsAre("some islands have faster cores than others"));
}

TEST(MakePlan, MemoryIsDividedAndFits) {
  Plan plan = Must(Box(4, 6), {.islands = 4, .memory_bytes = 64 * kGiB});
  for (const PlannedIsland& island : plan.islands) EXPECT_EQ(island.memory_bytes, 16 * kGiB);
  EXPECT_THAT(plan.islands[2].numa_nodes, ElementsAre(2));
  EXPECT_THAT(Must(Box(4, 6), {.islands = 2}).islands[1].numa_nodes, ElementsAre(2, 3));
}

TEST(MakePlan, MemoryIsDividedByWeights) {
  const std::vector<uint64_t> weights = {1, 2, 1, 4};
  Plan plan = Must(Box(4, 6), {.islands = 4, .memory_bytes = 16 * kGiB, .weights = weights});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plan.islands[i].memory_bytes, weights[i] * 2 * kGiB);
}

// What is checked is what is returned.
TEST(MakePlan, MemoryByWeights_IsCheckedAgainstTheNodes) {
  const std::vector<uint64_t> weights = {1, 1, 2, 1};
  EXPECT_THAT(ErrorOf(Box(4, 6), {.islands = 4, .memory_bytes = 64 * kGiB, .weights = weights}),
              HasSubstr("NUMA node 2 has 16 GiB, but island 2 needs 25.6 GiB"));
  Machine uneven = Box(4, 6);
  uneven.nodes[2].memory_bytes = 32 * kGiB;
  uneven.memory_bytes = 80 * kGiB;
  EXPECT_EQ(
      Must(uneven, {.islands = 4, .memory_bytes = 80 * kGiB, .weights = weights}).islands[2].memory_bytes,
      32 * kGiB);
  EXPECT_THAT(ErrorOf(uneven, {.islands = 4, .memory_bytes = 80 * kGiB}), HasSubstr("needs 20 GiB"));
}

TEST(MakePlan, MemoryIsInWholePages) {
  Plan plan = Must(Box(1, 3), {.islands = 3, .memory_bytes = 100'000, .weights = {1, 2, 3}});
  for (const PlannedIsland& island : plan.islands) {
    EXPECT_EQ(island.memory_bytes, 100'000 * (island.id + 1) / 6 / kPageBytes * kPageBytes);
  }
}

TEST(MakePlan, Explicit_WeightsDivideWhatTheOthersLeave) {
  PlanRequest request{.memory_bytes = 10 * kGiB, .weights = {100, 1, 2}};
  request.explicit_islands = {{.cpus = {0}, .numa_nodes = {}, .memory_bytes = 4 * kGiB},
                              {.cpus = {1}, .numa_nodes = {}, .memory_bytes = {}},
                              {.cpus = {2}, .numa_nodes = {}, .memory_bytes = {}}};
  Plan plan = Must(Box(1, 3), request);
  EXPECT_EQ(plan.islands[0].memory_bytes, 4 * kGiB);
  EXPECT_EQ(plan.islands[1].memory_bytes, 2 * kGiB);
  EXPECT_EQ(plan.islands[2].memory_bytes, 4 * kGiB);
}

TEST(MakePlan, WeightsOfOtherIslands_AreAnError) {
  EXPECT_EQ(MakePlan(Box(1, 4), {.islands = 4, .weights = {1, 1}}).status().code(),
            absl::StatusCode::kInternal);
}

TEST(CountIslands, IsWhatMakePlanMakes) {
  PlanRequest by_hand;
  by_hand.explicit_islands = {{.cpus = {0}, .numa_nodes = {}, .memory_bytes = {}},
                              {.cpus = {1}, .numa_nodes = {}, .memory_bytes = {}}};
  for (const PlanRequest& request :
       {PlanRequest{}, PlanRequest{.islands = 7}, PlanRequest{.core_count = 12}, by_hand}) {
    EXPECT_EQ(*CountIslands(Box(4, 6), request), Must(Box(4, 6), request).islands.size());
  }
  EXPECT_FALSE(CountIslands(Box(4, 6), {.core_count = 25}).ok());
}

TEST(MakePlan, MemoryThatDoesNotFit_NamesNodeNeedAndCapacity) {
  EXPECT_EQ(ErrorOf(Box(4, 6), {.islands = 4, .memory_bytes = 80 * kGiB}),
            "memory: NUMA node 0 has 16 GiB, but island 0 needs 20 GiB of it; make the buffer pool smaller "
            "or use more nodes");
  Machine uneven = Box(2, 2);
  uneven.nodes[1].memory_bytes = kGiB;
  uneven.memory_bytes = 17 * kGiB;
  EXPECT_THAT(ErrorOf(uneven, {.islands = 4, .memory_bytes = 8 * kGiB}),
              HasSubstr("NUMA node 1 has 1 GiB, but islands 2-3 need 4 GiB"));
  EXPECT_THAT(ErrorOf(uneven, {.islands = 2, .placement = Placement::kOs, .memory_bytes = 18 * kGiB}),
              HasSubstr("the machine has 17 GiB"));
  EXPECT_THAT(ErrorOf(Box(2, 2), {.islands = 2, .memory_bytes = UINT64_MAX}), HasSubstr("NUMA node 0"));
}

TEST(MakePlan, MemoryIsNotCheckedWhereNobodyKnowsIt) {
  EXPECT_TRUE(
      MakePlan(*LoadMachineSynthetic("pack:4 [numa] core:6 pu:1"), {.memory_bytes = 1000 * kGiB}).ok());
}

TEST(MakePlan, MemorylessNode_IslandUsesTheNearestMemory) {
  Machine machine = Box(2, 2);
  machine.nodes[1].memory_bytes = 0;
  machine.memory_bytes = 16 * kGiB;
  machine.cores[2].nodes = machine.cores[3].nodes = {0, 1};
  Plan plan = Must(machine, {.islands = 2, .memory_bytes = 16 * kGiB});
  EXPECT_THAT(plan.islands[1].numa_nodes, ElementsAre(0));
  EXPECT_FALSE(plan.islands[1].straddles_node);
  EXPECT_THAT(ErrorOf(machine, {.islands = 2, .memory_bytes = 18 * kGiB}),
              HasSubstr("islands 0-1 need 18 GiB"));
}

TEST(MakePlan, Explicit_TakesTheListAsItIs) {
  PlanRequest request{.memory_bytes = 10 * kGiB};
  request.explicit_islands = {
      {.cpus = {0, 1, 2}, .numa_nodes = std::vector<uint32_t>{1}, .memory_bytes = 4 * kGiB},
      {.cpus = {3}, .numa_nodes = {}, .memory_bytes = {}},
      {.cpus = {4, 5}, .numa_nodes = {}, .memory_bytes = {}}};
  Plan plan = Must(Box(2, 4), request);
  EXPECT_EQ(plan.layout, "3ISL");
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.islands[0].numa_nodes, ElementsAre(1));
  EXPECT_EQ(plan.islands[0].memory_bytes, 4 * kGiB);
  EXPECT_EQ(plan.islands[1].memory_bytes, 3 * kGiB);
  EXPECT_THAT(plan.islands[2].numa_nodes, ElementsAre(1));
  EXPECT_EQ(plan.cores_used, 6);
}

TEST(MakePlan, Explicit_HardwareThreadsOfOneCoreMayBelongToTwoIslands) {
  PlanRequest request;
  request.explicit_islands = {{.cpus = {0}, .numa_nodes = {}, .memory_bytes = {}},
                              {.cpus = {1, 2, 3}, .numa_nodes = {}, .memory_bytes = {}}};
  Plan plan = Must(Box(1, 2, 2), request);
  EXPECT_TRUE(plan.cores_shared);
  EXPECT_THAT(plan.islands[1].cpus, ElementsAre(2, 1, 3));  // first threads of its cores first
}

TEST(MakePlan, Explicit_Mistakes) {
  Machine machine = Box(2, 4);
  machine.disallowed_cpus = {9};
  auto error = [&](std::vector<ExplicitIsland> islands, PlanRequest request = {}) {
    request.explicit_islands = std::move(islands);
    return ErrorOf(machine, request);
  };
  auto cpus = [](std::vector<uint32_t> list) { return ExplicitIsland{list, {}, {}}; };
  EXPECT_THAT(error({cpus({0, 1}), cpus({1, 2})}), HasSubstr("island 1: CPU 1 belongs to island 0 already"));
  EXPECT_THAT(error({cpus({0, 0})}), HasSubstr("island 0: CPU 0 is named twice"));
  EXPECT_THAT(error({cpus({0}), cpus({8})}),
              HasSubstr("island 1: CPU 8 does not exist on the machine; usable are 0-7"));
  EXPECT_THAT(error({cpus({9})}), HasSubstr("island 0: CPU 9 is offline or not allowed"));
  EXPECT_THAT(error({cpus({})}), HasSubstr("island 0: it has no CPUs"));
  EXPECT_THAT(error({cpus({5})}, {.core_count = 4}),
              HasSubstr("CPU 5 is not among the deployment's cores, which are 0-3"));
  EXPECT_THAT(error({{{0}, std::vector<uint32_t>{7}, {}}}),
              HasSubstr("NUMA node 7 does not exist on the machine; it has 0-1"));
  EXPECT_THAT(error({{{0}, std::vector<uint32_t>{}, {}}}), HasSubstr("list of NUMA nodes is empty"));
  EXPECT_THAT(error({{{0}, std::vector<uint32_t>{1, 1}, {}}}), HasSubstr("NUMA node 1 is named twice"));
  EXPECT_THAT(error({{{0}, {}, 17 * kGiB}}), HasSubstr("island 0 needs 17 GiB"));
  EXPECT_THAT(error({{{0}, {}, 4 * kGiB}, cpus({1})}, {.memory_bytes = 4 * kGiB}),
              HasSubstr("none for island 1"));
  machine.nodes[1].memory_bytes = 0;
  EXPECT_THAT(error({{{0}, std::vector<uint32_t>{1}, {}}}), HasSubstr("NUMA node 1 has no memory"));
}

TEST(MakePlan, ZeroIslandsOrNoCores) {
  EXPECT_THAT(ErrorOf(Box(1, 2), {.islands = 0}), HasSubstr("at least 1ISL"));
  EXPECT_THAT(ErrorOf(Machine(), {}), HasSubstr("no core"));
}

}  // namespace
}  // namespace islands::topology
