#include "instance/server/life.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace islands::server {
namespace {

class LifeTest : public testing::Test {
 protected:
  LifeTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "islands-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~LifeTest() override { std::filesystem::remove_all(directory_); }

  // A process that holds the lock as island 0 with this epoch until it is killed.
  pid_t Live(uint64_t boot_epoch) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      control::v1::IslandConfig config;
      config.set_control_directory(directory_);
      config.set_boot_epoch(boot_epoch);
      const char byte = LockIsland(config).ok() ? 'y' : 'n';
      (void)!write(ready[1], &byte, 1);
      pause();
      _exit(0);
    }
    char answer = 0;
    EXPECT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
  }
  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  std::string directory_;
};

TEST_F(LifeTest, ProvenDead_OnlyWhenTheKernelSaysSo) {
  EXPECT_FALSE(ProvenDead(directory_, 0, 7)) << "no file: nobody can tell";
  const pid_t seventh = Live(7);
  EXPECT_FALSE(ProvenDead(directory_, 0, 7));
  EXPECT_TRUE(ProvenDead(directory_, 0, 6)) << "a later life has the lock";
  kill(seventh, SIGSTOP);
  EXPECT_FALSE(ProvenDead(directory_, 0, 7)) << "stopped is not dead";
  Kill(seventh);
  EXPECT_TRUE(ProvenDead(directory_, 0, 7));
  EXPECT_FALSE(ProvenDead(directory_, 0, 8)) << "it has not lived yet";
  const pid_t eighth = Live(8);
  EXPECT_TRUE(ProvenDead(directory_, 0, 7));
  EXPECT_FALSE(ProvenDead(directory_, 0, 8));
  EXPECT_FALSE(ProvenDead(directory_, 1, 1)) << "another island";
  Kill(eighth);
}

TEST_F(LifeTest, ProvenDead_ANoteThatSaysNothingProvesNothing) {
  std::ofstream(directory_ + "/island-0.lock") << "";
  EXPECT_FALSE(ProvenDead(directory_, 0, 1));
  std::ofstream(directory_ + "/island-0.lock") << "4711";  // as earlier versions wrote it
  EXPECT_FALSE(ProvenDead(directory_, 0, 1));
}

TEST_F(LifeTest, LockIsland_NeverTwice) {
  const pid_t first = Live(12);
  control::v1::IslandConfig config;
  config.set_control_directory(directory_);
  config.set_boot_epoch(13);
  const absl::Status second = LockIsland(config);
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.message().find(std::to_string(first)), std::string::npos) << second;
  Kill(first);
  EXPECT_TRUE(LockIsland(config).ok());
}

}  // namespace
}  // namespace islands::server
