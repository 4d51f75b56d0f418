#include "instance/log/box_manifest.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

constexpr char kDirectory[] = "/log";
constexpr char kPath[] = "/log/MANIFEST";

BoxManifest Some(uint64_t number = 7) {
  return {.cluster = 5,
          .ring_directory = {1, static_cast<uint8_t>(number)},
          .boot = {2},
          .lives = {number, 0, 3},
          .cuts = {{3, 9}, {8, 20 + number}},
          .ring_path = "/dev/shm/rings"};
}

absl::StatusOr<BoxManifest> Read(runtime::FileSystem& files, uint64_t cluster = 5, size_t islands = 3) {
  return ReadBoxManifest(files, kDirectory, cluster, islands);
}

TEST(BoxManifest, Read_GivesBackWhatWasWritten) {
  runtime::MemoryFileSystem files;
  EXPECT_EQ(Read(files).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteBoxManifest(files, kDirectory, Some()).ok());
  EXPECT_EQ(Read(files).value(), Some());
  EXPECT_EQ(Read(files, 6).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read(files, 5, 4).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BoxManifest, Read_OfALogThatWasBegunWithoutOneIsDamage) {
  runtime::MemoryFileSystem files;
  ASSERT_TRUE(WriteBoxManifest(files, kDirectory, Some()).ok());
  ASSERT_TRUE(files.ReplaceFile("/log/EPOCH", "x").ok());
  ASSERT_TRUE(files.Remove(kPath).ok());
  EXPECT_EQ(Read(files).status().code(), absl::StatusCode::kDataLoss) << Read(files).status();
}

TEST(BoxManifest, Decode_SeesEveryBitAndEveryLength) {
  const std::vector<std::byte> whole = EncodeBoxManifest(Some());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(DecodeBoxManifest(bytes).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(DecodeBoxManifest(std::span(whole).first(length)).ok()) << length;
}

// Every step of the disk may be the last one.
TEST(BoxManifest, Property_PowerLossLeavesTheOldOneOrTheNew) {
  uint64_t older = 0, newer = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    runtime::Random random(seed);
    runtime::MemoryFileSystem files;
    uint64_t last = 0;  // written with OK; 0: none
    for (uint64_t number = 1; number < 8; ++number) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " number " << number);
      files.FailAfter(random.Below(9));
      const bool written = WriteBoxManifest(files, kDirectory, Some(number)).ok();
      files.PowerLoss(random());
      const absl::StatusOr<BoxManifest> read = Read(files);
      if (!read.ok()) {
        ASSERT_EQ(read.status().code(), absl::StatusCode::kNotFound) << read.status();
        ASSERT_TRUE(last == 0 && !written);
        continue;
      }
      ASSERT_TRUE(*read == Some(number) || (!written && last != 0 && *read == Some(last)));
      ++(*read == Some(number) ? newer : older);
      last = read->lives[0];
    }
  }
  EXPECT_GT(older, 100u);
  EXPECT_GT(newer, 100u);
}

// Who writes it dies with the name not yet durable; the next one reads it and goes on; then power is lost.
TEST(BoxManifest, Property_WhatWasReadSurvives) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    runtime::MemoryFileSystem files;
    ASSERT_TRUE(WriteBoxManifest(files, kDirectory, Some(1)).ok());
    // Up to the rename and without the sync of its directory.
    const std::vector<std::byte> bytes = EncodeBoxManifest(Some(2));
    ASSERT_TRUE(
        files.ReplaceFile("/log/MANIFEST.new", {reinterpret_cast<const char*>(bytes.data()), bytes.size()})
            .ok());
    ASSERT_TRUE(files.Rename("/log/MANIFEST.new", kPath).ok());
    ASSERT_EQ(Read(files).value(), Some(2));
    files.PowerLoss(seed);
    EXPECT_EQ(Read(files).value(), Some(2));
  }
}

class SameBootTest : public testing::Test {
 protected:
  bool Same() const { return SameBoot(manifest_, boot_, rings_, whole_, workers_); }

  const std::vector<uint32_t> workers_{2, 1, 1};
  BoxManifest manifest_ = Some();
  BoxId boot_ = manifest_.boot, rings_ = manifest_.ring_directory;
  std::vector<StreamId> whole_{{7, 0, 0}, {7, 0, 1}, {3, 2, 0}};
};

TEST_F(SameBootTest, AllIsThere) { EXPECT_TRUE(Same()); }
TEST_F(SameBootTest, OtherRingsDoNotMatter) {
  whole_.push_back({8, 0, 0});  // of a life that had not been started yet
  whole_.push_back({2, 2, 0});  // drained
  EXPECT_TRUE(Same());
}
TEST_F(SameBootTest, AnotherBoot) { EXPECT_FALSE((boot_[15] = 1, Same())); }
TEST_F(SameBootTest, AnotherRingDirectory) { EXPECT_FALSE((rings_[15] = 1, Same())); }
TEST_F(SameBootTest, NoRingDirectory) { EXPECT_FALSE((rings_ = {}, Same())); }
TEST_F(SameBootTest, EveryRingThatIsMissing) {
  for (size_t missing = 0; missing < 3; ++missing) {
    const std::vector<StreamId> all = whole_;
    whole_.erase(whole_.begin() + static_cast<ptrdiff_t>(missing));
    EXPECT_FALSE(Same()) << missing;
    whole_ = all;
  }
}
TEST_F(SameBootTest, ClosedNeedsNothing) {
  manifest_.ring_directory = rings_ = {};
  boot_ = {9};
  whole_.clear();
  EXPECT_TRUE(Same());
}

// What was cut once never counts, whatever EPOCH says: it may be the block before the last.
TEST(BoxManifest, Cut_TakesNothingBack) {
  BoxManifest manifest{.cuts = {{2, 5}, {10, 20}}};
  Cut(&manifest, {.epoch = 8, .reaches = 9, .ends = {}});
  EXPECT_EQ(manifest.cuts, (std::vector<EpochCut>{{2, 5}, {8, 20}}));
  Cut(&manifest, {.epoch = 15, .reaches = 16, .ends = {}});
  EXPECT_EQ(manifest.cuts, (std::vector<EpochCut>{{2, 5}, {8, 20}}));
  Cut(&manifest, {.epoch = 19, .reaches = 19, .ends = {}});  // nothing is between
  EXPECT_EQ(manifest.cuts, (std::vector<EpochCut>{{2, 5}, {8, 20}}));
  Cut(&manifest, {.epoch = 30, .reaches = 31, .ends = {}});
  EXPECT_EQ(manifest.cuts, (std::vector<EpochCut>{{2, 5}, {8, 20}, {30, 32}}));
}

// Epochs below EPOCH stay unless they were cut before; everything that was stamped above never counts again;
// and what is stamped from now on counts.
TEST(BoxManifest, Property_CutsDropWhatWasNotDurableAndNothingElse) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    runtime::Random random(seed);
    BoxManifest manifest{.lives = {1}};
    std::vector<int> counts(2'000, -1);  // by epoch: 1 it must, 0 it must not, -1 nothing was stamped
    uint64_t epoch = 0, g = 1;
    for (int loss = 0; loss < 8; ++loss) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " loss " << loss);
      g = std::max(g, FirstEpoch(manifest));
      const uint64_t first = g;
      g += random.Below(40);
      // Sometimes EPOCH is not written before power goes.
      if (random.Below(3) != 0) epoch = std::max(epoch, first - 1 + random.Below(g - first + 1));
      const uint64_t reaches = epoch + random.Below(g - epoch + 1);
      for (uint64_t stamped = first; stamped <= g; ++stamped) counts[stamped] = stamped <= epoch;
      Cut(&manifest, {.epoch = epoch, .reaches = reaches, .ends = {}});
      ASSERT_EQ(DecodeBoxManifest(EncodeBoxManifest(manifest)).value(), manifest);
      // What is above `reaches` is before no log's end.
      for (uint64_t stamped = 1; stamped <= reaches; ++stamped) {
        bool dropped = false;
        for (const EpochCut& cut : manifest.cuts) dropped |= stamped > cut.durable && stamped < cut.next;
        if (counts[stamped] >= 0) {
          ASSERT_EQ(dropped, counts[stamped] == 0) << stamped;
        }
      }
      // The new box's, as Logger::Open has it.
      g = std::max(epoch, reaches) + 1;
      for (uint64_t stamped = g; stamped < counts.size(); ++stamped) counts[stamped] = -1;
    }
  }
}

TEST(BoxId, ThereAndBack) {
  const BoxId id = MakeBoxId().value();
  EXPECT_NE(id, MakeBoxId().value());
  EXPECT_EQ(ParseBoxId(ToText(id)).value(), id);
  EXPECT_EQ(ToText(ParseBoxId("01234567-89ab-cdef-0123-456789abcdef\n").value()),
            "0123456789abcdef0123456789abcdef");
  for (const char* text : {"", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdeg",
                           "0123456789abcdef0123456789abcdef0", "00000000000000000000000000000000"}) {
    EXPECT_FALSE(ParseBoxId(text).ok()) << text;
  }
  const std::unique_ptr<runtime::FileSystem> files = runtime::MakePosixFileSystem();
  const absl::StatusOr<BoxId> boot = KernelBootId(*files);
  ASSERT_TRUE(boot.ok()) << boot.status();
  EXPECT_EQ(*boot, KernelBootId(*files).value());
}

}  // namespace
}  // namespace islands::log
