#include "instance/messaging/control_channel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>

#include "instance/messaging/frame_scan.h"
#include "instance/messaging/transport_test_util.h"
#include "instance/messaging/unix_socket.h"

namespace islands::messaging {
namespace {

constexpr int64_t kTimeoutMs = 20'000;

class ControlChannelTest : public testing::Test {
 protected:
  void Start(ControlServer::Handler handler) {
    auto server = ControlServer::Start(path_, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  static control::v1::Request StopRun(uint64_t run_id) {
    control::v1::Request request;
    request.mutable_stop_run()->set_run_id(run_id);
    return request;
  }
  static control::v1::Reply Echo(const control::v1::Request& request) {
    control::v1::Reply reply;
    reply.mutable_audit()->set_rows(request.stop_run().run_id());
    return reply;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/island-0.ctl";
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlChannelTest, Call_GetsItsReply) {
  Start(Echo);
  for (uint64_t i = 0; i < 50; ++i) {
    const auto reply = ControlCall(path_, StopRun(i), kTimeoutMs);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->audit().rows(), i);
  }
}

TEST_F(ControlChannelTest, Call_GetsAnErrorAsItsStatus) {
  Start([](const control::v1::Request&) {
    return ErrorReply(absl::NotFoundError("no workload of that name"));
  });
  const auto reply = ControlCall(path_, StopRun(1), kTimeoutMs);
  EXPECT_EQ(reply.status(), absl::NotFoundError("no workload of that name"));
}

TEST_F(ControlChannelTest, Call_CarriesBigMessages) {
  const std::string big(5 << 20, 'x');
  Start([&](const control::v1::Request& request) {
    EXPECT_EQ(request.load().load().object(), big);
    return ErrorReply(absl::AbortedError(request.load().load().object()));
  });
  control::v1::Request request;
  request.mutable_load()->mutable_load()->set_object(big);
  const auto reply = ControlCall(path_, request, kTimeoutMs);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(reply.status().message().size(), big.size());
}

TEST_F(ControlChannelTest, Call_RefusesMessagesLargerThanAFrame) {
  const std::string huge(kMaxFrameBytes + 1, 'x');
  Start([&](const control::v1::Request&) { return ErrorReply(absl::AbortedError(huge)); });
  EXPECT_EQ(ControlCall(path_, StopRun(1), kTimeoutMs).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ControlChannelTest, Call_NobodyThere) {
  const auto missing = ControlCall(path_, StopRun(1), kTimeoutMs);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(missing.status().message()).find(path_), std::string::npos);
  EXPECT_NE(std::string(missing.status().message()).find("not running"), std::string::npos);
  { ASSERT_TRUE(ListenOn(path_).ok()); }
  EXPECT_EQ(ControlCall(path_, StopRun(1), kTimeoutMs).status().code(), absl::StatusCode::kUnavailable)
      << "stale file";
}

TEST_F(ControlChannelTest, Call_TimesOut) {
  std::atomic<bool> go{false};
  Start([&](const control::v1::Request&) {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return control::v1::Reply();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ControlCall(path_, StopRun(1), 30).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  go = true;
  server_.reset();  // before what its handler refers to
}

TEST_F(ControlChannelTest, Call_PathTooLong) {
  EXPECT_EQ(ControlCall(std::string(108, 'p'), StopRun(1), 30).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ControlChannelTest, Server_ServesManyAtOnceButNotMoreThanSixteen) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  Start([&](const control::v1::Request& request) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --running;
    return Echo(request);
  });
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < 48; ++i) {
    callers.emplace_back([this, i] {
      const auto reply = ControlCall(path_, StopRun(i), kTimeoutMs);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->audit().rows(), i);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most, 16);
  EXPECT_GE(most, 2);
}

TEST_F(ControlChannelTest, Server_AnswersBadBytesWithAnError) {
  Start(Echo);
  auto raw = ConnectTo(path_);
  ASSERT_TRUE(raw.ok());
  const std::string bad = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(raw->get(), bad.data(), bad.size(), 0), static_cast<ssize_t>(bad.size()));
  std::string answer;
  ASSERT_TRUE(RunUntil([&] { return answer.size() >= kFrameHeaderBytes; },
                       [&] {
                         char bytes[1024];
                         const ssize_t received = recv(raw->get(), bytes, sizeof(bytes), MSG_DONTWAIT);
                         if (received > 0) answer.append(bytes, static_cast<size_t>(received));
                       }));
  control::v1::Reply reply;
  ASSERT_TRUE(reply.ParseFromString(answer.substr(kFrameHeaderBytes)));
  EXPECT_EQ(reply.code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(ControlCall(path_, StopRun(1), kTimeoutMs).ok()) << "others are served";
}

TEST_F(ControlChannelTest, Server_SurvivesClientsThatHangUp) {
  Start(Echo);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(ConnectTo(path_).ok());
  EXPECT_TRUE(ControlCall(path_, StopRun(1), kTimeoutMs).ok());
}

TEST_F(ControlChannelTest, Start_RefusesASecondServer) {
  Start(Echo);
  const auto second = ControlServer::Start(path_, Echo);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_TRUE(ControlCall(path_, StopRun(1), kTimeoutMs).ok());
}

TEST_F(ControlChannelTest, Start_ReplacesAStaleSocketButNoOtherFile) {
  { ASSERT_TRUE(ListenOn(path_).ok()); }
  Start(Echo);
  EXPECT_TRUE(ControlCall(path_, StopRun(1), kTimeoutMs).ok());
  server_.reset();
  std::ofstream(path_) << "precious";
  EXPECT_EQ(ControlServer::Start(path_, Echo).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ControlChannelTest, Stop_WaitsForHandlersAndDropsSilentClients) {
  std::atomic<bool> entered{false};
  std::atomic<bool> finished{false};
  Start([&](const control::v1::Request& request) {
    entered = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    finished = true;
    return Echo(request);
  });
  auto silent = ConnectTo(path_);
  ASSERT_TRUE(silent.ok());
  std::thread caller([&] { EXPECT_TRUE(ControlCall(path_, StopRun(1), kTimeoutMs).ok()); });
  while (!entered) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_TRUE(finished);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8))
      << "did not wait for the silent one";
  EXPECT_FALSE(std::filesystem::exists(path_));
  caller.join();
}

TEST_F(ControlChannelTest, Start_PinsItsThreads) {
  auto server = ControlServer::Start(
      path_,
      [](const control::v1::Request&) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        control::v1::Reply reply;
        if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) reply.mutable_audit()->set_rows(CPU_COUNT(&cpus));
        return reply;
      },
      sched_getcpu());
  ASSERT_TRUE(server.ok());
  const auto reply = ControlCall(path_, StopRun(1), kTimeoutMs);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->audit().rows(), 1u);
}

}  // namespace
}  // namespace islands::messaging
