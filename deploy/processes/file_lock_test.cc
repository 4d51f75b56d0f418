#include "deploy/processes/file_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "deploy/processes/processes_testing.h"
#include "deploy/processes/spawn.h"

namespace islands::deploy {
namespace {

TEST(FileLock, Acquire_FreeLock_SaysWhoHoldsIt) {
  const std::string path = FreshPath("free.lock");
  EXPECT_EQ(LockHolder(path).value(), std::nullopt);
  auto lock = FileLock::Acquire(path, "a note");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(LockHolder(path).value(), getpid());
  EXPECT_EQ(LockNote(path), "a note");
}

TEST(FileLock, Acquire_HeldLock_IsRefusedWithTheHoldersPid) {
  const std::string path = FreshPath("held.lock");
  auto first = FileLock::Acquire(path);
  ASSERT_TRUE(first.ok());
  auto second = FileLock::Acquire(path);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(std::string(second.status().message()).find(std::to_string(getpid())), std::string::npos);
}

TEST(FileLock, Destructor_ReleasesButLeavesTheNote) {
  const std::string path = FreshPath("released.lock");
  {
    auto lock = FileLock::Acquire(path, "before");
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(lock->WriteNote("after").ok());
  }
  EXPECT_EQ(LockHolder(path).value(), std::nullopt);
  EXPECT_EQ(LockNote(path), "after");
  EXPECT_TRUE(FileLock::Acquire(path).ok());
}

TEST(FileLock, WriteNote_NoRoom_SaysWhere) {
  const std::string path = FreshPath("full.lock");
  auto lock = FileLock::Acquire(path);
  ASSERT_TRUE(lock.ok());
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit nothing{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &nothing), 0);
  const absl::Status written = lock->WriteNote("a note");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(written.ok());
  EXPECT_NE(std::string(written.message()).find("cannot write " + path), std::string::npos) << written;
}

// Whoever waits for it has the file open that `destroy` removes.
TEST(FileLock, Acquire_LockFileIsRemovedMeanwhile_IsTheOneThatIsThere) {
  const std::string path = FreshPath("removed.lock");
  std::optional<FileLock> first;
  auto acquired = FileLock::Acquire(path);
  ASSERT_TRUE(acquired.ok());
  first = *std::move(acquired);
  std::thread remover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::filesystem::remove(path);
    first.reset();
  });
  const auto second = FileLock::Acquire(path);
  remover.join();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(LockHolder(path).value(), getpid());
}

TEST(FileLock, Acquire_MissingDirectory_IsAnError) {
  EXPECT_EQ(FileLock::Acquire(FreshPath("nowhere") + "/x.lock").status().code(), absl::StatusCode::kNotFound);
}

TEST(FileLock, Spawn_ChildDoesNotKeepItsParentsLock) {
  const std::string path = FreshPath("inherit.lock");
  auto pid = [&] {
    auto lock = FileLock::Acquire(path);
    EXPECT_TRUE(lock.ok());
    return Spawn({.arguments = {"/bin/sleep", "60"}, .log_path = FreshPath("ignored.log")});
  }();
  ASSERT_TRUE(pid.ok());
  EXPECT_TRUE(FileLock::Acquire(path).ok()) << "the child still has it";
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
}

}  // namespace
}  // namespace islands::deploy
