#include "instance/worker/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::instance {
namespace {

using messaging::Address;

constexpr uint32_t kWorkers[] = {1, 2, 1};

class PeerWatchTest : public testing::Test {
 protected:
  // A look, after the workers named have moved.
  std::vector<Address> LookAfter(std::initializer_list<Address> movers) {
    for (const Address& mover : movers) board_.Beat(mover.island, mover.worker);
    std::vector<Address> silent;
    watch_.Look(now_ns_, [&](Address peer) { silent.push_back(peer); });
    now_ns_ = watch_.next_look_ns();
    return silent;
  }

  runtime::PulseBoard board_{kWorkers};
  PeerWatch watch_{&board_, {0, 0}, kWorkers};
  int64_t now_ns_ = 1;
};

TEST_F(PeerWatchTest, Look_WhoMovesIsNeverSilent) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LookAfter({{1, 0}, {1, 1}, {2, 0}}).empty());
  EXPECT_FALSE(watch_.IslandSilent(1));
}

TEST_F(PeerWatchTest, Look_WhoStandsStillForThreeLooksIsToldOnce) {
  EXPECT_TRUE(LookAfter({{1, 0}, {1, 1}, {2, 0}}).empty());
  EXPECT_TRUE(LookAfter({{1, 0}, {2, 0}}).empty());
  EXPECT_TRUE(LookAfter({{1, 0}, {2, 0}}).empty());
  EXPECT_FALSE(watch_.Silent({1, 1}));
  EXPECT_THAT(LookAfter({{1, 0}, {2, 0}}), testing::ElementsAre(Address{1, 1}));
  EXPECT_TRUE(LookAfter({{1, 0}, {2, 0}}).empty());
  EXPECT_TRUE(watch_.Silent({1, 1}));
  EXPECT_FALSE(watch_.Silent({1, 0}));
  EXPECT_TRUE(watch_.IslandSilent(1));
  EXPECT_FALSE(watch_.IslandSilent(2));
}

TEST_F(PeerWatchTest, Silent_WhoGoesOnIsTrustedAtOnce) {
  for (int i = 0; i < 5; ++i) LookAfter({});
  EXPECT_TRUE(watch_.Silent({2, 0}));
  board_.Beat(2, 0);
  EXPECT_FALSE(watch_.Silent({2, 0})) << "without waiting for the next look";
  EXPECT_TRUE(watch_.Silent({1, 0}));
}

// Time is not what counts: a watcher that was stopped has looked only once meanwhile.
TEST_F(PeerWatchTest, Look_AfterAPauseOfItsOwnAccusesNobody) {
  LookAfter({{1, 0}, {1, 1}, {2, 0}});
  now_ns_ += 3600 * runtime::kNsPerSecond;
  EXPECT_TRUE(LookAfter({}).empty());
  EXPECT_TRUE(LookAfter({{1, 0}, {1, 1}, {2, 0}}).empty());
}

TEST(PeerWatch, NextLook_WithoutABoardOrWithoutOthersThereIsNone) {
  PeerWatch blind(nullptr, {0, 0}, kWorkers);
  blind.Beat();
  EXPECT_EQ(blind.next_look_ns(), INT64_MAX);
  EXPECT_FALSE(blind.Silent({1, 1}));
  constexpr uint32_t kAlone[] = {4};
  runtime::PulseBoard board(kAlone);
  EXPECT_EQ(PeerWatch(&board, {0, 3}, kAlone).next_look_ns(), INT64_MAX);
}

}  // namespace
}  // namespace islands::instance
