#include "topology/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

namespace islands::topology {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string ShelfPath(const std::string& name) { return std::string(ISLANDS_SHELF) + "/" + name + ".xml"; }

Machine Shelf(const std::string& name) {
  absl::StatusOr<Machine> machine = LoadMachineXml(ShelfPath(name));
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Writes `text` to a file of its own and loads it as a machine.
absl::StatusOr<Machine> LoadText(const std::string& text) {
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("machine_test_" + std::to_string(getpid()) + ".xml");
  std::ofstream(path, std::ios::binary) << text;
  absl::StatusOr<Machine> machine = LoadMachineXml(path.string());
  std::filesystem::remove(path);
  return machine;
}

// The invariants of machine.h, for any machine.
void ExpectSound(const Machine& machine) {
  std::set<uint32_t> pus;
  EXPECT_THAT(machine.cores, Not(IsEmpty()));
  EXPECT_THAT(machine.nodes, Not(IsEmpty()));
  uint64_t memory = 0;
  for (const NumaNode& node : machine.nodes) {
    EXPECT_LT(node.package, static_cast<int32_t>(machine.packages.size()));
    memory += node.memory_bytes;
  }
  EXPECT_EQ(memory, machine.memory_bytes);
  for (const CacheGroup& group : machine.cache_groups) EXPECT_LT(group.package, machine.packages.size());
  for (const Core& core : machine.cores) {
    EXPECT_LT(core.package, machine.packages.size());
    EXPECT_LT(core.cache_group, machine.cache_groups.size());
    EXPECT_THAT(core.nodes, Not(IsEmpty()));
    for (uint32_t node : core.nodes) EXPECT_LT(node, machine.nodes.size());
    if (memory > 0) {
      EXPECT_GT(machine.nodes[core.nodes.front()].memory_bytes, 0);
    }
    EXPECT_THAT(core.pus, Not(IsEmpty()));
    for (uint32_t pu : core.pus) EXPECT_TRUE(pus.insert(pu).second) << "PU " << pu << " in two cores";
  }
  EXPECT_EQ(pus.size(), machine.pu_count());
  for (uint32_t cpu : machine.disallowed_cpus) EXPECT_FALSE(pus.contains(cpu));
  EXPECT_EQ(machine.disallowed_cpus.size(), machine.disallowed_pus);
  if (!machine.node_distances.empty()) {
    EXPECT_THAT(machine.node_distances, SizeIs(machine.nodes.size()));
  }
}

TEST(Shelf, EveryFileIsSound) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ISLANDS_SHELF)) {
    if (entry.path().extension() != ".xml") continue;
    SCOPED_TRACE(entry.path().filename());
    absl::StatusOr<Machine> machine = LoadMachineXml(entry.path().string());
    ASSERT_TRUE(machine.ok()) << machine.status();
    ExpectSound(*machine);
    EXPECT_FALSE(machine->is_this_machine);
    EXPECT_THAT(RenderTree(*machine), HasSubstr(machine->Summary()));
    ++files;
  }
  EXPECT_EQ(files, 9);
}

TEST(Shelf, QuadSocket) {
  Machine machine = Shelf("quad-socket-4x6");
  EXPECT_EQ(machine.Summary(), "4 packages, 4 NUMA nodes, 24 cores, 24 PUs, 64 GiB");
  EXPECT_THAT(machine.cache_groups, SizeIs(4));
  EXPECT_EQ(machine.packages[3].cpu_model, "Intel(R) Xeon(R) CPU E7530 @ 1.87GHz");
  EXPECT_EQ(machine.cores[23].package, 3);
  EXPECT_THAT(machine.cores[23].nodes, ElementsAre(3));
  EXPECT_THAT(machine.node_distances[1], ElementsAre(21, 10, 21, 21));
  EXPECT_EQ(machine.nodes[2].package, 2);
}

TEST(Shelf, OctoSocket_DistancesFollowTheLinks) {
  Machine machine = Shelf("octo-socket-8x10");
  EXPECT_EQ(machine.Summary(), "8 packages, 8 NUMA nodes, 80 cores, 80 PUs, 192 GiB");
  EXPECT_THAT(machine.node_distances[0], ElementsAre(10, 16, 22, 22, 16, 22, 22, 16));
}

TEST(Shelf, Epyc_ManyCacheGroupsAndHardwareThreads) {
  Machine machine = Shelf("epyc-2x64");
  EXPECT_EQ(machine.Summary(), "2 packages, 2 NUMA nodes, 128 cores, 256 PUs, 512 GiB");
  EXPECT_THAT(machine.cache_groups, SizeIs(16));
  EXPECT_THAT(machine.cores[64].pus, ElementsAre(64, 192));
  EXPECT_EQ(machine.cores[64].cache_group, 8);
  EXPECT_EQ(machine.cache_groups[8].package, 1);
}

TEST(Shelf, SeveralNodesPerPackage) {
  Machine machine = Shelf("epyc-nps4-2x16");
  EXPECT_THAT(machine.nodes, SizeIs(8));
  EXPECT_EQ(machine.nodes[5].package, 1);
  EXPECT_THAT(machine.cores[31].nodes, ElementsAre(7));
}

TEST(Shelf, MemorylessNode_CoresUseTheNearestMemory) {
  Machine machine = Shelf("memoryless-2x8");
  EXPECT_EQ(machine.nodes[1].memory_bytes, 0);
  EXPECT_THAT(machine.cores[0].nodes, ElementsAre(0));
  EXPECT_THAT(machine.cores[8].nodes, ElementsAre(0, 1));
  EXPECT_THAT(RenderTree(machine), HasSubstr("NUMA nodes 0 (64 GiB, of package 0), 1 (no memory)"));
}

TEST(Shelf, OfflineAndDisallowedCpusAreCountedButNotUsed) {
  Machine machine = Shelf("restricted-2x8");
  EXPECT_EQ(machine.disallowed_pus, 6);
  EXPECT_THAT(machine.disallowed_cpus, ElementsAre(0, 1, 6, 7, 14, 15));
  EXPECT_EQ(machine.Summary(), "2 packages, 2 NUMA nodes, 10 cores, 10 PUs, 64 GiB");
  EXPECT_THAT(machine.cores[0].pus, ElementsAre(2));
  EXPECT_THAT(RenderTree(machine), HasSubstr("not usable: CPUs 0-1,6-7,14-15"));
}

TEST(Shelf, HybridCoresHaveARank) {
  Machine machine = Shelf("hybrid-8p8e");
  EXPECT_EQ(machine.Summary(), "1 package, 1 NUMA node, 16 cores, 24 PUs, 32 GiB");
  EXPECT_EQ(machine.cores[0].efficiency_class, 1);
  EXPECT_THAT(machine.cores[0].pus, ElementsAre(0, 1));
  EXPECT_EQ(machine.cores[15].efficiency_class, 0);
  EXPECT_EQ(Shelf("smt-1x8").cores[0].efficiency_class, -1);
}

TEST(RenderTree, QuadSocket) {
  std::string tree = RenderTree(Shelf("quad-socket-4x6"));
  EXPECT_THAT(tree, HasSubstr("package 1: Intel(R) Xeon(R) CPU E7530 @ 1.87GHz\n"
                              "  NUMA node 1 (16 GiB)\n"
                              "    L3 12 MiB: 6 cores, CPUs 6-11\n"
                              "package 2"));
  EXPECT_THAT(tree, HasSubstr("NUMA distances\n"
                              "  node    0    1    2    3\n"
                              "     0   10   21   21   21\n"));
}

TEST(RenderTree, HardwareThreadsAreListedByThread) {
  EXPECT_THAT(RenderTree(Shelf("smt-1x8")), HasSubstr("L3 16 MiB: 8 cores, CPUs 0-7 + 8-15\n"));
  EXPECT_THAT(RenderTree(Shelf("hybrid-8p8e")), HasSubstr("8 cores, CPUs 16-23, speed class 0\n"));
}

TEST(Synthetic, NodePerPackage_MemoryUnknown) {
  absl::StatusOr<Machine> machine = LoadMachine("pack:4 [numa] core:6 pu:1");
  ASSERT_TRUE(machine.ok()) << machine.status();
  ExpectSound(*machine);
  EXPECT_EQ(machine->Summary(), "4 packages, 4 NUMA nodes, 24 cores, 24 PUs, memory unknown");
  EXPECT_THAT(machine->cache_groups, SizeIs(4));  // no L3: the package takes its place
  EXPECT_EQ(machine->cores[6].nodes.front(), 1);
}

TEST(Synthetic, Shapes) {
  struct {
    const char* text;
    size_t packages, nodes, groups, cores, pus;
  } cases[] = {
      {"pack:2 core:4 pu:1", 2, 1, 2, 8, 8},                        // one node spans both packages
      {"numa:2 core:4 pu:2", 1, 2, 1, 8, 16},                       // no packages
      {"pu:3", 1, 1, 1, 3, 3},                                      // nothing but PUs
      {"pack:2 l3:1 group:2 [numa] core:4 pu:1", 2, 4, 2, 16, 16},  // nodes inside an L3: sub-NUMA clusters
      {"pack:1 [numa] [numa] l3:2 core:2 pu:1", 1, 2, 2, 4, 4},  // two kinds of memory next to the same cores
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    absl::StatusOr<Machine> machine = LoadMachineSynthetic(c.text);
    ASSERT_TRUE(machine.ok()) << machine.status();
    ExpectSound(*machine);
    EXPECT_THAT(machine->packages, SizeIs(c.packages));
    EXPECT_THAT(machine->nodes, SizeIs(c.nodes));
    EXPECT_THAT(machine->cache_groups, SizeIs(c.groups));
    EXPECT_THAT(machine->cores, SizeIs(c.cores));
    EXPECT_EQ(machine->pu_count(), c.pus);
  }
  EXPECT_EQ(LoadMachineSynthetic("pack:2 core:4 pu:1")->nodes[0].package, -1);
}

TEST(Synthetic, MalformedStringsAreErrors) {
  for (const char* text :
       {"nonsense", "pack:", "pack:0 core:2", "pack:-1", "pack:4 [numa core:6 pu:1",
        "pack:4294967296 core:2 pu:1", "pu:1 pu:1 [", "pack:2(memory=", "a:b:c", ":::", "[numa]"}) {
    absl::StatusOr<Machine> machine = LoadMachineSynthetic(text);
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument)
        << text << ": " << machine.status();
    EXPECT_THAT(std::string(machine.status().message()), HasSubstr("expected 'auto'")) << text;
    EXPECT_THAT(std::string(machine.status().message()), HasSubstr(text));
  }
}

TEST(Synthetic, HugeMachineIsAnErrorAndNotAnOutage) {
  EXPECT_EQ(LoadMachineSynthetic("pack:100000 core:100000 pu:100").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadMachineSynthetic("pack:2 core:50000 pu:1").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LoadMachine, SaysWhichFileIsMissing) {
  absl::Status status = LoadMachine("nowhere/machine.xml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere/machine.xml"));
  EXPECT_EQ(LoadMachine("missing.xml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(LoadMachine(ISLANDS_SHELF).status().message()), HasSubstr("not a regular file"));
}

TEST(Xml, MalformedFilesAreErrors) {
  std::string good = ReadFile(ShelfPath("quad-socket-4x6"));
  ASSERT_TRUE(LoadText(good).ok());
  std::vector<std::string> bad = {"",
                                  "text",
                                  "<",
                                  "<topology>",
                                  "<?xml version=\"1.0\"?>",
                                  "<topology version=\"2.0\"></topology>",
                                  std::string("\0\0\0", 3),
                                  good.substr(0, good.size() / 2),
                                  good + std::string(1, '\0') + good};
  for (const std::string& text : bad) {
    absl::StatusOr<Machine> machine = LoadText(text);
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 100);
    EXPECT_THAT(std::string(machine.status().message()), HasSubstr("expected an hwloc XML file"));
  }
}

TEST(Xml, NoUsableCpuIsAnError) {
  std::string text = ReadFile(ShelfPath("vm-2core"));
  size_t at = text.find("allowed_cpuset=\"0x00000003\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 27, "allowed_cpuset=\"0x00000000\"");
  absl::StatusOr<Machine> machine = LoadText(text);
  ASSERT_FALSE(machine.ok());
  EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Xml, DisallowedNodeGivesNoMemory) {
  std::string text = ReadFile(ShelfPath("memoryless-2x8"));
  size_t at = text.find("local_memory=\"68719476736\"");
  ASSERT_NE(at, std::string::npos);
  text = ReadFile(ShelfPath("quad-socket-4x6"));
  at = text.find("allowed_nodeset=\"0x0000000f\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 28, "allowed_nodeset=\"0x0000000d\"");
  absl::StatusOr<Machine> machine = LoadText(text);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ExpectSound(*machine);
  EXPECT_EQ(machine->memory_bytes, uint64_t{48} << 30);
  EXPECT_THAT(machine->cores[6].nodes, ElementsAre(0, 1));
}

// hwloc itself dies on a part of these; see machine_sources.cc.
TEST(Xml, MutatedFilesNeverCrash) {
  std::string good = ReadFile(ShelfPath("hybrid-8p8e"));
  std::mt19937 random(7);
  int loaded = 0;
  for (int round = 0; round < 150; ++round) {
    std::string text = good;
    for (uint32_t change = 1 + random() % 4; change > 0; --change) {
      size_t at = random() % text.size();
      size_t number = text.find_first_of("0123456789", at);
      size_t attribute = text.find("=\"", at);
      switch (random() % 5) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 200);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 300));
          break;
        case 3:
          if (number != std::string::npos) text[number] = static_cast<char>('0' + random() % 10);
          break;
        default:
          if (attribute != std::string::npos) text.insert(attribute + 2, "99999999");
      }
    }
    absl::StatusOr<Machine> machine = LoadText(text);
    if (machine.ok()) {
      ++loaded;
      ExpectSound(*machine);
      EXPECT_THAT(RenderTree(*machine), Not(IsEmpty()));
    }
  }
  EXPECT_GT(loaded, 0);
}

TEST(ThisMachine, HasTheCpusOfItsAffinity) {
  absl::StatusOr<Machine> machine = LoadMachine("auto");
  ASSERT_TRUE(machine.ok()) << machine.status();
  ExpectSound(*machine);
  EXPECT_EQ(machine->source, "this machine");
  EXPECT_TRUE(machine->is_this_machine);
  EXPECT_GT(machine->memory_bytes, 0);
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(machine->pu_count(), static_cast<size_t>(CPU_COUNT(&set)));
}

// Whatever the firmware says of its nodes.
TEST(ThisMachine, HasTheKernelsMemory) {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  uint64_t kib = 0;
  ASSERT_TRUE(meminfo >> word >> kib);
  ASSERT_EQ(word, "MemTotal:");
  const Machine machine = *LoadThisMachine();
  if (machine.nodes.size() > 1)
    GTEST_SKIP() << "several nodes may be outside of the cgroup, or tell too little";
  EXPECT_GE(machine.memory_bytes, kib * 1024 / 100 * 99);
  EXPECT_EQ(RenderTree(machine).find("memory is the kernel's") != std::string::npos,
            !machine.memory_note.empty());
}

TEST(ThisMachine, TasksetRestrictsIt) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "only one CPU";
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  absl::StatusOr<Machine> machine = LoadThisMachine();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->pu_count(), 1);
  EXPECT_THAT(machine->cores[0].pus, ElementsAre(cpu));
  EXPECT_GE(machine->disallowed_pus, 1);
}

TEST(ThisMachine, ExportLoadsAgain) {
  absl::StatusOr<std::string> xml = ExportThisMachineXml();
  ASSERT_TRUE(xml.ok()) << xml.status();
  absl::StatusOr<Machine> again = LoadText(*xml);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->memory_bytes, LoadThisMachine()->memory_bytes);
  EXPECT_FALSE(again->is_this_machine);
}

}  // namespace
}  // namespace islands::topology
