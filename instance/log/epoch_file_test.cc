#include "instance/log/epoch_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "instance/log/logger.h"
#include "instance/log/record.h"
#include "runtime/file_system_memory.h"

namespace islands::log {
namespace {

// Reading takes time, and the file changes meanwhile: the first block as it was, then something happens, then
// the second as it is.
class SlowFiles : public runtime::MemoryFileSystem {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    absl::StatusOr<std::string> first = MemoryFileSystem::ReadFile(path);
    if (!meanwhile || !first.ok()) return first;
    meanwhile();
    std::string content = *first;
    const std::string second = *MemoryFileSystem::ReadFile(path);
    content.replace(content.size() / 2, std::string::npos, second.substr(second.size() / 2));
    // The logger is in the middle of writing it.
    if (tears) content[content.size() / 2 + 20] = static_cast<char>(~content[content.size() / 2 + 20]);
    return content;
  }
  std::function<void()> meanwhile;
  bool tears = false;
};

class LiveEpoch : public testing::Test {
 protected:
  LiveEpoch() {
    auto logger =
        Logger::Open(files_, clock_, board_, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
    EXPECT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
    EXPECT_TRUE(logger_->Add(ring_).ok());
    EXPECT_TRUE(logger_->Start().ok());
  }
  // Until EPOCH was written once more.
  void Round() {
    EpochHold hold(board_, 0, 0);
    RingWriter writer(*ring_);
    Append(writer, 1, hold.Take() << 24, {});
    writer.Show();
    hold.Release();
    const uint64_t number = logger_->epoch_block().number;
    while (logger_->epoch_block().number == number) clock_.AdvanceNs(runtime::kNsPerMs), logger_->RunOnce();
  }
  absl::StatusOr<EpochBlock> Read() { return ReadLiveEpochFile(files_, kPath, 0, 1, board_); }

  static constexpr char kPath[] = "/log/EPOCH";
  SlowFiles files_;
  runtime::ManualClock clock_;
  Board board_{std::vector<uint32_t>{1}};
  const std::shared_ptr<Ring> ring_ = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  std::unique_ptr<Logger> logger_;
};

// The first block is read, the logger writes it anew and is about to do so with the second.
TEST_F(LiveEpoch, Read_IsNeverBelowWhatWasDurable) {
  for (int blocks = 0; blocks < 6; ++blocks) {
    for (int rounds = 0; rounds < 4; ++rounds) {
      for (const bool tears : {false, true}) {
        SCOPED_TRACE(testing::Message() << blocks << " blocks, then " << rounds << ", torn " << tears);
        files_.tears = tears;
        Round();
        files_.meanwhile = [&, left = 3]() mutable {
          for (int round = 0; round < rounds; ++round) Round();
          if (--left == 0) files_.meanwhile = nullptr;
        };
        const uint64_t durable = board_.durable();
        const absl::StatusOr<EpochBlock> block = Read();
        files_.meanwhile = nullptr;
        ASSERT_TRUE(block.ok()) << block.status();
        EXPECT_GE(block->epoch, durable);
      }
    }
    Round();
  }
}

TEST_F(LiveEpoch, Read_GivesUp) {
  Round();
  // An old copy in its place.
  const std::string older = *files_.ReadFile(kPath);
  Round();
  ASSERT_TRUE(files_.ReplaceFile(kPath, older).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kUnavailable) << Read().status();
  ASSERT_TRUE(files_.ReplaceFile(kPath, older.substr(1)).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << Read().status();
  ASSERT_TRUE(files_.Remove(kPath).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound) << Read().status();
}

}  // namespace
}  // namespace islands::log
