#include "topology/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>

namespace islands::topology {
namespace {

using Islands = std::vector<std::vector<uint32_t>>;

// Invariant 1 of packing.h.
void ExpectPartition(size_t cores, uint32_t islands, const Islands& cut) {
  ASSERT_EQ(cut.size(), islands);
  std::vector<int> used(cores, 0);
  size_t least = cores, most = 0;
  for (const auto& island : cut) {
    least = std::min(least, island.size());
    most = std::max(most, island.size());
    for (uint32_t core : island) ++used.at(core);
  }
  EXPECT_LE(most - least, 1);
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int n) { return n == 1; }));
}

// Tries every assignment: the next core goes to every island with room (of the empty ones of a size, only to
// the first).
class BruteForce {
 public:
  BruteForce(std::span<const CoreDomains> cores, uint32_t islands) : cores_(cores), cut_(islands) {
    for (uint32_t i = 0; i < islands; ++i) {
      sizes_.push_back(cores.size() / islands + (i < cores.size() % islands ? 1 : 0));
    }
  }
  StraddleCount Best() {
    Place(0);
    return *best_;
  }

 private:
  void Place(uint32_t core) {
    if (core == cores_.size()) {
      StraddleCount count = CountStraddling(cores_, cut_);
      if (!best_ || count < *best_) best_ = count;
      return;
    }
    size_t empty_size_tried = 0;
    for (size_t i = 0; i < cut_.size(); ++i) {
      if (cut_[i].size() == sizes_[i]) continue;
      if (cut_[i].empty() && empty_size_tried == sizes_[i]) continue;
      if (cut_[i].empty()) empty_size_tried = sizes_[i];
      cut_[i].push_back(core);
      Place(core + 1);
      cut_[i].pop_back();
    }
  }

  std::span<const CoreDomains> cores_;
  Islands cut_;
  std::vector<size_t> sizes_;
  std::optional<StraddleCount> best_;
};

// Packages, inside them nodes and L3 groups, of random sizes; sometimes nodes inside L3 groups, sometimes one
// node for all.
std::vector<CoreDomains> RandomMachine(std::mt19937& random, uint32_t cores) {
  std::vector<CoreDomains> machine;
  CoreDomains now;
  uint32_t shape = random() % 3;
  for (uint32_t i = 0; i < cores; ++i) {
    uint32_t border = random() % 6;
    if (border == 0) now = {now.package + 1, now.node + 1, now.cache + 1};
    if (border == 1 && shape == 0) now = {now.package, now.node + 1, now.cache + 1};
    if (border == 1 && shape == 1) now = {now.package, now.node, now.cache + 1};
    if (border == 2)
      now = shape == 1 ? CoreDomains{now.package, now.node + 1, now.cache + 1}
                       : CoreDomains{now.package, now.node, now.cache + 1};
    machine.push_back(now);
    if (shape == 2) machine.back().node = 0;
  }
  return machine;
}

TEST(PackIslands, IsNeverWorseThanBruteForce) {
  std::mt19937 random(11);
  for (int round = 0; round < 250; ++round) {
    uint32_t count = 1 + random() % 9;
    std::vector<CoreDomains> machine = RandomMachine(random, count);
    for (uint32_t islands = 1; islands <= count; ++islands) {
      Islands cut = PackIslands(machine, islands);
      ExpectPartition(count, islands, cut);
      StraddleCount mine = CountStraddling(machine, cut);
      StraddleCount best = BruteForce(machine, islands).Best();
      ASSERT_EQ(mine, best) << "round " << round << ", " << count << " cores, " << islands
                            << " islands: " << mine.package << "/" << mine.node << "/" << mine.cache
                            << " instead of " << best.package << "/" << best.node << "/" << best.cache;
    }
  }
}

// Domains whose members are scattered over the list, as with interleaved CPU numbers.
TEST(PackIslands, ScatteredDomainsAreStillOptimal) {
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    std::vector<CoreDomains> machine = RandomMachine(random, 8);
    std::shuffle(machine.begin(), machine.end(), random);
    for (uint32_t islands = 1; islands <= 8; ++islands) {
      Islands cut = PackIslands(machine, islands);
      ExpectPartition(8, islands, cut);
      ASSERT_EQ(CountStraddling(machine, cut), BruteForce(machine, islands).Best());
    }
  }
}

TEST(PackIslands, LabelsThatCrossEachOtherStillGiveAPartition) {
  std::mt19937 random(13);
  for (int round = 0; round < 300; ++round) {
    std::vector<CoreDomains> machine;
    for (uint32_t i = 0; i < 12; ++i) {
      machine.push_back({uint32_t(random() % 3), uint32_t(random() % 3), uint32_t(random() % 3)});
    }
    for (uint32_t islands = 1; islands <= 12; ++islands)
      ExpectPartition(12, islands, PackIslands(machine, islands));
  }
}

TEST(PackIslands, LeftOversOfTwoPackagesFormTheOnlyStraddler) {
  // Packages of 3, 6 and 3 cores, two islands of 6: in a row both would straddle.
  std::vector<CoreDomains> machine;
  for (uint32_t package : {0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2})
    machine.push_back({package, package, package});
  EXPECT_EQ(PackIslands(machine, 2), (Islands{{0, 1, 2, 9, 10, 11}, {3, 4, 5, 6, 7, 8}}));
}

TEST(PackIslands, LargerFirstWhereBordersLeaveTheChoice) {
  std::vector<CoreDomains> flat(8);
  EXPECT_EQ(PackIslands(flat, 3), (Islands{{0, 1, 2}, {3, 4, 5}, {6, 7}}));
}

TEST(PackIslands, ThousandsOfCoresAreQuick) {
  std::vector<CoreDomains> machine;
  for (uint32_t i = 0; i < 2048; ++i) machine.push_back({i / 256, i / 64, i / 8});
  auto start = std::chrono::steady_clock::now();
  for (uint32_t islands : {1u, 7u, 100u, 300u, 683u, 1025u, 1500u, 2047u, 2048u}) {
    ExpectPartition(machine.size(), islands, PackIslands(machine, islands));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // far off means exponential
}

TEST(DealIslands, EveryPackageServesAsManyIslandsAsItCan) {
  std::mt19937 random(14);
  for (int round = 0; round < 200; ++round) {
    uint32_t count = 1 + random() % 40;
    std::vector<CoreDomains> machine = RandomMachine(random, count);
    for (uint32_t islands = 1; islands <= count; ++islands) {
      Islands cut = DealIslands(machine, islands);
      ExpectPartition(count, islands, cut);
      for (uint32_t package = 0; package <= machine.back().package; ++package) {
        uint32_t cores = 0, served = 0;
        for (const CoreDomains& core : machine) cores += core.package == package;
        for (const auto& island : cut) {
          served += std::any_of(island.begin(), island.end(),
                                [&](uint32_t c) { return machine[c].package == package; });
        }
        ASSERT_EQ(served, std::min(cores, islands));
      }
    }
  }
}

}  // namespace
}  // namespace islands::topology
