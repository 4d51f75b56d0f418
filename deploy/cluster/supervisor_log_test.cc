// The log of a deployment as its supervisor keeps it, with the real logger and real rings; islands are only
// names.
#include "deploy/cluster/supervisor_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "runtime/file_system_forwarding.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kPatienceMs = 60'000;  // longer than anything takes that does not hang
constexpr char kClusterId[] = "0123456789abcdef0123456789abcdef";
constexpr char kOtherId[] = "ffff456789abcdef0123456789abcdef";

// The operating system's files, whose disk has no room for a new one while somebody says so.
class FullDisk final : public runtime::ForwardingFileSystem {
 public:
  FullDisk(runtime::FileSystem& below, int* refused, const bool* full)
      : ForwardingFileSystem(below), refused_(refused), full_(full) {}

  absl::Status ReplaceFile(const std::string& path, std::string_view content) override {
    if (!*full_) return ForwardingFileSystem::ReplaceFile(path, content);
    ++*refused_;
    return absl::ResourceExhaustedError("no space left");
  }

 private:
  int* const refused_;
  const bool* const full_;
};

class BoxLogTest : public testing::Test {
 protected:
  BoxLogTest() : base_(testing::TempDir() + "islands-box-log-XXXXXX") {
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    options_ = {.program = ISLANDS_LOGGER,
                .log_path = base_ + "/logger.log",
                .cluster_id = kClusterId,
                .log_directory = base_ + "/log",
                .ring_directory = base_ + "/rings",
                .workers = {1, 2},
                .ring_bytes = log::Ring::kLeastCapacity,
                .interval_us = 1'000,
                .restarts = {.first_delay_ms = 1}};
  }
  ~BoxLogTest() override {
    log_.reset();  // its logger makes files there
    fs::remove_all(base_);
  }

  // As a supervisor that comes after this one was killed, or after it has ended.
  absl::Status Open(const std::vector<uint32_t>& workers_before = {1, 2}) {
    log_.reset();
    auto opened = BoxLog::Open(options_, workers_before);
    if (!opened.ok()) return opened.status();
    log_ = *std::move(opened);
    return absl::OkStatus();
  }
  void StepUntil(const std::function<bool()>& over) {
    for (int waited_ms = 0; !over(); ++waited_ms) {
      ASSERT_LT(waited_ms, kPatienceMs);
      const absl::Status going_on = log_->Step();
      ASSERT_TRUE(going_on.ok()) << going_on;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  absl::Status StepUntilItFails() {
    absl::Status status;
    for (int waited_ms = 0; status.ok() && waited_ms < kPatienceMs; ++waited_ms) {
      status = log_->Step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return status;
  }
  void Begin(uint32_t island, uint64_t life) {
    StepUntil([&] { return log_->MayBegin(island); });
    const absl::Status begun = log_->Begin(island, life);
    ASSERT_TRUE(begun.ok()) << begun;
  }
  void BeginBoth(uint64_t life) {
    Begin(0, life);
    Begin(1, life);
    StepUntil([&] { return log_->IsReady(0) && log_->IsReady(1); });
  }
  void Stop() {
    for (int waited_ms = 0; !log_->Stop(); ++waited_ms) {
      ASSERT_LT(waited_ms, kPatienceMs);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    log_.reset();
  }
  // What the island's worker appends, with the epoch of now or a later one.
  void Append(const log::StreamId& stream, uint64_t epoch) {
    const auto ring = log::Ring::Open(RingPath(stream));
    ASSERT_TRUE(ring.ok()) << ring.status();
    log::RingWriter writer(**ring);
    log::Append(writer, 1, log::Lsn::Of(epoch, 1).value(), {});
    writer.Show();
  }

  // The same, and an epoch is held: it gets to disk, and EPOCH stays before it.
  void AppendBeyondEpoch(const log::StreamId& stream) {
    const auto board = log::Board::Map(log_->board_fd(), options_.workers).value();
    log::EpochHold hold(*board, stream.island, stream.worker);
    Append(stream, hold.Take());
    StepUntil([&] {
      const auto block =
          log::ReadEpochFile(*files_, options_.log_directory + "/EPOCH",
                             log::ClusterFingerprint(kClusterId).value(), options_.workers.size());
      return block.ok() && block->reaches > block->epoch;
    });
  }

  log::BoxManifest OnDisk() {
    const auto manifest =
        log::ReadBoxManifest(*files_, options_.log_directory, log::ClusterFingerprint(kClusterId).value(),
                             options_.workers.size());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return manifest.ok() ? *manifest : log::BoxManifest{.lives = {0, 0}};
  }
  // Whose records EPOCH says are there; no logger lives.
  std::vector<log::StreamId> InLog(uint32_t island) {
    const uint64_t cluster = log::ClusterFingerprint(kClusterId).value();
    const auto block = log::ReadEpochFile(*files_, options_.log_directory + "/EPOCH", cluster, 2);
    EXPECT_TRUE(block.ok()) << block.status();
    if (!block.ok()) return {};
    log::LogReader reader(*files_,
                          {.directory = log::IslandDirectory(options_.log_directory, island),
                           .cluster = cluster,
                           .island = island},
                          block->ends[island]);
    std::vector<log::StreamId> streams;
    const absl::Status read = reader.Read([&](const log::StreamId& stream, const log::Record&) {
      streams.push_back(stream);
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read;
    return streams;
  }
  std::string RingPath(const log::StreamId& stream) const {
    return options_.ring_directory + "/" + log::RingName(stream);
  }
  std::vector<std::string> Rings() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.ring_directory)) {
      if (log::ParseRingName(entry.path().filename())) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string base_;
  BoxLog::Options options_;
  const std::unique_ptr<runtime::FileSystem> disk_ = runtime::MakePosixFileSystem();
  std::unique_ptr<runtime::FileSystem> files_ = runtime::MakePosixFileSystem();
  std::unique_ptr<BoxLog> log_;
};

TEST_F(BoxLogTest, Begin_TheManifestNamesALifeBeforeItIsReady) {
  ASSERT_TRUE(Open({}).ok());
  EXPECT_TRUE(log_->MayBegin(0));
  Begin(0, 7);
  EXPECT_TRUE(fs::exists(RingPath({7, 0, 0})));
  StepUntil([&] {
    EXPECT_EQ(OnDisk().lives[0], log_->IsReady(0) ? 7u : 0u);
    return log_->IsReady(0);
  });
  EXPECT_THAT(OnDisk().lives, ElementsAre(7, 0));
  // The next one: what the first has appended comes first, and its rings go when the second is written down.
  Append({7, 0, 0}, 3);
  log_->OnDead(0);
  EXPECT_FALSE(log_->MayBegin(0));
  Begin(0, 8);
  EXPECT_THAT(Rings(), SizeIs(2));
  StepUntil([&] {
    EXPECT_EQ(OnDisk().lives[0], log_->IsReady(0) ? 8u : 7u);
    EXPECT_EQ(fs::exists(RingPath({7, 0, 0})), !log_->IsReady(0));
    return log_->IsReady(0);
  });
  EXPECT_THAT(Rings(), ElementsAre(log::RingName({8, 0, 0})));
  log_.reset();
  EXPECT_THAT(InLog(0), ElementsAre(log::StreamId{7, 0, 0}));
}

TEST_F(BoxLogTest, Step_WithAFullDisk_NoLifeBegins) {
  int refused = 0;
  bool full = false;
  auto opened = BoxLog::Open(options_, {}, std::make_unique<FullDisk>(*disk_, &refused, &full));
  ASSERT_TRUE(opened.ok()) << opened.status();
  log_ = *std::move(opened);
  Begin(1, 4);
  StepUntil([&] { return log_->IsReady(1); });
  full = true;
  Begin(0, 5);
  StepUntil([&] { return refused > 3; });
  EXPECT_FALSE(log_->IsReady(0));
  EXPECT_TRUE(log_->IsReady(1));
  EXPECT_THAT(OnDisk().lives, ElementsAre(0, 4));
  full = false;
  StepUntil([&] { return log_->IsReady(0); });
  EXPECT_THAT(OnDisk().lives, ElementsAre(5, 4));
}

TEST_F(BoxLogTest, Open_NothingWasLost_DrainsAndCutsNothing) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  Append({1, 1, 0}, 5);
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
  EXPECT_FALSE(log_->MayBegin(1));  // first EPOCH has what was in the ring
  BeginBoth(2);
  EXPECT_THAT(OnDisk().cuts, IsEmpty());
  EXPECT_THAT(Rings(), SizeIs(3));
  log_.reset();
  EXPECT_THAT(InLog(1), ElementsAre(log::StreamId{1, 1, 0}));
}

// Between the rings of a life and the manifest that names it.
TEST_F(BoxLogTest, Open_AfterADeathBetweenRingsAndManifest_GoesOnBehindBoth) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  log_->OnDead(0);
  Begin(0, 2);
  EXPECT_THAT(OnDisk().lives, ElementsAre(1, 1));
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
  BeginBoth(3);
  EXPECT_THAT(OnDisk().lives, ElementsAre(3, 3));
  EXPECT_THAT(Rings(),
              ElementsAre(log::RingName({3, 0, 0}), log::RingName({3, 1, 0}), log::RingName({3, 1, 1})));
}

// Whatever of it is missing: the cut is on disk before a logger, or an island, can open anything.
TEST_F(BoxLogTest, Open_AfterALossOfPower_WritesTheCutFirst) {
  const std::vector<std::pair<const char*, std::function<void()>>> losses = {
      {"a ring",
       [&] {
         fs::remove(RingPath({1, 1, 1}));
       }},
      {"part of a ring",
       [&] {
         fs::resize_file(RingPath({1, 0, 0}), 5000);
       }},
      {"all rings", [&] { fs::remove_all(options_.ring_directory); }},
      {"the kernel that it ran under", [&] {
         log::BoxManifest manifest = OnDisk();
         manifest.boot.fill(7);
         ASSERT_TRUE(log::WriteBoxManifest(*files_, options_.log_directory, manifest).ok());
       }}};
  for (const auto& [what, lose] : losses) {
    SCOPED_TRACE(what);
    log_.reset();
    fs::remove_all(options_.log_directory);
    fs::remove_all(options_.ring_directory);
    options_.program = ISLANDS_LOGGER;
    ASSERT_TRUE(Open({}).ok());
    BeginBoth(1);
    AppendBeyondEpoch({1, 0, 0});
    log_.reset();
    lose();
    options_.program = base_ + "/none";  // so nobody opens anything
    ASSERT_TRUE(Open().ok());
    const log::BoxManifest cut = OnDisk();
    EXPECT_THAT(cut.cuts, SizeIs(1));
    EXPECT_EQ(log_->cuts(), cut.cuts);
    EXPECT_THAT(Rings(), IsEmpty());  // what is in them counts no more
    EXPECT_TRUE(log_->MayBegin(0));
    // Killed before anybody went on: the same loss is the same cut.
    options_.program = ISLANDS_LOGGER;
    ASSERT_TRUE(Open().ok());
    EXPECT_EQ(log_->cuts(), cut.cuts);
    BeginBoth(2);
    EXPECT_EQ(OnDisk().cuts, cut.cuts);
    EXPECT_THAT(OnDisk().lives, ElementsAre(2, 2));
  }
}

TEST_F(BoxLogTest, Open_RefusesTheLogOfAnotherDeployment) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  log_.reset();
  const log::BoxManifest before = OnDisk();
  options_.cluster_id = kOtherId;
  const absl::Status other = Open();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
  options_.cluster_id = kClusterId;
  EXPECT_EQ(OnDisk(), before);
  EXPECT_THAT(Rings(), SizeIs(3));
  // So is one of fewer islands.
  options_.workers = {3};
  EXPECT_EQ(Open({3}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BoxLogTest, Open_OtherWorkers_OnlyOnceItWasClosed) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  options_.workers = {2, 2};
  const absl::Status other = Open({1, 2});
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("had other workers"));
  options_.workers = {1, 2};
  ASSERT_TRUE(Open().ok());
  Stop();
  options_.workers = {2, 2};
  ASSERT_TRUE(Open({1, 2}).ok());
  BeginBoth(2);
  EXPECT_THAT(OnDisk().cuts, IsEmpty());
}

TEST_F(BoxLogTest, Stop_ClosesTheLogOnceAllOfItIsDurable) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  Append({1, 1, 1}, 9);
  Stop();
  EXPECT_EQ(OnDisk().ring_directory, log::BoxId{});
  EXPECT_FALSE(fs::exists(options_.ring_directory));
  EXPECT_THAT(InLog(1), ElementsAre(log::StreamId{1, 1, 1}));
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
  EXPECT_TRUE(log_->MayBegin(0));
}

TEST_F(BoxLogTest, Step_ReplacesALoggerThatWasKilled) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  const pid_t first = log_->logger_pid();
  log_->OnDead(0);
  kill(first, SIGKILL);  // it may have heard of that, or not
  StepUntil([&] { return log_->logger_pid() != first && log_->logger_pid() != 0; });
  const pid_t second = log_->logger_pid();
  Begin(0, 2);
  kill(second, SIGKILL);
  StepUntil([&] { return log_->IsReady(0); });
  EXPECT_NE(log_->logger_pid(), second);
  EXPECT_THAT(OnDisk().lives, ElementsAre(2, 1));
  EXPECT_TRUE(log_->IsReady(1));
}

TEST_F(BoxLogTest, Step_ALoggerThatEndsByItselfEndsTheLog) {
  options_.program = base_ + "/none";
  ASSERT_TRUE(Open({}).ok());
  const absl::Status status = StepUntilItFails();
  EXPECT_THAT(std::string(status.message()), HasSubstr("the log cannot go on"));
  EXPECT_EQ(log_->Step(), status);  // and stays so
}

// Whoever has them open has what is in them: as long as nobody is killed nothing is lost.
TEST_F(BoxLogTest, Step_RingsThatVanishEndTheLog_AndAllOfItGetsToDisk) {
  options_.interval_us = 3'000'000;  // nothing is on disk before it is noticed
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  const auto ring = log::Ring::Open(RingPath({1, 1, 1}));
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto board = log::Board::Map(log_->board_fd(), options_.workers).value();
  fs::remove_all(options_.ring_directory);
  log::RingWriter writer(**ring);
  log::Append(writer, 1, log::Lsn::Of(board->epoch(), 1).value(), {});
  writer.Show();
  const absl::Status status = StepUntilItFails();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  Stop();
  EXPECT_THAT(InLog(1), ElementsAre(log::StreamId{1, 1, 1}));
  EXPECT_EQ(OnDisk().ring_directory, log::BoxId{}) << "closed";
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
}

// A logger that outlives its supervisor has the rings open: that they are gone does not stop it.
TEST_F(BoxLogTest, Open_CutsWhereTheLoggerBeforeHasEnded) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  log_.reset();
  fs::remove_all(options_.ring_directory);
  const std::string path = options_.log_directory + "/EPOCH";
  const uint64_t cluster = log::ClusterFingerprint(kClusterId).value();
  log::EpochBlock block = log::ReadEpochFile(*files_, path, cluster, options_.workers.size()).value();
  const runtime::FileHandle file = files_->Open(path, /*create=*/false, /*direct=*/false).value();
  ASSERT_TRUE(files_->Lock(file).ok());
  std::thread still([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ++block.number;
    block.epoch += 5;
    block.reaches = block.epoch + 3;
    std::vector<std::byte> bytes = log::EncodeEpochBlock(block);
    const auto queue = files_->MakeQueue();
    queue->Submit({.kind = runtime::IoKind::kWrite,
                   .file = file,
                   .offset = block.number % 2 * log::EpochBlockBytes(2),
                   .buffer = bytes});
    std::vector<runtime::IoCompletion> done;
    while (queue->Poll(&done) == 0) queue->Wait(runtime::kNsPerMs);
    EXPECT_TRUE(done.front().status.ok());
    EXPECT_TRUE(files_->Close(file).ok());
  });
  const absl::Status opened = Open();
  still.join();
  ASSERT_TRUE(opened.ok()) << opened;
  ASSERT_THAT(log_->cuts(), SizeIs(1));
  EXPECT_EQ(log_->cuts()[0].durable, block.epoch);
}

// Whoever had it open is dead: what was in it is lost, and so nothing of its epoch may count anywhere.
TEST_F(BoxLogTest, Stop_DoesNotCloseALogWhoseRingIsGone) {
  options_.interval_us = 3'000'000;
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  const auto ring = log::Ring::Open(RingPath({1, 1, 1}));
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto board = log::Board::Map(log_->board_fd(), options_.workers).value();
  fs::remove(RingPath({1, 1, 1}));
  EXPECT_EQ(StepUntilItFails().code(), absl::StatusCode::kDataLoss);
  const uint64_t epoch = board->epoch();
  Append({1, 0, 0}, epoch);
  log::RingWriter writer(**ring);
  log::Append(writer, 1, log::Lsn::Of(epoch, 2).value(), {});
  writer.Show();
  kill(log_->logger_pid(), SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Stop();
  EXPECT_NE(OnDisk().ring_directory, log::BoxId{}) << "closed";
  ASSERT_TRUE(Open().ok());  // as after a loss of power
  log_.reset();
  EXPECT_THAT(InLog(1), IsEmpty());
  EXPECT_THAT(InLog(0), IsEmpty()) << "what another island has of the same epoch";
}

TEST_F(BoxLogTest, Step_ALoggerThatFindsARingMissingEndsTheLog) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  fs::remove(RingPath({1, 1, 1}));
  kill(log_->logger_pid(), SIGKILL);
  EXPECT_THAT(std::string(StepUntilItFails().message()), HasSubstr(RingPath({1, 1, 1})));
  Stop();
  EXPECT_NE(OnDisk().ring_directory, log::BoxId{}) << "closed";
}

TEST_F(BoxLogTest, Stop_DoesNotCloseALogThatIsGone) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  fs::remove_all(options_.ring_directory);
  EXPECT_EQ(StepUntilItFails().code(), absl::StatusCode::kDataLoss);
  fs::remove_all(options_.log_directory);
  Stop();
  EXPECT_FALSE(fs::exists(options_.log_directory + "/MANIFEST"));
  options_.keeps_rows = true;
  options_.lives = {1, 1};
  EXPECT_FALSE(Open().ok());
  EXPECT_FALSE(fs::exists(options_.log_directory)) << "another is to be moved there";
}

TEST_F(BoxLogTest, Step_OneRingThatVanishesEndsTheLog) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  fs::remove(RingPath({1, 1, 1}));
  const absl::Status status = StepUntilItFails();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(RingPath({1, 1, 1})));
}

TEST_F(BoxLogTest, Step_ALogThatVanishesEndsIt) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  fs::rename(options_.log_directory, base_ + "/away");
  const absl::Status status = StepUntilItFails();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.log_directory + "/EPOCH"));
  log_.reset();
  fs::rename(base_ + "/away", options_.log_directory);
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
}

// ---- A copy of the data, with the same cluster, and the same place for rings ----

class CopiedLogTest : public BoxLogTest {
 protected:
  std::string Copy() {
    const std::string copy = base_ + "/copy";
    fs::remove_all(copy);
    fs::copy(options_.log_directory, copy, fs::copy_options::recursive);
    return copy;
  }
  // Of the log there; nothing of what is there, or of the rings, may change.
  absl::Status RefusedAt(const std::string& log_directory, const std::string& ring_directory) {
    const std::vector<std::string> rings = Rings();
    BoxLog::Options options = options_;
    options.log_directory = log_directory;
    options.ring_directory = ring_directory;
    const auto manifest = files_->ReadFile(log_directory + "/MANIFEST").value();
    const absl::Status status = BoxLog::Open(options, {1, 2}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(Rings(), rings);
    EXPECT_EQ(files_->ReadFile(log_directory + "/MANIFEST").value(), manifest);
    return status;
  }
};

TEST_F(CopiedLogTest, Open_BesideTheOriginal_IsRefused) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  Stop();
  const std::string copy = Copy();
  ASSERT_TRUE(Open().ok());
  BeginBoth(2);
  for (const std::string& log : {copy, options_.log_directory}) {
    const absl::Status refused = RefusedAt(log, options_.ring_directory);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(std::to_string(getpid())));
  }
  // It may have rings of its own.
  BoxLog::Options options = options_;
  options.log_directory = copy;
  options.ring_directory = base_ + "/other";
  const absl::Status beside = BoxLog::Open(options, {1, 2}).status();
  EXPECT_TRUE(beside.ok()) << beside;
  Append({2, 0, 0}, 7);
  Stop();
  EXPECT_THAT(InLog(0), ElementsAre(log::StreamId{2, 0, 0}));
}

TEST_F(CopiedLogTest, Open_AfterAKillOfTheOriginal_LeavesTheRingsToIt) {
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(1);
  log_.reset();
  Append({1, 0, 0}, 7);  // as it would have done a moment before
  const std::string copy = Copy();
  for (const std::string& rings : {options_.ring_directory, base_ + "/other"}) {
    const absl::Status refused = RefusedAt(copy, rings);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("it is a copy"));
  }
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log_->cuts(), IsEmpty());
  StepUntil([&] { return log_->MayBegin(0); });
  Stop();
  EXPECT_THAT(InLog(0), ElementsAre(log::StreamId{1, 0, 0}));
  // Now that they are gone, the copy goes on with what was on its disk.
  options_.log_directory = copy;
  EXPECT_TRUE(Open().ok());
}

TEST_F(CopiedLogTest, Open_DataThatAnotherCopyHasLeftBehind_IsRefused) {
  options_.lives = {6, 6};
  ASSERT_TRUE(Open({}).ok());
  BeginBoth(7);
  options_.lives = {7, 7};
  Stop();
  ASSERT_TRUE(Open().ok());
  options_.lives = {6, 6};
  const absl::Status refused = Open();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("names life 7 of island 0"));
}

}  // namespace
}  // namespace islands::deploy
