#include "experiments/peers/server_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace islands::experiments {
namespace {

namespace fs = std::filesystem;

class ServerProcessTest : public testing::Test {
 protected:
  ServerProcessTest() : folder_((fs::temp_directory_path() / "islands-server-test-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~ServerProcessTest() override { fs::remove_all(folder_); }

  // A shell that writes its number into a file, when it has begun, and goes on.
  ServerCommand Shell(const std::string& script) const {
    return {
        .words = {"/bin/sh", "-c",
                  "echo $$ > " + folder_ + "/new && mv " + folder_ + "/new " + folder_ + "/pid; " + script},
        .log = folder_ + "/log",
        .input = "",
        .user = std::nullopt,
        .stop_signal = SIGQUIT};
  }
  pid_t Begun() const {
    pid_t pid = 0;
    EXPECT_TRUE(Until([&] { return static_cast<bool>(std::ifstream(folder_ + "/pid") >> pid); }));
    return pid;
  }
  template <typename Condition>
  static bool Until(const Condition& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  // Also true of one that has ended and that nobody has waited for.
  static bool IsThere(pid_t pid) { return kill(pid, 0) == 0; }

  std::string folder_;
};

constexpr const char* kForever = "while :; do sleep 0.01; done";

TEST_F(ServerProcessTest, Start_RunsUntilItsEnd) {
  pid_t pid = 0;
  {
    auto server = ServerProcess::Start(Shell(kForever));
    ASSERT_TRUE(server.ok()) << server.status();
    pid = Begun();
    EXPECT_TRUE((*server)->Runs().ok());
    EXPECT_GT((*server)->Memory().bytes, 0u);
    EXPECT_EQ(getsid(pid), pid);
  }
  EXPECT_FALSE(IsThere(pid));
}

TEST_F(ServerProcessTest, End_OfOneThatDoesNotListen) {
  auto server =
      ServerProcess::Start(Shell(std::string("trap '' QUIT; touch ") + folder_ + "/deaf; " + kForever));
  ASSERT_TRUE(server.ok()) << server.status();
  const pid_t pid = Begun();
  ASSERT_TRUE(Until([&] { return fs::exists(folder_ + "/deaf"); }));
  server->reset();
  EXPECT_FALSE(IsThere(pid));
}

TEST_F(ServerProcessTest, EndServers_BeforeTheirOwnersDo) {
  auto server = ServerProcess::Start(Shell(kForever));
  ASSERT_TRUE(server.ok()) << server.status();
  const pid_t pid = Begun();
  EndServers();
  EXPECT_FALSE(IsThere(pid));
}

TEST_F(ServerProcessTest, Runs_SaysWhatItPrintedLast) {
  auto server = ServerProcess::Start(Shell("echo out of paper; exit 3"));
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(Until([&] { return !(*server)->Runs().ok(); }));
  EXPECT_NE(std::string((*server)->Runs().message()).find("out of paper"), std::string::npos);
}

TEST_F(ServerProcessTest, RunToEnd_InputAndExitCode) {
  std::ofstream(folder_ + "/input") << "word";
  ServerCommand command = Shell("cat > " + folder_ + "/copy");
  command.input = folder_ + "/input";
  ASSERT_TRUE(RunToEnd(command).ok());
  std::string copied;
  std::ifstream(folder_ + "/copy") >> copied;
  EXPECT_EQ(copied, "word");
  const absl::Status failed = RunToEnd(Shell("echo no disk >&2; exit 1"));
  EXPECT_NE(std::string(failed.message()).find("no disk"), std::string::npos) << failed;
}

// Whoever starts a server may be killed: nothing is left.
TEST_F(ServerProcessTest, Start_ByOneThatIsKilled) {
  const pid_t starter = fork();
  if (starter == 0) {
    auto server = ServerProcess::Start(Shell(kForever));
    pause();
    _exit(0);
  }
  const pid_t pid = Begun();
  ASSERT_GT(pid, 0);
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  // Where nobody waits for orphans it stays a zombie, which has no command.
  EXPECT_TRUE(Until([&] {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string command;
    return !std::getline(file, command);
  }));
}

TEST(FindServerProgram, HighestVersionThenPath) {
  std::string folder = (fs::temp_directory_path() / "islands-find-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const char* version : {"9", "15", "13"}) {
    const std::string bin = folder + "/" + version + "/bin";
    fs::create_directories(bin);
    std::ofstream(bin + "/engine") << "";
    fs::permissions(bin + "/engine", fs::perms(0755));
  }
  EXPECT_EQ(FindServerProgram("engine", {folder + "/*/bin"}), folder + "/15/bin/engine");
  fs::permissions(folder + "/15/bin/engine", fs::perms(0644));
  EXPECT_EQ(FindServerProgram("engine", {folder + "/*/bin"}), folder + "/13/bin/engine");
  EXPECT_TRUE(FindServerProgram("sh", {}).ends_with("/sh"));
  EXPECT_EQ(FindServerProgram("no such engine", {folder + "/*/bin"}), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace islands::experiments
