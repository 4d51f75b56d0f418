// What only the operating system's files can do, and how they are told no.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/file_system_posix.h"
#include "runtime/file_system_testing.h"

namespace islands::runtime {
namespace {

using testing::HasSubstr;
using Engine = PosixOptions::Engine;

class PosixFileSystemTest : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (GetParam() == Engine::kIoUring && !CheckIoUring().ok()) GTEST_SKIP() << CheckIoUring();
    files_ = MakePosixFileSystem({.engine = GetParam()});
    directory_ = testing::TempDir() + "islands_posix_file_system_test";
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(files_->MakeDirectories(directory_).ok());
    path_ = directory_ + "/file";
  }
  void TearDown() override {
    if (mounted_) umount2(directory_.c_str(), MNT_DETACH);
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  // The directory becomes a disk of 1 MiB, for this process alone. False, with errno, if we may not.
  bool MountSmallDisk() {
    mounted_ = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") == 0;
    return mounted_;
  }

  std::unique_ptr<FileSystem> files_;
  std::string directory_, path_;
  bool mounted_ = false;
};

INSTANTIATE_TEST_SUITE_P(All, PosixFileSystemTest,
                         testing::Values(Engine::kIoUring, Engine::kThreads, Engine::kCaller),
                         [](const auto& info) {
                           return info.param == Engine::kIoUring  ? "uring"
                                  : info.param == Engine::kCaller ? "caller"
                                                                  : "threads";
                         });

TEST_P(PosixFileSystemTest, Open_DirectReadsWhatItWrote) {
  const absl::StatusOr<FileHandle> file = files_->Open(path_, true, true);
  if (!file.ok()) GTEST_SKIP() << "no O_DIRECT here: " << file.status();
  alignas(4096) static std::byte page[4096];
  page[17] = std::byte{42};
  auto queue = files_->MakeQueue();
  IoCompletion done = Do(*queue, {.kind = IoKind::kWrite, .file = *file, .buffer = page});
  EXPECT_TRUE(done.status.ok()) << done.status;
  page[17] = std::byte{0};
  done = Do(*queue, {.kind = IoKind::kRead, .file = *file, .buffer = page});
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(page[17], std::byte{42});
  // A file that ends within a block: what there is, and no attempt to go on in the middle of the block.
  ASSERT_TRUE(files_->Truncate(*file, 1000).ok());
  done = Do(*queue, {.kind = IoKind::kRead, .file = *file, .buffer = page});
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(done.bytes, 1000u);
}

TEST_P(PosixFileSystemTest, DiskFull_AllocateAndWritesSaySo) {
  if (!MountSmallDisk()) GTEST_SKIP() << "cannot mount a small disk: " << strerror(errno);
  const FileHandle file = files_->Open(path_, true, false).value();
  auto queue = files_->MakeQueue();
  ASSERT_TRUE(files_->Allocate(file, 100'000).ok());
  const absl::Status allocated = files_->Allocate(file, 10 << 20);
  EXPECT_EQ(allocated.code(), absl::StatusCode::kResourceExhausted) << allocated;
  EXPECT_THAT(std::string(allocated.message()), HasSubstr(path_));
  EXPECT_EQ(*files_->Size(file), 100'000u);

  // The disk takes a part of it, and the request ends with what stopped the rest.
  std::string text(4 << 20, 'x');
  const IoCompletion done =
      Do(*queue, {.kind = IoKind::kWrite, .file = file, .offset = 5, .buffer = Bytes(text)});
  EXPECT_EQ(done.status.code(), absl::StatusCode::kResourceExhausted) << done.status;
  EXPECT_THAT(std::string(done.status.message()), HasSubstr("cannot write " + path_ + " at offset "));
  EXPECT_GT(done.bytes, 0u);
  EXPECT_LT(done.bytes, text.size());
}

TEST_P(PosixFileSystemTest, ErrorsOfTheKernel_NameFileAndPlace) {
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small {
    .rlim_cur = 10'000, .rlim_max = before.rlim_max
  };
  const FileHandle file = files_->Open(path_, true, false).value();
  {
    auto queue = files_->MakeQueue();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const absl::Status status = Write(*queue, file, 20'000, "text");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cannot write " + path_ + " at offset 20000: File too large"));
    EXPECT_THAT(std::string(files_->Allocate(file, 20'000).message()), HasSubstr("cannot allocate " + path_));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, ignored);
}

TEST_P(PosixFileSystemTest, Lock_FallsWithItsProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const FileHandle file = files_->Open(path_, true, false).value();
    const bool locked = files_->Lock(file).ok() && files_->ReplaceFile(directory_ + "/locked", "").ok();
    while (locked) pause();
    _exit(1);
  }
  while (!files_->Exists(directory_ + "/locked")) usleep(1000);
  const FileHandle file = files_->Open(path_, true, false).value();
  EXPECT_EQ(files_->Lock(file).code(), absl::StatusCode::kUnavailable);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(files_->Lock(file).ok());
}

// Where there is no fallocate: holes become zeros that have room, and data stays.
TEST(PosixFileSystem, FillHoles_LeavesNoHolesAndNoDataChanged) {
  const std::string path = testing::TempDir() + "islands_fill_holes";
  OpenFile file{.fd = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)), .path = path};
  ASSERT_TRUE(file.fd);
  constexpr size_t kBytes = 3 << 20;
  std::string expected(kBytes, '\0');
  for (const size_t at : {size_t{0}, size_t{1} << 20, (size_t{2} << 20) + 777}) {
    expected.replace(at, 4, "data");
    ASSERT_EQ(pwrite(file.fd.get(), "data", 4, static_cast<off_t>(at)), 4);
  }
  ASSERT_TRUE(FillHoles(file, kBytes).ok());
  ASSERT_TRUE(FillHoles(file, 100).ok());
  EXPECT_EQ(*MakePosixFileSystem()->ReadFile(path), expected);
  EXPECT_EQ(lseek(file.fd.get(), 0, SEEK_HOLE), static_cast<off_t>(kBytes));
  unlink(path.c_str());
}

// Files are not reached through links in their place; directories may be links.
TEST(PosixFileSystem, LinksInAFilesPlace_AreNotFollowed) {
  namespace fs = std::filesystem;
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const std::string directory = testing::TempDir() + "islands_links_test";
  fs::remove_all(directory);
  ASSERT_TRUE(files->MakeDirectories(directory + "/real").ok());
  fs::create_directory_symlink("real", directory + "/data");
  ASSERT_TRUE(files->ReplaceFile(directory + "/data/victim", "precious").ok());
  fs::create_symlink("victim", directory + "/data/link");
  fs::create_symlink("victim", directory + "/data/file.tmp");
  EXPECT_FALSE(files->ReadFile(directory + "/data/link").ok());
  EXPECT_FALSE(files->Open(directory + "/data/link", true, false).ok());
  EXPECT_FALSE(files->ReplaceFile(directory + "/data/file", "x").ok());
  EXPECT_EQ(files->ReadFile(directory + "/data/victim").value(), "precious");
  fs::remove_all(directory);
}

// A read of an empty pipe stays in flight as long as we like.
TEST(UringQueue, InFlight_NobodyWaitsButWaitAndTheLockStays) {
  if (!CheckIoUring().ok()) GTEST_SKIP() << CheckIoUring();
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem({.engine = Engine::kIoUring});
  const std::string path = testing::TempDir() + "islands_pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const FileHandle reader = files->Open(path, false, false).value();
  const FileHandle second = files->Open(path, false, false).value();
  ASSERT_TRUE(files->Lock(reader).ok());
  auto queue = files->MakeQueue();
  std::string text(1000, '?');  // more than the ring has room for
  for (size_t i = 0; i < text.size(); ++i) {
    queue->Submit({.kind = IoKind::kRead, .file = reader, .buffer = Bytes(text).subspan(i, 1), .token = i});
  }
  const MonotonicClock clock;
  const int64_t start_ns = clock.NowNs();
  queue->Wait(20 * kNsPerMs);
  EXPECT_GE(clock.NowNs() - start_ns, 20 * kNsPerMs);
  std::vector<IoCompletion> none;
  EXPECT_EQ(queue->Poll(&none), 0u);

  ASSERT_TRUE(files->Close(reader).ok());
  EXPECT_EQ(files->Lock(second).code(), absl::StatusCode::kUnavailable);
  const UniqueFd writer(open(path.c_str(), O_WRONLY));
  ASSERT_EQ(write(writer.get(), std::string(1000, 'x').data(), 1000), 1000);
  for (const IoCompletion& done : PollAll(*queue, 1000)) EXPECT_EQ(done.bytes, 1u) << done.status;
  EXPECT_EQ(text, std::string(1000, 'x'));
  EXPECT_TRUE(files->Lock(second).ok());
  unlink(path.c_str());
}

// As a container's sandbox does it: a system call is not permitted, for good.
bool Deny(uint32_t system_call) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// In a process of its own; exits with 0 if all is as it should be.
[[noreturn]] void UseFilesWithout(uint32_t system_call, const std::string& path) {
  if (!Deny(system_call)) _exit(2);
  const absl::Status refused = CheckIoUring();
  const auto automatic = MakePosixFileSystem(), strict = MakePosixFileSystem({.engine = Engine::kIoUring});
  const FileHandle file = automatic->Open(path, true, false).value();
  const auto threads = automatic->MakeQueue(), nothing = strict->MakeQueue();
  const bool carried_out = Write(*threads, file, 0, "text").ok() && Sync(*threads, file).ok();
  const bool said_why = Sync(*nothing, 1) == refused;
  std::cerr << refused << std::endl;
  _exit(carried_out && said_why ? 0 : 1);
}

// Whoever made it may have died before he synced its name.
TEST(PosixFileSystem, MakeDirectories_SyncsTheNameOfOneThatIsThere) {
  const std::string directory = testing::TempDir() + "islands_there_already";
  std::filesystem::create_directory(directory);
  const auto make = [&] {
    if (!Deny(SYS_fsync)) _exit(2);
    const absl::Status made = MakePosixFileSystem()->MakeDirectories(directory);
    std::cerr << made << std::endl;
    _exit(made.ok() ? 0 : 1);
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(1), "cannot sync directory");
  std::filesystem::remove(directory);
}

TEST(UringQueue, Refused_AutoTakesThreadsAndIoUringSaysWhy) {
  const std::string path = testing::TempDir() + "islands_refused";
  EXPECT_EXIT(UseFilesWithout(SYS_io_uring_setup, path), testing::ExitedWithCode(0),
              "PERMISSION_DENIED: cannot use io_uring: io_uring_queue_init: Operation not permitted");
  if (!CheckIoUring().ok()) GTEST_SKIP() << CheckIoUring();
  EXPECT_EXIT(UseFilesWithout(SYS_io_uring_enter, path), testing::ExitedWithCode(0),
              "PERMISSION_DENIED: cannot use io_uring: io_uring_enter: Operation not permitted");
  unlink(path.c_str());
}

}  // namespace
}  // namespace islands::runtime
