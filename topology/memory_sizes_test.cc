#include "topology/memory_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr const char* kTwentyFour = "MemTotal:       25165824 kB\nMemFree:        20996592 kB\n";

TEST(NodesWithKernelMemory, OneNodeHasAllThatTheKernelHas) {
  const std::vector<NodeBytes> nodes = {{0, 11 * kGiB / 2}};
  EXPECT_THAT(NodesWithKernelMemory(nodes, kTwentyFour, ""), ElementsAre(NodeBytes{0, 24 * kGiB}));
}

TEST(NodesWithKernelMemory, SeveralHaveWhatIsPresentBeyondWhatTheySay) {
  const std::vector<NodeBytes> nodes = {{0, 4 * kGiB}, {1, 2 * kGiB}, {2, 6 * kGiB}};
  // Present: 8, 10 and 6 GiB; the kernel has 24 of them.
  const char* zones =
      "Node 0, zone      DMA\n  pages free     3\n        present  262144\n        managed  1\n"
      "Node 0, zone   Normal\n        present  1835008\nNode 1, zone   Normal\n        present  2621440\n"
      "Node 2, zone   Normal\n        present  1572864\n";
  EXPECT_THAT(NodesWithKernelMemory(nodes, kTwentyFour, zones),
              ElementsAre(NodeBytes{0, 8 * kGiB}, NodeBytes{1, 10 * kGiB}, NodeBytes{2, 6 * kGiB}));
}

TEST(NodesWithKernelMemory, WhatAddsUpStays) {
  EXPECT_THAT(NodesWithKernelMemory(std::vector<NodeBytes>{{0, 24 * kGiB - (kGiB >> 3)}}, kTwentyFour, ""),
              IsEmpty());
  EXPECT_THAT(NodesWithKernelMemory(std::vector<NodeBytes>{{0, 12 * kGiB}, {1, 20 * kGiB}}, kTwentyFour, ""),
              IsEmpty());
}

TEST(NodesWithKernelMemory, WhereNothingTellsWhichNode_TheyStay) {
  const std::vector<NodeBytes> nodes = {{0, 4 * kGiB}, {1, 4 * kGiB}};
  EXPECT_THAT(NodesWithKernelMemory(nodes, kTwentyFour, ""), IsEmpty());
  EXPECT_THAT(NodesWithKernelMemory(nodes, kTwentyFour, "Node 0, zone Normal\n present 1048576\n"),
              IsEmpty());
}

TEST(NodesWithKernelMemory, TextsWithoutSense_ChangeNothing) {
  const std::vector<NodeBytes> nodes = {{0, kGiB}};
  for (const char* text :
       {"", "MemTotal: -1 kB\n", "MemTotal: 99999999999999999999 kB\n", "MemTotal: 5\n", "MemTotal"}) {
    EXPECT_THAT(NodesWithKernelMemory(nodes, text, ""), IsEmpty()) << text;
  }
  EXPECT_THAT(NodesWithKernelMemory({}, kTwentyFour, ""), IsEmpty());
  const std::vector<NodeBytes> two = {{0, kGiB}, {1, kGiB}};
  EXPECT_THAT(NodesWithKernelMemory(two, kTwentyFour, "Node x, zone Normal\n present 9999999999\n"),
              IsEmpty());
}

}  // namespace
}  // namespace islands::topology
