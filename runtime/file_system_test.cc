#include "runtime/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/file_system_memory.h"

namespace islands::runtime {
namespace {

std::span<std::byte> Bytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// The contract, on both implementations.
class FileSystemTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    files_ = GetParam() == std::string("posix") ? MakePosixFileSystem() : MakeMemoryFileSystem();
    directory_ = testing::TempDir() + "islands_file_system_test";
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(files_->MakeDirectories(directory_ + "/deep/er").ok());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::vector<IoCompletion> PollAll(FileSystem::Queue& queue, size_t expected) {
    std::vector<IoCompletion> completions;
    while (completions.size() < expected) queue.Poll(&completions);
    return completions;
  }

  std::unique_ptr<FileSystem> files_;
  std::string directory_;
};

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest, testing::Values("posix", "memory"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(FileSystemTest, ReplaceFile_ThenReadFile) {
  const std::string path = directory_ + "/deep/er/file";
  EXPECT_FALSE(files_->Exists(path));
  ASSERT_TRUE(files_->ReplaceFile(path, "one").ok());
  EXPECT_EQ(*files_->ReadFile(path), "one");
  const std::string large(100'000, 'x');
  ASSERT_TRUE(files_->ReplaceFile(path, large).ok());
  EXPECT_EQ(*files_->ReadFile(path), large);
  EXPECT_FALSE(files_->Exists(path + ".tmp"));
  ASSERT_TRUE(files_->ReplaceFile(path, "").ok());
  EXPECT_EQ(*files_->ReadFile(path), "");
}

TEST_P(FileSystemTest, Errors_NameThePath) {
  const std::string missing = directory_ + "/missing";
  for (const absl::Status& status : {files_->ReadFile(missing).status(),
                                     files_->Open(missing, false, false).status(), files_->Remove(missing)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(missing));
  }
  EXPECT_EQ(files_->ReplaceFile(directory_ + "/no/such", "x").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(files_->MakeDirectories("").ok());
  EXPECT_FALSE(files_->Close(12345).ok());
}

TEST_P(FileSystemTest, MakeDirectories_AgainIsFine) {
  EXPECT_TRUE(files_->MakeDirectories(directory_ + "/deep/er").ok());
  EXPECT_TRUE(files_->Exists(directory_ + "/deep"));
}

TEST_P(FileSystemTest, Remove_FileIsGone) {
  const std::string path = directory_ + "/file";
  ASSERT_TRUE(files_->ReplaceFile(path, "x").ok());
  ASSERT_TRUE(files_->Remove(path).ok());
  EXPECT_FALSE(files_->Exists(path));
}

TEST_P(FileSystemTest, Queue_WritesSyncsAndReadsBack) {
  const auto file = files_->Open(directory_ + "/data", true, false);
  ASSERT_TRUE(file.ok()) << file.status();
  auto queue = files_->MakeQueue();
  std::string first(5000, 'a'), second(3000, 'b');
  queue->Submit({.kind = IoKind::kWrite, .file = *file, .offset = 0, .buffer = Bytes(first), .token = 1});
  queue->Submit({.kind = IoKind::kWrite, .file = *file, .offset = 6000, .buffer = Bytes(second), .token = 2});
  queue->Submit({.kind = IoKind::kSync, .file = *file, .token = 3});
  std::vector<IoCompletion> done = PollAll(*queue, 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].token, i + 1);
    EXPECT_TRUE(done[i].status.ok()) << done[i].status;
  }
  EXPECT_EQ(done[0].bytes, 5000u);

  std::string read(20'000, '?');  // past the end: fewer bytes
  queue->Submit({.kind = IoKind::kRead, .file = *file, .offset = 4999, .buffer = Bytes(read), .token = 4});
  std::string beyond(10, '?');
  queue->Submit({.kind = IoKind::kRead, .file = *file, .offset = 9000, .buffer = Bytes(beyond), .token = 5});
  done = PollAll(*queue, 2);
  EXPECT_EQ(done[0].bytes, 4001u);
  EXPECT_EQ(read.substr(0, 4001), "a" + std::string(1000, '\0') + second);
  EXPECT_EQ(done[1].bytes, 0u);
  EXPECT_TRUE(done[1].status.ok());
  EXPECT_TRUE(files_->Close(*file).ok());
}

TEST_P(FileSystemTest, Queue_EachCompletionCarriesItsOwnError) {
  const auto file = files_->Open(directory_ + "/data", true, false);
  ASSERT_TRUE(file.ok());
  auto queue = files_->MakeQueue();
  std::string text = "text";
  queue->Submit({.kind = IoKind::kWrite, .file = 12345, .buffer = Bytes(text), .token = 1});
  queue->Submit({.kind = IoKind::kWrite, .file = *file, .buffer = Bytes(text), .token = 2});
  queue->Submit({.kind = IoKind::kSync, .file = 12345, .token = 3});
  const std::vector<IoCompletion> done = PollAll(*queue, 3);
  EXPECT_FALSE(done[0].status.ok());
  EXPECT_TRUE(done[1].status.ok());
  EXPECT_FALSE(done[2].status.ok());
  std::vector<IoCompletion> none;
  EXPECT_EQ(queue->Poll(&none), 0u);
  EXPECT_TRUE(files_->Close(*file).ok());
}

TEST(PosixFileSystem, Open_DirectReadsWhatItWrote) {
  auto files = MakePosixFileSystem();
  const std::string path = testing::TempDir() + "islands_file_system_direct";
  auto file = files->Open(path, true, true);
  if (!file.ok()) GTEST_SKIP() << "no O_DIRECT here: " << file.status();
  alignas(4096) static std::byte page[4096];
  page[17] = std::byte{42};
  auto queue = files->MakeQueue();
  queue->Submit({.kind = IoKind::kWrite, .file = *file, .buffer = page, .token = 1});
  std::vector<IoCompletion> done;
  queue->Poll(&done);
  EXPECT_TRUE(done[0].status.ok()) << done[0].status;
  page[17] = std::byte{0};
  queue->Submit({.kind = IoKind::kRead, .file = *file, .buffer = page, .token = 2});
  queue->Poll(&done);
  EXPECT_TRUE(done[1].status.ok()) << done[1].status;
  EXPECT_EQ(page[17], std::byte{42});
  EXPECT_TRUE(files->Close(*file).ok());
  EXPECT_TRUE(files->Remove(path).ok());
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

TEST(MemoryFileSystem, PowerLoss_KeepsExactlyWhatWasSynced) {
  MemoryFileSystem files;
  const FileHandle file = *files.Open("data", true, false);
  auto queue = files.MakeQueue();
  std::string kept = "kept", lost = "lost";
  queue->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(kept)});
  queue->Submit({.kind = IoKind::kSync, .file = file});
  queue->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(lost)});
  std::vector<IoCompletion> done;
  queue->Poll(&done);
  EXPECT_EQ(*files.ReadFile("data"), "lost");
  files.PowerLoss();
  EXPECT_EQ(*files.ReadFile("data"), "kept");
  EXPECT_FALSE(files.Close(file).ok());
}

TEST(MemoryFileSystem, ReplaceFile_CrashAtAnyStepLeavesOldOrNew) {
  bool completed = false;
  for (uint64_t steps = 0; !completed; ++steps) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.ReplaceFile("path", "old").ok());
    files.FailAfter(steps);
    completed = files.ReplaceFile("path", "new").ok();
    files.PowerLoss();
    EXPECT_EQ(*files.ReadFile("path"), completed ? "new" : "old") << steps;
    EXPECT_TRUE(files.ReplaceFile("path", "newest").ok());
    ASSERT_LT(steps, 10u);
  }
}

}  // namespace
}  // namespace islands::runtime
