#include "deploy/processes/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "deploy/processes/processes_testing.h"

namespace islands::deploy {
namespace {

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

bool GoneWithin(pid_t pid, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (ProcessAlive(pid)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(Spawn, OutputGoesToTheLog) {
  const std::string log = FreshPath("out.log");
  auto pid = Spawn({.arguments = {"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, .log_path = log});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(DescribeExit(WaitFor(*pid)), "exit code 3");
  EXPECT_EQ(LastLines(log, 10, "> "), "> out\n> err\n");
}

TEST(Spawn, MissingProgram_SaysSoInTheLog) {
  const std::string log = FreshPath("missing.log");
  auto pid = Spawn({.arguments = {"/no/such/program"}, .log_path = log});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(DescribeExit(WaitFor(*pid)), "exit code 127");
  EXPECT_EQ(LastLines(log, 1, ""), "cannot run /no/such/program: No such file or directory\n");
}

TEST(Spawn, BlockedSignalsOfTheParent_AreNotInherited) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  auto pid = Spawn({.arguments = {"/bin/sleep", "60"}, .log_path = FreshPath("ignored.log")});
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  ASSERT_TRUE(pid.ok());
  kill(*pid, SIGTERM);
  EXPECT_EQ(DescribeExit(WaitFor(*pid)), "killed by signal 15 (Terminated)");
}

// One pipe per descriptor, with numbers out of the way of those that the child gets.
struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_end = fcntl(ends[0], F_DUPFD_CLOEXEC, 20);
    write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, 20);
    close(ends[0]);
    close(ends[1]);
  }
  ~Pipe() {
    close(read_end);
    close(write_end);
  }
  std::string Received() const {
    char text[16] = {};
    return read(read_end, text, sizeof(text) - 1) < 0 ? "error" : text;
  }
  int read_end;
  int write_end;
};

TEST(Spawn, InheritedFiles_AreDescriptorsFromThreeOnInThisOrder) {
  const Pipe a;
  const Pipe b;
  const auto spawn = [](const std::string& script, std::vector<int> fds) {
    auto pid = Spawn(
        {.arguments = {"/bin/sh", "-c", script}, .log_path = FreshPath("ignored.log"), .inherit_fds = fds});
    ASSERT_TRUE(pid.ok());
    ASSERT_EQ(DescribeExit(WaitFor(*pid)), "exit code 0");
  };
  spawn("echo one >&3", {a.write_end});
  EXPECT_EQ(a.Received(), "one\n");
  spawn("echo one >&3; echo two >&4", {a.write_end, b.write_end});
  EXPECT_EQ(a.Received() + b.Received(), "one\ntwo\n");
}

// In a process of its own, whose descriptors 3 and 4 are nobody's: each lies where the other shall be.
TEST(Spawn, InheritedFiles_MayHaveEachOthersNumbers) {
  const Pipe a;
  const Pipe b;
  const pid_t parent = fork();
  if (parent == 0) {
    dup3(a.write_end, 3, O_CLOEXEC);
    dup3(b.write_end, 4, O_CLOEXEC);
    auto pid = Spawn({.arguments = {"/bin/sh", "-c", "echo one >&4; echo two >&3"},
                      .log_path = FreshPath("ignored.log"),
                      .inherit_fds = {4, 3}});
    _exit(pid.ok() && WaitFor(*pid) == 0 ? 0 : 1);
  }
  ASSERT_EQ(WaitFor(parent), 0);
  EXPECT_EQ(a.Received() + b.Received(), "one\ntwo\n");
}

// A grandchild of ours that its parent started with Spawn: when the parent is killed, it must go as well.
TEST(Spawn, ParentKilled_ChildDiesWithIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto child = Spawn({.arguments = {"/bin/sleep", "60"}, .log_path = FreshPath("ignored.log")});
    const pid_t pid = child.value_or(0);
    if (write(ends[1], &pid, sizeof(pid)) < 0) _exit(1);
    for (;;) pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  EXPECT_TRUE(ProcessAlive(child));
  kill(parent, SIGKILL);
  WaitFor(parent);
  EXPECT_TRUE(GoneWithin(child, std::chrono::seconds(5)));
  close(ends[0]);
  close(ends[1]);
}

TEST(LastLines, OffsetAndCount_AreKept) {
  const std::string path = FreshPath("lines.txt");
  std::ofstream(path) << "one\ntwo\nthree\nfour";
  EXPECT_EQ(LastLines(path, 2, ""), "three\nfour\n");
  EXPECT_EQ(LastLines(path, 9, "", 4), "two\nthree\nfour\n");
  EXPECT_EQ(LastLines(path, 9, "", 1000), "");
  EXPECT_EQ(LastLines(path + ".absent", 9, ""), "");
}

TEST(ProcessAlive, Zombie_IsNotAlive) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  EXPECT_TRUE(GoneWithin(pid, std::chrono::seconds(5)));
  WaitFor(pid);
  EXPECT_FALSE(ProcessAlive(0));
  EXPECT_TRUE(ProcessAlive(getpid()));
}

}  // namespace
}  // namespace islands::deploy
