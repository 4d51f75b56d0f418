#include "experiments/ipc/core_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "experiments/program.h"

namespace islands::experiments {
namespace {

using testing::HasSubstr;

class Shelf {
 public:
  explicit Shelf(const std::string& description) : machine_(*topology::LoadMachineSynthetic(description)) {}
  topology::Machine& machine() { return machine_; }
  absl::StatusOr<CorePair> Choose(Where where, const std::string& cores = "all") const {
    return ChooseCorePair(machine_, *ChooseCpus(machine_, cores, topology::WorkerOrder::kGrouped), where);
  }
  std::pair<uint32_t, uint32_t> Cpus(Where where, const std::string& cores = "all") const {
    const auto pair = Choose(where, cores);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return pair.ok() ? std::pair(pair->near, pair->far) : std::pair(99u, 99u);
  }

 private:
  topology::Machine machine_;
};

TEST(ChooseCorePair, SeveralSocketsAndCaches_EveryPlaceItsOwnPair) {
  const Shelf shelf("pack:2 [numa] l3:2 core:3 pu:2");  // CPUs 0-11 and 12-23, two of each core
  EXPECT_EQ(shelf.Cpus(Where::kSameCore), std::pair(0u, 0u));
  EXPECT_EQ(shelf.Cpus(Where::kSameCache), std::pair(0u, 2u));
  EXPECT_EQ(shelf.Cpus(Where::kSameSocket), std::pair(0u, 6u));
  EXPECT_EQ(shelf.Cpus(Where::kCrossSocket), std::pair(0u, 12u));
  EXPECT_THAT(shelf.Choose(Where::kSameSocket)->text, HasSubstr("different L3s"));
}

TEST(ChooseCorePair, OneL3_SameSocketIsSameCacheAndSaysSo) {
  const Shelf shelf("pack:1 [numa] l3:1 core:2 pu:1");
  EXPECT_EQ(shelf.Cpus(Where::kSameCache), shelf.Cpus(Where::kSameSocket));
  EXPECT_THAT(shelf.Choose(Where::kSameSocket)->text, HasSubstr("the same as same-cache"));
}

TEST(ChooseCorePair, NoSuchPair_NotFoundWithTheReason) {
  const Shelf shelf("pack:1 [numa] core:2 pu:1");
  const auto cross = shelf.Choose(Where::kCrossSocket);
  EXPECT_TRUE(absl::IsNotFound(cross.status()));
  EXPECT_THAT(std::string(cross.status().message()), HasSubstr("in one socket"));
  EXPECT_TRUE(absl::IsNotFound(shelf.Choose(Where::kSameCache).status()));  // it has no L3
  EXPECT_TRUE(shelf.Choose(Where::kSameSocket).ok());
  EXPECT_TRUE(absl::IsNotFound(shelf.Choose(Where::kSameSocket, "1").status()));
  EXPECT_EQ(shelf.Cpus(Where::kSameCore, "1"), std::pair(0u, 0u));
}

TEST(ChooseCorePair, Cores_RestrictTheChoice) {
  const Shelf shelf("pack:2 [numa] l3:1 core:4 pu:1");
  EXPECT_EQ(shelf.Cpus(Where::kSameCache, "5-7"), std::pair(5u, 6u));
  EXPECT_EQ(shelf.Cpus(Where::kCrossSocket, "3,7"), std::pair(3u, 7u));
}

TEST(ChooseCorePair, UnequalDistances_FarthestSockets) {
  Shelf shelf("pack:3 [numa] core:1 pu:1");
  shelf.machine().node_distances = {{10, 16, 22}, {16, 10, 16}, {22, 16, 10}};
  EXPECT_EQ(shelf.Cpus(Where::kCrossSocket), std::pair(0u, 2u));
  EXPECT_THAT(shelf.Choose(Where::kCrossSocket)->text, HasSubstr("NUMA distance 22"));
}

}  // namespace
}  // namespace islands::experiments
