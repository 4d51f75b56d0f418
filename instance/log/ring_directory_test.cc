#include "instance/log/ring_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "runtime/private_files.h"

namespace islands::log {
namespace {

namespace fs = std::filesystem;

class RingDirectoryTest : public testing::Test {
 protected:
  RingDirectoryTest() : base_(testing::TempDir() + "islands_ring_directory_test"), path_(base_ + "/rings") {
    fs::remove_all(base_);
    fs::create_directory(base_);
  }
  ~RingDirectoryTest() override { fs::remove_all(base_); }
  static void Append(Ring& ring, uint64_t lsn = 7) {
    RingWriter writer(ring);
    const std::vector<std::byte> body(100, std::byte{3});
    log::Append(writer, 1, lsn, {body});
    writer.Show();
  }
  // Of the directory's rings: which are whole.
  static std::vector<std::string> Whole(const RingDirectory& directory) {
    std::vector<std::string> names;
    const std::vector<RingDirectory::Found> all = directory.List().value();
    for (const RingDirectory::Found& found : all) {
      if (found.ring.ok()) {
        names.push_back(RingName(found.stream));
      } else {
        EXPECT_EQ(found.ring.status().code(), absl::StatusCode::kDataLoss) << found.ring.status();
      }
    }
    return names;
  }
  static void Scribble(const std::string& path, off_t at, uint8_t byte = 0xee) {
    const runtime::UniqueFd file(open(path.c_str(), O_RDWR));
    ASSERT_EQ(pwrite(file.get(), &byte, 1, at), 1) << path;
  }

  const std::string base_, path_;
};

TEST(RingName, ThereAndBack) {
  const StreamId stream{.life = 12'345'678'901, .island = 2, .worker = 3};
  EXPECT_EQ(RingName(stream), "island-2.worker-3.life-12345678901.ring");
  EXPECT_EQ(ParseRingName(RingName(stream)), stream);
  for (const char* name : {"id", "island-2.worker-3.life-4.ring.new", "island-02.worker-3.life-4.ring",
                           "island-2.worker-3.life-4.rin", "island--2.worker-3.life-4.ring", ""}) {
    EXPECT_FALSE(ParseRingName(name)) << name;
  }
}

TEST_F(RingDirectoryTest, Make_IsFoundAgainAndIsOursAlone) {
  EXPECT_EQ(RingDirectory::Open(path_).status().code(), absl::StatusCode::kNotFound);
  const BoxId id = RingDirectory::Make(path_).value()->id();
  EXPECT_EQ(RingDirectory::Make(path_).value()->id(), id);
  EXPECT_EQ(RingDirectory::Open(path_).value()->id(), id);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  fs::remove_all(path_);
  EXPECT_NE(RingDirectory::Make(path_).value()->id(), id);
  // Somebody died before it had one.
  fs::remove(path_ + "/id");
  EXPECT_EQ(RingDirectory::Open(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(RingDirectory::Make(path_).ok());
}

TEST_F(RingDirectoryTest, Open_RefusesWhatOthersCanChange) {
  ASSERT_TRUE(RingDirectory::Make(path_).ok());
  fs::create_directory_symlink(path_, base_ + "/link");
  for (const auto& open : {&RingDirectory::Open, &RingDirectory::Make}) {
    EXPECT_EQ(open(base_ + "/link").status().code(), absl::StatusCode::kPermissionDenied);
    ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
    EXPECT_EQ(open(path_).status().code(), absl::StatusCode::kPermissionDenied);
    ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  }
}

TEST_F(RingDirectoryTest, List_TellsWholeFromDamaged) {
  const auto directory = RingDirectory::Make(path_).value();
  for (uint32_t worker = 0; worker < 6; ++worker)
    Append(*directory->MakeRing({5, 1, worker}, Ring::kLeastCapacity).value());
  EXPECT_EQ(directory->MakeRing({5, 1, 0}, Ring::kLeastCapacity).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Whole(*directory).size(), 6u);
  const auto path_of = [&](uint32_t worker) { return path_ + "/" + RingName({5, 1, worker}); };
  Scribble(path_of(1), 0);                                    // no magic
  Scribble(path_of(2), 64);                                   // a tail that cannot be
  Scribble(path_of(3), Ring::kHeaderBytes + 30);              // within its record
  fs::resize_file(path_of(4), 1000);                          //
  fs::rename(path_of(5), path_ + "/" + RingName({6, 1, 5}));  // not what its name says
  runtime::WritePrivateFile(path_ + "/" + RingName({5, 2, 0}), "").IgnoreError();
  runtime::WritePrivateFile(path_ + "/something else", "").IgnoreError();
  EXPECT_THAT(Whole(*directory), testing::ElementsAre(RingName({5, 1, 0})));
  EXPECT_EQ(directory->List()->size(), 7u);
}

// Its logger would have no epoch to go on with, and would write an EPOCH that nobody can read.
TEST_F(RingDirectoryTest, OpenRing_RefusesAnLsnBehindTheLastEpoch) {
  const auto directory = RingDirectory::Make(path_).value();
  for (const uint64_t epoch : {Lsn::kMostEpoch - 5, Lsn::kMostEpoch, Lsn::kMostEpoch + 1}) {
    const StreamId stream{.life = epoch, .island = 0, .worker = 0};
    Append(**directory->MakeRing(stream, Ring::kLeastCapacity), Lsn::Of(epoch, 0).value());
    EXPECT_EQ(directory->OpenRing(stream).status().code(), absl::StatusCode::kDataLoss) << epoch;
  }
  const StreamId sound{.life = 1, .island = 0, .worker = 0};
  Append(**directory->MakeRing(sound, Ring::kLeastCapacity), Lsn::Of(Lsn::kMostEpoch / 2, 0).value());
  EXPECT_TRUE(directory->OpenRing(sound).ok());
}

TEST_F(RingDirectoryTest, RemoveEarlier_LeavesOthersAlone) {
  const auto directory = RingDirectory::Make(path_).value();
  for (const StreamId& stream : {StreamId{1, 0, 0}, {2, 0, 0}, {2, 0, 1}, {3, 0, 0}, {1, 1, 0}})
    ASSERT_TRUE(directory->MakeRing(stream, Ring::kLeastCapacity).ok());
  ASSERT_TRUE(directory->RemoveEarlier(0, 3).ok());
  EXPECT_THAT(Whole(*directory), testing::ElementsAre(RingName({1, 1, 0}), RingName({3, 0, 0})));
  EXPECT_FALSE(directory->Has({2, 0, 0}));
  EXPECT_TRUE(directory->Has({3, 0, 0}));
}

TEST_F(RingDirectoryTest, Make_RemovesWhatWasNotFinished) {
  ASSERT_TRUE(RingDirectory::Make(path_).ok());
  ASSERT_TRUE(runtime::WritePrivateFile(path_ + "/" + RingName({1, 0, 0}) + ".new", "half").ok());
  ASSERT_TRUE(RingDirectory::Open(path_).ok());  // somebody may be at it
  EXPECT_TRUE(fs::exists(path_ + "/" + RingName({1, 0, 0}) + ".new"));
  ASSERT_TRUE(RingDirectory::Make(path_).ok());
  EXPECT_FALSE(fs::exists(path_ + "/" + RingName({1, 0, 0}) + ".new"));
}

TEST_F(RingDirectoryTest, Gone_IsNoticed) {
  const auto directory = RingDirectory::Make(path_).value();
  EXPECT_FALSE(directory->Gone());
  fs::rename(path_, base_ + "/elsewhere");
  EXPECT_TRUE(directory->Gone());
  ASSERT_TRUE(RingDirectory::Make(path_).ok());  // another one in its place
  EXPECT_TRUE(directory->Gone());
  fs::remove_all(path_);
  fs::rename(base_ + "/elsewhere", path_);
  EXPECT_FALSE(directory->Gone());
  fs::remove_all(path_);
  EXPECT_TRUE(directory->Gone());
}

TEST_F(RingDirectoryTest, Choose_FallsBackWhereThereIsNoRoom) {
  std::string warning;
  RingDirectory::Choice choice{.path = path_, .fallback = base_ + "/fallback", .bytes = 1 << 20};
  EXPECT_EQ(RingDirectory::Choose(choice, &warning).value()->path(), path_);
  EXPECT_EQ(warning, "");
  choice.bytes = uint64_t{1} << 60;
  const absl::Status full = RingDirectory::Choose(choice, &warning).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  choice.fallback = "";
  const absl::Status alone = RingDirectory::Choose(choice, &warning).status();
  EXPECT_THAT(std::string(alone.message()), testing::HasSubstr(path_));
}

// As in a container: what is under /dev/shm is small.
TEST_F(RingDirectoryTest, Choose_FallbackIsSaid) {
  const std::string small = base_ + "/small";
  fs::create_directory(small);
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "cannot mount a small disk: " << strerror(errno);
  }
  std::string warning;
  const RingDirectory::Choice choice{
      .path = small + "/rings", .fallback = base_ + "/fallback", .bytes = 2 << 20};
  const auto chosen = RingDirectory::Choose(choice, &warning);
  umount2(small.c_str(), MNT_DETACH);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ((*chosen)->path(), choice.fallback);
  EXPECT_THAT(warning, testing::AllOf(testing::HasSubstr(choice.path), testing::HasSubstr(choice.fallback)));
}

TEST_F(RingDirectoryTest, Choose_TakesTheOneThatIsKnown) {
  std::string warning;
  const BoxId known = RingDirectory::Make(base_ + "/fallback").value()->id();
  ASSERT_TRUE(RingDirectory::Make(path_).ok());
  const RingDirectory::Choice choice{
      .path = path_, .fallback = base_ + "/fallback", .bytes = uint64_t{1} << 60, .known = known};
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);  // nor what somebody has put in the other's place
  // Its rings are there; that there is no room for more does not matter.
  EXPECT_EQ(RingDirectory::Choose(choice, &warning).value()->id(), known);
}

}  // namespace
}  // namespace islands::log
