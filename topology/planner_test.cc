#include "topology/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/machine.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// `packages` with `cores` each, one L3 and one node of 16 GiB per package; PU numbers of second threads
// follow all first ones.
Machine Box(uint32_t packages, uint32_t cores, uint32_t threads = 1) {
  Machine machine{.source = "this box"};
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
  const Verdict verdict = MakePlan(machine, request);
  EXPECT_EQ(verdict.plan.has_value(), verdict.complaints.empty());
  for (const PlanComplaint& complaint : verdict.complaints) ADD_FAILURE() << complaint.text;
  return verdict.plan.value_or(Plan());
}

// What is wrong, and with what: exactly one complaint.
std::string ErrorOf(const Machine& machine, const PlanRequest& request, PlanField field,
                    uint32_t island = 0) {
  const Verdict verdict = MakePlan(machine, request);
  EXPECT_FALSE(verdict.plan.has_value());
  EXPECT_EQ(verdict.complaints.size(), 1u);
  if (verdict.complaints.empty()) return "";
  EXPECT_EQ(verdict.complaints[0].field, field);
  EXPECT_EQ(verdict.complaints[0].island, island);
  return verdict.complaints[0].text;
}

TEST(ParseLayout, Words) {
  EXPECT_EQ(*ParseLayout("4ISL"), 4u);
  EXPECT_EQ(*ParseLayout("999ISL"), kMaxIslands);
  EXPECT_EQ(*ParseLayout("auto"), std::nullopt);
  for (const char* bad : {"", "4", "ISL", "0ISL", "04ISL", "-1ISL", "4isl", "4ISL ", "4.5ISL"}) {
    EXPECT_EQ(std::string(ParseLayout(bad).status().message()), kLayoutWords) << bad;
  }
  for (const char* bad : {"1000ISL", "5000ISL", "99999999999ISL"}) {
    EXPECT_EQ(std::string(ParseLayout(bad).status().message()), "at most 999 islands") << bad;
  }
}

TEST(ParseSize, Units) {
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("7B"), 7u);
  EXPECT_EQ(*ParseSize("3KiB"), 3072u);
  EXPECT_EQ(*ParseSize("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseSize("12GiB"), uint64_t{12} << 30);
  EXPECT_EQ(*ParseSize("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseSize("18446744073709551615"), UINT64_MAX);
}

TEST(ParseSize, Refused) {
  for (const char* text : {"", "GiB", "12GB", "12 GiB", "1.5GiB", "-1", "+1", "12gib", "18446744073709551616",
                           "16777216TiB", "1e9", "0x10"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(NearestSize, IsWhatWasMeant) {
  for (const char* text : {"1G", "1g", "1GB", "1 GiB", "1gib", "1 gb", "1.0GiB", "1024MB"})
    EXPECT_EQ(NearestSize(text), "1GiB") << text;
  EXPECT_EQ(NearestSize("1.5GiB"), "1536MiB");
  EXPECT_EQ(NearestSize("64m"), "64MiB");
  EXPECT_EQ(NearestSize("100 b"), "100B");
  for (const char* text :
       {"", "G", "GiB", "-1GiB", "0GiB", "1XB", "1GBit", "nan", "inf", "1.3b", "99999999TiB"})
    EXPECT_EQ(NearestSize(text), std::nullopt) << text;
}

TEST(FormatSize, WholeAndBroken) {
  EXPECT_EQ(FormatSize(0), "0B");
  EXPECT_EQ(FormatSize(1023), "1023B");
  EXPECT_EQ(FormatSize(4096), "4KiB");
  EXPECT_EQ(FormatSize(64u << 20), "64MiB");
  EXPECT_EQ(FormatSize((uint64_t{3} << 30) / 2), "1.5GiB");
  EXPECT_EQ(FormatSize(uint64_t{12} << 30), "12GiB");
  EXPECT_EQ(FormatSize((uint64_t{500} << 20) + 1), "500MiB");
}

TEST(PlacementName, OfEveryValue) {
  EXPECT_EQ(PlacementName(Placement::kIslands), "islands");
  EXPECT_EQ(PlacementName(Placement::kOs), "os");
  EXPECT_EQ(WorkerOrderName(WorkerOrder::kGrouped), "grouped");
  EXPECT_EQ(WorkerOrderName(WorkerOrder::kMix), "mix");
  EXPECT_EQ(WorkerOrderName(WorkerOrder::kOs), "os");
}

TEST(MakePlan, Auto_OnePerSocketElsePerL3) {
  EXPECT_EQ(Must(Box(4, 6), {}).layout, "4ISL");
  EXPECT_EQ(Must(*LoadMachineSynthetic("pack:1 l3:3 core:4 pu:2"), {}).layout, "3ISL");
  EXPECT_EQ(Must(Box(1, 4), {}).layout, "1ISL");
  // Only the sockets that are used count.
  EXPECT_EQ(Must(Box(4, 6), {.core_count = 12}).layout, "2ISL");
}

// Cluster by core, as measured in m.json.
Machine Measured(Machine machine, const std::vector<int32_t>& clusters) {
  for (size_t i = 0; i < machine.cores.size(); ++i) machine.cores[i].cluster = clusters.at(i);
  machine.measured_in = "m.json";
  return machine;
}

std::vector<std::string> CpusOf(const Plan& plan) {
  std::vector<std::string> lists;
  for (const PlannedIsland& island : plan.islands) lists.push_back(FormatCpuList(island.cpus));
  return lists;
}

TEST(MakePlan, Auto_OnePerMeasuredCluster) {
  const Machine machine = Measured(Box(1, 8), {0, 1, 0, 1, 2, 2, 2, 2});
  const Plan plan = Must(machine, {});
  EXPECT_THAT(CpusOf(plan), ElementsAre("0,2", "1,3", "4-7"));
  EXPECT_THAT(plan.notes, ElementsAre("layout auto: 3 islands by the measured clusters of m.json",
                                      HasSubstr("islands have 2 to 4 cores, and as many sites each")));
  // Fewer cores, fewer clusters; hardware threads; what else may be asked of a cut.
  EXPECT_THAT(CpusOf(Must(machine, {.core_count = 4})), ElementsAre("0,2", "1,3"));
  EXPECT_THAT(CpusOf(Must(Measured(Box(1, 4, 2), {0, 0, 1, 1}), {.use_all_pus = true})),
              ElementsAre("0-1,4-5", "2-3,6-7"));
  EXPECT_EQ(Must(machine, {.placement = Placement::kOs}).layout, "3ISL");
  EXPECT_THAT(CpusOf(Must(machine, {.placement = Placement::kSpread})), ElementsAre("0,3,6", "1,4,7", "2,5"));
}

TEST(MakePlan, Auto_OneClusterIsOneIslandWhateverTheFirmwareSays) {
  const Plan plan = Must(Measured(Box(2, 2), {0, 0, 0, 0}), {});
  EXPECT_THAT(CpusOf(plan), ElementsAre("0-3"));
  EXPECT_THAT(plan.notes,
              ElementsAre("layout auto: one island, since the cores measured in m.json are one cluster"));
}

TEST(MakePlan, MeasuredClustersDoNotTouchOtherLayouts) {
  const Machine machine = Measured(Box(2, 2), {0, 1, 0, 1});
  EXPECT_THAT(CpusOf(Must(machine, {.islands = 2})), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(CpusOf(Must(machine, {.explicit_islands = {{.cpus = {0, 3}}, {.cpus = {1}}}})),
              ElementsAre("0,3", "1"));
}

TEST(MakePlan, CoresRestrictedByCount) {
  Plan plan = Must(Box(4, 6), {.islands = 2, .core_count = 8});
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(plan.cores_used, 8);
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("16 of 24 usable cores stay unused")));
  EXPECT_EQ(ErrorOf(Box(4, 6), {.core_count = 25}, PlanField::kCores),
            "found 25 cores, expected at most the 24 of this box");
  EXPECT_EQ(ErrorOf(Box(4, 6), {.core_count = 0}, PlanField::kCores), "found 0 cores, expected at least 1");
}

TEST(MakePlan, CoresRestrictedByList) {
  Plan plan = Must(Box(2, 4), {.islands = 2, .cpus = std::vector<uint32_t>{2, 3, 4, 5}});
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(2, 3));
  EXPECT_THAT(plan.islands[1].cpus, ElementsAre(4, 5));
  EXPECT_EQ(ErrorOf(Box(2, 4), {.cpus = std::vector<uint32_t>{2, 98, 99}}, PlanField::kCores),
            "found CPU 98-99, which this box does not have, expected CPUs from 0-7");
  Machine restricted = Box(1, 2);
  restricted.disallowed_cpus = {7};
  EXPECT_EQ(ErrorOf(restricted, {.cpus = std::vector<uint32_t>{7}}, PlanField::kCores),
            "found CPU 7, which is offline or not allowed here (cgroup, taskset), expected CPUs from 0-1");
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

TEST(MakePlan, SitesAndPorts) {
  Plan plan = Must(Box(4, 6), {.islands = 5, .sites = 7, .metrics_base_port = 9400});
  EXPECT_EQ(plan.sites, 7u);
  std::vector<uint32_t> counts, ports;
  for (const PlannedIsland& island : plan.islands) {
    counts.push_back(island.sites.count);
    ports.push_back(island.metrics_port);
  }
  EXPECT_THAT(counts, ElementsAre(1, 1, 2, 1, 2));
  EXPECT_EQ(plan.islands[2].sites.first, 2u);
  EXPECT_THAT(ports, ElementsAre(9400, 9401, 9402, 9403, 9404));
  EXPECT_EQ(Must(Box(4, 6), {}).sites, 24u);
  EXPECT_EQ(Must(Box(8, 10), {}).sites, 80u);
  EXPECT_EQ(Must(Box(8, 10), {}).islands[0].metrics_port, 0u);
}

TEST(MakePlan, TooManyIslands) {
  EXPECT_EQ(ErrorOf(Box(4, 6), {.islands = 30}, PlanField::kSites),
            "found 24 sites (auto) for 30 islands, expected at least one site per island: set data.sites to "
            "30 or more");
  EXPECT_THAT(ErrorOf(Box(4, 6), {.sites = 3}, PlanField::kSites), HasSubstr("found 3 sites for 4 islands"));
  EXPECT_EQ(ErrorOf(Box(4, 1), {.metrics_base_port = 65533}, PlanField::kPort),
            "found port 65533, which makes 65536 the last of 4 islands' ports, expected at most 65532");
  EXPECT_EQ(Must(Box(4, 1), {.metrics_base_port = 65532}).islands[3].metrics_port, 65535u);
  EXPECT_EQ(ErrorOf(Box(1000, 1), {}, PlanField::kLayout), "found 1000 islands, expected at most 999");
}

TEST(MakePlan, SaysEverythingAtOnce) {
  PlanRequest request{.sites = 1, .metrics_base_port = 65535};
  request.explicit_islands = {{.cpus = {9}, .numa_nodes = std::vector<uint32_t>{7}}, {.cpus = {8}}};
  std::vector<std::pair<PlanField, uint32_t>> fields;
  for (const PlanComplaint& complaint : MakePlan(Box(1, 2), request).complaints) {
    fields.emplace_back(complaint.field, complaint.island);
  }
  EXPECT_THAT(fields, ElementsAre(std::pair(PlanField::kIslandCpus, 0), std::pair(PlanField::kIslandNodes, 0),
                                  std::pair(PlanField::kIslandCpus, 1), std::pair(PlanField::kSites, 0),
                                  std::pair(PlanField::kPort, 0)));
}

TEST(MakePlan, MemoryIsDividedBySites) {
  Plan plan = Must(Box(4, 6), {.islands = 4, .sites = 6, .memory_bytes = 12 * kGiB});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plan.islands[i].memory_bytes, (1 + i % 2) * 2 * kGiB);
}

// What is checked is what is returned.
TEST(MakePlan, MemoryBySites_IsCheckedAgainstTheNodes) {
  EXPECT_EQ(
      ErrorOf(Box(4, 6), {.islands = 4, .sites = 6, .memory_bytes = 60 * kGiB}, PlanField::kMemory),
      "found 60GiB of buffer pool, expected what fits the machine: NUMA node 1 has 16 GiB, but island 1 "
      "needs 20 GiB of it; make the buffer pool smaller or use more nodes");
  Machine uneven = Box(4, 6);
  uneven.nodes[1].memory_bytes = uneven.nodes[3].memory_bytes = 32 * kGiB;
  uneven.memory_bytes = 96 * kGiB;
  EXPECT_EQ(Must(uneven, {.islands = 4, .sites = 6, .memory_bytes = 96 * kGiB}).islands[1].memory_bytes,
            32 * kGiB);
  EXPECT_THAT(ErrorOf(uneven, {.islands = 4, .sites = 4, .memory_bytes = 96 * kGiB}, PlanField::kMemory),
              HasSubstr("needs 24 GiB"));
}

TEST(MakePlan, MemoryIsInWholePages) {
  Plan plan = Must(Box(1, 3), {.islands = 3, .sites = 4, .memory_bytes = 100'000'001});
  EXPECT_EQ(plan.islands[0].memory_bytes, 100'000'001 / 4 / kPageBytes * kPageBytes);
  EXPECT_EQ(plan.islands[2].memory_bytes, 100'000'001 / 2 / kPageBytes * kPageBytes);
}

TEST(MakePlan, MemoryAuto_IsAQuarterOfWhatTheCoresUsedHave) {
  EXPECT_EQ(Must(Box(4, 6), {.islands = 4, .memory_bytes = {}}).islands[0].memory_bytes, 4 * kGiB);
  EXPECT_EQ(Must(Box(4, 6), {.core_count = 6, .memory_bytes = {}}).islands[0].memory_bytes, 4 * kGiB);
  PlanRequest by_hand{.memory_bytes = {}};
  by_hand.explicit_islands = {{.cpus = {0, 1, 2}}};
  EXPECT_EQ(Must(Box(1, 6), by_hand).islands[0].memory_bytes, 2 * kGiB);
  // Enough for every island, also for the one with the fewest sites.
  const Machine small = *LoadMachineSynthetic("pack:1 [numa(memory=64MB)] core:2 pu:1");
  Plan plan = Must(small, {.islands = 5, .sites = 9, .memory_bytes = {}});
  for (const PlannedIsland& island : plan.islands) EXPECT_GE(island.memory_bytes, kMinPoolBytes);
}

TEST(MakePlan, MemoryThatIsTooLittle) {
  EXPECT_EQ(ErrorOf(Box(4, 6), {.islands = 4, .memory_bytes = 8 << 20}, PlanField::kMemory),
            "found 2MiB of buffer pool for island 0, expected at least 4MiB for every island");
  PlanRequest request;
  for (uint32_t cpu = 0; cpu < 3; ++cpu) {
    request.explicit_islands.push_back({.cpus = {cpu}, .memory_bytes = cpu == 1 ? 8 << 20 : 1024});
  }
  const Verdict verdict = MakePlan(Box(1, 4), request);
  ASSERT_EQ(verdict.complaints.size(), 2u);  // each stands somewhere else
  for (uint32_t i : {0u, 1u}) {
    EXPECT_EQ(verdict.complaints[i].field, PlanField::kIslandMemory);
    EXPECT_EQ(verdict.complaints[i].island, 2 * i);
    EXPECT_THAT(verdict.complaints[i].text, HasSubstr("found 1KiB of buffer pool for island"));
  }
}

TEST(MakePlan, MemoryThatDoesNotFit_NamesNodeNeedAndCapacity) {
  const auto error = [](const Machine& machine, const PlanRequest& request) {
    return ErrorOf(machine, request, PlanField::kMemory);
  };
  EXPECT_EQ(
      error(Box(4, 6), {.islands = 4, .memory_bytes = 80 * kGiB}),
      "found 80GiB of buffer pool, expected what fits the machine: NUMA node 0 has 16 GiB, but island 0 "
      "needs 20 GiB of it; make the buffer pool smaller or use more nodes");
  Machine uneven = Box(2, 2);
  uneven.nodes[1].memory_bytes = kGiB;
  uneven.memory_bytes = 17 * kGiB;
  EXPECT_THAT(error(uneven, {.islands = 4, .memory_bytes = 8 * kGiB}),
              HasSubstr("NUMA node 1 has 1 GiB, but islands 2-3 need 4 GiB"));
  EXPECT_THAT(error(uneven, {.islands = 2, .placement = Placement::kOs, .memory_bytes = 18 * kGiB}),
              HasSubstr("the machine has 17 GiB"));
  EXPECT_THAT(error(Box(2, 2), {.islands = 2, .memory_bytes = UINT64_MAX}), HasSubstr("NUMA node 0"));
  PlanRequest by_hand;
  by_hand.explicit_islands = {{.cpus = {0}, .memory_bytes = UINT64_MAX}, {.cpus = {1}, .memory_bytes = kGiB}};
  EXPECT_THAT(error(Box(2, 2), by_hand), HasSubstr("NUMA node 0"));
}

TEST(MakePlan, MemoryIsNotCheckedWhereNobodyKnowsIt) {
  Must(*LoadMachineSynthetic("pack:4 [numa] core:6 pu:1"), {.memory_bytes = 1000 * kGiB});
}

TEST(MakePlan, MemorylessNode_IslandUsesTheNearestMemory) {
  Machine machine = Box(2, 2);
  machine.nodes[1].memory_bytes = 0;
  machine.memory_bytes = 16 * kGiB;
  machine.cores[2].nodes = machine.cores[3].nodes = {0, 1};
  Plan plan = Must(machine, {.islands = 2, .memory_bytes = 16 * kGiB});
  EXPECT_THAT(plan.islands[1].numa_nodes, ElementsAre(0));
  EXPECT_FALSE(plan.islands[1].straddles_node);
  EXPECT_THAT(ErrorOf(machine, {.islands = 2, .memory_bytes = 18 * kGiB}, PlanField::kMemory),
              HasSubstr("islands 0-1 need 18 GiB"));
}

TEST(MakePlan, Explicit_TakesTheListAsItIs) {
  PlanRequest request;
  request.explicit_islands = {
      {.cpus = {0, 1, 2}, .numa_nodes = std::vector<uint32_t>{1}, .memory_bytes = 4 * kGiB},
      {.cpus = {3}, .numa_nodes = {}, .memory_bytes = kGiB},
      {.cpus = {4, 5}, .numa_nodes = {}, .memory_bytes = kGiB}};
  Plan plan = Must(Box(2, 4), request);
  EXPECT_EQ(plan.layout, "3ISL");
  EXPECT_THAT(plan.islands[0].cpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.islands[0].numa_nodes, ElementsAre(1));
  EXPECT_EQ(plan.islands[0].memory_bytes, 4 * kGiB);
  EXPECT_EQ(plan.islands[1].memory_bytes, kGiB);
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
  auto error = [&](std::vector<ExplicitIsland> islands, PlanField field, uint32_t island = 0) {
    PlanRequest request;
    request.explicit_islands = std::move(islands);
    return ErrorOf(machine, request, field, island);
  };
  EXPECT_EQ(error({{.cpus = {0}}, {.cpus = {8}}}, PlanField::kIslandCpus, 1),
            "found CPU 8, which this box does not have, expected CPUs from 0-7");
  EXPECT_THAT(error({{.cpus = {9}}}, PlanField::kIslandCpus), HasSubstr("offline or not allowed"));
  EXPECT_EQ(error({{{0}, std::vector<uint32_t>{7}, {}}}, PlanField::kIslandNodes),
            "found NUMA node 7, which does not exist or has no memory on this box, expected nodes from 0-1");
  EXPECT_THAT(error({{{0}, {}, 17 * kGiB}}, PlanField::kMemory), HasSubstr("island 0 needs 17 GiB"));
  machine.nodes[1].memory_bytes = 0;
  EXPECT_THAT(error({{{0}, std::vector<uint32_t>{1}, {}}}, PlanField::kIslandNodes),
              HasSubstr("expected nodes from 0"));
}

TEST(MakePlanDeathTest, RequestsThatNoReaderLetsThrough) {
  EXPECT_DEATH(MakePlan(Machine(), {}), "invariant broken");
  const Machine machine = Box(2, 4);
  for (const PlanRequest& request :
       {PlanRequest{.islands = 0}, PlanRequest{.islands = 1000},
        PlanRequest{.explicit_islands = {{.cpus = {0, 1}}, {.cpus = {1}}}},
        PlanRequest{.explicit_islands = {{.cpus = {}}}},
        PlanRequest{.explicit_islands = {{.cpus = {0}, .numa_nodes = std::vector<uint32_t>{0, 0}}}},
        PlanRequest{.explicit_islands = {{.cpus = {0}, .memory_bytes = kGiB}, {.cpus = {1}}}},
        PlanRequest{.explicit_islands = {{.cpus = {0}}}, .core_count = 1}}) {
    EXPECT_DEATH(MakePlan(machine, request), "invariant broken");
  }
}

// What CheckInvariants is for: each of these would start islands that cannot be.
TEST(CheckInvariantsDeathTest, PlansThatBreakAPromise) {
  const Machine machine = Box(2, 4);
  const PlanRequest request{.islands = 4, .memory_bytes = 8 * kGiB, .metrics_base_port = 9400};
  const Plan sound = Must(machine, request);
  CheckInvariants(machine, request, sound);
  const auto broken = [&](auto change) {
    Plan plan = sound;
    change(plan.islands);
    EXPECT_DEATH(CheckInvariants(machine, request, plan), "invariant broken");
  };
  using Islands = std::vector<PlannedIsland>;
  broken([](Islands& islands) { islands[1].id = 2; });
  broken([](Islands& islands) { islands[1].workers = 1; });
  broken([](Islands& islands) { islands[1].cpus = {2, 77}; });
  broken([](Islands& islands) { islands[1].cpus = {2, 0}; });
  broken([](Islands& islands) { islands[1].sites.count = 5; });
  broken([](Islands& islands) { islands[3].memory_bytes += 1; });
  broken([](Islands& islands) { islands[3].memory_bytes = 32 * kGiB; });
  broken([](Islands& islands) { islands[3].memory_bytes = kPageBytes; });
  broken([](Islands& islands) { islands[3].metrics_port = 9400; });
  broken([](Islands& islands) { islands[0].numa_nodes = {2}; });
}

}  // namespace
}  // namespace islands::topology
