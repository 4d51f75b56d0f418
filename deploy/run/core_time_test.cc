#include "deploy/run/core_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace islands::deploy {
namespace {

TEST(CoreTime, SumsTheThreads_LeavingOutThoseThatAreGone) {
  const std::filesystem::path proc = std::filesystem::path(testing::TempDir()) / "core_time";
  for (const char* thread : {"7", "8", "9"}) std::filesystem::create_directories(proc / "7/task" / thread);
  std::ofstream(proc / "7/task/7/schedstat") << "100 20 5\n";
  std::ofstream(proc / "7/task/8/schedstat") << "50 3 1\n";
  const std::optional<CoreTime> found = ReadCoreTime(7, proc);
  EXPECT_FALSE(ReadCoreTime(8, proc).has_value());
  std::ofstream(proc / "7/task/7/schedstat") << "0 0 0\n";
  std::ofstream(proc / "7/task/8/schedstat") << "0 0 0\n";
  EXPECT_FALSE(ReadCoreTime(7, proc).has_value()) << "a kernel that does not count";
  std::filesystem::remove_all(proc);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ran_ns, 150u);
  EXPECT_EQ(found->waited_ns, 23u);
}

TEST(CoreTime, OfThisProcess_GrowsWithItsWork) {
  const std::optional<CoreTime> before = ReadCoreTime(getpid());
  if (!before) GTEST_SKIP() << "this kernel does not count";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  while (std::chrono::steady_clock::now() < end) {
  }
  const CoreTime passed = ReadCoreTime(getpid()).value_or(CoreTime()).Since(*before);
  EXPECT_GT(passed.ran_ns + passed.waited_ns, 20'000'000u);
}

TEST(CoreTime, NeverGoesBack) {
  const CoreTime passed = CoreTime{.ran_ns = 5, .waited_ns = 9}.Since({.ran_ns = 7, .waited_ns = 4});
  EXPECT_EQ(passed.ran_ns, 0u);
  EXPECT_EQ(passed.waited_ns, 5u);
}

TEST(MachineTime, IsTheShareThatWasStolen) {
  const auto before = ParseMachineTime("cpu  100 0 50 800 10 0 0 40 7 0");
  const auto after = ParseMachineTime("cpu  150 0 60 820 10 0 0 60 9 0");
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->all, 1000u);
  EXPECT_DOUBLE_EQ(after->StolenSince(*before), 0.2);
  EXPECT_EQ(before->StolenSince(*before), 0);
  EXPECT_EQ(before->StolenSince(*after), 0);
  EXPECT_FALSE(ParseMachineTime("cpu  1 2 3"));
  EXPECT_FALSE(ParseMachineTime("intr 1 2 3 4 5 6 7 8 9"));
  EXPECT_FALSE(ParseMachineTime(""));
  EXPECT_TRUE(ReadMachineTime());
}

}  // namespace
}  // namespace islands::deploy
