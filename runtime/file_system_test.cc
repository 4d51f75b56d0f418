// The contract of file_system.h, on every implementation.
#include "runtime/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/file_system_overlay.h"
#include "runtime/file_system_testing.h"
#include "runtime/random.h"

namespace islands::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Engine = PosixOptions::Engine;

class FileSystemTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "uring" && !CheckIoUring().ok()) GTEST_SKIP() << CheckIoUring();
    files_ = name == "memory" || name == "overlay"
                 ? MakeMemoryFileSystem()
                 : MakePosixFileSystem({.engine = name == "uring"    ? Engine::kIoUring
                                                  : name == "caller" ? Engine::kCaller
                                                                     : Engine::kThreads});
    if (name == "overlay") {
      below_ = std::move(files_);
      files_ = std::make_unique<OverlayFileSystem>(*below_);
    }
    directory_ = testing::TempDir() + "islands_file_system_test";
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(files_->MakeDirectories(directory_ + "/deep/er").ok());
    queue_ = files_->MakeQueue();
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  FileHandle Create(const std::string& name) {
    const absl::StatusOr<FileHandle> file = files_->Open(directory_ + "/" + name, true, false);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.value_or(-1);
  }

  std::unique_ptr<FileSystem> below_;  // of an overlay
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<FileSystem::Queue> queue_;
  std::string directory_;
};

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest,
                         testing::Values("uring", "threads", "caller", "memory", "overlay"),
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

// More than a ring has entries; some are submitted, which takes the others along.
TEST_P(FileSystemTest, Enqueue_AllCompleteWithTheNextPolls) {
  const FileHandle file = Create("many");
  constexpr size_t kMany = 300;
  std::vector<std::byte> bytes(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    bytes[i] = static_cast<std::byte>(i);
    const IoRequest request{.kind = IoKind::kWrite,
                            .file = file,
                            .offset = i,
                            .buffer = std::span(bytes).subspan(i, 1),
                            .token = i};
    i % 50 == 49 ? queue_->Submit(request) : queue_->Enqueue(request);
  }
  queue_->Enqueue({.kind = IoKind::kWrite, .file = -7, .buffer = bytes, .token = kMany});
  std::vector<IoCompletion> completions;
  while (completions.size() < kMany + 1) {
    if (queue_->Poll(&completions) == 0) queue_->Wait(kNsPerSecond);
  }
  std::vector<uint64_t> tokens;
  for (const IoCompletion& completion : completions) {
    EXPECT_EQ(completion.status.ok(), completion.token != kMany) << completion.status;
    tokens.push_back(completion.token);
  }
  std::ranges::sort(tokens);
  std::vector<uint64_t> all(kMany + 1);
  std::iota(all.begin(), all.end(), uint64_t{0});
  EXPECT_EQ(tokens, all);
  EXPECT_EQ(*files_->ReadFile(directory_ + "/many"),
            std::string(reinterpret_cast<char*>(bytes.data()), kMany));
}

TEST_P(FileSystemTest, Errors_NameThePath) {
  const std::string missing = directory_ + "/missing";
  for (const absl::Status& status : {files_->ReadFile(missing).status(),
                                     files_->Open(missing, false, false).status(), files_->Remove(missing)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
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
  const FileHandle file = Create("data");
  std::string first(5000, 'a'), second(3000, 'b');
  queue_->Submit({.kind = IoKind::kWrite, .file = file, .offset = 0, .buffer = Bytes(first), .token = 1});
  queue_->Submit({.kind = IoKind::kWrite, .file = file, .offset = 6000, .buffer = Bytes(second), .token = 2});
  queue_->Submit({.kind = IoKind::kSync, .file = file, .token = 3});
  std::vector<IoCompletion> done = PollAll(*queue_, 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].token, i + 1);
    EXPECT_TRUE(done[i].status.ok()) << done[i].status;
  }
  EXPECT_EQ(done[0].bytes, 5000u);

  std::string read(20'000, '?');  // past the end: fewer bytes
  queue_->Submit({.kind = IoKind::kRead, .file = file, .offset = 4999, .buffer = Bytes(read), .token = 4});
  std::string beyond(10, '?');
  queue_->Submit({.kind = IoKind::kRead, .file = file, .offset = 9000, .buffer = Bytes(beyond), .token = 5});
  done = PollAll(*queue_, 2);
  EXPECT_EQ(done[0].bytes, 4001u);
  EXPECT_EQ(read.substr(0, 4001), "a" + std::string(1000, '\0') + second);
  EXPECT_EQ(done[1].bytes, 0u);
  EXPECT_TRUE(done[1].status.ok());
  EXPECT_TRUE(files_->Close(file).ok());
}

TEST_P(FileSystemTest, Queue_EachCompletionCarriesItsOwnError) {
  const FileHandle file = Create("data");
  std::string text = "text";
  queue_->Submit({.kind = IoKind::kWrite, .file = 12345, .buffer = Bytes(text), .token = 1});
  queue_->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(text), .token = 2});
  queue_->Submit({.kind = IoKind::kSync, .file = 12345, .token = 3});
  const std::vector<IoCompletion> done = PollAll(*queue_, 3);
  EXPECT_EQ(done[0].status.code(), absl::StatusCode::kInvalidArgument) << done[0].status;
  EXPECT_TRUE(done[1].status.ok()) << done[1].status;
  EXPECT_EQ(done[2].status.code(), absl::StatusCode::kInvalidArgument) << done[2].status;
  std::vector<IoCompletion> none;
  EXPECT_EQ(queue_->Poll(&none), 0u);
  EXPECT_TRUE(files_->Close(file).ok());
}

// A handle that was closed stays closed, whatever is opened afterwards.
TEST_P(FileSystemTest, Close_HandleIsNeverUsedAgain) {
  const FileHandle closed = Create("one");
  ASSERT_TRUE(files_->Close(closed).ok());
  const FileHandle open = Create("two");
  EXPECT_NE(open, closed);
  EXPECT_FALSE(Write(*queue_, closed, 0, "text").ok());
  EXPECT_FALSE(Sync(*queue_, closed).ok());
  for (const absl::Status& status :
       {files_->Close(closed), files_->Allocate(closed, 1), files_->Truncate(closed, 1),
        files_->Size(closed).status(), files_->Lock(closed)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(closed)));
  }
  EXPECT_EQ(*files_->Size(open), 0u);
}

TEST_P(FileSystemTest, Close_WhatIsInFlightCompletes) {
  const FileHandle file = Create("data");
  std::string text(1 << 20, 'x');
  queue_->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(text), .token = 1});
  queue_->Submit({.kind = IoKind::kSync, .file = file, .token = 2});
  EXPECT_TRUE(files_->Close(file).ok());
  for (const IoCompletion& done : PollAll(*queue_, 2)) EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(*files_->ReadFile(directory_ + "/data"), text);
}

TEST_P(FileSystemTest, Queue_DestroyedFinishesWhatIsInFlight) {
  const FileHandle file = Create("data");
  std::string text(4096, 'x');
  for (uint64_t i = 0; i < 1000; ++i) {
    queue_->Submit({.kind = IoKind::kWrite, .file = file, .offset = i * 4096, .buffer = Bytes(text)});
  }
  queue_.reset();
  text.assign(4096, '?');  // nobody reads it any more
  EXPECT_EQ(*files_->ReadFile(directory_ + "/data"), std::string(4'096'000, 'x'));
}

TEST_P(FileSystemTest, Queue_ManyWritesAtRandomOffsetsReadBack) {
  const FileHandle file = Create("data");
  constexpr size_t kBlocks = 500;
  Random random(1);
  std::vector<std::string> blocks;
  std::vector<uint64_t> order(kBlocks);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < kBlocks; ++i) {
    std::swap(order[i], order[random.Below(kBlocks)]);
    blocks.emplace_back(1 + random.Below(9000), static_cast<char>(random.Below(256)));
  }
  for (const uint64_t i : order) {
    queue_->Submit(
        {.kind = IoKind::kWrite, .file = file, .offset = i * 9000, .buffer = Bytes(blocks[i]), .token = i});
  }
  std::vector<IoCompletion> done = PollAll(*queue_, kBlocks);
  ASSERT_TRUE(Sync(*queue_, file).ok());
  std::vector<std::string> read(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(done[i].token, i);
    EXPECT_TRUE(done[i].status.ok()) << done[i].status;
    EXPECT_EQ(done[i].bytes, blocks[i].size());
    read[i].resize(blocks[i].size());
    queue_->Submit({.kind = IoKind::kRead, .file = file, .offset = i * 9000, .buffer = Bytes(read[i])});
  }
  PollAll(*queue_, kBlocks);
  EXPECT_TRUE(read == blocks);
}

TEST_P(FileSystemTest, Queue_TenThousandSmallRequestsCompleteOnceEach) {
  const FileHandle file = Create("data");
  constexpr size_t kRequests = 10'000;
  std::string text(kRequests, '?');
  for (size_t i = 0; i < kRequests; ++i) {
    text[i] = static_cast<char>(i);
    queue_->Submit(
        {.kind = IoKind::kWrite, .file = file, .offset = i, .buffer = Bytes(text).subspan(i, 1), .token = i});
  }
  const std::vector<IoCompletion> done = PollAll(*queue_, kRequests);
  ASSERT_EQ(done.size(), kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_EQ(done[i].token, i);
    ASSERT_TRUE(done[i].status.ok()) << done[i].status;
  }
  EXPECT_EQ(*files_->ReadFile(directory_ + "/data"), text);
}

TEST_P(FileSystemTest, Queue_EmptyBuffersMoveNothing) {
  const FileHandle file = Create("data");
  for (const IoKind kind : {IoKind::kRead, IoKind::kWrite}) {
    const IoCompletion done = Do(*queue_, {.kind = kind, .file = file, .offset = 100});
    EXPECT_TRUE(done.status.ok()) << done.status;
    EXPECT_EQ(done.bytes, 0u);
  }
  EXPECT_EQ(*files_->Size(file), 0u);
}

TEST_P(FileSystemTest, Wait_ReturnsWhenThereIsSomethingOrNothingToComeOrTimeIsOver) {
  const MonotonicClock clock;
  const int64_t start_ns = clock.NowNs();
  constexpr int64_t kLong = 1000 * kNsPerSecond;
  queue_->Wait(kLong);  // nothing in flight
  const FileHandle file = Create("data");
  std::string text(1 << 22, 'x');
  std::vector<IoCompletion> done;
  for (const int64_t timeout_ns : {kLong, INT64_MAX}) {
    queue_->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(text)});
    queue_->Wait(timeout_ns);
    EXPECT_EQ(queue_->Poll(&done), 1u);
  }
  queue_->Submit({.kind = IoKind::kSync, .file = 12345});  // refused at once, and still to be polled
  queue_->Wait(kLong);
  EXPECT_EQ(queue_->Poll(&done), 1u);
  queue_->Submit({.kind = IoKind::kWrite, .file = file, .buffer = Bytes(text)});
  for (const int64_t timeout_ns : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}}) queue_->Wait(timeout_ns);
  PollAll(*queue_, 1);
  EXPECT_LT(clock.NowNs() - start_ns, kLong / 10);
}

TEST_P(FileSystemTest, Allocate_MakesRoomAndKeepsWhatIsThere) {
  const FileHandle file = Create("data");
  ASSERT_TRUE(Write(*queue_, file, 10, "text").ok());
  ASSERT_TRUE(files_->Allocate(file, 100'000).ok());
  EXPECT_EQ(*files_->Size(file), 100'000u);
  ASSERT_TRUE(files_->Allocate(file, 50).ok());  // never shorter
  ASSERT_TRUE(files_->Allocate(file, 0).ok());
  EXPECT_EQ(*files_->ReadFile(directory_ + "/data"),
            std::string(10, '\0') + "text" + std::string(100'000 - 14, '\0'));
}

TEST_P(FileSystemTest, Truncate_CutsAndLengthens) {
  const FileHandle file = Create("data");
  ASSERT_TRUE(Write(*queue_, file, 0, "long text").ok());
  ASSERT_TRUE(files_->Truncate(file, 4).ok());
  EXPECT_EQ(*files_->Size(file), 4u);
  ASSERT_TRUE(files_->Truncate(file, 6).ok());
  EXPECT_EQ(*files_->ReadFile(directory_ + "/data"), std::string("long\0\0", 6));
}

TEST_P(FileSystemTest, Lock_IsOneHandlesUntilItIsClosed) {
  const FileHandle first = Create("data"), second = Create("data"), other = Create("other");
  EXPECT_TRUE(files_->Lock(first).ok());
  EXPECT_TRUE(files_->Lock(first).ok());  // it has it already
  EXPECT_TRUE(files_->Lock(other).ok());
  const absl::Status refused = files_->Lock(second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(directory_ + "/data"));
  EXPECT_TRUE(Write(*queue_, second, 0, "who asks no lock is not kept out").ok());
  ASSERT_TRUE(files_->Close(first).ok());
  EXPECT_TRUE(files_->Lock(second).ok());
}

TEST_P(FileSystemTest, Names_RenameReplacesAndListIsSorted) {
  for (const char* name : {"b", "a", "c"}) {
    const FileHandle file = Create(name);
    ASSERT_TRUE(Write(*queue_, file, 0, name).ok());
  }
  EXPECT_THAT(*files_->List(directory_), ElementsAre("a", "b", "c", "deep"));
  ASSERT_TRUE(files_->Rename(directory_ + "/b", directory_ + "/c").ok());
  ASSERT_TRUE(files_->Rename(directory_ + "/a", directory_ + "/d").ok());
  ASSERT_TRUE(files_->Rename(directory_ + "/d", directory_ + "/d").ok());
  ASSERT_TRUE(files_->SyncDirectory(directory_).ok());
  EXPECT_THAT(*files_->List(directory_), ElementsAre("c", "d", "deep"));
  EXPECT_THAT(*files_->List(directory_ + "/deep/er"), ElementsAre());
  EXPECT_EQ(*files_->ReadFile(directory_ + "/c"), "b");
  EXPECT_EQ(files_->Rename(directory_ + "/c", directory_ + "/deep/c").code(),
            absl::StatusCode::kInvalidArgument);
  const std::string missing = directory_ + "/missing";
  for (const absl::Status& status : {files_->List(missing).status(), files_->SyncDirectory(missing),
                                     files_->Rename(missing, directory_ + "/c")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
  }
}

}  // namespace
}  // namespace islands::runtime
