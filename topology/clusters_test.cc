#include "topology/clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/random.h"
#include "runtime/seeds_testing.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Cores in a row of `sockets` x `chiplets` x `cores`; ns inside a chiplet, between chiplets, between
// sockets.
struct Shape {
  uint32_t sockets = 1, chiplets = 1, cores = 1;
  uint32_t chiplet_ns = 40, socket_ns = 90, across_ns = 200;

  uint32_t size() const { return sockets * chiplets * cores; }
  uint32_t chiplet(uint32_t core) const { return core / cores; }
  uint32_t socket(uint32_t core) const { return core / (cores * chiplets); }
};

RoundTripMatrix Matrix(const Shape& shape) {
  RoundTripMatrix ns(shape.size(), std::vector<uint32_t>(shape.size(), 0));
  for (uint32_t i = 0; i < shape.size(); ++i) {
    for (uint32_t j = 0; j < shape.size(); ++j) {
      if (i != j) {
        ns[i][j] = shape.socket(i) != shape.socket(j)     ? shape.across_ns
                   : shape.chiplet(i) != shape.chiplet(j) ? shape.socket_ns
                                                          : shape.chiplet_ns;
      }
    }
  }
  return ns;
}

void Set(RoundTripMatrix& ns, uint32_t i, uint32_t j, double value) {
  ns[i][j] = ns[j][i] = static_cast<uint32_t>(value);
}

// Every round trip between 1 - spread and 1 + spread times what it was.
void AddNoise(RoundTripMatrix& ns, double spread, runtime::Random& random) {
  for (uint32_t i = 0; i < ns.size(); ++i) {
    for (uint32_t j = i + 1; j < ns.size(); ++j)
      Set(ns, i, j, ns[i][j] * (1 - spread + 2 * spread * random.Unit()));
  }
}

void MakeNoisy(RoundTripMatrix& ns, uint32_t core, double factor) {
  for (uint32_t i = 0; i < ns.size(); ++i) {
    if (i != core) Set(ns, i, core, ns[i][core] * factor);
  }
}

TEST(FindClusters, TwoSockets) {
  const auto levels = FindClusters(Matrix({.sockets = 2, .cores = 6}));
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_THAT(levels[0].clusters,
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5), ElementsAre(6, 7, 8, 9, 10, 11)));
  EXPECT_THAT(levels[0].lone, IsEmpty());
  EXPECT_EQ(levels[0].within_ns, 40u);
  EXPECT_EQ(levels[0].across_ns, 200u);
}

TEST(FindClusters, ChipletsOfTwoSocketsAreTwoLevels_CoarsestFirst) {
  const auto levels = FindClusters(Matrix({.sockets = 2, .chiplets = 3, .cores = 2}));
  ASSERT_THAT(levels, SizeIs(2));
  EXPECT_THAT(levels[0].clusters, SizeIs(2));
  EXPECT_THAT(levels[1].clusters, SizeIs(6));
  EXPECT_THAT(levels[1].clusters[5], ElementsAre(10, 11));
}

TEST(FindClusters, UniformNoiseIsOneCluster) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    runtime::Random random(seed);
    RoundTripMatrix ns = Matrix({.cores = 2 + static_cast<uint32_t>(random.Below(40))});
    AddNoise(ns, 0.25, random);
    EXPECT_THAT(FindClusters(ns), IsEmpty()) << "seed " << seed;
  }
}

TEST(FindClusters, OneNoisyCoreIsNoClusterOfItsOwn) {
  RoundTripMatrix ns = Matrix({.cores = 8});
  MakeNoisy(ns, 3, 4);
  EXPECT_THAT(FindClusters(ns), IsEmpty());
  ns = Matrix({.sockets = 2, .cores = 6});
  MakeNoisy(ns, 7, 3);
  const auto levels = FindClusters(ns);
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_THAT(levels[0].clusters,
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5), ElementsAre(6, 7, 8, 9, 10, 11)));
  EXPECT_THAT(levels[0].lone, ElementsAre(7));
}

// A reader of the file takes nothing else for the next level. Here all pairs of two chiplets but one were
// disturbed.
TEST(FindClusters, ALevelWithLongerRoundTripsThanTheOneBeforeIsNone) {
  RoundTripMatrix ns = Matrix({.cores = 26});
  for (uint32_t i = 0; i < 24; ++i) {
    for (uint32_t near = 20; i < 20 && near < 24; ++near) Set(ns, i, near, 1000);
    for (uint32_t far = 24; far < 26; ++far) Set(ns, i, far, 200);
  }
  Set(ns, 0, 20, 90);
  const auto levels = FindClusters(ns);
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_THAT(levels[0].clusters[1], ElementsAre(24, 25));
}

// Half of the cores have clusters and the others none: that is no cut of the machine.
TEST(FindClusters, ManyLoneCoresAreNoLevel) {
  RoundTripMatrix ns = Matrix({.chiplets = 4, .cores = 2});
  Set(ns, 0, 1, 90);
  Set(ns, 2, 3, 90);
  EXPECT_THAT(FindClusters(ns), IsEmpty());
}

// Four cores are a little farther from their cluster than the others of it: they are its, and not disturbed.
TEST(FindClusters, ManyLoneCoresAreNotLone) {
  RoundTripMatrix ns = Matrix({.sockets = 3, .cores = 4});
  for (uint32_t i = 8; i < 12; ++i) {
    for (uint32_t j = 0; j < 4; ++j) Set(ns, i, j, 60);
    for (uint32_t j = 8; j < i; ++j) Set(ns, i, j, 100);
  }
  const auto levels = FindClusters(ns);
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_THAT(levels[0].clusters,
              ElementsAre(ElementsAre(0, 1, 2, 3, 8, 9, 10, 11), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(levels[0].lone, IsEmpty());
}

TEST(FindClusters, FewCores) {
  EXPECT_THAT(FindClusters({}), IsEmpty());
  EXPECT_THAT(FindClusters(Matrix({.cores = 1})), IsEmpty());
  EXPECT_THAT(FindClusters(Matrix({.sockets = 2, .cores = 1})), IsEmpty());
  EXPECT_THAT(FindClusters(Matrix({.sockets = 3, .cores = 1})), IsEmpty());
  EXPECT_THAT(FindClusters(Matrix({.sockets = 2, .cores = 2})), SizeIs(1));
}

// What is planted is found, whatever the cores are called and however noisy the measurement is: each round
// trip off by up to a tenth, some pairs disturbed to many times as long.
TEST(FindClusters, FindsWhatIsPlanted) {
  const auto [first, count] = runtime::SeedsToRun(200);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    runtime::Random random(seed);
    const Shape shape{.sockets = 1 + static_cast<uint32_t>(random.Below(4)),
                      .chiplets = 1 + static_cast<uint32_t>(random.Below(4)),
                      .cores = 4 + static_cast<uint32_t>(random.Below(5))};
    RoundTripMatrix planted = Matrix(shape);
    AddNoise(planted, 0.1, random);
    for (uint32_t core = 0; core + 1 < shape.size(); core += 4) {  // at most two of each core's
      const uint32_t other = core + 1 + static_cast<uint32_t>(random.Below(shape.size() - core - 1));
      if (other % 4 != 0) Set(planted, core, other, planted[core][other] * (2.0 + random.Below(20)));
    }
    std::vector<uint32_t> name(shape.size());
    std::iota(name.begin(), name.end(), 0);
    for (uint32_t i = shape.size() - 1; i > 0; --i) std::swap(name[i], name[random.Below(i + 1)]);
    RoundTripMatrix ns = planted;
    std::vector<uint32_t> socket(shape.size()), chiplet(shape.size());
    for (uint32_t i = 0; i < shape.size(); ++i) {
      for (uint32_t j = 0; j < shape.size(); ++j) ns[name[i]][name[j]] = planted[i][j];
      socket[name[i]] = shape.socket(i);
      chiplet[name[i]] = shape.chiplet(i);
    }
    SCOPED_TRACE(testing::Message() << "ISLANDS_SEEDS=" << seed << ":1, " << shape.sockets << " x "
                                    << shape.chiplets << " x " << shape.cores);
    std::vector<std::vector<uint32_t>> expected;
    if (shape.sockets > 1) expected.push_back(socket);
    if (shape.chiplets > 1) expected.push_back(chiplet);
    const auto levels = FindClusters(ns);
    ASSERT_EQ(levels.size(), expected.size());
    for (size_t i = 0; i < levels.size(); ++i) {
      EXPECT_EQ(Compare(LabelsOf(levels[i], shape.size()), expected[i]), Likeness::kSame);
    }
  }
}

TEST(Compare, AllFour) {
  const std::vector<uint32_t> halves = {0, 0, 1, 1}, renamed = {7, 7, 2, 2}, one = {0, 0, 0, 0},
                              crossed = {0, 1, 1, 0};
  EXPECT_EQ(Compare(halves, renamed), Likeness::kSame);
  EXPECT_EQ(Compare(halves, one), Likeness::kFiner);
  EXPECT_EQ(Compare(one, halves), Likeness::kCoarser);
  EXPECT_EQ(Compare(halves, crossed), Likeness::kAcross);
}

// Four chiplets that the firmware shows as one NUMA node with one L3.
TEST(FirmwareLevels, HiddenChipletsAreFiner) {
  const Machine machine = *LoadMachineSynthetic("pack:1 [numa(memory=16GB)] l3:1 core:16 pu:1");
  const auto levels = FindClusters(Matrix({.chiplets = 4, .cores = 4}));
  std::vector<uint32_t> cpus(16);
  std::iota(cpus.begin(), cpus.end(), 0);
  ASSERT_THAT(levels, SizeIs(1));
  for (const FirmwareLevel& firmware : FirmwareLevels(machine, cpus)) {
    EXPECT_EQ(firmware.groups, 1u) << firmware.name;
    EXPECT_EQ(Compare(LabelsOf(levels[0], 16), firmware.labels), Likeness::kFiner) << firmware.name;
  }
}

TEST(FirmwareLevels, OfTwoSockets_InTheOrderOfTheCpus) {
  const std::vector<uint32_t> cpus = {0, 14, 2, 12, 4};
  const auto levels = FirmwareLevels(*LoadMachineSynthetic("pack:2 [numa] l3:2 core:2 pu:2"), cpus);
  ASSERT_THAT(levels, SizeIs(3));
  EXPECT_EQ(levels[0].groups, 2u);
  EXPECT_EQ(levels[1].groups, 2u);
  EXPECT_EQ(levels[2].groups, 3u);
  EXPECT_THAT(levels[0].labels, ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(levels[2].labels, ElementsAre(0, 3, 0, 3, 1));
}

TEST(WithClusters, CoresHaveTheirCoarsestCluster) {
  const Machine machine = *LoadMachineSynthetic("pack:1 [numa] core:8 pu:2");
  const std::vector<uint32_t> cpus = {0, 2, 4, 6, 8, 10, 12, 14};
  const auto levels = FindClusters(Matrix({.sockets = 2, .chiplets = 2, .cores = 2}));
  const auto measured = WithClusters(machine, cpus, levels, "m.json");
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->measured_in, "m.json");
  std::vector<int32_t> clusters;
  for (const Core& core : measured->cores) clusters.push_back(core.cluster);
  EXPECT_THAT(clusters, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(WithClusters, WithoutLevelsIsOneCluster_UnlessThereAreTooFewToTell) {
  const Machine machine = *LoadMachineSynthetic("pack:2 [numa] core:2 pu:1");
  const std::vector<uint32_t> all = {0, 1, 2, 3}, some = {0, 1, 3};
  EXPECT_EQ(WithClusters(machine, all, {}, "m.json")->cores[3].cluster, 0);
  const auto measured = WithClusters(machine, some, {}, "m.json");
  ASSERT_TRUE(measured);
  EXPECT_THAT(measured->cores, SizeIs(3));
  EXPECT_THAT(measured->disallowed_cpus, ElementsAre(2));
  EXPECT_EQ(measured->cores[2].cluster, -1);
  EXPECT_EQ(measured->measured_in, "");
}

TEST(WithClusters, CpusOfAnotherMachine) {
  const Machine machine = *LoadMachineSynthetic("pack:1 [numa] core:2 pu:2");
  const std::vector<uint32_t> unknown = {0, 4}, same_core = {0, 1};
  EXPECT_EQ(WithClusters(machine, unknown, {}, "m.json"), std::nullopt);
  EXPECT_EQ(WithClusters(machine, same_core, {}, "m.json"), std::nullopt);
}

}  // namespace
}  // namespace islands::topology
