#include "topology/round_trips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "topology/machine.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const RoundTripOptions kQuick = {.passes = 2, .batches = 5, .trips_per_batch = 20, .warm_up_ns = 0};

std::vector<uint32_t> CpusHere(size_t most) {
  std::vector<uint32_t> cpus;
  const Machine machine = *LoadThisMachine();
  for (const Core& core : machine.cores) {
    if (cpus.size() < most) cpus.push_back(core.pus.front());
  }
  return cpus;
}

TEST(MeasureRoundTrips, EveryPairOnceAPassAndSymmetric) {
  const std::vector<uint32_t> cpus = CpusHere(4);
  const size_t pairs = cpus.size() * (cpus.size() - 1) / 2;
  std::vector<std::pair<size_t, size_t>> said;
  RoundTripOptions options = kQuick;
  options.progress = [&](size_t done, size_t all) { said.emplace_back(done, all); };
  const absl::StatusOr<RoundTrips> trips = MeasureRoundTrips(cpus, options);
  ASSERT_TRUE(trips.ok()) << trips.status();
  EXPECT_EQ(trips->cpus, cpus);
  ASSERT_EQ(trips->ns.size(), cpus.size());
  for (size_t i = 0; i < cpus.size(); ++i) {
    for (size_t j = 0; j < cpus.size(); ++j) {
      EXPECT_EQ(trips->ns[i][j] == 0, i == j);
      EXPECT_EQ(trips->ns[i][j], trips->ns[j][i]);
    }
  }
  ASSERT_EQ(said.size(), 2 * pairs + 1);
  EXPECT_EQ(said.front(), std::pair(size_t{0}, 2 * pairs));
  EXPECT_EQ(said.back(), std::pair(2 * pairs, 2 * pairs));
}

TEST(MeasureRoundTrips, OneCpuHasNoPairs) {
  const absl::StatusOr<RoundTrips> one = MeasureRoundTrips({CpusHere(1)[0]}, kQuick);
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(one->ns, ElementsAre(ElementsAre(0)));
  EXPECT_THAT(MeasureRoundTrips({}, kQuick)->ns, IsEmpty());
}

// Either end may be the one that cannot be bound, and the other must not wait for it forever.
TEST(MeasureRoundTrips, SaysWhichCpuCannotBeBound) {
  const uint32_t here = CpusHere(1)[0];
  for (const std::vector<uint32_t>& cpus : {std::vector<uint32_t>{here, 65000}, {65000, here}}) {
    const absl::Status status = MeasureRoundTrips(cpus, kQuick).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("65000"));
  }
}

TEST(MeasureRoundTrips, WithoutTimeThereIsNoResult) {
  const std::vector<uint32_t> cpus = CpusHere(2);
  if (cpus.size() < 2) GTEST_SKIP() << "only one core";
  RoundTripOptions options = kQuick;
  options.batches = 1'000'000;
  options.trips_per_batch = 100'000;
  options.pair_limit_ns = 20 * runtime::kNsPerMs;
  const absl::Status status = MeasureRoundTrips(cpus, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("keeps them busy"));
}

}  // namespace
}  // namespace islands::topology
