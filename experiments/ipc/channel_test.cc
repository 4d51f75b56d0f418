#include "experiments/ipc/channel.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "experiments/ipc/exchange.h"

namespace islands::experiments {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class ChannelTest : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  ChannelTest() { signal(SIGPIPE, SIG_IGN); }
  const std::string& mechanism() const { return std::get<0>(GetParam()); }

  // Both ends are threads here, on CPUs that other tests use too: spinning ones yield.
  ChannelEnds Make(uint32_t batch, uint32_t bytes = 64) {
    auto ends = MakeChannels({.mechanism = mechanism(),
                              .bytes = bytes,
                              .batch = batch,
                              .spin = std::get<1>(GetParam()),
                              .yield = true});
    if (!ends.ok()) {
      ADD_FAILURE() << ends.status();
      return {};
    }
    return *std::move(ends);
  }

  // Runs an exchange between two threads.
  ExchangeResult ExchangeBetweenThreads(const ExchangeOptions& options) {
    ChannelEnds ends = Make(options.batch, options.bytes);
    absl::Status echoed;
    std::thread peer([&] {
      echoed = ends[1]->Attach();
      if (echoed.ok()) echoed = Echo(*ends[1], options);
    });
    EXPECT_TRUE(ends[0]->Attach().ok());
    const auto result = Exchange(*ends[0], options);
    peer.join();
    EXPECT_TRUE(echoed.ok()) << echoed;
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ExchangeResult{};
  }
};

class LimitedRoomTest : public ChannelTest {};
class ToldOfClosingTest : public ChannelTest {};

TEST_P(ChannelTest, OneAtATime_RoundTripsAreTimed) {
  const auto result = ExchangeBetweenThreads({.warmup_s = 0.002, .seconds = 0.02});
  EXPECT_GT(result.round_trips, 0);
  EXPECT_GE(result.seconds, 0.02);
  EXPECT_EQ(result.in_flight_max, 1);
  EXPECT_GT(result.round_trip_us_p50, 0);
  EXPECT_GE(result.round_trip_us_p99, result.round_trip_us_p50);
}

TEST_P(ChannelTest, Windows_OfAllSizesArriveWholeAndInOrder) {
  for (const auto& [batch, bytes] : {std::pair{3u, 16u}, {32u, 65u}, {1000u, 4096u}, {20'000u, 4096u}}) {
    const auto result =
        ExchangeBetweenThreads({.bytes = bytes, .batch = batch, .seed = 7, .warmup_s = 0, .seconds = 0.02});
    EXPECT_GT(result.round_trips, 0) << batch;
    EXPECT_GT(result.in_flight_max, 1) << batch;
    EXPECT_LE(result.in_flight_max, batch);
    EXPECT_EQ(result.round_trip_us_p50, 0);
  }
}

TEST_P(LimitedRoomTest, NoRoom_TrySendSaysSoAndNothingIsLost) {
  ChannelEnds ends = Make(100);
  std::vector<std::byte> message(64);
  uint64_t sent = 0;
  for (;; ++sent) {
    std::memcpy(message.data(), &sent, sizeof(sent));
    const auto did = ends[0]->TrySend(message);
    ASSERT_TRUE(did.ok()) << did.status();
    if (!*did) break;
    ASSERT_LT(sent, 1'000'000) << "never full";
  }
  EXPECT_GT(sent, 0);
  for (uint64_t i = 0; i < sent; ++i) {
    ASSERT_TRUE(ends[1]->Receive(message).ok());
    uint64_t number = 0;
    std::memcpy(&number, message.data(), sizeof(number));
    ASSERT_EQ(number, i);
  }
  const auto room_again = ends[0]->TrySend(message);
  EXPECT_TRUE(room_again.ok() && *room_again);
}

TEST_P(ChannelTest, WrongMessage_IsNoticedByEcho) {
  ChannelEnds ends = Make(4);
  absl::Status echoed;
  std::thread peer([&] {
    echoed = ends[1]->Attach();
    if (echoed.ok()) echoed = Echo(*ends[1], {});
  });
  ASSERT_TRUE(ends[0]->Attach().ok());
  const std::vector<std::byte> zeroes(64);  // number 0, but no check
  EXPECT_TRUE(ends[0]->Send(zeroes).ok());
  peer.join();
  EXPECT_TRUE(absl::IsDataLoss(echoed)) << echoed;
  EXPECT_THAT(std::string(echoed.message()), testing::HasSubstr("message 0 is damaged"));
}

TEST_P(ChannelTest, RepeatedAnswer_IsNoticedByExchange) {
  ChannelEnds ends = Make(4);
  std::thread peer([&] {
    if (!ends[1]->Attach().ok()) return;
    std::vector<std::byte> message(64);
    if (!ends[1]->Receive(message).ok()) return;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(ends[1]->Send(message).ok());
  });
  ASSERT_TRUE(ends[0]->Attach().ok());
  const auto result = Exchange(*ends[0], {.warmup_s = 0, .seconds = 60});
  peer.join();
  EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("message 1 expected, 0 came"));
}

TEST_P(ToldOfClosingTest, PeerGone_BothDirectionsSayUnavailable) {
  ChannelEnds ends = Make(4);
  ends[1].reset();
  std::vector<std::byte> message(64);
  const absl::Status received = ends[0]->Receive(message);
  EXPECT_TRUE(absl::IsUnavailable(received)) << received;
  absl::Status sent;
  for (int i = 0; i < 3 && sent.ok(); ++i) sent = ends[0]->Send(message);  // TCP hears of it after a message
  EXPECT_TRUE(absl::IsUnavailable(sent)) << sent;
}

TEST_P(ChannelTest, Ends_LeaveNoDescriptorAndNoName) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 3; ++i) ExchangeBetweenThreads({.warmup_s = 0, .seconds = 0.001});
  EXPECT_EQ(OpenDescriptors(), before);
  const std::string own = fmt::format("islands-ipc-{}", getpid());
  for (const char* folder : {"/dev/mqueue", "/dev/shm"}) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      EXPECT_THAT(entry.path().string(), testing::Not(testing::HasSubstr(own)));
    }
  }
}

std::string NameOf(const testing::TestParamInfo<std::tuple<std::string, bool>>& info) {
  std::string name = std::get<0>(info.param);
  std::erase(name, '-');
  return name + (std::get<1>(info.param) ? "Spin" : "Sleep");
}

INSTANTIATE_TEST_SUITE_P(Every, ChannelTest,
                         testing::Combine(testing::ValuesIn(MechanismNames()), testing::Bool()), NameOf);
// Not tcp, which takes messages in parts, nor ZeroMQ, whose own thread makes room at any time.
INSTANTIATE_TEST_SUITE_P(Some, LimitedRoomTest,
                         testing::Combine(testing::Values("pipe", "fifo", "posix-mq", "uds-stream",
                                                          "uds-seqpacket", "uds-datagram", "shared-memory"),
                                          testing::Bool()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    Some, ToldOfClosingTest,
    testing::Combine(testing::Values("pipe", "fifo", "tcp", "uds-stream", "uds-seqpacket"), testing::Bool()),
    NameOf);

TEST(MakeChannels, BadOptions_AreNamed) {
  const auto unknown = MakeChannels({.mechanism = "telepathy"});
  EXPECT_TRUE(absl::IsInvalidArgument(unknown.status()));
  EXPECT_THAT(std::string(unknown.status().message()), testing::HasSubstr("telepathy"));
  EXPECT_TRUE(absl::IsInvalidArgument(MakeChannels({.mechanism = "pipe", .bytes = 8}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MakeChannels({.mechanism = "pipe", .bytes = 4097}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MakeChannels({.mechanism = "pipe", .batch = 0}).status()));
}

}  // namespace
}  // namespace islands::experiments
