#include "deploy/plan/measured_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "deploy/plan/measured_text.h"

namespace islands::deploy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::StartsWith;

// `cores` cores whose CPUs are in the XML every `step`; those with the same remainder by `clusters` are near.
Measured Interleaved(uint32_t cores, uint32_t clusters, uint32_t step = 1) {
  Measured measured;
  measured.hwloc_xml = "unused";
  for (uint32_t i = 0; i < cores; ++i) {
    measured.trips.cpus.push_back(i * step);
    measured.trips.ns.emplace_back();
    for (uint32_t j = 0; j < cores; ++j) {
      measured.trips.ns[i].push_back(i == j ? 0 : i % clusters == j % clusters ? 40 : 200);
    }
  }
  measured.levels = topology::FindClusters(measured.trips.ns);
  return measured;
}

topology::Machine Here(const std::string& description) {
  topology::Machine machine = *topology::LoadMachineSynthetic(description);
  machine.is_this_machine = true;
  machine.source = "this machine";
  return machine;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(MachineOfMeasured, SameMachineIsThisOne_AndBound) {
  const topology::Machine here = Here("pack:1 [numa(memory=16GB)] core:8 pu:2");
  topology::Machine described = here;
  described.is_this_machine = false;
  described.nodes[0].memory_bytes = 1 << 30;  // what is here now counts
  const auto machine = MachineOfMeasured(Interleaved(8, 2, 2), "/d/m.json", described, here);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_TRUE(machine->is_this_machine);
  EXPECT_EQ(machine->source, "this machine, measured in /d/m.json");
  EXPECT_EQ(machine->nodes[0].memory_bytes, here.nodes[0].memory_bytes);
  EXPECT_EQ(machine->cores[3].cluster, 1);
}

TEST(MachineOfMeasured, AnotherMachineIsNotThisOne) {
  const topology::Machine described =
      *topology::LoadMachineSynthetic("pack:1 [numa(memory=16GB)] core:8 pu:2");
  topology::Machine other_model = Here("pack:1 [numa(memory=16GB)] core:8 pu:2");
  other_model.packages[0].cpu_model = "another";
  topology::Machine fewer_cores = Here("pack:1 [numa(memory=16GB)] core:8 pu:2");
  fewer_cores.cores.pop_back();
  topology::Machine only_second_threads = Here("pack:1 [numa(memory=16GB)] core:8 pu:2");
  for (topology::Core& core : only_second_threads.cores) core.pus.erase(core.pus.begin());
  for (const topology::Machine& here :
       {Here("pack:2 [numa] core:4 pu:2"), other_model, fewer_cores, only_second_threads}) {
    const auto machine = MachineOfMeasured(Interleaved(8, 2, 2), "/d/m.json", described, here);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_FALSE(machine->is_this_machine);
    EXPECT_EQ(machine->cores[3].cluster, 1);
  }
}

TEST(MachineOfMeasured, CpusThatAreNotInTheXml) {
  const topology::Machine here = Here("pack:1 [numa] core:4 pu:1");
  const absl::Status status = MachineOfMeasured(Interleaved(8, 2), "/d/m.json", here, here).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("/d/m.json:1:1: found CPUs 0-7, expected one of each core"));
  EXPECT_TRUE(IsMeasuredComplaint(status, "/d/m.json"));
}

TEST(RenderMeasured, FewCoresAreNumbers_ByCluster) {
  const std::string text = RenderMeasured(Interleaved(4, 2), Here("pack:1 [numa] core:4 pu:1"));
  EXPECT_EQ(
      text,
      "round trips of a cache line between cores, ns\n"
      " CPU   0   2   1   3\n"
      "   0   -  40 200 200\n"
      "   2  40   - 200 200\n"
      "   1 200 200   -  40\n"
      "   3 200 200  40   -\n"
      "2 clusters, 40 ns within, 200 ns across:\n"
      "  0,2\n"
      "  1,3\n"
      "  hidden by the firmware: finer than the 1 package, finer than the 1 NUMA node, finer than the 1 L3 "
      "group\n");
}

TEST(RenderMeasured, ManyCoresAreShades) {
  const std::string text = RenderMeasured(Interleaved(96, 2), Here("pack:2 [numa] core:48 pu:1"));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_EQ(lines[1], "    0  " + std::string(47, '.') + std::string(48, '@'));
  EXPECT_EQ(lines[96].substr(0, 7), "   95 @");
  EXPECT_THAT(text, AllOf(HasSubstr("shades:  . 40  : 49"), HasSubstr("across the 2 packages"),
                          HasSubstr("the firmware's 2 packages are no clusters by round trips")));
}

TEST(RenderMeasured, MoreThanAHundredCoresAreGrouped) {
  for (uint32_t cores : {101u, 256u, 1000u}) {
    Measured measured = Interleaved(cores, 4);
    measured.levels.clear();  // their lists of CPUs may be long
    const std::string text = RenderMeasured(measured, Here("pack:1 [numa] core:1000 pu:1"));
    for (const std::string& line : Lines(text)) EXPECT_THAT(line.size(), Le(110u)) << line;
    EXPECT_THAT(text, HasSubstr("one character: "));
  }
}

TEST(RenderMeasured, WhatTheFirmwareNamesToo) {
  Measured measured = Interleaved(4, 2);
  measured.trips.cpus = {0, 2, 1, 3};
  const std::string text = RenderMeasured(measured, Here("pack:2 [numa] core:2 pu:1"));
  EXPECT_THAT(
      text,
      HasSubstr("  the same as the 2 packages, the same as the 2 NUMA nodes, the same as the 2 L3 groups\n"));
  EXPECT_THAT(text, Not(HasSubstr("no clusters")));
}

TEST(RenderMeasured, NothingFound) {
  EXPECT_THAT(RenderMeasured(Interleaved(8, 1), Here("pack:2 [numa] core:4 pu:1")),
              AllOf(HasSubstr("no clusters: all 8 cores are alike, 40 to 40 ns"),
                    HasSubstr("the firmware's 2 packages are no clusters by round trips\n")));
  EXPECT_THAT(RenderMeasured(Interleaved(2, 1), Here("pack:1 core:2 pu:1")),
              HasSubstr("2 cores are too few"));
  EXPECT_THAT(RenderMeasured(Interleaved(1, 1), Here("pack:1 core:1 pu:1")),
              HasSubstr("one core: there is no"));
}

TEST(MachineOfXml, SameMachineIsThisOne) {
  const topology::Machine here = Here("pack:2 [numa(memory=16GB)] l3:2 core:4 pu:2");
  topology::Machine described = here;
  described.is_this_machine = false;
  described.source = "/d/m.xml";
  described.nodes[0].memory_bytes = 1 << 30;  // what is here now counts
  topology::Machine fewer_threads = here;
  for (topology::Core& core : fewer_threads.cores) core.pus.pop_back();
  for (const topology::Machine& now : {here, fewer_threads}) {
    const topology::Machine machine = MachineOfXml(described, "/d/m.xml", now);
    EXPECT_TRUE(machine.is_this_machine);
    EXPECT_EQ(machine.source, "this machine, as in /d/m.xml");
    EXPECT_EQ(machine.nodes[0].memory_bytes, here.nodes[0].memory_bytes);
    EXPECT_EQ(machine.pu_count(), now.pu_count());
  }
}

TEST(MachineOfXml, AnotherMachineIsNotThisOne) {
  const char* description = "pack:2 [numa(memory=16GB)] l3:2 core:4 pu:2";
  topology::Machine described = *topology::LoadMachineSynthetic(description);
  topology::Machine other_model = Here(description);
  other_model.packages[0].cpu_model = "another";
  topology::Machine fewer_cores = Here(description);
  fewer_cores.cores.pop_back();
  topology::Machine other_cpus = Here(description);
  for (topology::Core& core : other_cpus.cores) core.pus[0] += 100;
  topology::Machine other_node = Here(description);
  other_node.nodes[1].os_index = 7;
  topology::Machine larger_cache = Here(description);
  larger_cache.cache_groups[0].bytes += 1;
  topology::Machine other_groups = Here(description);
  std::swap(other_groups.cores[0].cache_group, other_groups.cores[4].cache_group);
  topology::Machine other_distances = Here(description);
  other_distances.node_distances = {{10, 20}, {20, 10}};
  for (const topology::Machine& here :
       {other_model, fewer_cores, other_cpus, other_node, larger_cache, other_groups, other_distances}) {
    const topology::Machine machine = MachineOfXml(described, "/d/m.xml", here);
    EXPECT_FALSE(machine.is_this_machine);
    EXPECT_EQ(machine.source, described.source);
  }
}

TEST(MeasureThisMachine, IsReadAgainAndIsThisMachine) {
  const auto measured = MeasureThisMachine();
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto again = ParseMeasured(MeasuredText(*measured->measured, measured->machine), "m.json");
  ASSERT_TRUE(again.ok()) << again.status();
  const auto described = topology::LoadMachineXmlText(again->hwloc_xml, "m.json");
  ASSERT_TRUE(described.ok()) << described.status();
  const auto machine = MachineOfMeasured(*again, "m.json", *described, measured->machine);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_TRUE(machine->is_this_machine);
}

}  // namespace
}  // namespace islands::deploy
