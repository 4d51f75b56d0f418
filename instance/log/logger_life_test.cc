// How loggers, and lives of islands, follow each other.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "instance/log/logger.h"
#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "runtime/file_system_memory.h"

namespace islands::log {
namespace {

class LoggerLife : public testing::Test {
 protected:
  LoggerLife() { Open(); }
  void Open() {
    logger_.reset();
    auto logger =
        Logger::Open(files_, clock_, board_, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
    ASSERT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
  }
  static std::shared_ptr<Ring> MakeRing(uint64_t life, uint32_t island = 0, uint32_t worker = 0) {
    return Ring::InMemory({life, island, worker}, Ring::kLeastCapacity);
  }
  void Append(Ring& ring) {
    EpochHold hold(board_, ring.stream().island, ring.stream().worker);
    RingWriter writer(ring);
    log::Append(writer, 1, Lsn::Of(hold.Take(), 0).value(), {});
    writer.Show();
    hold.Release();
  }
  void Rounds(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      clock_.AdvanceNs(runtime::kNsPerMs);
      for (int step = 0; step < 20; ++step) logger_->RunOnce();
    }
  }

  runtime::MemoryFileSystem files_;
  runtime::ManualClock clock_;
  Board board_{std::vector<uint32_t>{1, 2}};
  std::unique_ptr<Logger> logger_;
};

TEST_F(LoggerLife, RunOnce_NotBeforeStart) { EXPECT_DEATH(logger_->RunOnce(), "started_"); }

TEST_F(LoggerLife, Start_NotWithoutTheRingOfWhoHoldsAnEpoch) {
  ASSERT_TRUE(logger_->Add(MakeRing(1, 1, 0)).ok());
  EpochHold hold(board_, 1, 1);
  hold.Take();
  EXPECT_EQ(logger_->Start().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(logger_->Add(MakeRing(1, 1, 1)).ok());
  EXPECT_TRUE(logger_->Start().ok());
}

// EPOCH goes on while nobody knows its ring.
TEST_F(LoggerLife, Add_LaterLifeThatHasAppendedIsRefused) {
  ASSERT_TRUE(logger_->Start().ok());
  const std::shared_ptr<Ring> ring = MakeRing(1);
  Append(*ring);
  EXPECT_EQ(logger_->Add(ring).code(), absl::StatusCode::kFailedPrecondition) << logger_->Add(ring);
  Open();  // to whoever begins anew it is what another logger has left
  EXPECT_TRUE(logger_->Add(ring).ok());
  EXPECT_TRUE(logger_->Start().ok());
  Rounds(5);
  EXPECT_EQ(ring->head(), ring->tail());
}

// Whoever died with a hold leaves it, and OnIslandDead would take it for the next life's.
TEST_F(LoggerLife, Add_LaterLifeNotBeforeTheEarlierIsDead) {
  const std::shared_ptr<Ring> first = MakeRing(1), second = MakeRing(2);
  ASSERT_TRUE(logger_->Add(first).ok());
  ASSERT_TRUE(logger_->Start().ok());
  EpochHold hold(board_, 0, 0);
  hold.Take();
  EXPECT_EQ(logger_->Add(second).code(), absl::StatusCode::kFailedPrecondition);
  logger_->OnIslandDead(0, 1);
  EXPECT_TRUE(logger_->Add(second).ok());
  Append(*second);
  Rounds(5);
  EXPECT_EQ(second->head(), second->tail());
}

TEST_F(LoggerLife, Add_TwiceOrOfNobody) {
  const std::shared_ptr<Ring> ring = MakeRing(1);
  ASSERT_TRUE(logger_->Add(ring).ok());
  EXPECT_EQ(logger_->Add(ring).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(logger_->Add(MakeRing(1, 2, 0)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(logger_->Add(MakeRing(1, 0, 1)).code(), absl::StatusCode::kFailedPrecondition);
}

// Data and log are from a copy that was made while these rings were used.
TEST_F(LoggerLife, Add_RingThatWasFreedAfterALaterEpoch_IsRefused) {
  const std::shared_ptr<Ring> ring = MakeRing(1);
  ASSERT_TRUE(logger_->Add(ring).ok());
  ASSERT_TRUE(logger_->Start().ok());
  Append(*ring);
  Rounds(5);
  const std::string old = files_.ReadFile("/log/EPOCH").value();
  EXPECT_TRUE(logger_->failure().ok());
  Append(*ring);
  Rounds(5);
  EXPECT_EQ(ring->head(), ring->tail());
  logger_.reset();
  const std::string last = files_.ReadFile("/log/EPOCH").value();
  for (const std::string& epoch : {old, last}) {
    ASSERT_TRUE(files_.ReplaceFile("/log/EPOCH", epoch).ok());
    Board board(std::vector<uint32_t>{1, 2});
    const auto logger = Logger::Open(files_, clock_, board, {.directory = "/log"});
    ASSERT_TRUE(logger.ok()) << logger.status();
    const absl::Status added = (*logger)->Add(ring);
    EXPECT_EQ(added.code(), epoch == old ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << added;
  }
}

TEST_F(LoggerLife, Hold_ThatStandsStillCostsNoWrites) {
  const std::shared_ptr<Ring> ring = MakeRing(1), other = MakeRing(1, 1, 0);
  ASSERT_TRUE(logger_->Add(ring).ok());
  ASSERT_TRUE(logger_->Add(other).ok());
  ASSERT_TRUE(logger_->Start().ok());
  EpochHold hold(board_, 0, 0);
  const uint64_t epoch = hold.Take();
  Append(*other);
  Rounds(5);
  EXPECT_EQ(other->head(), other->tail());
  const uint64_t steps = files_.steps();
  Rounds(100);
  EXPECT_EQ(files_.steps(), steps);
  EXPECT_LT(board_.durable(), epoch);
  Append(*other);
  Rounds(5);
  EXPECT_EQ(other->head(), other->tail());
  hold.Release();
  Rounds(5);
  EXPECT_GT(board_.durable(), epoch);
}

// Another process had made the directories and died.
TEST(Logger, Open_MakesItsDirectoriesDurable) {
  for (const char* left : {"/log", "/log/island-0"}) {
    runtime::MemoryFileSystem files;
    runtime::ManualClock clock;
    Board board(std::vector<uint32_t>{1});
    if (left != std::string("/log")) {
      ASSERT_TRUE(files.MakeDirectories("/log").ok());
    }
    files.LeaveDirectory(left);
    ASSERT_TRUE(Logger::Open(files, clock, board, {.directory = "/log"}).ok());
    files.PowerLoss();
    EXPECT_TRUE(files.Exists(left));
  }
}

// A logger that dies leaves the segment that it had prepared; they would pile up.
TEST_F(LoggerLife, Open_RemovesWhatItsPredecessorHadPrepared) {
  const std::shared_ptr<Ring> ring = MakeRing(1);
  ASSERT_TRUE(logger_->Add(ring).ok());
  ASSERT_TRUE(logger_->Start().ok());
  std::vector<std::string> names;
  for (int life = 0; life < 10; ++life) {
    RingWriter writer(*ring);
    for (int record = 0; record < 6; ++record) {
      const std::vector<std::byte> body(100'000);
      ASSERT_GE(writer.Room(), RecordBytes(body.size()));
      log::Append(writer, 1, Lsn::Of(board_.epoch(), 0).value(), {body});
      writer.Show();
      Rounds(2);
    }
    Open();
    ASSERT_TRUE(logger_->Add(ring).ok());
    ASSERT_TRUE(logger_->Start().ok());
    names = *files_.List("/log/island-0");
  }
  EXPECT_EQ(names.size(), 10u);  // one of each life
  // What it has of records beyond EPOCH stays; it may be all that is left after an accident.
  EXPECT_EQ(files_.ReadFile("/log/island-0/" + names.back())->substr(0, 8), "ISLSEGM3");
}

}  // namespace
}  // namespace islands::log
