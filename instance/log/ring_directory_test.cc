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
#include <functional>
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
  const BoxId id = RingDirectory::Make(path_, base_).value()->id();
  EXPECT_EQ(RingDirectory::Make(path_, base_).value()->id(), id);
  EXPECT_EQ(RingDirectory::Open(path_).value()->id(), id);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  fs::remove_all(path_);
  EXPECT_NE(RingDirectory::Make(path_, base_).value()->id(), id);
  // Somebody died before it had one.
  fs::remove(path_ + "/id");
  EXPECT_EQ(RingDirectory::Open(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(RingDirectory::Make(path_, base_).ok());
}

TEST_F(RingDirectoryTest, Open_RefusesWhatOthersCanChange) {
  ASSERT_TRUE(RingDirectory::Make(path_, base_).ok());
  fs::create_directory_symlink(path_, base_ + "/link");
  const auto make = [&](const std::string& path) { return RingDirectory::Make(path, base_); };
  using Opening = std::function<absl::StatusOr<std::unique_ptr<RingDirectory>>(const std::string&)>;
  for (const Opening& open : {Opening(&RingDirectory::Open), Opening(make)}) {
    EXPECT_EQ(open(base_ + "/link").status().code(), absl::StatusCode::kPermissionDenied);
    ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
    EXPECT_EQ(open(path_).status().code(), absl::StatusCode::kPermissionDenied);
    ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  }
}

TEST_F(RingDirectoryTest, List_TellsWholeFromDamaged) {
  const auto directory = RingDirectory::Make(path_, base_).value();
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
  const auto directory = RingDirectory::Make(path_, base_).value();
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
  const auto directory = RingDirectory::Make(path_, base_).value();
  for (const StreamId& stream : {StreamId{1, 0, 0}, {2, 0, 0}, {2, 0, 1}, {3, 0, 0}, {1, 1, 0}})
    ASSERT_TRUE(directory->MakeRing(stream, Ring::kLeastCapacity).ok());
  ASSERT_TRUE(directory->RemoveEarlier(0, 3).ok());
  EXPECT_THAT(Whole(*directory), testing::ElementsAre(RingName({1, 1, 0}), RingName({3, 0, 0})));
  EXPECT_EQ(directory->Inode({2, 0, 0}), 0u);
  EXPECT_NE(directory->Inode({3, 0, 0}), 0u);
}

TEST_F(RingDirectoryTest, Make_RemovesWhatWasNotFinished) {
  ASSERT_TRUE(RingDirectory::Make(path_, base_).ok());
  ASSERT_TRUE(runtime::WritePrivateFile(path_ + "/" + RingName({1, 0, 0}) + ".new", "half").ok());
  ASSERT_TRUE(RingDirectory::Open(path_).ok());  // somebody may be at it
  EXPECT_TRUE(fs::exists(path_ + "/" + RingName({1, 0, 0}) + ".new"));
  ASSERT_TRUE(RingDirectory::Make(path_, base_).ok());
  EXPECT_FALSE(fs::exists(path_ + "/" + RingName({1, 0, 0}) + ".new"));
}

TEST_F(RingDirectoryTest, Gone_IsNoticed) {
  const auto directory = RingDirectory::Make(path_, base_).value();
  EXPECT_FALSE(directory->Gone());
  fs::rename(path_, base_ + "/elsewhere");
  EXPECT_TRUE(directory->Gone());
  ASSERT_TRUE(RingDirectory::Make(path_, base_).ok());  // another one in its place
  EXPECT_TRUE(directory->Gone());
  fs::remove_all(path_);
  fs::rename(base_ + "/elsewhere", path_);
  EXPECT_FALSE(directory->Gone());
  fs::remove_all(path_);
  EXPECT_TRUE(directory->Gone());
}

// What `up` of a copy does while the original is up: nothing of it may be touched.
TEST_F(RingDirectoryTest, Make_RefusesWhatSomebodyHas) {
  const auto directory = RingDirectory::Make(path_, base_).value();
  ASSERT_TRUE(directory->MakeRing({1, 0, 0}, Ring::kLeastCapacity).ok());
  ASSERT_TRUE(runtime::WritePrivateFile(path_ + "/island-0.worker-1.life-1.ring.new", "half").ok());
  for (const std::string& log : {base_, base_ + "/copy"}) {
    fs::create_directory(base_ + "/copy");
    const absl::Status refused = RingDirectory::Make(path_, log).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()),
                testing::AllOf(testing::HasSubstr(path_), testing::HasSubstr(std::to_string(getpid())),
                               testing::HasSubstr("storage.log.ring_directory")));
  }
  EXPECT_TRUE(fs::exists(path_ + "/island-0.worker-1.life-1.ring.new"));
  EXPECT_TRUE(RingDirectory::Open(path_).ok());  // islands and logger
}

// What `up` of a copy does after everybody of the original was killed.
TEST_F(RingDirectoryTest, Make_RefusesRingsOfAnotherLog) {
  const std::string log = base_ + "/log", copy = base_ + "/copy", moved = base_ + "/moved";
  fs::create_directory(log);
  fs::create_directory(copy);
  const BoxId id = RingDirectory::Make(path_, log).value()->id();
  ASSERT_TRUE(RingDirectory::Make(path_, log).value()->MakeRing({1, 0, 0}, Ring::kLeastCapacity).ok());
  const auto refused = [&] {
    const absl::Status status = RingDirectory::Make(path_, copy).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr(log), testing::HasSubstr(copy), testing::HasSubstr(path_)));
  };
  refused();
  EXPECT_EQ(RingDirectory::Make(path_, log).value()->id(), id);
  // Under another name it is the same log.
  fs::rename(log, moved);
  EXPECT_EQ(RingDirectory::Make(path_, moved).value()->id(), id);
  EXPECT_THAT(Whole(*RingDirectory::Open(path_).value()), testing::SizeIs(1));
  fs::rename(moved, log);
  EXPECT_TRUE(RingDirectory::Make(path_, log).ok());
  refused();
  // Somebody says that the copy is what was moved.
  fs::remove(path_ + "/owner");
  EXPECT_EQ(RingDirectory::Make(path_, copy).value()->id(), id);
  EXPECT_FALSE(RingDirectory::Make(path_, log).ok());
}

TEST_F(RingDirectoryTest, Make_TakesOverWhatHasNoRings) {
  fs::create_directory(base_ + "/copy");
  const BoxId id = RingDirectory::Make(path_, base_).value()->id();
  const BoxId taken = RingDirectory::Make(path_, base_ + "/copy").value()->id();
  EXPECT_NE(taken, id);
  EXPECT_EQ(RingDirectory::Make(path_, base_ + "/copy").value()->id(), taken);
}

// With the whole folder of a deployment, its log too.
TEST_F(RingDirectoryTest, Make_RingsThatWereCopiedAreNobodys) {
  const std::string copy = base_ + "/copy";
  fs::create_directory(copy);
  const auto original = RingDirectory::Make(path_, base_).value();
  ASSERT_TRUE(original->MakeRing({1, 0, 0}, Ring::kLeastCapacity).ok());
  fs::copy(path_, copy + "/rings");
  ASSERT_EQ(chmod((copy + "/rings").c_str(), 0700), 0);
  const auto copied = RingDirectory::Make(copy + "/rings", copy);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ((*copied)->id(), original->id());
  EXPECT_THAT(Whole(**copied), testing::SizeIs(1));
}

TEST(RingOwner, ThereAndBack) {
  const RingOwner owner{.log = {1, 2, "/a b/\n/c"}, .device = 3, .inode = 4, .process = 5};
  const std::optional<RingOwner> back = ParseRingOwner(ToText(owner));
  ASSERT_TRUE(back);
  EXPECT_EQ(ToText(*back), ToText(owner));
  EXPECT_EQ(back->log.path, owner.log.path);
  for (const char* text : {"", "1 2 3 4 5", "1 2 3 4 5\n", "1 2 3 4 5 \n", "1 2 3 4 /a\n", "1 2 3 4 5 /a"})
    EXPECT_FALSE(ParseRingOwner(text)) << text;
  // A disk that was mounted again may have another number; a copy has other inodes.
  EXPECT_TRUE(owner.IsAt({1, 2, "/elsewhere"}));
  EXPECT_TRUE(owner.IsAt({9, 2, owner.log.path}));
  EXPECT_FALSE(owner.IsAt({9, 2, "/elsewhere"}));
  EXPECT_FALSE(owner.IsAt({1, 9, owner.log.path}));
}

TEST_F(RingDirectoryTest, Choose_FallsBackWhereThereIsNoRoom) {
  std::string warning;
  RingDirectory::Choice choice{
      .path = path_, .fallback = base_ + "/fallback", .bytes = 1 << 20, .log_directory = base_};
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
      .path = small + "/rings", .fallback = base_ + "/fallback", .bytes = 2 << 20, .log_directory = base_};
  const auto chosen = RingDirectory::Choose(choice, &warning);
  umount2(small.c_str(), MNT_DETACH);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ((*chosen)->path(), choice.fallback);
  EXPECT_THAT(warning, testing::AllOf(testing::HasSubstr(choice.path), testing::HasSubstr(choice.fallback)));
}

TEST_F(RingDirectoryTest, Choose_TakesTheOneThatIsKnown) {
  std::string warning;
  const BoxId known = RingDirectory::Make(base_ + "/fallback", base_).value()->id();
  ASSERT_TRUE(RingDirectory::Make(path_, base_).ok());
  const RingDirectory::Choice choice{.path = path_,
                                     .fallback = base_ + "/fallback",
                                     .bytes = uint64_t{1} << 60,
                                     .known = known,
                                     .log_directory = base_};
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);  // nor what somebody has put in the other's place
  // Its rings are there; that there is no room for more does not matter.
  EXPECT_EQ(RingDirectory::Choose(choice, &warning).value()->id(), known);
}

}  // namespace
}  // namespace islands::log
