#include "instance/messaging/links.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>

#include "instance/messaging/transport_test_util.h"
#include "proto/data.pb.h"

namespace islands::messaging {
namespace {

using runtime::kNsPerMs;
using runtime::kNsPerSecond;

// Writes down what it hears, one line each.
class Listener : public LinksHandler {
 public:
  void OnPeerUp(uint32_t island, uint64_t boot_epoch) override {
    EXPECT_TRUE(up.insert(island).second) << "up twice";
    lines.push_back(fmt::format("up {} epoch {}", island, boot_epoch));
  }
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) override {
    EXPECT_EQ(up.erase(island), 1u) << "lost without having been up";
    EXPECT_FALSE(why.ok());
    lines.push_back(fmt::format("lost {} epoch {}", island, boot_epoch));
  }
  void OnMessage(const Origin& origin, FrameType type, std::span<const std::byte> payload) override {
    data::v1::Probe probe;
    ASSERT_TRUE(probe.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    EXPECT_EQ(type, FrameType::kProbe);
    lines.push_back(fmt::format("message {} from {}.{} epoch {}", probe.hops(), origin.peer.island,
                                origin.peer.worker, origin.boot_epoch));
    last_origin = origin;
  }
  void OnOriginUp(const Origin& origin) override {
    origins.push_back(
        fmt::format("origin {}.{} up epoch {}", origin.peer.island, origin.peer.worker, origin.boot_epoch));
  }
  void OnOriginLost(const Origin& origin, const absl::Status& why) override {
    EXPECT_FALSE(why.ok());
    origins.push_back(fmt::format("origin {}.{} lost epoch {} after {} messages", origin.peer.island,
                                  origin.peer.worker, origin.boot_epoch, lines.size()));
  }
  std::vector<std::string> lines;
  std::vector<std::string> origins;
  std::set<uint32_t> up;
  Origin last_origin;
};

data::v1::Probe Message(uint32_t number) {
  data::v1::Probe probe;
  probe.set_hops(number);
  return probe;
}

// A worker of an island, and its life.
struct Worker {
  std::unique_ptr<Transport> transport;
  Listener heard;
  std::unique_ptr<Links> links;
};

class LinksTest : public testing::TestWithParam<std::string> {
 protected:
  LinksOptions Options(Address self, uint64_t epoch) {
    LinksOptions options;
    options.cluster_id = "cluster";
    options.self = self;
    options.boot_epoch = epoch;
    options.uid = geteuid();
    options.workers_per_island = workers_per_island_;
    return options;
  }
  std::unique_ptr<Worker> Boot(LinksOptions options) {
    auto worker = std::make_unique<Worker>();
    worker->transport = network_.Make(options.self);
    worker->links = std::make_unique<Links>(std::move(options), *worker->transport, clock_, worker->heard);
    EXPECT_TRUE(worker->links->Start().ok());
    return worker;
  }
  std::unique_ptr<Worker> Boot(Address self, uint64_t epoch) { return Boot(Options(self, epoch)); }

  static void Kill(std::unique_ptr<Worker>* worker) {
    (*worker)->links.reset();
    worker->reset();
  }

  // Rounds of all workers until `done`; the clock goes on by a millisecond per round, or stands still.
  bool RunUntil(const std::vector<Worker*>& workers, const std::function<bool()>& done,
                bool time_passes = true) {
    return messaging::RunUntil(done, [&] {
      if (time_passes) clock_.AdvanceNs(kNsPerMs);
      for (Worker* worker : workers) {
        worker->links->Poll();
        worker->links->Flush();
      }
    });
  }
  void RunFor(const std::vector<Worker*>& workers, int rounds) {
    RunUntil(workers, [&] { return rounds-- == 0; });
  }
  bool AllUp(const std::vector<Worker*>& workers) {
    return RunUntil(workers, [&] {
      for (Worker* worker : workers) {
        if (worker->links->PeersUp() != workers_per_island_.size() - 1) return false;
      }
      return true;
    });
  }

  std::vector<uint32_t> workers_per_island_{1, 1};
  runtime::ManualClock clock_;
  TestNetwork network_{GetParam()};
};

std::string KindName(const testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Every, LinksTest, testing::Values("uds", "zmq", "memory"), KindName);

TEST_P(LinksTest, Start_BringsBothSidesUpAndCarriesMessages) {
  auto a = Boot({0, 0}, 5);
  EXPECT_FALSE(a->links->Send(1, FrameType::kProbe, Message(1))) << "not up yet";
  auto b = Boot({1, 0}, 6);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  EXPECT_TRUE(a->links->IsUp(1));
  EXPECT_EQ(a->links->BootEpoch(1), 6u);
  EXPECT_EQ(b->links->BootEpoch(0), 5u);
  EXPECT_TRUE(a->links->Send(1, FrameType::kProbe, Message(2)));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return b->heard.lines.size() == 2; }));
  EXPECT_THAT(b->heard.lines, testing::ElementsAre("up 0 epoch 5", "message 2 from 0.0 epoch 5"));
  // The answer comes back on the link that was dialled for the question.
  EXPECT_TRUE(b->links->SendBack(b->heard.last_origin, FrameType::kProbe, Message(3)));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return a->heard.lines.size() == 2; }));
  EXPECT_THAT(a->heard.lines, testing::ElementsAre("up 1 epoch 6", "message 3 from 1.0 epoch 6"));
  EXPECT_EQ(a->links->HandshakesRefused() + b->links->HandshakesRefused(), 0u);
  EXPECT_FALSE(b->links->SendBack(Address{0, 1}, FrameType::kProbe, Message(4))) << "no such worker";
}

TEST_P(LinksTest, Traffic_CountsBothLinksOfAPeer) {
  auto a = Boot({0, 0}, 1);
  auto b = Boot({1, 0}, 1);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  const PeerTraffic& traffic = a->links->Traffic(1);
  EXPECT_EQ(traffic.messages_sent, 0u) << "handshakes do not count";
  const size_t bytes = kFrameHeaderBytes + Message(7).ByteSizeLong();
  ASSERT_TRUE(a->links->Send(1, FrameType::kProbe, Message(7)));
  ASSERT_TRUE(b->links->Send(0, FrameType::kProbe, Message(7)));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return traffic.messages_received == 1; }));
  ASSERT_TRUE(a->links->SendBack(Address{1, 0}, FrameType::kProbe, Message(7)));
  EXPECT_EQ(traffic.messages_sent, 2u);
  EXPECT_EQ(traffic.bytes_sent, 2 * bytes);
  a->links->PublishQueues();
  EXPECT_EQ(traffic.bytes_queued, bytes) << "on the link that the peer dialled";
  EXPECT_EQ(traffic.bytes_received, bytes);
  EXPECT_EQ(a->links->Traffic(0).messages_sent, 0u);
}

TEST_P(LinksTest, Workers_AreServedByNumberModuloCount) {
  workers_per_island_ = {3, 2};
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Worker*> pointers;
  for (const Address self : {Address{0, 0}, Address{0, 1}, Address{0, 2}, Address{1, 0}, Address{1, 1}}) {
    workers.push_back(Boot(self, 1));
    pointers.push_back(workers.back().get());
  }
  ASSERT_TRUE(AllUp(pointers));
  EXPECT_EQ(workers[2]->links->ServingWorker(1, 2), 0u);
  for (Worker* worker : pointers) worker->heard.lines.clear();
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(workers[i]->links->Send(1, FrameType::kProbe, Message(i)));
  ASSERT_TRUE(RunUntil(
      pointers, [&] { return workers[3]->heard.lines.size() == 2 && workers[4]->heard.lines.size() == 1; }));
  EXPECT_THAT(workers[3]->heard.lines,
              testing::UnorderedElementsAre("message 0 from 0.0 epoch 1", "message 2 from 0.2 epoch 1"));
  EXPECT_THAT(workers[4]->heard.lines, testing::ElementsAre("message 1 from 0.1 epoch 1"));
  EXPECT_TRUE(workers[3]->links->SendBack(Address{0, 2}, FrameType::kProbe, Message(9)));
  EXPECT_FALSE(workers[3]->links->SendBack(Address{0, 1}, FrameType::kProbe, Message(9)))
      << "served elsewhere";
  ASSERT_TRUE(RunUntil(pointers, [&] { return !workers[2]->heard.lines.empty(); }));
  EXPECT_THAT(workers[2]->heard.lines, testing::ElementsAre("message 9 from 1.0 epoch 1"));
  EXPECT_EQ(workers[0]->links->HandshakesRefused(), 0u);
}

TEST_P(LinksTest, Peer_LostAndUpAgainWithItsNewEpoch) {
  auto a = Boot({0, 0}, 1);
  auto b = Boot({1, 0}, 7);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  Kill(&b);
  ASSERT_TRUE(RunUntil({a.get()}, [&] { return !a->links->IsUp(1); }));
  EXPECT_EQ(a->links->PeersUp(), 0u);
  EXPECT_FALSE(a->links->Send(1, FrameType::kProbe, Message(1)));
  EXPECT_TRUE(RunUntil({a.get()}, [&] {
    return !a->links->SendBack(Address{1, 0}, FrameType::kProbe, Message(1));
  }));
  RunFor({a.get()}, 100);
  b = Boot({1, 0}, 8);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  EXPECT_THAT(a->heard.lines, testing::ElementsAre("up 1 epoch 7", "lost 1 epoch 7", "up 1 epoch 8"));
  EXPECT_EQ(a->links->BootEpoch(1), 8u);
}

TEST_P(LinksTest, Peer_MessagesNeverReachALaterIncarnation) {
  auto a = Boot({0, 0}, 1);
  auto b = Boot({1, 0}, 7);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  ASSERT_TRUE(b->links->Send(0, FrameType::kProbe, Message(1)));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return a->heard.lines.size() == 2; }));
  const Origin first = a->heard.last_origin;
  Kill(&b);
  // Sent while nobody has noticed yet.
  EXPECT_TRUE(a->links->Send(1, FrameType::kProbe, Message(2)));
  EXPECT_TRUE(a->links->SendBack(first, FrameType::kProbe, Message(3)));
  b = Boot({1, 0}, 8);
  EXPECT_TRUE(a->links->Send(1, FrameType::kProbe, Message(4)));
  a->links->Flush();
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] {
    return a->links->BootEpoch(1) == 8 && b->links->PeersUp() == 1 &&
           a->links->SendBack(Address{1, 0}, FrameType::kProbe, Message(5));
  }));
  EXPECT_FALSE(a->links->SendBack(first, FrameType::kProbe, Message(6))) << "an answer to the dead";
  EXPECT_TRUE(a->links->Send(1, FrameType::kProbe, Message(7)));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return b->heard.lines.size() >= 3; }));
  RunFor({a.get(), b.get()}, 50);
  EXPECT_THAT(b->heard.lines, testing::UnorderedElementsAre("up 0 epoch 1", "message 5 from 0.0 epoch 1",
                                                            "message 7 from 0.0 epoch 1"));
}

TEST_P(LinksTest, Hello_OfAnotherClusterIsRefusedWithAReason) {
  auto a = Boot({0, 0}, 1);
  LinksOptions other = Options({1, 0}, 1);
  other.cluster_id = "other";
  auto b = Boot(other);
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] {
    return a->links->HandshakesRefused() >= 3 && b->links->HandshakesRefused() >= 3;
  })) << "dialled again and again";
  EXPECT_TRUE(a->heard.lines.empty());
  EXPECT_TRUE(b->heard.lines.empty());
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] {
    return b->links->LastFailure(0).code() == absl::StatusCode::kPermissionDenied;
  }));
  const std::string reason(b->links->LastFailure(0).message());
  EXPECT_NE(reason.find("'cluster'"), std::string::npos) << reason;
  EXPECT_NE(reason.find("'other'"), std::string::npos) << reason;
}

TEST_P(LinksTest, Hello_OfAnotherUserIsRefused) {
  auto a = Boot({0, 0}, 1);
  LinksOptions strict = Options({1, 0}, 1);
  strict.uid = geteuid() + 1;
  auto b = Boot(strict);
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] { return b->links->HandshakesRefused() > 0; }));
  ASSERT_TRUE(RunUntil({a.get(), b.get()}, [&] {
    return std::string(a->links->LastFailure(1).message()).find("user") != std::string::npos;
  }));
  EXPECT_FALSE(a->links->IsUp(1));
  EXPECT_TRUE(RunUntil({a.get(), b.get()}, [&] { return b->links->IsUp(0); }))
      << "the other way is for a to judge";
}

TEST_P(LinksTest, Links_WithoutPeersHaveNothingToDo) {
  workers_per_island_ = {4};
  auto a = Boot({0, 2}, 1);
  EXPECT_EQ(a->links->PeersUp(), 0u);
  EXPECT_EQ(a->links->NextDeadlineNs(), INT64_MAX);
  EXPECT_EQ(a->links->Poll(), 0u);
}

TEST_P(LinksTest, Send_RefusesWhatNoFrameCanCarry) {
  auto a = Boot({0, 0}, 1);
  auto b = Boot({1, 0}, 1);
  ASSERT_TRUE(AllUp({a.get(), b.get()}));
  data::v1::ExecuteReply reply;
  reply.set_message(std::string(kMaxFrameBytes, 'x'));
  EXPECT_FALSE(a->links->Send(1, FrameType::kExecuteReply, reply));
  EXPECT_EQ(a->links->QueuedBytes(1), 0u);
  EXPECT_EQ(a->links->Traffic(1).messages_sent, 0u);
  EXPECT_TRUE(a->links->Send(1, FrameType::kProbe, Message(1)));
  EXPECT_EQ(a->links->QueuedBytes(1), kFrameHeaderBytes + Message(1).ByteSizeLong());
  const std::atomic<uint64_t>& published = a->links->Traffic(1).bytes_queued;
  EXPECT_EQ(published, 0u);
  a->links->PublishQueues();
  EXPECT_EQ(published, a->links->QueuedBytes(1));
}

// ---- one Links against a peer that the test plays itself ----

class ScriptedPeer : public testing::Test {
 protected:
  void Start(uint64_t epoch = 10) {
    LinksOptions options;
    options.cluster_id = "cluster";
    options.self = {0, 0};
    options.boot_epoch = epoch;
    options.workers_per_island = workers_per_island_;
    options.most_queued_bytes = most_queued_bytes_;
    transport_ = network_.Make({0, 0});
    links_ = std::make_unique<Links>(options, *transport_, clock_, heard_);
    peer_.transport = network_.Make({1, 0});
    ASSERT_TRUE(peer_.transport->Listen().ok());
    ASSERT_TRUE(links_->Start().ok());
    Step();
    ASSERT_EQ(peer_.seen.accepted.size(), 1u);
    link_ = peer_.seen.accepted[0];
    ASSERT_EQ(peer_.seen.frames.size(), 1u);
    ASSERT_EQ(peer_.seen.frames[0].type, FrameType::kHello);
  }
  ~ScriptedPeer() override { links_.reset(); }

  // The memory network carries everything at once: two rounds are enough for question and answer.
  void Step() {
    for (int i = 0; i < 3; ++i) {
      links_->Poll();
      links_->Flush();
      peer_.transport->Poll(peer_.seen);
      peer_.transport->Flush();
    }
  }
  void Say(ConnectionId connection, FrameType type, const google::protobuf::MessageLite& message) {
    peer_.transport->Send(connection, type, AsBytes(message.SerializeAsString()));
    peer_.transport->Flush();
    Step();
  }
  static data::v1::HelloReply Reply(uint64_t epoch) {
    data::v1::HelloReply reply;
    reply.set_accepted(true);
    reply.set_island(1);
    reply.set_boot_epoch(epoch);
    return reply;
  }
  static data::v1::Hello Greeting(uint64_t epoch) {
    data::v1::Hello hello;
    hello.set_cluster_id("cluster");
    hello.set_island(1);
    hello.set_boot_epoch(epoch);
    return hello;
  }
  ConnectionId DialLinks(const data::v1::Hello& hello) {
    const ConnectionId connection = peer_.transport->Dial({0, 0});
    Say(connection, FrameType::kHello, hello);
    return connection;
  }
  // The answer that `connection` got to its hello.
  data::v1::HelloReply AnswerTo(ConnectionId connection) {
    data::v1::HelloReply reply;
    for (const Recorder::Frame& frame : peer_.seen.frames) {
      if (frame.connection != connection || frame.type != FrameType::kHelloReply) continue;
      EXPECT_TRUE(reply.ParseFromString(frame.payload));
      return reply;
    }
    ADD_FAILURE() << "no answer";
    return reply;
  }

  std::vector<uint32_t> workers_per_island_{1, 1};
  size_t most_queued_bytes_ = LinksOptions().most_queued_bytes;
  runtime::ManualClock clock_;
  TestNetwork network_{"memory"};
  std::unique_ptr<Transport> transport_;
  Listener heard_;
  std::unique_ptr<Links> links_;
  Node peer_;
  ConnectionId link_ = 0;  // the one that Links dialled, as the peer sees it
};

TEST_F(ScriptedPeer, Hello_SaysWhoDialsWhom) {
  Start();
  data::v1::Hello hello;
  ASSERT_TRUE(hello.ParseFromString(peer_.seen.frames[0].payload));
  EXPECT_EQ(hello.cluster_id(), "cluster");
  EXPECT_EQ(hello.island(), 0u);
  EXPECT_EQ(hello.worker(), 0u);
  EXPECT_EQ(hello.boot_epoch(), 10u);
  EXPECT_EQ(hello.to_island(), 1u);
}

TEST_F(ScriptedPeer, Hello_Refused) {
  workers_per_island_ = {2, 3};
  Start();
  struct Case {
    std::string expected;
    std::function<void(data::v1::Hello&)> spoil;
  };
  const Case cases[] = {
      {"not island 5", [](auto& hello) { hello.set_to_island(5); }},
      {"does not expect an island 0", [](auto& hello) { hello.set_island(0); }},
      {"does not expect an island 2", [](auto& hello) { hello.set_island(2); }},
      {"does not serve worker 1", [](auto& hello) { hello.set_worker(1); }},  // worker 1 of 2 would
      {"does not serve worker 4", [](auto& hello) { hello.set_worker(4); }},  // there are three
      {"of cluster ''", [](auto& hello) { hello.set_cluster_id(""); }},
      {"counted from 1", [](auto& hello) { hello.set_boot_epoch(0); }},
  };
  uint64_t refused = 0;
  for (const Case& refusal : cases) {
    data::v1::Hello hello = Greeting(1);
    refusal.spoil(hello);
    const ConnectionId connection = DialLinks(hello);
    const data::v1::HelloReply reply = AnswerTo(connection);
    EXPECT_FALSE(reply.accepted());
    EXPECT_NE(reply.reason().find(refusal.expected), std::string::npos) << reply.reason();
    EXPECT_EQ(links_->HandshakesRefused(), ++refused);
    Say(connection, FrameType::kProbe, Message(1));
  }
  EXPECT_TRUE(heard_.lines.empty());
  const ConnectionId good = DialLinks(Greeting(1));
  EXPECT_TRUE(AnswerTo(good).accepted());
  Say(good, FrameType::kProbe, Message(2));
  EXPECT_THAT(heard_.lines, testing::ElementsAre("message 2 from 1.0 epoch 1"));
}

TEST_F(ScriptedPeer, Hello_MessagesBeforeItEndTheLink) {
  Start();
  const ConnectionId connection = peer_.transport->Dial({0, 0});
  Say(connection, FrameType::kProbe, Message(1));
  EXPECT_EQ(peer_.seen.closed[connection], 1);
  EXPECT_TRUE(heard_.lines.empty());
  EXPECT_EQ(links_->HandshakesRefused(), 1u);
}

TEST_F(ScriptedPeer, Hello_TwiceEndsTheLink) {
  Start();
  const ConnectionId connection = DialLinks(Greeting(1));
  Say(connection, FrameType::kHello, Greeting(1));
  EXPECT_EQ(peer_.seen.closed[connection], 1);
  EXPECT_FALSE(links_->SendBack(Address{1, 0}, FrameType::kProbe, Message(1)));
}

TEST_F(ScriptedPeer, Hello_BrokenEndsTheLink) {
  Start();
  const ConnectionId connection = peer_.transport->Dial({0, 0});
  peer_.transport->Send(connection, FrameType::kHello, AsBytes("\xff\xff\xff\xff"));
  peer_.transport->Flush();
  Step();
  EXPECT_EQ(peer_.seen.closed[connection], 1);
  EXPECT_EQ(links_->HandshakesRefused(), 1u);
}

TEST_F(ScriptedPeer, Hello_ALaterLinkReplacesTheEarlier) {
  Start();
  const ConnectionId first = DialLinks(Greeting(3));
  EXPECT_TRUE(links_->Hears({{1, 0}, 3}));
  const ConnectionId second = DialLinks(Greeting(3));
  EXPECT_EQ(peer_.seen.closed[first], 1);
  EXPECT_THAT(heard_.origins,
              testing::ElementsAre("origin 1.0 up epoch 3", "origin 1.0 lost epoch 3 after 0 messages",
                                   "origin 1.0 up epoch 3"));
  EXPECT_TRUE(links_->Hears({{1, 0}, 3}));
  ASSERT_TRUE(links_->SendBack(Address{1, 0}, FrameType::kProbe, Message(1)));
  Step();
  EXPECT_EQ(peer_.seen.frames.back().connection, second);
}

// Whoever died may have said something that was not read yet when its next life was there.
TEST_F(ScriptedPeer, Hello_OfALaterEpoch_WhatTheEarlierOneSaidIsReadToItsEnd) {
  workers_per_island_ = {1, 2};
  Start();
  Say(link_, FrameType::kHelloReply, Reply(3));
  const ConnectionId old_one = DialLinks(Greeting(3));
  ASSERT_TRUE(links_->IsUp(1));
  heard_.lines.clear();
  DialLinks(Greeting(4));
  data::v1::Hello other = Greeting(4);
  other.set_worker(1);
  DialLinks(other);
  EXPECT_EQ(links_->NewestEpoch(1), 4u);
  EXPECT_TRUE(links_->Hears({{1, 0}, 3}));
  EXPECT_TRUE(links_->Hears({{1, 0}, 4}));
  Say(old_one, FrameType::kProbe, Message(1));
  Say(link_, FrameType::kProbe, Message(2));
  EXPECT_THAT(heard_.lines, testing::ElementsAre("message 1 from 1.0 epoch 3", "message 2 from 1.0 epoch 3"));
  // Nothing is said to the dead.
  EXPECT_FALSE(links_->SendBack(Origin{{1, 0}, 3}, FrameType::kProbe, Message(1)));
  EXPECT_TRUE(links_->SendBack(Origin{{1, 0}, 4}, FrameType::kProbe, Message(1)));
  EXPECT_TRUE(links_->SendBack(Address{1, 1}, FrameType::kProbe, Message(1)));
  peer_.transport->Close(old_one);
  peer_.transport->Close(link_);
  Step();
  EXPECT_FALSE(links_->Hears({{1, 0}, 3}));
  EXPECT_TRUE(links_->Hears({{1, 0}, 4}));
  EXPECT_EQ(heard_.lines.back(), "lost 1 epoch 3");
  EXPECT_EQ(heard_.origins.back(), "origin 1.0 lost epoch 3 after 2 messages");
  // The dead one's hello, late.
  const ConnectionId late = DialLinks(Greeting(3));
  EXPECT_FALSE(AnswerTo(late).accepted());
  EXPECT_NE(AnswerTo(late).reason().find("epoch 4"), std::string::npos) << AnswerTo(late).reason();
}

TEST_F(ScriptedPeer, Send_ToOneWhoTakesNothingEndsTheLink) {
  most_queued_bytes_ = 100'000;
  Start();
  Say(link_, FrameType::kHelloReply, Reply(3));
  data::v1::ExecuteReply large;
  large.set_message(std::string(60'000, 'x'));
  EXPECT_TRUE(links_->Send(1, FrameType::kExecuteReply, large));
  links_->Poll();
  EXPECT_TRUE(links_->IsUp(1));
  EXPECT_TRUE(links_->Send(1, FrameType::kExecuteReply, large));
  EXPECT_TRUE(links_->IsUp(1)) << "whoever sends must not lose a peer on the way";
  links_->Poll();
  EXPECT_FALSE(links_->IsUp(1));
  EXPECT_EQ(links_->LastFailure(1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(heard_.lines.back(), "lost 1 epoch 3");
}

TEST_F(ScriptedPeer, HelloReply_Refused) {
  Start();
  data::v1::HelloReply reply = Reply(3);
  reply.set_accepted(false);
  reply.set_reason("do not like you");
  Say(link_, FrameType::kHelloReply, reply);
  EXPECT_FALSE(links_->IsUp(1));
  EXPECT_NE(std::string(links_->LastFailure(1).message()).find("do not like you"), std::string::npos);
  EXPECT_EQ(peer_.seen.closed[link_], 1);
}

TEST_F(ScriptedPeer, HelloReply_FromTheWrongOneIsNoPeer) {
  Start();
  data::v1::HelloReply reply = Reply(3);
  reply.set_island(2);
  Say(link_, FrameType::kHelloReply, reply);
  EXPECT_FALSE(links_->IsUp(1));
  EXPECT_EQ(links_->HandshakesRefused(), 1u);
  EXPECT_NE(std::string(links_->LastFailure(1).message()).find("reached island 2"), std::string::npos);
}

TEST_F(ScriptedPeer, HelloReply_WithoutAnEpochIsNoPeer) {
  Start();
  Say(link_, FrameType::kHelloReply, Reply(0));
  EXPECT_FALSE(links_->IsUp(1));
  EXPECT_EQ(links_->HandshakesRefused(), 1u);
  links_->CheckInvariants();
}

TEST_F(ScriptedPeer, HelloReply_OfAnOlderEpochIsNoPeer) {
  Start();
  DialLinks(Greeting(4));
  Say(link_, FrameType::kHelloReply, Reply(3));
  EXPECT_FALSE(links_->IsUp(1));
  EXPECT_TRUE(heard_.lines.empty());
}

TEST_F(ScriptedPeer, Dialled_MessagesBeforeTheReplyEndTheLink) {
  Start();
  Say(link_, FrameType::kProbe, Message(1));
  EXPECT_TRUE(heard_.lines.empty());
  EXPECT_EQ(peer_.seen.closed[link_], 1);
}

TEST_F(ScriptedPeer, Dialled_UnknownFrameTypesEndTheLink) {
  Start();
  Say(link_, FrameType::kHelloReply, Reply(3));
  Say(link_, FrameType::kControlRequest, Message(1));
  EXPECT_THAT(heard_.lines, testing::ElementsAre("up 1 epoch 3", "lost 1 epoch 3"));
}

TEST_F(ScriptedPeer, Handshake_TimesOutOnBothSides) {
  Start();
  const ConnectionId silent = peer_.transport->Dial({0, 0});
  Step();
  EXPECT_EQ(links_->NextDeadlineNs(), clock_.NowNs() + 5 * kNsPerSecond);
  clock_.AdvanceNs(5 * kNsPerSecond - 1);
  Step();
  EXPECT_TRUE(peer_.seen.closed.empty());
  clock_.AdvanceNs(1);
  Step();
  EXPECT_EQ(peer_.seen.closed[link_], 1);
  EXPECT_EQ(peer_.seen.closed[silent], 1);
  EXPECT_EQ(links_->LastFailure(1).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(links_->HandshakesRefused(), 1u);
}

TEST_F(ScriptedPeer, Redial_BacksOffAndStartsAnewAfterSuccess) {
  Start();
  // Refused each time: 20, 40, ... 500 ms between attempts.
  const auto refuse_latest = [&] {
    data::v1::HelloReply reply = Reply(3);
    reply.set_accepted(false);
    Say(peer_.seen.accepted.back(), FrameType::kHelloReply, reply);
  };
  for (const int64_t wait_ms : {20, 40, 80, 160, 320, 500, 500}) {
    const size_t attempts = peer_.seen.accepted.size();
    refuse_latest();
    EXPECT_EQ(links_->NextDeadlineNs(), clock_.NowNs() + wait_ms * kNsPerMs);
    clock_.AdvanceNs(wait_ms * kNsPerMs - 1);
    Step();
    EXPECT_EQ(peer_.seen.accepted.size(), attempts);
    clock_.AdvanceNs(1);
    Step();
    EXPECT_EQ(peer_.seen.accepted.size(), attempts + 1);
  }
  Say(peer_.seen.accepted.back(), FrameType::kHelloReply, Reply(3));
  EXPECT_TRUE(links_->IsUp(1));
  EXPECT_EQ(links_->NextDeadlineNs(), INT64_MAX) << "nothing to do while all are up";
  peer_.transport->Close(peer_.seen.accepted.back());
  Step();
  EXPECT_EQ(links_->NextDeadlineNs(), clock_.NowNs() + 20 * kNsPerMs);
}

TEST_F(ScriptedPeer, Poll_CountsWhatItHandled) {
  Start();
  EXPECT_EQ(links_->Poll(), 0u);
  peer_.transport->Send(link_, FrameType::kHelloReply, AsBytes(Reply(3).SerializeAsString()));
  peer_.transport->Flush();
  EXPECT_EQ(links_->Poll(), 1u);
  EXPECT_EQ(links_->Poll(), 0u);
}

}  // namespace
}  // namespace islands::messaging
