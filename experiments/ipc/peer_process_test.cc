#include "experiments/ipc/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "experiments/ipc/channel.h"
#include "experiments/ipc/exchange.h"

namespace islands::experiments {
namespace {

constexpr double kDeadlineS = 20;

// Echoes some messages, then dies of `signal_number`.
int DieSoon(Channel& channel, int signal_number) {
  if (!channel.Attach().ok()) return 9;
  std::vector<std::byte> message(64);
  for (int i = 0; i < 5; ++i) {
    if (!channel.Receive(message).ok() || !channel.Send(message).ok()) return 9;
  }
  raise(signal_number);
  pause();
  return 9;
}

// In the process of a death test: exchanges messages with a peer that stops in the middle.
void ExchangeWithDyingPeer(const ChannelOptions& options, int signal_number, double deadline_s) {
  signal(SIGPIPE, SIG_IGN);
  BlockTermination();
  auto ends = *MakeChannels(options);
  const auto peer = *PeerProcess::Start("ipc", [&] {
    ends[0].reset();
    return DieSoon(*ends[1], signal_number);
  });
  ends[1].reset();
  peer->Watch(deadline_s);
  if (!ends[0]->Attach().ok()) _exit(8);
  const auto result = Exchange(*ends[0], {.warmup_s = 0, .seconds = 600});
  peer->EndIfPeerIsGone();
  _exit(7);
}

class PeerDeathTest : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  ChannelOptions options() const {
    return {.mechanism = std::get<0>(GetParam()), .spin = std::get<1>(GetParam()), .yield = true};
  }
};

TEST_P(PeerDeathTest, Killed_EndsTheProgramWithOneLine) {
  EXPECT_EXIT(ExchangeWithDyingPeer(options(), SIGKILL, kDeadlineS), testing::ExitedWithCode(1),
              "^ipc: the peer process was killed by signal 9 \\(Killed\\)\n$");
}

INSTANTIATE_TEST_SUITE_P(Every, PeerDeathTest,
                         testing::Combine(testing::ValuesIn(MechanismNames()), testing::Bool()),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::erase(name, '-');
                           return name + (std::get<1>(info.param) ? "Spin" : "Sleep");
                         });

TEST(PeerProcessDeathTest, Stopped_EndsAtTheDeadline) {
  EXPECT_EXIT(ExchangeWithDyingPeer({.mechanism = "pipe"}, SIGSTOP, 0.3), testing::ExitedWithCode(1),
              "^ipc: no end after 0.3 s: the peer process does not answer\n$");
}

// Starts a peer that exits with `exit_code` at once, and waits.
void WaitForPeer(int exit_code, bool interrupt) {
  BlockTermination();
  const auto peer = *PeerProcess::Start("ipc", [exit_code, interrupt] {
    if (interrupt) pause();
    return exit_code;
  });
  peer->Watch(kDeadlineS);
  if (interrupt) kill(getpid(), SIGINT);
  for (;;) pause();
}

TEST(PeerProcessDeathTest, ExitCode_OneIsSilentAsThePeerHasSpoken) {
  EXPECT_EXIT(WaitForPeer(1, false), testing::ExitedWithCode(1), "^$");
  EXPECT_EXIT(WaitForPeer(3, false), testing::ExitedWithCode(1), "exited with code 3");
}

TEST(PeerProcessDeathTest, Interrupted_EndsWith130) {
  EXPECT_EXIT(WaitForPeer(0, true), testing::ExitedWithCode(130), "^$");
}

TEST(PeerProcess, Destroyed_PeerIsGoneAndReaped) {
  pid_t pid = 0;
  {
    const auto peer = PeerProcess::Start("ipc", [] { return pause(); });
    ASSERT_TRUE(peer.ok()) << peer.status();
    (*peer)->Watch(kDeadlineS);
    pid = (*peer)->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(PeerProcess, FinishedWell_IsNoError) {
  const auto peer = PeerProcess::Start("ipc", [] { return 0; });
  ASSERT_TRUE(peer.ok()) << peer.status();
  (*peer)->Watch(kDeadlineS);
  (*peer)->EndIfPeerIsGone();
}

}  // namespace
}  // namespace islands::experiments
