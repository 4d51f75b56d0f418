// The invariants of transport.h, for every transport alike.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <random>
#include <set>

#include "instance/messaging/frame_scan.h"
#include "instance/messaging/transport_test_util.h"
#include "instance/messaging/uds_transport.h"
#include "instance/messaging/unix_socket.h"
#include "instance/messaging/zmq_transport.h"

namespace islands::messaging {
namespace {

constexpr Address kA{0, 0};
constexpr Address kB{1, 0};

// uds, with connections that have become hot before the test begins.
constexpr const char* kHotUds = "hot_uds";

class TransportConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    a_.transport = network_.Make(kA);
    b_.transport = network_.Make(kB);
    ASSERT_TRUE(a_.transport->Listen().ok());
    ASSERT_TRUE(b_.transport->Listen().ok());
  }

  // A dials B; both ends know the connection afterwards.
  void Connect() {
    const size_t before = b_.seen.accepted.size();
    dialled_ = a_.transport->Dial(kB);
    ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.accepted.size() > before; }));
    accepted_ = b_.seen.accepted.back();
    if (GetParam() == kHotUds) Heat();
  }

  // Frames go to and fro until both ends ask the socket rather than epoll.
  void Heat() {
    for (size_t i = 1; i <= 50; ++i) {
      Send(a_, dialled_, "ping");
      Send(b_, accepted_, "pong");
      a_.transport->Flush();
      b_.transport->Flush();
      while (a_.seen.frames.size() < i) a_.transport->Poll(a_.seen);
      while (b_.seen.frames.size() < i) b_.transport->Poll(b_.seen);
    }
    a_.seen.frames.clear();
    b_.seen.frames.clear();
  }

  void Send(Node& node, ConnectionId connection, std::string_view payload,
            FrameType type = FrameType::kVote) {
    node.transport->Send(connection, type, AsBytes(payload));
  }

  TestNetwork network_{GetParam() == kHotUds ? "uds" : GetParam()};
  Node a_;
  Node b_;
  ConnectionId dialled_ = 0;
  ConnectionId accepted_ = 0;
};

std::string KindName(const testing::TestParamInfo<std::string>& info) { return info.param; }
#ifdef ISLANDS_TSAN  // cannot see into libzmq's own synchronization
INSTANTIATE_TEST_SUITE_P(Every, TransportConformance, testing::Values("uds", kHotUds, "shm", "memory"),
                         KindName);
#else
INSTANTIATE_TEST_SUITE_P(Every, TransportConformance, testing::Values("uds", kHotUds, "shm", "zmq", "memory"),
                         KindName);
#endif

TEST_P(TransportConformance, Dial_TellsTheAcceptorWhoItIs) {
  Connect();
  EXPECT_NE(dialled_, 0u);
  EXPECT_NE(accepted_, 0u);
  EXPECT_EQ(b_.seen.uids.back(), static_cast<int64_t>(geteuid()));
  EXPECT_TRUE(a_.seen.accepted.empty());
}

TEST_P(TransportConformance, Send_ArrivesWholeOnceAndInOrder) {
  Connect();
  std::mt19937_64 random(1);
  std::vector<std::string> sent;
  for (int i = 0; i < 3000; ++i) {
    std::string payload = fmt::format("{}:", i);
    payload.resize(i % 7 == 0 ? 0 : payload.size() + random() % 2000, static_cast<char>(i));
    sent.push_back(payload);
    Send(a_, dialled_, payload, static_cast<FrameType>(3 + i % 12));
    Send(b_, accepted_, payload, static_cast<FrameType>(3 + i % 12));
    if (i % 13 == 0) PumpUntil({&a_, &b_}, [rounds = 0]() mutable { return ++rounds > 2; });
  }
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] {
    return a_.seen.frames.size() >= sent.size() && b_.seen.frames.size() >= sent.size();
  }));
  PumpFor({&a_, &b_});
  for (Node* node : {&a_, &b_}) {
    ASSERT_EQ(node->seen.frames.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(node->seen.frames[i].payload, sent[i]) << i;
      ASSERT_EQ(node->seen.frames[i].type, static_cast<FrameType>(3 + i % 12));
      ASSERT_EQ(node->seen.frames[i].connection, node == &a_ ? dialled_ : accepted_);
    }
    EXPECT_TRUE(node->seen.closed.empty());
  }
}

TEST_P(TransportConformance, Send_RightAfterDial) {
  const ConnectionId connection = a_.transport->Dial(kB);
  Send(a_, connection, "early");
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return !b_.seen.frames.empty(); }));
  EXPECT_EQ(b_.seen.frames[0].payload, "early");
  EXPECT_EQ(b_.seen.frames[0].connection, b_.seen.accepted.at(0));
}

TEST_P(TransportConformance, Send_WaitsForFlush) {
  Connect();
  Send(a_, dialled_, "queued");
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), kFrameHeaderBytes + 6);
  PumpFor({&b_});
  EXPECT_TRUE(b_.seen.frames.empty());
  a_.transport->Flush();
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), 0u);
  EXPECT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.frames.size() == 1; }));
}

TEST_P(TransportConformance, Send_BigFramesUpToTheCap) {
  Connect();
  std::vector<std::string> sent;
  for (const size_t bytes : {size_t{1} << 20, (size_t{1} << 20) + 1, size_t{3} << 20, kMaxFrameBytes}) {
    std::string payload(bytes, '\0');
    for (size_t i = 0; i < bytes; i += 1009) payload[i] = static_cast<char>(i / 1009);
    Send(a_, dialled_, "small before");
    Send(a_, dialled_, payload);
    sent.emplace_back("small before");
    sent.push_back(std::move(payload));
  }
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.frames.size() >= sent.size(); }));
  for (size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(b_.seen.frames[i].payload == sent[i]) << i;
}

TEST_P(TransportConformance, Send_BothDirectionsFullWithoutDeadlock) {
  Connect();
  constexpr size_t kFrames = 400;
  const std::string payload(64 << 10, 'x');
  for (size_t i = 0; i < kFrames; ++i) {
    Send(a_, dialled_, payload);
    Send(b_, accepted_, payload);
    a_.transport->Flush();
    b_.transport->Flush();
  }
  EXPECT_GT(a_.transport->QueuedBytes(dialled_), 0u);
  EXPECT_GT(b_.transport->QueuedBytes(accepted_), 0u);
  // No Flush any more: what is queued leaves by Poll alone.
  ASSERT_TRUE(RunUntil([&] { return a_.seen.frames.size() == kFrames && b_.seen.frames.size() == kFrames; },
                       [&] {
                         a_.transport->Poll(a_.seen);
                         b_.transport->Poll(b_.seen);
                       }));
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), 0u);
  EXPECT_EQ(b_.transport->QueuedBytes(accepted_), 0u);
}

// What a handler sends speaks of what the worker has not shown in its log yet: it must not leave with what a
// full connection takes at last.
TEST_P(TransportConformance, Send_OfAHandlerWaitsForFlushOnAFullConnectionToo) {
  Connect();
  const std::string payload(64 << 10, 'x');
  size_t frames = 0;
  for (; frames < 2000 && a_.transport->QueuedBytes(dialled_) == 0; ++frames) {
    Send(a_, dialled_, payload);
    a_.transport->Flush();
  }
  ASSERT_GT(a_.transport->QueuedBytes(dialled_), 0u);
  bool handled = false;
  a_.seen.on_frame = [&](ConnectionId connection, FrameType, std::span<const std::byte>) {
    handled = true;
    Send(a_, connection, "of the handler");
  };
  Send(b_, accepted_, "to be answered");
  b_.transport->Flush();
  PumpFor({&b_});  // takes what is under way: there is room again, and A has not looked
  ASSERT_TRUE(RunUntil([&] { return handled; }, [&] { a_.transport->Poll(a_.seen); }));
  PumpFor({&b_});
  for (const Recorder::Frame& frame : b_.seen.frames) ASSERT_EQ(frame.payload.size(), payload.size());
  a_.seen.on_frame = nullptr;
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.frames.size() == frames + 1; }));
}

// ... at no moment of its draining, and whichever connection the handler was called for.
TEST_P(TransportConformance, Send_OfHandlersWaitsForFlushWhileAFullConnectionDrains) {
  Connect();
  Node c{network_.Make({2, 0}), {}};
  const ConnectionId from_c = c.transport->Dial(kA);
  Send(c, from_c, "hello");
  ASSERT_TRUE(PumpUntil({&a_, &b_, &c}, [&] { return !a_.seen.frames.empty(); }));
  const std::string payload(64 << 10, 'x');
  size_t frames = 0;
  for (; frames < 2000 && a_.transport->QueuedBytes(dialled_) < (4 << 20); ++frames) {
    Send(a_, dialled_, payload);
    a_.transport->Flush();
  }
  ASSERT_GE(a_.transport->QueuedBytes(dialled_), size_t{4 << 20});
  const std::string words = "of the handler";
  size_t handled = 0;
  a_.seen.on_frame = [&](ConnectionId, FrameType, std::span<const std::byte>) {
    ++handled;
    Send(a_, dialled_, words);
  };
  for (int i = 0; i < 3; ++i) {  // while it is still full, too
    Send(c, from_c, "to be answered");
    c.transport->Flush();
    ASSERT_TRUE(
        RunUntil([&] { return handled > static_cast<size_t>(i); }, [&] { a_.transport->Poll(a_.seen); }));
  }
  // Handlers are what is counted, not rounds: how many rounds a frame takes is the machine's affair.
  std::optional<size_t> handled_when_drained;
  ASSERT_TRUE(RunUntil([&] { return handled_when_drained && handled >= *handled_when_drained + 100; },
                       [&] {
                         Send(c, from_c, "to be answered");
                         c.transport->Flush();
                         b_.transport->Poll(b_.seen);
                         a_.transport->Poll(a_.seen);
                         c.transport->Poll(c.seen);
                         if (!handled_when_drained && b_.seen.frames.size() >= frames) {
                           handled_when_drained = handled;
                         }
                       }));
  EXPECT_EQ(b_.seen.frames.size(), frames);
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), handled * (kFrameHeaderBytes + words.size()));
  a_.seen.on_frame = nullptr;
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.frames.size() == frames + handled; }));
}

TEST_P(TransportConformance, Wait_ReturnsWhenAFullConnectionDrains) {
  Connect();
  const std::string payload(64 << 10, 'x');
  size_t frames = 0;
  for (; frames < 2000 && a_.transport->QueuedBytes(dialled_) < (1 << 20); ++frames) {
    Send(a_, dialled_, payload);
    a_.transport->Flush();
  }
  ASSERT_GT(a_.transport->QueuedBytes(dialled_), 0u);
  // The sender only ever sleeps and polls; the long Wait must not be what moves it on.
  const auto start = std::chrono::steady_clock::now();
  std::thread receiver([&] { PumpUntil({&b_}, [&] { return b_.seen.frames.size() == frames; }); });
  while (a_.transport->QueuedBytes(dialled_) > 0) {
    a_.transport->Wait(20 * runtime::kNsPerSecond);
    a_.transport->Poll(a_.seen);
  }
  receiver.join();
  EXPECT_EQ(b_.seen.frames.size(), frames);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(TransportConformance, Dial_ToNobodyIsReportedOnce) {
  const ConnectionId connection = a_.transport->Dial({7, 3});
  EXPECT_NE(connection, 0u);
  Send(a_, connection, "lost");
  a_.transport->Flush();
  ASSERT_TRUE(PumpUntil({&a_}, [&] { return a_.seen.closed.contains(connection); }));
  EXPECT_FALSE(a_.seen.last_closed.ok());
  Send(a_, connection, "lost");
  a_.transport->Close(connection);
  PumpFor({&a_});
  EXPECT_EQ(a_.seen.closed.at(connection), 1);
  EXPECT_EQ(a_.transport->QueuedBytes(connection), 0u);
}

TEST_P(TransportConformance, Wait_ReturnsForAFailedDial) {
  const auto start = std::chrono::steady_clock::now();
  const ConnectionId connection = a_.transport->Dial({7, 3});
  while (!a_.seen.closed.contains(connection)) {
    a_.transport->Wait(20 * runtime::kNsPerSecond);
    a_.transport->Poll(a_.seen);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(TransportConformance, Peer_DeathOfTheAcceptor) {
  Connect();
  Send(b_, accepted_, "last words");
  b_.transport->Flush();
  // Past this the words are on their way even where an I/O thread carries them.
  ASSERT_TRUE(PumpUntil({&a_}, [&] { return !a_.seen.frames.empty(); }));
  b_.transport.reset();
  ASSERT_TRUE(PumpUntil({&a_}, [&] { return a_.seen.closed.contains(dialled_); }));
  EXPECT_FALSE(a_.seen.last_closed.ok());
  Send(a_, dialled_, "into the void");
  PumpFor({&a_});
  EXPECT_EQ(a_.seen.closed.at(dialled_), 1);
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), 0u);
}

TEST_P(TransportConformance, Peer_DeathOfTheDialler) {
  Connect();
  a_.transport.reset();
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.closed.contains(accepted_); }));
  Send(b_, accepted_, "into the void");
  PumpFor({&b_});
  EXPECT_EQ(b_.seen.closed.at(accepted_), 1);
}

TEST_P(TransportConformance, Peer_DeathWhileSleeping) {
  Connect();
  const auto start = std::chrono::steady_clock::now();
  std::thread killer([&] { a_.transport.reset(); });
  while (!b_.seen.closed.contains(accepted_)) {
    b_.transport->Wait(20 * runtime::kNsPerSecond);
    b_.transport->Poll(b_.seen);
  }
  killer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(TransportConformance, Peer_DeathWithAFullQueue) {
  Connect();
  const std::string payload(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) Send(a_, dialled_, payload);
  a_.transport->Flush();
  b_.transport.reset();
  ASSERT_TRUE(PumpUntil({&a_}, [&] { return a_.seen.closed.contains(dialled_); }));
  PumpFor({&a_});
  EXPECT_EQ(a_.seen.closed.at(dialled_), 1);
}

TEST_P(TransportConformance, Peer_NothingReachesALaterIncarnation) {
  Connect();
  const ConnectionId first = dialled_;
  Send(a_, first, "for the first");
  b_.transport.reset();
  Node second;
  second.transport = network_.Make(kB);
  ASSERT_TRUE(second.transport->Listen().ok());
  Send(a_, first, "for the first, too");
  ASSERT_TRUE(PumpUntil({&a_, &second}, [&] { return a_.seen.closed.contains(first); }));
  const ConnectionId again = a_.transport->Dial(kB);
  EXPECT_NE(again, first);
  Send(a_, again, "for the second");
  ASSERT_TRUE(PumpUntil({&a_, &second}, [&] { return !second.seen.frames.empty(); }));
  PumpFor({&a_, &second});
  ASSERT_EQ(second.seen.frames.size(), 1u);
  EXPECT_EQ(second.seen.frames[0].payload, "for the second");
  EXPECT_EQ(second.seen.accepted.size(), 1u);
}

TEST_P(TransportConformance, Close_IsReportedToThePeerOnly) {
  Connect();
  a_.transport->Close(dialled_);
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.closed.contains(accepted_); }));
  Connect();
  b_.transport->Close(accepted_);
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return a_.seen.closed.contains(dialled_); }));
  PumpFor({&a_, &b_});
  EXPECT_EQ(a_.seen.closed.size(), 1u);
  EXPECT_EQ(b_.seen.closed.size(), 1u);
}

TEST_P(TransportConformance, Close_FromAHandlerEndsTheBatch) {
  Connect();
  std::string inside;
  b_.seen.on_frame = [&](ConnectionId connection, FrameType, std::span<const std::byte> payload) {
    b_.transport->Close(connection);
    inside = AsString(payload);  // valid until the handler returns
  };
  for (int i = 0; i < 5; ++i) Send(a_, dialled_, fmt::format("frame {}", i));
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return a_.seen.closed.contains(dialled_); }));
  PumpFor({&a_, &b_});
  ASSERT_EQ(b_.seen.frames.size(), 1u);
  EXPECT_EQ(inside, "frame 0");
  EXPECT_TRUE(b_.seen.closed.empty());
}

TEST_P(TransportConformance, Handler_MaySendAndDial) {
  Connect();
  ConnectionId back = 0;
  b_.seen.on_frame = [&](ConnectionId connection, FrameType type, std::span<const std::byte> payload) {
    b_.transport->Send(connection, type, payload);
    if (back != 0) return;
    back = b_.transport->Dial(kA);
    b_.transport->Send(back, type, AsBytes("dialled back"));
  };
  for (int i = 0; i < 100; ++i) Send(a_, dialled_, fmt::format("{}", i));
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return a_.seen.frames.size() == 101; }));
  int echo = 0;
  for (const Recorder::Frame& frame : a_.seen.frames) {
    if (frame.connection == dialled_) {
      EXPECT_EQ(frame.payload, fmt::format("{}", echo++));
    } else {
      EXPECT_EQ(frame.payload, "dialled back");
    }
  }
  EXPECT_EQ(echo, 100);
}

TEST_P(TransportConformance, Ids_AreNeverUsedTwice) {
  std::set<ConnectionId> dialled;
  for (int i = 0; i < 100; ++i) {
    Connect();
    EXPECT_TRUE(dialled.insert(dialled_).second);
    (i % 2 == 0 ? a_ : b_).transport->Close(i % 2 == 0 ? dialled_ : accepted_);
    EXPECT_TRUE(dialled.insert(a_.transport->Dial({9, 0})).second);
  }
  EXPECT_EQ(std::set<ConnectionId>(b_.seen.accepted.begin(), b_.seen.accepted.end()).size(), 100u);
  ASSERT_TRUE(
      PumpUntil({&a_, &b_}, [&] { return a_.seen.closed.size() == 150 && b_.seen.closed.size() == 50; }));
  PumpFor({&a_, &b_});
  for (const auto& [connection, times] : a_.seen.closed) EXPECT_EQ(times, 1);
  for (const auto& [connection, times] : b_.seen.closed) EXPECT_EQ(times, 1);
}

TEST_P(TransportConformance, Listen_RefusesAnAddressInUse) {
  const std::unique_ptr<Transport> rival = network_.Make(kA);
  const absl::Status status = rival->Listen();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  Node c;
  c.transport = network_.Make({2, 0});
  Send(c, c.transport->Dial(kA), "are you there");
  EXPECT_TRUE(PumpUntil({&a_, &c}, [&] { return a_.seen.frames.size() == 1; }))
      << "the first one still serves";
}

TEST_P(TransportConformance, Wait_TimesOut) {
  Connect();
  PumpFor({&a_, &b_});
  while (a_.transport->Poll(a_.seen) > 0) {
  }
  a_.transport->Wait(0);
  const auto start = std::chrono::steady_clock::now();
  a_.transport->Wait(300 * runtime::kNsPerUs);
  a_.transport->Wait(3 * runtime::kNsPerMs);
  const auto slept = std::chrono::steady_clock::now() - start;
  EXPECT_GE(slept, std::chrono::milliseconds(3));
  EXPECT_LT(slept, std::chrono::seconds(5));
}

TEST_P(TransportConformance, Wait_ReturnsForAFrame) {
  Connect();
  const auto start = std::chrono::steady_clock::now();
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Send(a_, dialled_, "wake up");
    a_.transport->Flush();
  });
  while (b_.seen.frames.empty()) {
    b_.transport->Wait(20 * runtime::kNsPerSecond);
    b_.transport->Poll(b_.seen);
  }
  sender.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(TransportConformance, Wait_ReturnsForAnAnswerThatCameDuringASend) {
  // A transport whose sending looks at its input must not sleep over what it saw there.
  Connect();
  std::atomic<bool> stop{false};
  b_.seen.on_frame = [&](ConnectionId connection, FrameType type, std::span<const std::byte> payload) {
    b_.transport->Send(connection, type, payload);
    b_.transport->Flush();
  };
  std::thread echo([&] {
    while (!stop) {
      b_.transport->Wait(runtime::kNsPerMs);
      b_.transport->Poll(b_.seen);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 1; i <= 2000; ++i) {
    Send(a_, dialled_, "ping");
    a_.transport->Flush();
    while (a_.seen.frames.size() < i) {
      a_.transport->Wait(20 * runtime::kNsPerSecond);
      a_.transport->Poll(a_.seen);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  stop = true;
  echo.join();
}

TEST_P(TransportConformance, Wake_EndsASleep) {
  const auto start = std::chrono::steady_clock::now();
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    a_.transport->Wake();
  });
  a_.transport->Poll(a_.seen);
  a_.transport->Wait(20 * runtime::kNsPerSecond);
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_P(TransportConformance, Wake_CountsUntilTheNextWait) {
  const auto start = std::chrono::steady_clock::now();
  a_.transport->Wake();
  a_.transport->Wake();
  a_.transport->Poll(a_.seen);
  a_.transport->Poll(a_.seen);
  a_.transport->Wait(20 * runtime::kNsPerSecond);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  // ... and not longer.
  PumpFor({&a_});
  const auto again = std::chrono::steady_clock::now();
  a_.transport->Wait(5 * runtime::kNsPerMs);
  EXPECT_GE(std::chrono::steady_clock::now() - again, std::chrono::milliseconds(5));
}

TEST_P(TransportConformance, Connections_ManyAtOnce) {
  constexpr uint32_t kNodes = 24;
  std::vector<Node> nodes(kNodes);
  std::vector<Node*> pointers;
  std::vector<ConnectionId> connections;
  for (uint32_t i = 0; i < kNodes; ++i) {
    nodes[i].transport = network_.Make({100 + i, 0});
    pointers.push_back(&nodes[i]);
    connections.push_back(nodes[i].transport->Dial(kA));
    Send(nodes[i], connections[i], fmt::format("from {}", i));
  }
  pointers.push_back(&a_);
  a_.seen.on_frame = [&](ConnectionId connection, FrameType type, std::span<const std::byte> payload) {
    a_.transport->Send(connection, type, payload);
  };
  ASSERT_TRUE(PumpUntil(pointers, [&] {
    for (const Node& node : nodes) {
      if (node.seen.frames.empty()) return false;
    }
    return true;
  }));
  for (uint32_t i = 0; i < kNodes; ++i) EXPECT_EQ(nodes[i].seen.frames[0].payload, fmt::format("from {}", i));
  for (uint32_t i = 0; i < kNodes; i += 2) nodes[i].transport.reset();
  ASSERT_TRUE(PumpUntil(pointers, [&] { return a_.seen.closed.size() == kNodes / 2; }));
  a_.seen.frames.clear();
  for (uint32_t i = 1; i < kNodes; i += 2) Send(nodes[i], connections[i], "still there");
  EXPECT_TRUE(PumpUntil(pointers, [&] { return a_.seen.frames.size() == kNodes / 2; }));
}

// ---- another user's server: whoever could put one in a listener's place shall learn nothing ----

// Copies what clients say at the socket `path` into the descriptor `to`, until killed; '.' when it listens.
// It refuses nobody.
[[noreturn]] void ServeUds(const std::string& path, int to) {
  absl::StatusOr<UniqueFd> listener = ListenOn(path);
  if (!listener.ok() || chmod(path.c_str(), 0777) != 0 || write(to, ".", 1) != 1) _exit(1);
  std::vector<UniqueFd> clients;
  for (char buffer[4096];;) {
    clients.emplace_back(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!clients.back()) clients.pop_back();
    for (const UniqueFd& client : clients) {
      const ssize_t got = recv(client.get(), buffer, sizeof(buffer), 0);
      if (got > 0 && write(to, buffer, static_cast<size_t>(got)) < 0) _exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

[[noreturn]] void ServeZmq(const std::string& path, int to) {
  void* router = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
  if (zmq_bind(router, ("ipc://" + path).c_str()) != 0 || chmod(path.c_str(), 0777) != 0) _exit(1);
  if (write(to, ".", 1) != 1) _exit(1);
  for (char buffer[4096];;) {
    const int got = zmq_recv(router, buffer, sizeof(buffer), 0);
    if (got > 0 && write(to, buffer, static_cast<size_t>(got)) < 0) _exit(1);
  }
}

TEST_P(TransportConformance, Dial_AnotherUsersServerIsRefusedUnheard) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  if (GetParam() == "memory") return;  // stays within its process
  constexpr uid_t kNobody = 65534;
  constexpr Address kForeign{5, 0};
  const bool zmq = GetParam() == "zmq";
  const std::string path = (zmq ? ZmqSocketPath : UdsSocketPath)(network_.directory(), kForeign);
  ASSERT_EQ(chmod(network_.directory().c_str(), 0777), 0);
  int heard[2];
  ASSERT_EQ(pipe2(heard, O_CLOEXEC), 0);
  const pid_t server = fork();
  if (server == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(1);
    zmq ? ServeZmq(path, heard[1]) : ServeUds(path, heard[1]);
  }
  close(heard[1]);
  char said[4096] = {};
  ASSERT_EQ(read(heard[0], said, 1), 1);
  const ConnectionId connection = a_.transport->Dial(kForeign);
  Send(a_, connection, "secret");
  EXPECT_TRUE(PumpUntil({&a_}, [&] { return a_.seen.closed.contains(connection); }));
  PumpFor({&a_});
  EXPECT_EQ(a_.seen.last_closed.code(), absl::StatusCode::kPermissionDenied) << a_.seen.last_closed;
  EXPECT_EQ(a_.seen.closed[connection], 1);
  kill(server, SIGKILL);
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  EXPECT_EQ(read(heard[0], said, sizeof(said)), 0) << said;
  close(heard[0]);
}

// ---- bad bytes: what is not a frame ends its connection and nothing else ----

std::vector<std::string> BadFrames() {
  const auto frame = [](uint32_t bytes, uint8_t version, uint16_t zero) {
    FrameHeader header{bytes, version, static_cast<uint8_t>(FrameType::kVote), zero};
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
  };
  return {frame(kMaxFrameBytes + 1, kFrameVersion, 0),
          frame(~0u, kFrameVersion, 0),
          frame(0, kFrameVersion + 1, 0),
          frame(0, kFrameVersion, 1),
          std::string(64, '\xff'),
          "GET / HTTP/1.1\r\n\r\n"};
}

class BadBytes : public TransportConformance {};
INSTANTIATE_TEST_SUITE_P(Uds, BadBytes, testing::Values("uds"), KindName);

TEST_P(BadBytes, Uds_CloseThatConnectionOnly) {
  Connect();
  for (const std::string& bad : BadFrames()) {
    const size_t before = b_.seen.accepted.size();
    absl::StatusOr<UniqueFd> raw = ConnectTo(UdsSocketPath(network_.directory(), kB));
    ASSERT_TRUE(raw.ok()) << raw.status();
    std::vector<std::byte> good;
    AppendFrame(&good, FrameType::kVote, AsBytes("good"));
    ASSERT_EQ(send(raw->get(), good.data(), good.size(), 0), static_cast<ssize_t>(good.size()));
    ASSERT_EQ(send(raw->get(), bad.data(), bad.size(), 0), static_cast<ssize_t>(bad.size()));
    ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] {
      return b_.seen.accepted.size() > before && b_.seen.closed.contains(b_.seen.accepted.back());
    }));
    EXPECT_EQ(b_.seen.last_closed.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(b_.seen.frames.back().payload, "good") << "what came before it counts";
    char byte;
    EXPECT_EQ(recv(raw->get(), &byte, 1, 0), 0) << "hung up";
  }
  EXPECT_FALSE(b_.seen.closed.contains(accepted_));
  b_.seen.frames.clear();
  Send(a_, dialled_, "unharmed");
  EXPECT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.frames.size() == 1; }));
}

TEST_P(BadBytes, Uds_FramesMayComeByteByByte) {
  absl::StatusOr<UniqueFd> raw = ConnectTo(UdsSocketPath(network_.directory(), kB));
  ASSERT_TRUE(raw.ok());
  std::vector<std::byte> bytes;
  AppendFrame(&bytes, FrameType::kVote, AsBytes("slow"));
  AppendFrame(&bytes, FrameType::kDecision, AsBytes(""));
  for (const std::byte byte : bytes) {
    ASSERT_EQ(send(raw->get(), &byte, 1, 0), 1);
    b_.transport->Poll(b_.seen);
    b_.transport->Poll(b_.seen);
  }
  ASSERT_EQ(b_.seen.frames.size(), 2u);
  EXPECT_EQ(b_.seen.frames[0].payload, "slow");
  EXPECT_EQ(b_.seen.frames[1].type, FrameType::kDecision);
}

TEST_P(BadBytes, Uds_HalfAFrameAndTheEnd) {
  {
    absl::StatusOr<UniqueFd> raw = ConnectTo(UdsSocketPath(network_.directory(), kB));
    ASSERT_TRUE(raw.ok());
    std::vector<std::byte> bytes;
    AppendFrame(&bytes, FrameType::kVote, AsBytes("never finished"));
    ASSERT_EQ(send(raw->get(), bytes.data(), bytes.size() - 1, 0), static_cast<ssize_t>(bytes.size() - 1));
  }
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.closed.size() == 1; }));
  EXPECT_TRUE(b_.seen.frames.empty());
}

// ---- hot connections ----

// How many descriptors all epoll sets of this process watch.
size_t WatchedDescriptors() {
  size_t watched = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) watched += line.starts_with("tfd:") ? 1 : 0;
  }
  return watched;
}

class HotConnections : public TransportConformance {};
INSTANTIATE_TEST_SUITE_P(Uds, HotConnections, testing::Values("uds"), KindName);

TEST_P(HotConnections, Poll_HeatsAndCools) {
  Connect();
  const size_t watched = WatchedDescriptors();
  Heat();
  EXPECT_EQ(WatchedDescriptors(), watched - 2) << "both ends ask directly";
  a_.transport->Wait(0);
  EXPECT_EQ(WatchedDescriptors(), watched - 1) << "who goes to sleep needs epoll to wake him";
  for (int i = 0; i < 1000; ++i) b_.transport->Poll(b_.seen);
  EXPECT_EQ(WatchedDescriptors(), watched) << "nothing came for long";
  Heat();
  EXPECT_EQ(WatchedDescriptors(), watched - 2);
  a_.transport->Close(dialled_);
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.closed.contains(accepted_); }));
  EXPECT_EQ(WatchedDescriptors(), watched - 2) << "closed at both ends";
}

TEST_P(HotConnections, Poll_AFullSocketIsWatchedUntilItDrains) {
  Connect();
  const size_t watched = WatchedDescriptors();
  Heat();
  const std::string payload(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) Send(a_, dialled_, payload);
  a_.transport->Flush();
  ASSERT_GT(a_.transport->QueuedBytes(dialled_), 0u);
  EXPECT_EQ(WatchedDescriptors(), watched - 1);
  ASSERT_TRUE(PumpUntil({&a_, &b_}, [&] { return b_.seen.frames.size() == 20; }));
  EXPECT_EQ(a_.transport->QueuedBytes(dialled_), 0u);
}

TEST_P(HotConnections, Poll_DoesNotHeatWhoeverSleepsInBetween) {
  Connect();
  const size_t watched = WatchedDescriptors();
  for (size_t i = 1; i <= 100; ++i) {
    Send(a_, dialled_, "ping");
    a_.transport->Flush();
    ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.frames.size() == i; }));
    b_.transport->Wait(0);
  }
  EXPECT_EQ(WatchedDescriptors(), watched);
}

TEST_P(HotConnections, Poll_StillSeesTheOthers) {
  Connect();
  Heat();
  // Frames on the hot connection in every round; a new peer is accepted and heard nevertheless.
  Node c{network_.Make({2, 0}), {}};
  Send(c, c.transport->Dial(kB), "from the third");
  const auto heard = [&] {
    const auto& frames = b_.seen.frames;
    return !frames.empty() && frames.back().payload == "from the third";
  };
  c.transport->Flush();
  int rounds = 0;
  for (; !heard() && rounds < 100; ++rounds) {
    Send(a_, dialled_, "ping");
    a_.transport->Flush();
    b_.transport->Poll(b_.seen);
  }
  EXPECT_TRUE(heard());
  EXPECT_LE(rounds, 40);
}

// ---- socket files ----

TEST(UdsTransport, Listen_ReplacesAStaleSocketFile) {
  TestNetwork network("uds");
  const std::string path = UdsSocketPath(network.directory(), kA);
  { ASSERT_TRUE(ListenOn(path).ok()); }  // a dead process leaves its file behind
  ASSERT_TRUE(std::filesystem::exists(path));
  Node a{network.Make(kA), {}};
  ASSERT_TRUE(a.transport->Listen().ok());
  Node b{network.Make(kB), {}};
  b.transport->Dial(kA);
  EXPECT_TRUE(PumpUntil({&a, &b}, [&] { return a.seen.accepted.size() == 1; }));
  a.transport.reset();
  EXPECT_FALSE(std::filesystem::exists(path)) << "a clean end removes the file";
}

TEST(UdsTransport, Listen_LeavesOtherFilesAlone) {
  TestNetwork network("uds");
  std::ofstream(UdsSocketPath(network.directory(), kA)) << "precious";
  const std::unique_ptr<Transport> transport = network.Make(kA);
  EXPECT_EQ(transport->Listen().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(UdsSocketPath(network.directory(), kA)), 8u);
}

TEST(UdsTransport, Listen_NamesAMissingDirectory) {
  const auto transport = MakeTransport("uds", "/nonexistent/islands", kA);
  ASSERT_TRUE(transport.ok());
  const absl::Status status = (*transport)->Listen();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_NE(std::string(status.message()).find("/nonexistent/islands"), std::string::npos);
}

TEST(MakeTransport, PathTooLong) {
  for (const char* kind : {"uds", "shm", "zmq"}) {
    const auto fits =
        MakeTransport(kind, std::string(107 - std::string("/island-0.w0.sock").size(), 'd'), kA);
    EXPECT_TRUE(fits.ok()) << fits.status();
    const auto transport = MakeTransport(kind, std::string(95, 'd'), kA);
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(transport.status().message()).find("107"), std::string::npos) << transport.status();
  }
}

TEST(MakeTransport, UnknownKind) {
  const auto transport = MakeTransport("tcp", "run", kA);
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(transport.status().message()).find("tcp"), std::string::npos);
}

}  // namespace
}  // namespace islands::messaging
