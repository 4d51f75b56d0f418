#include "deploy/processes/ask.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "deploy/processes/spawn.h"

namespace islands::deploy {
namespace {

TEST(Ask, Answer_HasOutputComplaintsAndExit) {
  const auto answer = Ask({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, 10'000);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->out, "out\n");
  EXPECT_EQ(answer->err, "err\n");
  EXPECT_EQ(DescribeExit(answer->wait_status), "exit code 3");
}

TEST(Ask, LongAnswer_IsWhole) {
  const auto answer = Ask({"/bin/sh", "-c", "head -c 1000000 /dev/zero"}, 10'000);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->out.size(), 1'000'000u);
}

TEST(Ask, NoAnswer_IsKilledAndTold) {
  const auto answer = Ask({"/bin/sleep", "60"}, 50);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(answer.status().message(), "`/bin/sleep 60` did not end within 0.05 s");
}

// Where children are not waited for, by whoever started us.
TEST(Ask, LostExit_IsNoSuccess) {
  auto* const before = signal(SIGCHLD, SIG_IGN);
  const auto answer = Ask({"/bin/sh", "-c", "exit 3"}, 10'000);
  signal(SIGCHLD, before);
  EXPECT_FALSE(answer.ok());
}

TEST(Ask, MissingProgram_IsToldAsItsComplaint) {
  const auto answer = Ask({"/no/such/program"}, 10'000);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(DescribeExit(answer->wait_status), "exit code 127");
  EXPECT_EQ(answer->err, "cannot run /no/such/program: No such file or directory\n");
}

}  // namespace
}  // namespace islands::deploy
