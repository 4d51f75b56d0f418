// Two and more threads under load: order, completeness, waking, and death in the middle. Runs under TSan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "instance/messaging/links.h"
#include "instance/messaging/transport_test_util.h"
#include "proto/data.pb.h"

namespace islands::messaging {
namespace {

#ifdef ISLANDS_TSAN
constexpr uint32_t kFrames = 5'000;
#else
constexpr uint32_t kFrames = 30'000;
#endif

class TransportStress : public testing::TestWithParam<std::string> {
 protected:
  TestNetwork network_{GetParam()};
};

std::string KindName(const testing::TestParamInfo<std::string>& info) { return info.param; }
#ifdef ISLANDS_TSAN  // cannot see into libzmq's own synchronization
INSTANTIATE_TEST_SUITE_P(Every, TransportStress, testing::Values("uds", "shm", "memory"), KindName);
#else
INSTANTIATE_TEST_SUITE_P(Every, TransportStress, testing::Values("uds", "shm", "zmq", "memory"), KindName);
#endif

// Sends numbered frames of random length on one link and checks those that come on the other. Sleeps whenever
// idle.
class Talker : public TransportHandler {
 public:
  Talker(TestNetwork* network, Address self, Address peer)
      : transport_(network->Make(self)), peer_(peer), random_(self.island) {
    EXPECT_TRUE(transport_->Listen().ok());
  }

  void Run() {
    link_ = transport_->Dial(peer_);
    const auto done = [this] {
      return sent_ == kFrames && received_ == kFrames && transport_->QueuedBytes(link_) == 0;
    };
    while (!done()) {
      const size_t handled = transport_->Poll(*this);
      const bool may_send = sent_ < kFrames && transport_->QueuedBytes(link_) < (1 << 20);
      if (may_send) SendSome();
      transport_->Flush();
      if (handled == 0 && !may_send && !done()) transport_->Wait(60 * runtime::kNsPerSecond);
    }
  }

  void OnAccepted(ConnectionId, int64_t) override { ++accepted_; }
  void OnFrame(ConnectionId, FrameType, std::span<const std::byte> payload) override {
    uint32_t number;
    ASSERT_GE(payload.size(), sizeof(number));
    std::memcpy(&number, payload.data(), sizeof(number));
    ASSERT_EQ(number, received_++);
    const auto fill = static_cast<std::byte>(number % 251);
    for (const std::byte byte : payload.subspan(sizeof(number))) ASSERT_EQ(byte, fill);
  }
  void OnClosed(ConnectionId, const absl::Status& why) override { ADD_FAILURE() << why; }

  Transport& transport() { return *transport_; }
  uint32_t received() const { return received_; }

 private:
  void SendSome() {
    const uint32_t until = std::min<uint32_t>(kFrames, sent_ + 1 + random_() % 50);
    for (; sent_ < until; ++sent_) {
      const size_t bytes = random_() % 500 == 0 ? 200'000 : random_() % 300;
      std::vector<std::byte> payload(sizeof(sent_) + bytes, static_cast<std::byte>(sent_ % 251));
      std::memcpy(payload.data(), &sent_, sizeof(sent_));
      transport_->Send(link_, FrameType::kVote, payload);
    }
  }

  const std::unique_ptr<Transport> transport_;
  const Address peer_;
  std::mt19937_64 random_;
  ConnectionId link_ = 0;
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
  int accepted_ = 0;
};

TEST_P(TransportStress, Load_KeepsOrderInBothDirections) {
  Talker a(&network_, {0, 0}, {1, 0});
  Talker b(&network_, {1, 0}, {0, 0});
  const auto start = std::chrono::steady_clock::now();
  std::thread waker([&] {  // not to the end: nobody may need it
    for (int i = 0; i < 100; ++i) {
      a.transport().Wake();
      b.transport().Wake();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  std::thread other([&] { b.Run(); });
  a.Run();
  other.join();
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
  EXPECT_EQ(a.received(), kFrames);
  EXPECT_EQ(b.received(), kFrames);
}

TEST_P(TransportStress, Wake_IsNeverLost) {
  // Each side wakes the other and sleeps until it is woken: one lost Wake and both sleep for a minute.
  const std::unique_ptr<Transport> a = network_.Make({0, 0});
  const std::unique_ptr<Transport> b = network_.Make({1, 0});
  std::atomic<uint32_t> turn{0};
  const auto play = [&turn](Transport& mine, Transport& other, uint32_t parity) {
    Recorder seen;
    for (uint32_t round = parity; round < 4000; round += 2) {
      while (turn.load() != round) {
        mine.Poll(seen);
        mine.Wait(60 * runtime::kNsPerSecond);
      }
      turn.store(round + 1);
      other.Wake();
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] { play(*b, *a, 1); });
  play(*a, *b, 0);
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

// ---- islands that die and come back while the others talk ----

class Chatter : public LinksHandler {
 public:
  void OnPeerUp(uint32_t island, uint64_t boot_epoch) override { up[island] = boot_epoch; }
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status&) override {
    EXPECT_EQ(up[island], boot_epoch);
    up[island] = 0;
  }
  void OnMessage(const Origin& origin, FrameType, std::span<const std::byte> payload) override {
    data::v1::TransactionId message;
    ASSERT_TRUE(message.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    // Every message names the incarnations that it is from and for.
    EXPECT_EQ(message.boot_epoch(), origin.boot_epoch);
    EXPECT_EQ(message.sequence(), own_epoch) << "a message for another incarnation";
    ++messages;
  }
  std::map<uint32_t, uint64_t> up;  // epoch, 0 = lost
  uint64_t own_epoch = 0;
  uint64_t messages = 0;
};

void LiveOneLife(TestNetwork* network, uint32_t island, uint64_t epoch, const std::atomic<bool>& stop,
                 int rounds) {
  const runtime::MonotonicClock clock;
  Chatter chatter;
  chatter.own_epoch = epoch;
  const std::unique_ptr<Transport> transport = network->Make({island, 0});
  LinksOptions options;
  options.cluster_id = "stress";
  options.self = {island, 0};
  options.boot_epoch = epoch;
  options.workers_per_island = {1, 1, 1};
  options.redial_min_ns = runtime::kNsPerMs;
  options.redial_max_ns = 5 * runtime::kNsPerMs;
  Links links(options, *transport, clock, chatter);
  ASSERT_TRUE(links.Start().ok());
  for (int round = 0; !stop && (rounds == 0 || round < rounds || chatter.messages == 0); ++round) {
    const size_t handled = links.Poll();
    for (uint32_t peer = 0; peer < 3; ++peer) {
      if (peer == island || !links.IsUp(peer) || links.QueuedBytes(peer) > (64 << 10)) continue;
      data::v1::TransactionId message;
      message.set_boot_epoch(epoch);
      message.set_sequence(links.BootEpoch(peer));
      EXPECT_TRUE(links.Send(peer, FrameType::kProbe, message));
    }
    links.Flush();
    if (handled == 0) transport->Wait(200 * runtime::kNsPerUs);
  }
}

TEST_P(TransportStress, Links_IslandsRestartUnderLoad) {
  std::atomic<bool> stop{false};
  std::thread first([&] { LiveOneLife(&network_, 0, 1, stop, 0); });
  std::thread second([&] { LiveOneLife(&network_, 1, 1, stop, 0); });
  for (uint64_t epoch = 1; epoch <= 15; ++epoch) LiveOneLife(&network_, 2, epoch, stop, 50);
  stop = true;
  first.join();
  second.join();
}

}  // namespace
}  // namespace islands::messaging
