// What only the in-memory network can do: delays, partitions, deaths. The rest is in
// transport_conformance_test.cc.
#include "instance/messaging/memory_transport.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "instance/messaging/transport_test_util.h"
#include "runtime/random.h"

namespace islands::messaging {
namespace {

class MemoryHubTest : public testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t island = 0; island < 3; ++island) {
      nodes_[island].transport = hub_.MakeTransport({island, 0});
      ASSERT_TRUE(nodes_[island].transport->Listen().ok());
    }
  }
  // Island 0 dials `to` and knows that it is there.
  ConnectionId Connect(uint32_t to) {
    const ConnectionId connection = nodes_[0].transport->Dial({to, 0});
    Poll();
    return connection;
  }
  void Send(uint32_t from, ConnectionId connection, std::string_view payload) {
    nodes_[from].transport->Send(connection, FrameType::kVote, AsBytes(payload));
    nodes_[from].transport->Flush();
  }
  void Poll() {
    for (Node& node : nodes_) node.transport->Poll(node.seen);
  }
  std::vector<std::string> Received(uint32_t island) {
    std::vector<std::string> payloads;
    for (const Recorder::Frame& frame : nodes_[island].seen.frames) payloads.push_back(frame.payload);
    return payloads;
  }

  runtime::ManualClock clock_;
  MemoryHub hub_{&clock_};
  Node nodes_[3];
};

TEST_F(MemoryHubTest, Delay_HoldsPacketsUntilTheClockSaysSo) {
  const ConnectionId connection = Connect(1);
  hub_.SetDelay([](Address from, Address) { return from.island == 0 ? 100 : 7; });
  Send(0, connection, "slow");
  EXPECT_EQ(hub_.NextDeliveryNs(), clock_.NowNs() + 100);
  clock_.AdvanceNs(99);
  Poll();
  EXPECT_TRUE(Received(1).empty());
  clock_.AdvanceNs(1);
  Poll();
  EXPECT_THAT(Received(1), testing::ElementsAre("slow"));
  EXPECT_EQ(hub_.NextDeliveryNs(), INT64_MAX);
  Send(1, nodes_[1].seen.accepted[0], "back");
  EXPECT_EQ(hub_.NextDeliveryNs(), clock_.NowNs() + 7);
}

TEST_F(MemoryHubTest, Delay_NeverReordersAConnection) {
  const ConnectionId connection = Connect(1);
  runtime::Random random(1);
  hub_.SetDelay([delays = runtime::Random(2)](Address, Address) mutable {
    return static_cast<int64_t>(delays.Below(1000));
  });
  std::vector<std::string> sent;
  for (int i = 0; i < 500; ++i) {
    sent.push_back(fmt::format("{}", i));
    Send(0, connection, sent.back());
    clock_.AdvanceNs(static_cast<int64_t>(random.Below(100)));
    Poll();
  }
  clock_.AdvanceNs(1000);
  Poll();
  EXPECT_EQ(Received(1), sent);
}

TEST_F(MemoryHubTest, Delay_ConnectionsOvertakeEachOther) {
  const ConnectionId to_1 = Connect(1);
  const ConnectionId to_2 = Connect(2);
  hub_.SetDelay([](Address, Address to) { return to.island == 1 ? 100 : 10; });
  Send(0, to_1, "first");
  Send(0, to_2, "second");
  clock_.AdvanceNs(10);
  Poll();
  EXPECT_TRUE(Received(1).empty());
  EXPECT_THAT(Received(2), testing::ElementsAre("second"));
}

TEST_F(MemoryHubTest, Drop_DeliversWhatWasSentThenCloses) {
  const ConnectionId connection = Connect(1);
  const ConnectionId back = nodes_[1].seen.accepted[0];
  Send(1, back, "last words");
  nodes_[1].transport->Send(back, FrameType::kVote, AsBytes("never flushed"));
  Send(0, connection, "never read");
  hub_.Drop(1);
  Poll();
  EXPECT_THAT(Received(0), testing::ElementsAre("last words"));
  EXPECT_EQ(nodes_[0].seen.closed.at(connection), 1);
  EXPECT_TRUE(Received(1).empty()) << "the dead read nothing";
  EXPECT_TRUE(nodes_[1].seen.closed.empty());
  // Nor do they speak.
  Send(1, back, "from beyond");
  EXPECT_FALSE(nodes_[1].transport->Listen().ok());
  nodes_[1].transport->Dial({0, 0});
  Poll();
  EXPECT_EQ(Received(0).size(), 1u);
  EXPECT_TRUE(nodes_[0].seen.accepted.empty());
}

TEST_F(MemoryHubTest, Drop_ALaterIncarnationTakesTheAddress) {
  const ConnectionId connection = Connect(1);
  hub_.Drop(1);
  Node second{hub_.MakeTransport({1, 0}), {}};
  ASSERT_TRUE(second.transport->Listen().ok()) << "while the dead one still exists";
  Send(0, connection, "for the first");
  nodes_[1].transport.reset();
  nodes_[1].transport = hub_.MakeTransport({9, 0});
  const ConnectionId again = nodes_[0].transport->Dial({1, 0});
  Send(0, again, "for the second");
  second.transport->Poll(second.seen);
  ASSERT_EQ(second.seen.frames.size(), 1u);
  EXPECT_EQ(second.seen.frames[0].payload, "for the second");
}

TEST_F(MemoryHubTest, Partition_LosesWhatIsUnderWay) {
  const ConnectionId to_1 = Connect(1);
  const ConnectionId to_2 = Connect(2);
  Send(0, to_1, "lost");
  Send(0, to_2, "not lost");
  hub_.Partition(1, 0);
  Poll();
  EXPECT_TRUE(Received(1).empty());
  EXPECT_THAT(Received(2), testing::ElementsAre("not lost"));
  EXPECT_EQ(nodes_[0].seen.closed.at(to_1), 1);
  EXPECT_EQ(nodes_[1].seen.closed.at(nodes_[1].seen.accepted[0]), 1);
  EXPECT_FALSE(nodes_[0].seen.closed.contains(to_2));
  const ConnectionId refused = Connect(1);
  EXPECT_EQ(nodes_[0].seen.closed.count(refused), 1u);
  hub_.Heal(0, 1);
  const ConnectionId healed = Connect(1);
  Send(0, healed, "again");
  Poll();
  EXPECT_THAT(Received(1), testing::ElementsAre("again"));
}

TEST_F(MemoryHubTest, Partition_OfAConnectionNotYetAccepted) {
  nodes_[0].transport->Dial({1, 0});
  hub_.Partition(0, 1);
  Poll();
  // Both ends hear of the connection and of its end, or of neither.
  EXPECT_EQ(nodes_[1].seen.accepted.size(), nodes_[1].seen.closed.size());
  EXPECT_EQ(nodes_[0].seen.closed.size(), 1u);
}

TEST_F(MemoryHubTest, Break_LosesOneConnectionOfTwo) {
  const ConnectionId there = Connect(1);
  const ConnectionId back = nodes_[1].transport->Dial({0, 0});
  Poll();
  Send(0, there, "lost");
  Send(1, back, "not lost");
  hub_.Break({0, 0}, 1);
  Poll();
  EXPECT_TRUE(Received(1).empty());
  EXPECT_THAT(Received(0), testing::ElementsAre("not lost"));
  EXPECT_EQ(nodes_[0].seen.closed.at(there), 1);
  EXPECT_FALSE(nodes_[1].seen.closed.contains(back));
  Send(0, Connect(1), "again");
  Poll();
  EXPECT_THAT(Received(1), testing::ElementsAre("again"));
}

// A transport with something due that nobody polls does not hold up the others.
TEST_F(MemoryHubTest, NextDelivery_LeavesOutWhatNobodyTook) {
  const ConnectionId to_1 = Connect(1);
  const ConnectionId to_2 = Connect(2);
  hub_.SetDelay([](Address, Address to) { return to.island == 1 ? 10 : 50; });
  Send(0, to_1, "soon");
  Send(0, to_2, "later");
  const int64_t sent_ns = clock_.NowNs();
  clock_.AdvanceNs(20);
  EXPECT_EQ(hub_.NextDeliveryNs(), sent_ns + 10);
  EXPECT_EQ(hub_.NextDeliveryNs(clock_.NowNs()), sent_ns + 50);
}

TEST_F(MemoryHubTest, Sever_CutsAnIslandFromAll) {
  const ConnectionId to_1 = Connect(1);
  const ConnectionId to_2 = Connect(2);
  hub_.Sever(0);
  Poll();
  EXPECT_EQ(nodes_[0].seen.closed.size(), 2u);
  EXPECT_EQ(nodes_[0].seen.closed.count(Connect(1)), 1u);
  hub_.Rejoin(0);
  EXPECT_EQ(nodes_[0].seen.closed.count(Connect(1)), 0u);
  hub_.Sever(1);
  hub_.HealAll();
  EXPECT_EQ(nodes_[0].seen.closed.count(Connect(1)), 0u);
  EXPECT_NE(to_1, to_2);
}

TEST_F(MemoryHubTest, Connection_HoldsALimitedNumberOfBytes) {
  const ConnectionId connection = Connect(1);
  const std::string payload(100 << 10, 'x');
  for (int i = 0; i < 10; ++i) Send(0, connection, payload);
  EXPECT_GT(nodes_[0].transport->QueuedBytes(connection), 6 * payload.size());
  for (int i = 0; i < 10; ++i) Poll();
  EXPECT_EQ(nodes_[0].transport->QueuedBytes(connection), 0u);
  EXPECT_EQ(Received(1).size(), 10u);
}

TEST_F(MemoryHubTest, Handlers_MayStopTheWorld) {
  // A test drops an island from inside its own handler: the batch it was reading ends with it.
  const ConnectionId connection = Connect(1);
  nodes_[1].seen.on_frame = [&](ConnectionId, FrameType, std::span<const std::byte>) { hub_.Drop(1); };
  Send(0, connection, "one");
  Send(0, connection, "two");
  Poll();
  EXPECT_THAT(Received(1), testing::ElementsAre("one"));
}

}  // namespace
}  // namespace islands::messaging
