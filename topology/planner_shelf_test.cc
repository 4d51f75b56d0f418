// Every machine of the shelf, cut in every way: a table of what must come out, and what must hold for all of
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "topology/machine.h"
#include "topology/packing.h"
#include "topology/planner.h"

namespace islands::topology {
namespace {

Machine Shelf(const std::string& name) {
  absl::StatusOr<Machine> machine = LoadMachineXml(std::string(ISLANDS_SHELF) + "/" + name + ".xml");
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

Plan PlanOf(const Machine& machine, const PlanRequest& request) {
  const Verdict verdict = MakePlan(machine, request);
  for (const PlanComplaint& complaint : verdict.complaints) ADD_FAILURE() << complaint.text;
  return verdict.plan.value_or(Plan());
}

// "0-5|6-11": the islands' CPUs.
std::string CutOf(const Plan& plan) {
  std::string text;
  for (const PlannedIsland& island : plan.islands)
    text += (island.id == 0 ? "" : "|") + FormatCpuList(island.cpus);
  return text;
}

struct Row {
  const char* machine;
  uint32_t islands;  // 0: auto
  Placement placement;
  const char* cut;
};

constexpr Row kTable[] = {
    {"quad-socket-4x6", 1, Placement::kIslands, "0-23"},
    {"quad-socket-4x6", 2, Placement::kIslands, "0-11|12-23"},
    {"quad-socket-4x6", 3, Placement::kIslands, "0-7|8-15|16-23"},
    {"quad-socket-4x6", 4, Placement::kIslands, "0-5|6-11|12-17|18-23"},
    {"quad-socket-4x6", 8, Placement::kIslands, "0-2|3-5|6-8|9-11|12-14|15-17|18-20|21-23"},
    {"quad-socket-4x6", 0, Placement::kIslands, "0-5|6-11|12-17|18-23"},
    {"quad-socket-4x6", 5, Placement::kIslands, "0-4|5,11,17,23|6-10|12-16|18-22"},
    {"quad-socket-4x6", 1, Placement::kSpread, "0-23"},
    {"quad-socket-4x6", 2, Placement::kSpread,
     "0,2,4,6,8,10,12,14,16,18,20,22|1,3,5,7,9,11,13,15,17,19,21,23"},
    {"quad-socket-4x6", 4, Placement::kSpread,
     "0,4,8,12,16,20|1,5,9,13,17,21|2,6,10,14,18,22|3,7,11,15,19,23"},
    {"quad-socket-4x6", 8, Placement::kSpread,
     "0,8,16|1,9,17|2,10,18|3,11,19|4,12,20|5,13,21|6,14,22|7,15,23"},
    {"octo-socket-8x10", 2, Placement::kIslands, "0-39|40-79"},
    {"octo-socket-8x10", 4, Placement::kIslands, "0-19|20-39|40-59|60-79"},
    {"octo-socket-8x10", 8, Placement::kIslands, "0-9|10-19|20-29|30-39|40-49|50-59|60-69|70-79"},
    {"octo-socket-8x10", 0, Placement::kIslands, "0-9|10-19|20-29|30-39|40-49|50-59|60-69|70-79"},
    {"epyc-2x64", 0, Placement::kIslands, "0-63|64-127"},
    {"epyc-2x64", 4, Placement::kIslands, "0-31|32-63|64-95|96-127"},
    {"epyc-nps4-2x16", 8, Placement::kIslands, "0-3|4-7|8-11|12-15|16-19|20-23|24-27|28-31"},
    {"epyc-nps4-2x16", 0, Placement::kIslands, "0-15|16-31"},
    {"smt-1x8", 0, Placement::kIslands, "0-7"},
    {"smt-1x8", 3, Placement::kIslands, "0-2|3-5|6-7"},
    {"memoryless-2x8", 0, Placement::kIslands, "0-7|8-15"},
    {"memoryless-2x8", 3, Placement::kIslands, "0-5|6-7,13-15|8-12"},
    {"restricted-2x8", 0, Placement::kIslands, "2-5,13|8-12"},
    {"restricted-2x8", 5, Placement::kIslands, "2-3|4-5|8-9|10-11|12-13"},
    {"hybrid-8p8e", 2, Placement::kIslands, "0,2,4,6,8,10,12,14|16-23"},
    {"vm-2core", 0, Placement::kIslands, "0-1"},
    {"vm-2core", 2, Placement::kIslands, "0|1"},
    {"vm-2core", 3, Placement::kIslands, "0|1|0"},
    {"vm-2core", 4, Placement::kSpread, "0|1|0|1"},
    {"vm-2core", 4, Placement::kOs, "|||"},
};

TEST(PlannerShelf, Table) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(testing::Message() << row.machine << " " << row.islands << "ISL "
                                    << PlacementName(row.placement));
    PlanRequest request{.placement = row.placement};
    if (row.islands > 0) request.islands = row.islands;
    EXPECT_EQ(CutOf(PlanOf(Shelf(row.machine), request)), row.cut);
  }
}

// What holds for every machine, number of islands and placement.
void ExpectSound(const Machine& machine, uint32_t islands, const PlanRequest& request, const Plan& plan) {
  ASSERT_EQ(plan.islands.size(), islands);
  EXPECT_EQ(plan.layout, std::to_string(islands) + "ISL");
  EXPECT_EQ(plan.cores_shared, islands > machine.cores.size());
  std::map<uint32_t, size_t> core_of;
  for (size_t i = 0; i < machine.cores.size(); ++i) {
    for (uint32_t pu : machine.cores[i].pus) core_of[pu] = i;
  }
  std::map<size_t, int> uses;
  size_t least = machine.cores.size(), most = 0;
  for (uint32_t id = 0; id < islands; ++id) {
    const PlannedIsland& island = plan.islands[id];
    EXPECT_EQ(island.id, id);
    EXPECT_GE(island.workers, 1);
    EXPECT_EQ(island.memory_bytes,
              *request.memory_bytes * island.sites.count / plan.sites / kPageBytes * kPageBytes);
    std::set<size_t> cores;
    for (uint32_t cpu : island.cpus) cores.insert(core_of.at(cpu));
    for (size_t core : cores) ++uses[core];
    size_t size = request.placement == Placement::kOs ? island.workers : cores.size();
    least = std::min(least, size);
    most = std::max(most, size);
    if (request.placement == Placement::kOs) {
      EXPECT_TRUE(island.cpus.empty() && island.numa_nodes.empty());
      continue;
    }
    EXPECT_EQ(island.workers, island.cpus.size());
    EXPECT_EQ(std::set(island.cpus.begin(), island.cpus.end()).size(), island.cpus.size());
    EXPECT_FALSE(island.numa_nodes.empty());
    if (!request.use_all_pus) {
      EXPECT_EQ(island.cpus.size(), cores.size());
    }
  }
  if (!(request.placement == Placement::kOs && request.use_all_pus)) {
    EXPECT_LE(most - least, 1);
  }
  if (request.placement == Placement::kOs) return;
  EXPECT_EQ(uses.size(), machine.cores.size());
  for (auto [core, count] : uses) {
    if (!plan.cores_shared) {
      EXPECT_EQ(count, 1) << "core " << core;
    }
  }
}

TEST(PlannerShelf, EveryMachineEveryLayoutEveryPlacement) {
  for (const auto& entry : std::filesystem::directory_iterator(ISLANDS_SHELF)) {
    if (entry.path().extension() != ".xml") continue;
    Machine machine = Shelf(entry.path().stem());
    uint32_t cores = machine.cores.size();
    for (uint32_t islands : {1u, 2u, 3u, 4u, 8u, cores, cores + 1, 2 * cores + 1}) {
      for (Placement placement : {Placement::kIslands, Placement::kSpread, Placement::kOs}) {
        for (bool all_pus : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << entry.path().stem() << " " << islands << "ISL " << PlacementName(placement));
          PlanRequest request{.islands = islands,
                              .placement = placement,
                              .use_all_pus = all_pus,
                              .sites = islands + islands / 2,
                              .memory_bytes = islands * uint64_t{10'000'019}};
          ExpectSound(machine, islands, request, PlanOf(machine, request));
        }
      }
    }
  }
}

// The nodes hold what is returned, not something like it: every machine filled to the brim by islands of
// which some are twice as large, and a little less and more.
TEST(PlannerShelf, MemoryThatIsReturnedFitsItsNodes) {
  for (const auto& entry : std::filesystem::directory_iterator(ISLANDS_SHELF)) {
    if (entry.path().extension() != ".xml") continue;
    Machine machine = Shelf(entry.path().stem());
    uint32_t cores = machine.cores.size();
    int fitted = 0;
    for (uint32_t islands : {2u, 3u, 4u, 8u, cores}) {
      for (uint64_t percent : {40u, 60u, 80u, 100u, 120u}) {
        SCOPED_TRACE(testing::Message()
                     << entry.path().stem() << " " << islands << "ISL " << percent << " %");
        const std::optional<Plan> plan =
            MakePlan(machine, {.islands = islands,
                               .sites = islands + islands / 2,
                               .memory_bytes = machine.memory_bytes / 100 * percent})
                .plan;
        if (!plan) continue;
        ++fitted;
        std::map<uint32_t, double> used;
        for (const PlannedIsland& island : plan->islands) {
          for (uint32_t node : island.numa_nodes) {
            used[node] += static_cast<double>(island.memory_bytes) / island.numa_nodes.size();
          }
        }
        for (const NumaNode& node : machine.nodes) EXPECT_LE(used[node.os_index], node.memory_bytes);
      }
    }
    EXPECT_GT(fitted, 0) << entry.path();
  }
}

// `spread` lets islands span more packages than any other placement; `islands` fewer.
TEST(PlannerShelf, StraddlingFlagsTellThePlacement) {
  Machine machine = Shelf("quad-socket-4x6");
  for (uint32_t islands : {4u, 8u, 12u, 24u}) {
    const Plan grouped = PlanOf(machine, {.islands = islands});
    const Plan spread = PlanOf(machine, {.islands = islands, .placement = Placement::kSpread});
    for (uint32_t i = 0; i < islands; ++i) {
      EXPECT_FALSE(grouped.islands[i].straddles_package || grouped.islands[i].straddles_node ||
                   grouped.islands[i].straddles_cache);
      EXPECT_EQ(spread.islands[i].straddles_package, islands < 24);
      EXPECT_EQ(spread.islands[i].numa_nodes.size(), std::min(4u, 24 / islands));
    }
  }
}

TEST(PlannerShelf, EpycIslandsKeepToL3Groups) {
  Machine machine = Shelf("epyc-2x64");
  for (uint32_t islands : {16u, 32u, 64u, 128u}) {
    for (const PlannedIsland& island : PlanOf(machine, {.islands = islands}).islands) {
      EXPECT_FALSE(island.straddles_cache) << islands << "ISL, island " << island.id;
    }
  }
  // 24 islands of 5 and 6: sixteen keep to an L3 group, and none leaves its package.
  const Plan plan = PlanOf(machine, {.islands = 24});
  int straddling = 0;
  for (const PlannedIsland& island : plan.islands) {
    EXPECT_FALSE(island.straddles_package);
    straddling += island.straddles_cache;
  }
  EXPECT_EQ(straddling, 8);
}

}  // namespace
}  // namespace islands::topology
