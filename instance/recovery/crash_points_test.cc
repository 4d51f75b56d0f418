// All of crash_points_testing.h: at every point, before and after, an island of one and of two workers is
// killed, or loses power in several ways, on disks whose sectors are 512 bytes and 4096; and both happen once
// more while it recovers from that, and once more again.
//
// Whatever happens, what was acknowledged is there, of the rest each transaction is whole or gone, trees are
// sound, and life goes on. A point that is not reached fails the test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "instance/recovery/crash_box_testing.h"
#include "instance/recovery/crash_points_testing.h"
#include "runtime/random.h"
#include "runtime/seeds_testing.h"

namespace islands::recovery {
namespace {

constexpr size_t kMostDepth = 2;       // deaths during recovery, one within the other
constexpr size_t kImagesOfALoss = 3;   // of power
constexpr uint64_t kMostOfAPoint = 3;  // deaths at one side of a point, of a seed
constexpr int kSteps = 3000;
constexpr uint64_t kLeastEvicted = 200;  // of a pool with few pages
constexpr int kRest = 750;               // of the cleaner, after as many steps

// How often who has died where.
struct Deaths {
  std::array<std::array<uint64_t, 2>, 2> once{};   // [by power][sectors of 4096]
  std::array<std::array<uint64_t, 2>, 2> again{};  // the same, and died again while it recovered
  uint64_t all() const {
    uint64_t sum = 0;
    for (const auto& of : {once, again}) {
      for (const auto& by : of) sum += by[0] + by[1];
    }
    return sum;
  }
};
using Tally = std::array<std::array<Deaths, 2>, kPoints>;  // [point][after]

class Examiner {
 public:
  Examiner(uint32_t workers, uint64_t pool_pages, Tally* tally)
      : workers_(workers), pool_pages_(pool_pages), tally_(*tally) {}

  void Run(uint64_t seed) {
    const uint32_t sector_bytes = seed % 2 == 0 ? 512 : 4096;
    large_sectors_ = sector_bytes == 4096;
    random_ = runtime::Random(seed);
    std::array<std::array<uint64_t, 2>, kPoints> reached{}, wanted{};
    int wanted_then = 0;
    // A small ring wraps often; in a large one there is room for the undo of large transactions.
    CrashBox box(workers_, seed % 3 == 0 ? log::Ring::kLeastCapacity : size_t{8} << 20, sector_bytes,
                 pool_pages_, seed);
    box.ComeUp();
    box.Watch(
        [&](Point point, bool before) {
          const auto at = static_cast<size_t>(point);
          if (much_to_repeat_ && wanted_then++ < 3) return true;
          if (at >= kFirstOfRecovery || wanted[at][before] == kMostOfAPoint) return false;
          // At the first time, and at later ones, the rarer the more there have been.
          return random_.Below(++reached[at][before]) == 0 && ++wanted[at][before] != 0;
        },
        kImagesOfALoss);
    // The cleaner rests for a while, so that there is much to be repeated.
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      const bool rests = step / kRest % 2 == 1;
      much_to_repeat_ = rests && step % kRest > kRest - 30;
      if (!much_to_repeat_) wanted_then = 0;
      box.Live(1, /*cleans=*/!rests);
      for (CrashImages& images : box.TakeImages()) Examine(std::move(images), 0);
    }
    EXPECT_GE(box.evicted(), pool_pages_ == 0 ? 0 : kLeastEvicted);
  }

  uint64_t power_losses() const { return power_losses_; }
  uint64_t kills() const { return kills_; }

 private:
  void Examine(CrashImages images, size_t depth) {
    const PointRow& row = kPointTable[static_cast<size_t>(images.point)];
    SCOPED_TRACE(fmt::format("died {}: {}", images.before ? "before" : "after", row.name));
    ComeBack(images, std::move(images.killed), /*power=*/false, depth);
    for (CrashImage& image : images.without_power) ComeBack(images, std::move(image), /*power=*/true, depth);
  }

  void ComeBack(const CrashImages& from, CrashImage image, bool power, size_t depth) {
    if (testing::Test::HasFailure()) return;
    SCOPED_TRACE(power ? "without power" : "killed");
    ++(power ? power_losses_ : kills_);
    CrashBox box(workers_, std::move(image), random_());
    Deaths& deaths = tally_[static_cast<size_t>(from.point)][!from.before];
    // Where it dies again: there, or at the next point that it comes by.
    const bool first = deaths.again[power][large_sectors_] == 0;
    const bool before = random_.Below(2) == 0;
    Point next = static_cast<Point>(kFirstOfRecovery + next_++ % (kPoints - kFirstOfRecovery));
    uint64_t left = random_.Below(next == Point::kReading || next == Point::kRedoing ? 60 : 2);
    if (much_to_repeat_ && workers_ > 1) next = Point::kLanes;
    if (first && next != Point::kLanes) next = Point::kDraining, left = 0;  // which it comes by for certain
    const bool dies_again = depth < kMostDepth && (first || random_.Below(depth == 0 ? 2 : 6) == 0);
    if (dies_again) {
      box.Watch(
          [&](Point point, bool is_before) {
            return point >= next && (first || is_before == before || NoAfter(point)) && left-- == 0;
          },
          1);
    }
    box.ComeUp();
    box.Live(random_.Below(3) == 0 ? 12 : 3, /*cleans=*/true);
    std::vector<CrashImages> again = box.TakeImages();
    ++deaths.once[power][large_sectors_];
    if (!again.empty()) ++deaths.again[power][large_sectors_];
    for (CrashImages& images : again) Examine(std::move(images), depth + 1);
    if (depth != 0 || random_.Below(3) != 0 || testing::Test::HasFailure()) return;
    SCOPED_TRACE("and killed later");
    CrashBox(workers_, box.Killed(), random_()).ComeUp();
  }
  static bool NoAfter(Point point) { return kPointTable[static_cast<size_t>(point)].no_after != nullptr; }

  const uint32_t workers_;
  const uint64_t pool_pages_;
  Tally& tally_;
  bool large_sectors_ = false;
  bool much_to_repeat_ = false;  // of the log
  runtime::Random random_{0};
  uint64_t next_ = 0;
  uint64_t power_losses_ = 0;
  uint64_t kills_ = 0;
};

void ExpectAllReached(const Tally& tally, uint32_t workers) {
  for (const PointRow& row : kPointTable) {
    for (const bool after : {false, true}) {
      const Deaths& deaths = tally[static_cast<size_t>(row.point)][after];
      const bool never = after && row.no_after != nullptr;
      if (workers == 1 && row.by_chance_with_one != nullptr) continue;
      for (const bool power : {false, true}) {
        for (const bool large : {false, true}) {
          const std::string where =
              fmt::format("{}: {}, {}, sectors of {}", row.name, after ? "after" : "before",
                          power ? "power lost" : "killed", large ? 4096 : 512);
          if ((deaths.once[power][large] == 0) != never) ADD_FAILURE() << where;
          if ((deaths.again[power][large] == 0) != never) ADD_FAILURE() << where << ", and again";
        }
      }
    }
  }
}

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeeds = 2;
#else
constexpr uint64_t kSeeds = 6;
#endif
// Fewer cannot be expected to come by everywhere.
constexpr uint64_t kEnoughForAllPoints = 6;
constexpr uint64_t kLeastImages = 2500;

void RunAll(uint32_t workers, uint64_t pool_pages = 0, uint64_t seeds = kSeeds) {
  const auto [first, count] = runtime::SeedsToRun(seeds);
  Tally tally{};
  Examiner examiner(workers, pool_pages, &tally);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    examiner.Run(seed);
  }
  fmt::print("{} workers: {} deaths, and {} images of lost power\n", workers, examiner.kills(),
             examiner.power_losses());
  for (const PointRow& row : kPointTable) {
    const auto& sides = tally[static_cast<size_t>(row.point)];
    fmt::print("  {:30} before {:5} after {:5}\n", row.name, sides[0].all(), sides[1].all());
  }
  if (count < kEnoughForAllPoints || testing::Test::HasFailure()) return;
  ExpectAllReached(tally, workers);
  EXPECT_GT(examiner.power_losses(), kLeastImages);
}

TEST(CrashPoints, OneWorker) { RunAll(1); }
TEST(CrashPoints, TwoWorkers) { RunAll(2); }
// Of about 90 pages so many are in memory.
constexpr uint64_t kFewPages = 24;
TEST(CrashPoints, OneWorkerPaged) { RunAll(1, kFewPages, kSeeds / 2); }
TEST(CrashPoints, TwoWorkersPaged) { RunAll(2, kFewPages, kSeeds / 2); }

}  // namespace
}  // namespace islands::recovery
