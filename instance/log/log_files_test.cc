#include "instance/log/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/record.h"
#include "runtime/file_system_memory.h"

namespace islands::log {
namespace {

constexpr StreamId kStream{.life = 3, .island = 1, .worker = 0};

std::string PathOf(uint64_t number) { return "/log/" + SegmentName(number); }

class LogFilesTest : public testing::Test {
 protected:
  LogFilesTest() : queue_(files_.MakeQueue()) { Reopen(); }

  void Reopen() {
    absl::StatusOr<LogFiles> log = LogFiles::Open(
        files_, {.directory = "/log", .cluster = 9, .island = 1, .segment_bytes = kLeastSegmentBytes}, end_);
    ASSERT_TRUE(log.ok()) << log.status();
    log_.emplace(*std::move(log));
  }
  // Adds a record of that size to the stream; written and synced, but not in end_.
  absl::Status Add(size_t body_bytes) {
    const uint64_t before = ring_->tail();
    if (writer_.Room() < RecordBytes(body_bytes)) ring_->SetHead(before), static_cast<void>(writer_.Room());
    const std::vector<std::byte> body(body_bytes, std::byte{7});
    Append(writer_, 1, ++records_, {body});
    writer_.Show();
    size_t added = 0;
    absl::Status status =
        log_->Add(kStream, before, ring_->Bytes(before, ring_->tail()), /*settled=*/0, &added);
    if (!status.ok()) return status;
    for (const auto& requests : {log_->Writes(), log_->Syncs()}) {
      for (const runtime::IoRequest& request : requests) queue_->Submit(request);
      std::vector<runtime::IoCompletion> completions;
      while (completions.size() < requests.size()) queue_->Poll(&completions);
      for (const runtime::IoCompletion& completion : completions) EXPECT_TRUE(completion.status.ok());
    }
    log_->OnSynced();
    return status;
  }
  // LSNs of the records up to `end`.
  absl::StatusOr<std::vector<uint64_t>> Read(const LogPosition& end, const LogPosition& begin = {}) {
    LogReader reader(files_, {.directory = "/log", .cluster = 9, .island = 1, .begin = begin}, end);
    std::vector<uint64_t> lsns;
    absl::Status read = reader.Read([&](const StreamId&, const Record& record) {
      lsns.push_back(record.lsn);
      return absl::OkStatus();
    });
    if (!read.ok()) return read;
    return lsns;
  }
  void Damage(uint64_t segment, uint64_t offset) {
    std::string content = *files_.ReadFile(PathOf(segment));
    content[offset] ^= 1;
    ASSERT_TRUE(files_.ReplaceFile(PathOf(segment), content).ok());
  }

  runtime::MemoryFileSystem files_;
  std::unique_ptr<runtime::FileSystem::Queue> queue_;
  std::unique_ptr<Ring> ring_ = Ring::InMemory(kStream, Ring::kLeastCapacity);
  RingWriter writer_{*ring_};
  std::optional<LogFiles> log_;
  LogPosition end_;
  uint64_t records_ = 0;
};

TEST(SegmentName, ThereAndBack) {
  EXPECT_EQ(SegmentName(7), "segment-0000000007");
  EXPECT_EQ(SegmentNumber("segment-0000000007"), 7u);
  EXPECT_EQ(SegmentNumber(SegmentName(123'456'789'012)), 123'456'789'012u);
  for (const char* name :
       {"segment-7", "segment-", "segment-000000000x", "EPOCH", "segment-0000000007.tmp"}) {
    EXPECT_EQ(SegmentNumber(name), 0u) << name;
  }
}

// Whoever has appended nothing yet has room for it all the same: another island may fill the disk.
TEST_F(LogFilesTest, PrepareNext_TheFirstOneToo) {
  EXPECT_FALSE(files_.Exists(PathOf(1)));
  ASSERT_TRUE(log_->PrepareNext(/*reserve=*/0).ok());
  EXPECT_TRUE(files_.Exists(PathOf(1)));
  ASSERT_TRUE(Add(100).ok());
  EXPECT_EQ(log_->end().segment, 1u);
  EXPECT_FALSE(files_.Exists(PathOf(2)));
  ASSERT_TRUE(log_->PrepareNext(kLeastSegmentBytes / 4).ok());
  EXPECT_FALSE(files_.Exists(PathOf(2))) << "there is room enough";
  ASSERT_TRUE(log_->PrepareNext(kLeastSegmentBytes).ok());
  EXPECT_TRUE(files_.Exists(PathOf(2)));
}

TEST_F(LogFilesTest, Segments_FollowEachOther) {
  while (log_->end().segment < 4) ASSERT_TRUE(Add(3000).ok());
  const auto lsns = Read(log_->end());
  ASSERT_TRUE(lsns.ok()) << lsns.status();
  ASSERT_EQ(lsns->size(), records_);
  for (uint64_t i = 0; i < records_; ++i) EXPECT_EQ((*lsns)[i], i + 1);
}

// A directory whose sync has failed may have dropped the name for good, though it can be seen; and the name
// stays if it cannot be removed either.
TEST_F(LogFilesTest, MakeSegment_DoesNotUseANameAgainWhoseSyncHasFailed) {
  const uint64_t steps = files_.steps();
  files_.Inject(2, runtime::DiskFault::kEio);  // create, allocate, sync of the directory
  files_.Inject(3, runtime::DiskFault::kEio);  // removal
  EXPECT_FALSE(Add(100).ok());
  EXPECT_EQ(files_.steps(), steps + 4);
  size_t added = 0;
  ASSERT_TRUE(log_->Add(kStream, 0, ring_->Bytes(0, ring_->tail()), /*settled=*/0, &added).ok());
  ASSERT_TRUE(Add(100).ok());
  const LogPosition end = log_->end();
  log_->Close();
  files_.PowerLoss();
  EXPECT_THAT(*Read(end), testing::ElementsAre(1, 2));
}

TEST_F(LogFilesTest, Read_EndsWhereEpochSays) {
  ASSERT_TRUE(Add(100).ok());
  const LogPosition after_one = log_->end();
  ASSERT_TRUE(Add(100).ok());
  EXPECT_EQ(Read(after_one)->size(), 1u);
  EXPECT_EQ(Read(log_->end())->size(), 2u);
  EXPECT_EQ(Read({})->size(), 0u);
  Damage(1, after_one.offset + 3);  // behind it anything may be
  EXPECT_EQ(Read(after_one)->size(), 1u);
  EXPECT_EQ(Read(log_->end()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(LogFilesTest, Read_EveryDamagedByteOfAFrameIsFound) {
  ASSERT_TRUE(Add(40).ok());
  for (uint64_t offset = kSegmentHeaderBytes; offset < log_->end().offset; ++offset) {
    Damage(1, offset);
    EXPECT_EQ(Read(log_->end()).status().code(), absl::StatusCode::kDataLoss) << "byte " << offset;
    Damage(1, offset);
  }
  for (uint64_t offset = 0; offset < 64; ++offset) {
    Damage(1, offset);
    EXPECT_FALSE(Read(log_->end()).ok()) << "byte " << offset;
    Damage(1, offset);
  }
  EXPECT_TRUE(Read(log_->end()).ok());
}

TEST_F(LogFilesTest, Reopen_GoesOnInAnotherSegment_AndReadsOnce) {
  ASSERT_TRUE(Add(100).ok());
  end_ = log_->end();
  const uint64_t covered = ring_->tail();
  ASSERT_TRUE(Add(100).ok());  // written, but EPOCH does not say so
  log_->Close();
  Reopen();
  size_t added = 0;
  // The one before died between syncing and saying so: it is there twice, or only here.
  ASSERT_TRUE(log_->Add(kStream, covered, ring_->Bytes(covered, ring_->tail()), /*settled=*/0, &added).ok());
  ASSERT_TRUE(Add(100).ok());
  EXPECT_EQ(log_->end().segment, 2u);
  EXPECT_THAT(*Read(log_->end()), testing::ElementsAre(1, 2, 3));
}

TEST_F(LogFilesTest, Read_MissingSegments) {
  while (log_->end().segment < 3) ASSERT_TRUE(Add(3000).ok());
  ASSERT_TRUE(files_.Remove(PathOf(1)).ok());  // nobody needs it any more
  EXPECT_TRUE(Read(log_->end()).ok());
  ASSERT_TRUE(files_.Remove(PathOf(3)).ok());
  EXPECT_FALSE(Read(log_->end()).ok());
}

TEST_F(LogFilesTest, Read_FromACheckpointOn) {
  std::vector<LogPosition> ends = {log_->end()};
  while (log_->end().segment < 4) {
    ASSERT_TRUE(Add(30'000).ok());
    ends.push_back(log_->end());
  }
  for (uint64_t lsn = 0; lsn <= records_; lsn += 5) {
    const auto lsns = Read(log_->end(), ends[lsn]);
    ASSERT_TRUE(lsns.ok()) << lsns.status();
    ASSERT_EQ(lsns->size(), records_ - lsn);
    EXPECT_EQ(lsns->empty() ? records_ : lsns->front() - 1, lsn);
  }
  const LogPosition begin = ends[records_ - 2];
  ASSERT_TRUE(RemoveSegmentsBefore(files_, "/log", begin).ok());
  EXPECT_FALSE(files_.Exists(PathOf(2)));
  EXPECT_TRUE(files_.Exists(PathOf(begin.segment)));
  EXPECT_EQ(Read(log_->end(), begin)->size(), 2u);
}

// What nobody needs any more is written over: no block is allocated anew, and what was there before is not
// taken for the log.
TEST_F(LogFilesTest, Release_KeepsSomeToBeWrittenAgain) {
  while (log_->end().segment < 8) ASSERT_TRUE(Add(30'000).ok());
  ASSERT_TRUE(log_->Release(8, /*keep=*/true).ok());
  EXPECT_TRUE(log_->keeps_some());
  for (const uint64_t gone : {1, 2, 3}) EXPECT_FALSE(files_.Exists(PathOf(gone))) << gone;
  for (const uint64_t kept : {4, 5, 6, 7, 8}) EXPECT_TRUE(files_.Exists(PathOf(kept))) << kept;
  const uint64_t first = records_;
  const LogPosition begin = log_->end();
  while (log_->end().segment < 10) ASSERT_TRUE(Add(30'000).ok());
  ASSERT_TRUE(log_->PrepareNext(/*reserve=*/kLeastSegmentBytes).ok());
  for (const uint64_t used : {4, 5, 6}) EXPECT_FALSE(files_.Exists(PathOf(used))) << used;
  EXPECT_TRUE(files_.Exists(PathOf(7)));
  const LogPosition end = log_->end();
  EXPECT_EQ(Read(end, begin)->size(), records_ - first);
  // Behind the end, and in one that was not begun, are whole frames of other segments.
  EXPECT_EQ(Read({end.segment, end.offset + 8}, begin).status().code(), absl::StatusCode::kDataLoss);
  log_->Close();
  files_.PowerLoss();
  EXPECT_EQ(Read(end, begin)->size(), records_ - first);

  end_ = end;
  Reopen();
  EXPECT_FALSE(files_.Exists(PathOf(11))) << "prepared, and not begun";
  ASSERT_TRUE(log_->Release(10, /*keep=*/true).ok());
  EXPECT_FALSE(log_->keeps_some()) << "another object has written them";
}

// Somebody has made room by hand.
TEST_F(LogFilesTest, MakeSegment_WhereOneThatWasKeptIsGone) {
  while (log_->end().segment < 4) ASSERT_TRUE(Add(30'000).ok());
  ASSERT_TRUE(log_->Release(4, /*keep=*/true).ok());
  ASSERT_TRUE(files_.Remove(PathOf(1)).ok());
  while (log_->end().segment < 6) ASSERT_TRUE(Add(30'000).ok());
}

TEST_F(LogFilesTest, MakeSegment_OneThatFindsNoRoomForItsNewNameIsStillKept) {
  while (log_->end().segment < 2) ASSERT_TRUE(Add(30'000).ok());
  ASSERT_TRUE(log_->Release(2, /*keep=*/true).ok());
  files_.Inject(0, runtime::DiskFault::kEnospc);
  EXPECT_TRUE(absl::IsResourceExhausted(log_->PrepareNext(kLeastSegmentBytes)));
  EXPECT_TRUE(log_->keeps_some());
  ASSERT_TRUE(log_->Release(2, /*keep=*/false).ok());
  EXPECT_FALSE(files_.Exists(PathOf(1)));
}

TEST_F(LogFilesTest, Release_KeepsNothingForAFullDisk) {
  while (log_->end().segment < 4) ASSERT_TRUE(Add(30'000).ok());
  ASSERT_TRUE(log_->Release(4, /*keep=*/true).ok());
  EXPECT_TRUE(files_.Exists(PathOf(1)));
  ASSERT_TRUE(log_->Release(4, /*keep=*/false).ok());
  EXPECT_FALSE(log_->keeps_some());
  EXPECT_FALSE(files_.Exists(PathOf(1)));
  EXPECT_TRUE(files_.Exists(PathOf(4)));
}

// Nothing goes wrong in it; but somebody has to hear that the disk was full.
TEST_F(LogFilesTest, TakeShortage_OfASegmentThatTakesTheRoomOfTheOneBefore) {
  ASSERT_TRUE(Add(1'000).ok());
  EXPECT_TRUE(log_->TakeShortage().ok());
  end_ = log_->end();
  Reopen();
  files_.SetRoom(0);
  ASSERT_TRUE(Add(1'000).ok());
  EXPECT_EQ(log_->end().segment, 2u);
  const absl::Status shortage = log_->TakeShortage();
  EXPECT_TRUE(absl::IsResourceExhausted(shortage)) << shortage;
  EXPECT_THAT(std::string(shortage.message()), testing::HasSubstr(PathOf(2)));
  EXPECT_TRUE(log_->TakeShortage().ok()) << "once";
}

TEST_F(LogFilesTest, Read_WhatACheckpointNeedsIsMissing) {
  while (log_->end().segment < 3) ASSERT_TRUE(Add(30'000).ok());
  const LogPosition end = log_->end();
  const LogPosition begin{2, kSegmentHeaderBytes};
  EXPECT_TRUE(Read(end, begin).ok());
  EXPECT_EQ(Read(begin, end).status().code(), absl::StatusCode::kDataLoss) << "an old copy of the log";
  EXPECT_EQ(Read(end, {2, log::kMostSegmentBytes}).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(files_.Remove(PathOf(2)).ok());
  const absl::Status gone = Read(end, begin).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(gone.message()), testing::HasSubstr("/log/segment-0000000002 is gone"));
}

TEST_F(LogFilesTest, Read_OthersFilesAreRefused) {
  ASSERT_TRUE(Add(100).ok());
  const LogReader::Options options{.directory = "/log", .cluster = 9, .island = 1};
  const auto code = [&](LogReader::Options other) {
    return LogReader(files_, std::move(other), log_->end()).Segments().status().code();
  };
  EXPECT_EQ(code(options), absl::StatusCode::kOk);
  EXPECT_EQ(code({"/log", 8, 1}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({"/log", 9, 2}), absl::StatusCode::kFailedPrecondition);
}

TEST(EpochFile, Decode_TakesTheNewestWholeBlock) {
  EpochBlock older{.number = 6, .cluster = 1, .epoch = 10, .reaches = 12, .ends = {{1, 5000}, {2, 6000}}};
  EpochBlock newer{.number = 7, .cluster = 1, .epoch = 12, .reaches = 15, .ends = {{1, 5000}, {3, 7000}}};
  std::vector<std::byte> file = EncodeEpochBlock(older);
  const std::vector<std::byte> second = EncodeEpochBlock(newer);
  file.insert(file.end(), second.begin(), second.end());
  ASSERT_EQ(file.size(), 2 * EpochBlockBytes(2));
  EXPECT_EQ(DecodeEpochFile(file)->epoch, 12u);
  EXPECT_EQ(DecodeEpochFile(file)->reaches, 15u);
  EXPECT_EQ(DecodeEpochFile(file)->ends, newer.ends);
  for (size_t byte = 0; byte < 48 + 2 * 16; ++byte) {  // a torn one does not count
    std::vector<std::byte> torn = file;
    torn[second.size() + byte] ^= std::byte{4};
    EXPECT_EQ(DecodeEpochFile(torn)->epoch, 10u) << "byte " << byte;
    torn[byte] ^= std::byte{4};
    EXPECT_EQ(DecodeEpochFile(torn).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(DecodeEpochFile({}).ok());
  // G would have nowhere to go on.
  EpochBlock last{
      .number = 8, .cluster = 1, .epoch = 12, .reaches = UINT64_MAX, .ends = {{1, 5000}, {3, 7000}}};
  const std::vector<std::byte> third = EncodeEpochBlock(last);
  std::copy(third.begin(), third.end(), file.begin());
  EXPECT_EQ(DecodeEpochFile(file).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace islands::log
