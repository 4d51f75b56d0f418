#include "instance/log/logger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance/log/log_testing.h"
#include "instance/log/lsn.h"
#include "runtime/seeds_testing.h"

namespace islands::log {
namespace {

TEST(Logger, Rounds_MakeWhatIsShownDurable) {
  runtime::MemoryFileSystem files;
  LogBox box({1, 2}, 1, files);
  for (int step = 0; step < 200; ++step) box.StepWorker();
  box.Quiesce();
  const uint64_t epoch = box.board().epoch();
  EXPECT_LT(box.board().durable(), epoch);
  box.DrainAll();
  EXPECT_GE(box.board().durable(), epoch);
  EXPECT_FALSE(box.logger().busy());
  EXPECT_EQ(box.logger().NextDeadlineNs(), INT64_MAX);  // it sleeps until somebody appends
  box.PowerLoss([&] { files.PowerLoss(); });
  EXPECT_GT(box.kept(), 0u);
  EXPECT_EQ(box.dropped(), 0u);
}

TEST(Logger, Hold_KeepsItsEpochFromBecomingDurable) {
  runtime::MemoryFileSystem files;
  Board board(std::vector<uint32_t>{1});
  runtime::ManualClock clock;
  auto logger = Logger::Open(files, clock, board, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
  ASSERT_TRUE(logger.ok()) << logger.status();
  std::shared_ptr<Ring> ring = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  ASSERT_TRUE((*logger)->Add(ring).ok());
  ASSERT_TRUE((*logger)->Start().ok());
  RingWriter writer(*ring);
  EpochHold hold(board, 0, 0);
  const uint64_t epoch = hold.Take();
  for (int step = 0; step < 100; ++step) clock.AdvanceNs(runtime::kNsPerMs), (*logger)->RunOnce();
  EXPECT_LT(board.durable(), epoch);
  Append(writer, 1, epoch << 24, {});
  writer.Show();
  for (int step = 0; step < 100; ++step) clock.AdvanceNs(runtime::kNsPerMs), (*logger)->RunOnce();
  EXPECT_LT(board.durable(), epoch);      // it may append more with this epoch
  EXPECT_EQ(ring->head(), ring->tail());  // but the room is free: it is on disk
  hold.Release();
  for (int step = 0; step < 100; ++step) clock.AdvanceNs(runtime::kNsPerMs), (*logger)->RunOnce();
  EXPECT_GE(board.durable(), epoch);
}

// Two islands with a worker each, in calls of their own.
class TwoIslands : public testing::Test {
 protected:
  struct Worker {
    std::shared_ptr<Ring> ring;
    std::unique_ptr<RingWriter> writer;
    std::unique_ptr<EpochHold> hold;
  };
  TwoIslands() {
    StartLogger();
    for (uint32_t island = 0; island < 2; ++island) {
      Worker& worker = workers_[island];
      worker.ring = Ring::InMemory({1, island, 0}, Ring::kLeastCapacity);
      worker.writer = std::make_unique<RingWriter>(*worker.ring);
      worker.hold = std::make_unique<EpochHold>(*board_, island, 0);
      EXPECT_TRUE(logger_->Add(worker.ring).ok());
    }
  }
  void StartLogger() {
    auto logger =
        Logger::Open(files_, clock_, *board_, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
    ASSERT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
    for (Worker& worker : workers_) {
      if (worker.ring == nullptr) continue;
      EXPECT_TRUE(logger_->Add(worker.ring).ok());
    }
    const absl::Status started = logger_->Start();
    EXPECT_TRUE(started.ok()) << started;
  }
  // A step of a worker that appends one record. Returns its epoch.
  uint64_t Append(Worker& worker) {
    const uint64_t epoch = worker.hold->Take();
    log::Append(*worker.writer, 1, Lsn::Of(epoch, ++counter_).value(), {});
    worker.writer->Show();
    worker.hold->Release();
    return epoch;
  }
  void Round() {
    clock_.AdvanceNs(runtime::kNsPerMs);
    for (int step = 0; step < 20; ++step) logger_->RunOnce();
  }

  runtime::MemoryFileSystem files_;
  runtime::ManualClock clock_;
  std::unique_ptr<Board> board_ = std::make_unique<Board>(std::vector<uint32_t>{1, 1});
  std::unique_ptr<Logger> logger_;
  std::array<Worker, 2> workers_;
  uint64_t counter_ = 0;
};

// One island holds an epoch for long, another's records reach the files with later ones.
TEST_F(TwoIslands, KillAll_EpochsGoOnAboveAllThatIsInTheFiles) {
  (void)workers_[0].hold->Take();
  for (int round = 0; round < 20; ++round) Append(workers_[1]), Round();
  const uint64_t last = Append(workers_[1]);
  Round();
  EXPECT_EQ(workers_[1].ring->head(), workers_[1].ring->tail());  // in the files
  EXPECT_LT(board_->durable(), last);                             // and does not count yet
  logger_.reset();
  board_ = std::make_unique<Board>(std::vector<uint32_t>{1, 1});
  StartLogger();
  EXPECT_GT(board_->epoch(), last);  // or who reads what it says would depend on an epoch that is too low
  logger_->OnIslandDead(0, workers_[0].ring->stream().life);
  logger_->OnIslandDead(1, workers_[1].ring->stream().life);
  while (!logger_->ReleaseDrained(1)) Round();
  EXPECT_GE(board_->durable(), last);
}

TEST_F(TwoIslands, KillLogger_WhatItHasDrainedBecomesDurable) {
  (void)workers_[0].hold->Take();
  const uint64_t epoch = Append(workers_[1]);
  Round();
  EXPECT_LT(board_->durable(), epoch);
  logger_.reset();
  workers_[0].hold->Release();
  StartLogger();
  for (int round = 0; round < 10; ++round) Round();
  EXPECT_GE(board_->durable(), epoch);  // somebody waits for it
}

TEST_F(TwoIslands, ReleaseDrained_DoesNotWaitForOthersToBeQuiet) {
  Append(workers_[0]);
  logger_->OnIslandDead(0, workers_[0].ring->stream().life);
  int steps = 0;
  for (; steps < 1000 && !logger_->ReleaseDrained(0); ++steps) {
    Append(workers_[1]);
    clock_.AdvanceNs(runtime::kNsPerMs);
    logger_->RunOnce();
  }
  EXPECT_LT(steps, 50);
}

// Workers on threads of their own, against the logger: once EPOCH says an epoch, no record of it comes any
// more.
TEST_F(TwoIslands, Threads_NothingComesLaterToAnEpochThatIsDurable) {
  struct Appended {
    uint64_t offset, epoch;
  };
  struct Said {
    uint64_t epoch;
    std::array<uint64_t, 2> heads;
  };
  std::atomic<bool> stop = false;
  const auto work = [&](Worker& worker, std::vector<Appended>* appended) {
    for (uint64_t number = 1; !stop; ++number) {
      for (uint64_t records = number % 3; records > 0 && worker.writer->Room() >= RecordBytes(0); --records) {
        const uint64_t epoch = worker.hold->Take();
        appended->push_back({worker.writer->appended(), epoch});
        log::Append(*worker.writer, 1, Lsn::Of(epoch, 0).value(), {});
      }
      worker.writer->Show();
      worker.hold->Release();
    }
  };
  std::array<std::vector<Appended>, 2> appended;
  std::vector<Said> said;
  std::thread first(work, std::ref(workers_[0]), &appended[0]);
  std::thread second(work, std::ref(workers_[1]), &appended[1]);
  for (uint64_t number = 0; said.size() < 4'000;) {
    clock_.AdvanceNs(runtime::kNsPerMs);
    logger_->RunOnce();
    const EpochBlock& block = logger_->epoch_block();
    if (std::exchange(number, block.number) == block.number) continue;
    said.push_back({block.epoch, {workers_[0].ring->head(), workers_[1].ring->head()}});
  }
  stop = true;
  first.join();
  second.join();
  for (const Said& one : said) {
    for (size_t island = 0; island < 2; ++island) {
      const auto later =
          std::partition_point(appended[island].begin(), appended[island].end(),
                               [&](const Appended& record) { return record.offset < one.heads[island]; });
      if (later == appended[island].end()) continue;  // epochs of a worker ascend
      ASSERT_GT(later->epoch, one.epoch) << "island " << island;
    }
  }
  EXPECT_GT(appended[0].size(), 1'000u);
}

// Whoever says that an island died may say so twice, or late.
TEST(Logger, OnIslandDead_LeavesTheNextLifeAlone) {
  runtime::MemoryFileSystem files;
  Board board(std::vector<uint32_t>{1});
  runtime::ManualClock clock;
  auto logger = Logger::Open(files, clock, board, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
  ASSERT_TRUE(logger.ok()) << logger.status();
  const std::shared_ptr<Ring> first = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  const std::shared_ptr<Ring> second = Ring::InMemory({2, 0, 0}, Ring::kLeastCapacity);
  ASSERT_TRUE((*logger)->Add(first).ok());
  ASSERT_TRUE((*logger)->Start().ok());
  (*logger)->OnIslandDead(0, 1);
  ASSERT_TRUE((*logger)->ReleaseDrained(0));
  ASSERT_TRUE((*logger)->Add(second).ok());
  EpochHold hold(board, 0, 0);
  const uint64_t epoch = hold.Take();
  (*logger)->OnIslandDead(0, 1);
  board.RaiseEpoch(epoch + 5);
  EXPECT_EQ(board.Complete(), epoch - 1);
  RingWriter writer(*second);
  Append(writer, 1, epoch << 24, {});
  writer.Show();
  EXPECT_TRUE((*logger)->ReleaseDrained(0));  // of the first life nothing is left
  for (int step = 0; step < 100; ++step) clock.AdvanceNs(runtime::kNsPerMs), (*logger)->RunOnce();
  EXPECT_EQ(second->head(), second->tail());  // and the second is still drained
}

// Rings are shared memory: an island gone wild ends the log with an error, not the logger with an assertion.
TEST(Logger, ScribbledRing_EndsTheLogWithAnError) {
  for (const uint64_t tail : {uint64_t{3}, uint64_t{2} * Ring::kLeastCapacity}) {
    SCOPED_TRACE(tail);
    runtime::MemoryFileSystem files;
    Board board(std::vector<uint32_t>{1});
    runtime::ManualClock clock;
    auto logger =
        Logger::Open(files, clock, board, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
    ASSERT_TRUE(logger.ok()) << logger.status();
    const std::shared_ptr<Ring> ring = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
    ASSERT_TRUE((*logger)->Add(ring).ok());
    ASSERT_TRUE((*logger)->Start().ok());
    // Where its tail is (ring.h).
    const std::byte* const data = ring->Bytes(0, 8).data();
    std::memcpy(const_cast<std::byte*>(data) - Ring::kHeaderBytes + 64, &tail, sizeof(tail));
    for (int step = 0; step < 20; ++step) clock.AdvanceNs(runtime::kNsPerMs), (*logger)->RunOnce();
    EXPECT_EQ((*logger)->failure().code(), absl::StatusCode::kDataLoss) << (*logger)->failure();
  }
}

TEST(Logger, NextDeadline_IsNowForARingThatIsHalfFull) {
  runtime::MemoryFileSystem files;
  Board board(std::vector<uint32_t>{1});
  runtime::ManualClock clock;
  auto logger = Logger::Open(
      files, clock, board,
      {.directory = "/log", .segment_bytes = kLeastSegmentBytes, .interval_ns = runtime::kNsPerSecond});
  ASSERT_TRUE(logger.ok()) << logger.status();
  const std::shared_ptr<Ring> ring = Ring::InMemory({1, 0, 0}, Ring::kLeastCapacity);
  ASSERT_TRUE((*logger)->Add(ring).ok());
  ASSERT_TRUE((*logger)->Start().ok());
  RingWriter writer(*ring);
  const auto append = [&] {
    const std::vector<std::byte> body(1000);
    Append(writer, 1, Lsn::Of(board.epoch(), 1).value(), {body});
    writer.Show();
  };
  append();
  while ((*logger)->RunOnce()) {
  }
  append();
  EXPECT_GT((*logger)->NextDeadlineNs(), clock.NowNs());
  while (ring->tail() - ring->head() < ring->capacity() / 2) append();
  EXPECT_LE((*logger)->NextDeadlineNs(), clock.NowNs());
}

TEST(Logger, Open_SecondOneIsRefusedAndOtherDataToo) {
  runtime::MemoryFileSystem files;
  Board board(std::vector<uint32_t>{1}), larger(std::vector<uint32_t>{1, 1});
  runtime::ManualClock clock;
  const Logger::Options options{.directory = "/log", .cluster = 5, .segment_bytes = kLeastSegmentBytes};
  auto first = Logger::Open(files, clock, board, options);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Logger::Open(files, clock, board, options).status().code(), absl::StatusCode::kUnavailable);
  first->reset();
  EXPECT_TRUE(Logger::Open(files, clock, board, options).ok());
  Logger::Options other = options;
  other.cluster = 6;
  EXPECT_EQ(Logger::Open(files, clock, board, other).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Logger::Open(files, clock, larger, options).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Logger::Open(files, clock, board, options).ok());
}

// A logger that dies between writing EPOCH and syncing it leaves what the next one can read, and power take.
TEST(Logger, Open_DoesNotTrustWhatIsNotSynced) {
  for (int steps = 0; steps < 12; ++steps) {
    SCOPED_TRACE(steps);
    runtime::MemoryFileSystem files;
    LogBox box({1}, 1, files);
    for (int step = 0; step < 100; ++step) box.StepWorker();
    box.Quiesce();
    for (int step = 0; step < steps + 10; ++step) box.StepLogger();
    box.KillLogger();
    box.PowerLoss([&] { files.PowerLoss(); });
  }
}

// Rings are files that anybody with the user's rights can write into.
TEST(Logger, RingThatSomebodyElseFrees_IsAnError) {
  runtime::MemoryFileSystem files;
  LogBox box({1}, 1, files);
  const auto append = [&] {
    const uint64_t before = box.ring(0).tail();
    while (box.ring(0).tail() == before) box.StepWorker();
    box.Quiesce();
  };
  append();
  while (!box.logger().busy()) box.StepLogger();
  box.StepLogger();  // has collected the one
  append();
  box.ring(0).SetHead(box.ring(0).tail());  // of what is being written, and of what is not
  box.DrainAll();
  EXPECT_TRUE(absl::IsDataLoss(box.logger().failure())) << box.logger().failure();
}

// What a failed sync has dropped can still be read, and a later sync succeeds without it: a logger that
// starts again on the same machine must not take it for durable.
TEST(Logger, DiskFails_TheNextLoggerPromisesNothingThatIsNotOnDisk) {
  for (uint64_t step = 0; step < 40; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    runtime::MemoryFileSystem files;
    LogBox box({1, 1}, step, files);
    for (int i = 0; i < 100; ++i) box.StepWorker();
    box.Quiesce();
    files.Inject(step, runtime::DiskFault::kEio);
    for (int i = 0; i < 300 && box.logger().failure().ok(); ++i) box.StepWorker(), box.StepLogger();
    box.KillLogger();
    box.PowerLoss([&] { files.PowerLoss(); });
    if (testing::Test::HasFailure()) return;
  }
}

// The one before it was killed between renaming the file and syncing the directory.
TEST(Logger, Open_MakesTheNameOfEpochDurable) {
  runtime::MemoryFileSystem files;
  const std::string path = std::string(LogBox::kDirectory) + "/" + kEpochFileName;
  { LogBox box({1}, 1, files); }
  ASSERT_TRUE(files.Rename(path, path + ".tmp").ok());
  ASSERT_TRUE(files.SyncDirectory(LogBox::kDirectory).ok());
  ASSERT_TRUE(files.Rename(path + ".tmp", path).ok());
  LogBox box({1}, 1, files);
  for (int step = 0; step < 100; ++step) box.StepWorker();
  box.Quiesce();
  box.DrainAll();
  box.PowerLoss([&] { files.PowerLoss(); });
}

TEST_F(TwoIslands, Open_EpochThatIsGoneOrOlderThanWhatWasPromised) {
  const std::string path = std::string("/log/") + kEpochFileName;
  const std::string older = *files_.ReadFile(path);
  for (int round = 0; round < 5; ++round) Append(workers_[0]), Round();
  EXPECT_GT(board_->durable(), 0u);
  logger_.reset();
  const auto open = [&] {
    return Logger::Open(files_, clock_, *board_, {.directory = "/log", .segment_bytes = kLeastSegmentBytes})
        .status();
  };
  const std::string newest = *files_.ReadFile(path);
  ASSERT_TRUE(files_.ReplaceFile(path, older).ok());
  EXPECT_EQ(open().code(), absl::StatusCode::kDataLoss) << open();
  ASSERT_TRUE(files_.ReplaceFile(path, newest.substr(0, newest.size() / 2)).ok());
  EXPECT_EQ(open().code(), absl::StatusCode::kDataLoss) << open();
  // Without it the log would begin anew, and all that is in it were gone.
  ASSERT_TRUE(files_.Remove(path).ok());
  EXPECT_EQ(open().code(), absl::StatusCode::kDataLoss) << open();
  EXPECT_FALSE(files_.Exists(path));
  ASSERT_TRUE(files_.ReplaceFile(path, newest).ok());
  EXPECT_TRUE(open().ok()) << open();
}

TEST_F(TwoIslands, Add_RingOfAnIslandThatThereIsNot) {
  EXPECT_EQ(logger_->Add(Ring::InMemory({1, 2, 0}, Ring::kLeastCapacity)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Logger, DiskFails_NothingBecomesDurableAnyMore) {
  for (const runtime::DiskFault fault : {runtime::DiskFault::kEio, runtime::DiskFault::kEnospc}) {
    for (uint64_t step = 0; step < 20; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      runtime::MemoryFileSystem files;
      LogBox box({1, 1}, step, files);
      for (int i = 0; i < 100; ++i) box.StepWorker();
      box.Quiesce();
      files.Inject(step, fault);
      for (int i = 0; i < 300; ++i) box.StepWorker(), box.StepLogger();
      box.Quiesce();
      box.DrainAll();
      if (!box.logger().failure().ok()) {
        EXPECT_NE(std::string(box.logger().failure().message()).find("the log cannot go on"),
                  std::string::npos);
        EXPECT_LT(box.board().durable(), box.board().epoch());
        const uint64_t durable = box.board().durable();
        for (int i = 0; i < 100; ++i) box.StepLogger();
        EXPECT_EQ(box.board().durable(), durable);
      }
      box.PowerLoss([&] { files.PowerLoss(step); });
      if (testing::Test::HasFailure()) return;
    }
  }
}

// It is noticed while there is room for what is under way: that gets durable, and nobody else begins.
TEST(Logger, FullDisk_IsNoticedInTime) {
  runtime::MemoryFileSystem files({.disk_bytes = 3 * kLeastSegmentBytes});
  LogBox box({1}, 1, files);
  while (!box.board().full()) {
    for (int i = 0; i < 50; ++i) box.StepWorker();
    box.Quiesce();
    box.DrainAll();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(box.logger().full())) << box.logger().full();
  EXPECT_TRUE(box.logger().failure().ok());
  for (int i = 0; i < 500; ++i) box.StepWorker();  // they had begun
  box.Quiesce();
  box.DrainAll();
  EXPECT_TRUE(box.logger().drained());
  EXPECT_EQ(box.board().durable() + 1, box.board().epoch());
  EXPECT_TRUE(box.board().full());
  // A checkpoint lets go of the first segment. Nobody appends: that alone makes room.
  box.board().SetNeededSegment(0, 2);
  for (int i = 0; i < 5'000; ++i) box.StepLogger();  // looks ten times a second
  EXPECT_FALSE(box.board().full());
  EXPECT_TRUE(box.logger().full().ok());
  EXPECT_FALSE(files.Exists("/log/island-0/" + SegmentName(1)));
}

// A logger begins in a segment of its own: without the room that the one before it had kept, what is in the
// rings could not get durable, and so no checkpoint would ever make room.
TEST(Logger, FullDisk_TheNextLoggerGoesOnInTheReserve) {
  runtime::MemoryFileSystem files({.disk_bytes = 3 * kLeastSegmentBytes});
  LogBox box({1}, 1, files);
  while (!box.board().full()) {
    for (int i = 0; i < 50; ++i) box.StepWorker();
    box.Quiesce();
    box.DrainAll();
  }
  for (int kill = 0; kill < 3; ++kill) {
    for (int i = 0; i < 50; ++i) box.StepWorker();  // they had begun
    box.KillLogger();
    box.Quiesce();
    box.DrainAll();
    EXPECT_TRUE(box.logger().drained());
    EXPECT_EQ(box.board().durable() + 1, box.board().epoch());
  }
  EXPECT_TRUE(box.board().full());
  box.PowerLoss([&] { files.PowerLoss(1); });  // reads all of it
}

// Whoever does not heed the board fills what there is, and then waits; nothing is lost.
TEST(Logger, FullDisk_IsWaitedFor) {
  runtime::MemoryFileSystem files({.disk_bytes = 3 * kLeastSegmentBytes});
  LogBox box({1}, 1, files);
  for (int i = 0; i < 20'000; ++i) box.StepWorker(), box.StepLogger();
  box.Quiesce();
  box.DrainAll();
  EXPECT_TRUE(box.board().full());
  EXPECT_TRUE(box.logger().failure().ok());
  const uint64_t durable = box.board().durable();
  EXPECT_LT(durable + 1, box.board().epoch());
  box.board().SetNeededSegment(0, 2);  // a checkpoint that was under way makes room
  for (int i = 0; i < 5'000; ++i) box.StepLogger();
  EXPECT_GT(box.board().durable(), durable);
}

// Pages may be on the same disk: where they find no room nothing is kept that nobody needs.
TEST(Logger, FullDisk_SegmentsAreNotKeptFromPages) {
  runtime::MemoryFileSystem files({.disk_bytes = 16 * kLeastSegmentBytes});
  LogBox box({1}, 1, files);
  while (files.List("/log/island-0")->size() < 8) {
    for (int i = 0; i < 50; ++i) box.StepWorker();
    box.Quiesce();
    box.DrainAll();
  }
  box.board().SetNeededSegment(0, 7);
  box.board().Want(box.board().epoch());
  for (int i = 0; i < 5'000; ++i) box.StepLogger();
  const auto pages = files.Open("/log/pages", /*create=*/true, /*direct=*/false).value();
  files.SetRoom(0);  // others have what was left
  ASSERT_TRUE(absl::IsResourceExhausted(files.Allocate(pages, 4096)));
  for (int i = 0; i < 100; ++i) box.StepLogger();
  EXPECT_TRUE(absl::IsResourceExhausted(files.Allocate(pages, 4096)));
  box.board().SetPagesFull(0, true);
  for (int i = 0; i < 100; ++i) box.StepLogger();
  EXPECT_TRUE(files.Allocate(pages, 4096).ok());
}

// The heart of it: workers and logger in small steps, in every order that chance thinks of, with everything
// dying.
TEST(Logger, Property_WhatEpochCoversSurvivesEverything) {
  uint64_t kept = 0, dropped = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 25 / runtime::kSanitizedShare; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    runtime::MemoryFileSystem files;
    LogBox box({1, 2, 1}, seed, files);
    for (int step = 0; step < 4000 && !testing::Test::HasFatalFailure(); ++step) {
      const uint64_t what = box.random().Below(1000);
      if (what < 8) {
        box.KillLogger();
      } else if (what < 11) {
        box.KillIsland(static_cast<uint32_t>(box.random().Below(box.islands())));
      } else if (what < 13) {
        box.PowerLoss([&] { files.PowerLoss(box.random()()); });
      } else if (what < 100) {
        for (uint32_t island = 0; island < box.islands(); ++island) restarts += box.TryRestartIsland(island);
      } else if (what < 600) {
        box.StepWorker();
      } else {
        box.StepLogger();
      }
    }
    box.Quiesce();
    box.DrainAll();
    box.PowerLoss([&] { files.PowerLoss(seed); });
    kept += box.kept();
    dropped += box.dropped();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(kept, 5'000u / runtime::kSanitizedShare);
  EXPECT_GT(dropped, 1'000u / runtime::kSanitizedShare);
  EXPECT_GT(restarts, 100u / runtime::kSanitizedShare);
}

// The same where checkpoints let go of segments, which are written over. The disk becomes full, and fails;
// and what a logger had in flight when it died may happen late.
class Recycling {
 public:
  explicit Recycling(uint64_t seed)
      : files_({.sector_bytes = seed % 2 == 0 ? 512u : 4096u}),
        box_({1, 2, 1}, seed, files_, {.usual = 60'000, .large = 120'000}) {}

  LogBox& box() { return box_; }
  uint64_t failures() const { return failures_; }

  void Step() {
    if (!box_.logger().failure().ok() && Below(50) == 0) {
      ++failures_;
      return Below(2) == 0 ? LosePower() : KillLogger();
    }
    const uint64_t what = Below(10'000);
    if (what < 5000) return box_.StepWorker();
    if (what < 9400) return static_cast<void>(box_.StepLogger());
    if (what < 9800) return RestartIslands();
    if (what < 9860) return box_.Checkpoint(AnyIsland());
    if (what < 9870) return box_.KillIsland(AnyIsland());
    if (what < 9878) return KillLogger();
    if (what < 9880) return LosePower();
    if (what < 9883) return files_.FinishLeft();
    if (what < 9893) return files_.SetRoom(Below(4) == 0 ? Below(3 * kLeastSegmentBytes) : UINT64_MAX);
    if (what < 9923) return box_.board().SetPagesFull(AnyIsland(), Below(16) == 0);
    if (what < 9925) files_.Inject(Below(20), runtime::DiskFault::kEio);
  }
  // There is room again: all gets durable.
  void End() {
    KillLogger();
    files_.SetRoom(UINT64_MAX);
    for (uint32_t island = 0; island < box_.islands(); ++island) box_.board().SetPagesFull(island, false);
    box_.Quiesce();
    for (int step = 0; step < 2000; ++step) box_.StepLogger();
    EXPECT_TRUE(box_.logger().drained());
    EXPECT_EQ(box_.board().durable() + 1, box_.board().epoch());
    LosePower();
  }

 private:
  uint64_t Below(uint64_t bound) { return box_.random().Below(bound); }
  uint32_t AnyIsland() { return static_cast<uint32_t>(Below(box_.islands())); }
  void RestartIslands() {
    for (uint32_t island = 0; island < box_.islands(); ++island) box_.TryRestartIsland(island);
  }
  void KillLogger() {
    const bool left = Below(2) == 0;
    for (int step = 0; left && step < 20 && !box_.logger().busy(); ++step) box_.StepLogger();
    if (left) box_.StepLogger();  // has begun a round, and writes
    files_.ForgetFaults();        // the box asserts that the next one begins
    box_.KillLogger(left);
  }
  void LosePower() {
    const uint64_t seed = Below(UINT64_MAX);
    box_.PowerLoss([&] {
      seed % 2 == 0 ? files_.PowerLoss() : files_.PowerLoss(seed);
      files_.SetRoom(UINT64_MAX);  // a box that begins writes its manifest
    });
  }

  runtime::MemoryFileSystem files_;
  LogBox box_;
  uint64_t failures_ = 0;
};

TEST(Logger, Property_SegmentsThatAreWrittenOverLoseNothing) {
  const auto [first, count] = runtime::SeedsToRun(12 / runtime::kSanitizedShare);
  uint64_t kept = 0, dropped = 0, recycled = 0, looks = 0, failures = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Recycling recycling(seed);
    for (int step = 0; step < 12'000 && !testing::Test::HasFailure(); ++step) recycling.Step();
    if (!testing::Test::HasFailure()) recycling.End();
    if (testing::Test::HasFailure()) return;
    kept += recycling.box().kept();
    dropped += recycling.box().dropped();
    recycled += recycling.box().recycled();
    looks += recycling.box().looks_without_room();
    failures += recycling.failures();
  }
  if (count < 12) return;  // chance does not come to all of it in each of them
  EXPECT_GT(kept, 5'000u);
  EXPECT_GT(dropped, 500u);
  EXPECT_GT(recycled, 40u) << "segments that were written over";
  EXPECT_GT(looks, 50u);
  EXPECT_GT(failures, 10u);
}

}  // namespace
}  // namespace islands::log
