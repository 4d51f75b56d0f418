// What lies below shows, and stays as it is. The rest of the contract: file_system_test.cc.
#include "runtime/file_system_overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/file_system_memory.h"
#include "runtime/file_system_testing.h"

namespace islands::runtime {
namespace {

using testing::ElementsAre;

class OverlayFileSystemTest : public testing::Test {
 protected:
  OverlayFileSystemTest() {
    EXPECT_TRUE(below_.MakeDirectories("/d").ok());
    EXPECT_TRUE(below_.ReplaceFile("/d/file", kContent).ok());
    EXPECT_TRUE(below_.ReplaceFile("/d/other", "other").ok());
    steps_ = below_.steps();
  }
  ~OverlayFileSystemTest() override {
    EXPECT_EQ(below_.steps(), steps_) << "invariant 1";
    EXPECT_EQ(*below_.ReadFile("/d/file"), kContent);
    EXPECT_THAT(*below_.List("/d"), ElementsAre("file", "other"));
  }
  std::string Read(FileHandle file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const IoCompletion done = Do(*queue_, {.file = file, .offset = offset, .buffer = Bytes(text)});
    EXPECT_TRUE(done.status.ok()) << done.status;
    return text.substr(0, done.bytes);
  }

  const std::string kContent = std::string(6000, 'a') + std::string(6000, 'b');
  MemoryFileSystem below_;
  uint64_t steps_ = 0;
  OverlayFileSystem files_{below_};
  std::unique_ptr<FileSystem::Queue> queue_ = files_.MakeQueue();
};

TEST_F(OverlayFileSystemTest, Write_ShowsOverWhatLiesBelow) {
  const FileHandle file = *files_.Open("/d/file", /*create=*/false, /*direct=*/false);
  std::string wanted = kContent;
  for (const auto& [offset, bytes] :
       {std::pair<size_t, size_t>{5000, 10}, {4000, 200}, {11'990, 5000}, {20'000, 1}}) {
    ASSERT_TRUE(Write(*queue_, file, offset, std::string(bytes, 'w')).ok());
    wanted.resize(std::max(wanted.size(), offset + bytes), '\0');
    wanted.replace(offset, bytes, std::string(bytes, 'w'));
    EXPECT_EQ(*files_.ReadFile("/d/file"), wanted);
    EXPECT_EQ(*files_.Size(file), wanted.size());
    for (const size_t from : {size_t{0}, size_t{4095}, offset, size_t{12'000}})
      EXPECT_EQ(Read(file, from, 9000), from < wanted.size() ? wanted.substr(from, 9000) : "") << from;
  }
  EXPECT_TRUE(Sync(*queue_, file).ok());
  const FileHandle again = *files_.Open("/d/file", /*create=*/true, /*direct=*/false);
  EXPECT_EQ(Read(again, 0, 30'000), wanted) << "the same file";
}

TEST_F(OverlayFileSystemTest, Truncate_WhatWasBelowDoesNotComeBack) {
  const FileHandle file = *files_.Open("/d/file", /*create=*/false, /*direct=*/false);
  ASSERT_TRUE(files_.Truncate(file, 100).ok());
  ASSERT_TRUE(Write(*queue_, file, 8000, "x").ok());
  const std::string wanted = std::string(100, 'a') + std::string(7900, '\0') + "x";
  EXPECT_EQ(*files_.ReadFile("/d/file"), wanted);
  EXPECT_EQ(Read(file, 0, 9000), wanted);
}

TEST_F(OverlayFileSystemTest, Names_ComeAndGoHereOnly) {
  ASSERT_TRUE(files_.Remove("/d/other").ok());
  EXPECT_FALSE(files_.Exists("/d/other"));
  EXPECT_EQ(files_.Open("/d/other", false, false).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files_.Rename("/d/file", "/d/moved").ok());
  EXPECT_EQ(*files_.ReadFile("/d/moved"), kContent);
  EXPECT_EQ(files_.ReadFile("/d/file").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files_.MakeDirectories("/d/new/deep").ok());
  ASSERT_TRUE(files_.ReplaceFile("/d/new/file", "new").ok());
  EXPECT_THAT(*files_.List("/d"), ElementsAre("moved", "new"));
  EXPECT_THAT(*files_.List("/d/new"), ElementsAre("deep", "file"));
  const FileHandle again = *files_.Open("/d/other", /*create=*/true, false);
  EXPECT_EQ(*files_.Size(again), 0u) << "another file than the one that was removed";
}

TEST_F(OverlayFileSystemTest, Lock_IsThatOfTheFileBelow) {
  const FileHandle above = *files_.Open("/d/file", false, false),
                   below = *below_.Open("/d/file", false, false);
  ASSERT_TRUE(files_.Lock(above).ok());
  EXPECT_EQ(below_.Lock(below).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(files_.Close(above).ok());
  EXPECT_TRUE(below_.Lock(below).ok());
  const FileHandle late = *files_.Open("/d/file", false, false);
  EXPECT_EQ(files_.Lock(late).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace islands::runtime
