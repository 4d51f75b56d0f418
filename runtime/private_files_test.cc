#include "runtime/private_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace islands::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class PrivateFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/private-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // A file as somebody else may have left it.
  std::string Plant(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void ExpectDenied(const absl::Status& status, const std::string& path, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  std::string folder_;
};

TEST_F(PrivateFiles, MakeDirectory_IsOursAloneWhateverTheUmask) {
  const mode_t before = umask(0);
  EXPECT_TRUE(MakePrivateDirectory(Path("a/b/run")).ok());
  EXPECT_TRUE(WritePrivateFile(Path("a/b/run/file"), "text").ok());
  umask(before);
  EXPECT_EQ(ModeOf(Path("a/b/run")), 0700u);
  EXPECT_EQ(ModeOf(Path("a/b/run/file")), 0600u);
  EXPECT_TRUE(MakePrivateDirectory(Path("a/b/run")).ok()) << "a second time";
}

TEST_F(PrivateFiles, CheckDirectory_None_IsNotFound) {
  EXPECT_EQ(CheckPrivateDirectory(Path("none")).code(), absl::StatusCode::kNotFound);
}

TEST_F(PrivateFiles, CheckDirectory_OpenToOthers_SaysWhatToDoAndChangesNothing) {
  fs::create_directory(Path("run"));
  for (const mode_t mode : {0755u, 0710u, 0701u, 0720u, 0704u}) {
    ASSERT_EQ(chmod(Path("run").c_str(), mode), 0);
    for (auto* function : {&CheckPrivateDirectory, &MakePrivateDirectory}) {
      ExpectDenied(function(Path("run")), Path("run"), "`chmod 700 " + Path("run") + "`");
    }
    EXPECT_EQ(ModeOf(Path("run")), mode);
  }
  // One that is there for everybody: closing it would take it from the others.
  ASSERT_EQ(chmod(Path("run").c_str(), 01777), 0);
  ExpectDenied(CheckPrivateDirectory(Path("run")), Path("run"), "such as " + Path("run") + "/islands");
  ASSERT_EQ(chmod(Path("run").c_str(), 0700), 0);
  EXPECT_TRUE(CheckPrivateDirectory(Path("run")).ok());
}

TEST_F(PrivateFiles, CheckDirectory_Link_IsRefused) {
  ASSERT_TRUE(MakePrivateDirectory(Path("real")).ok());
  fs::create_directory_symlink(Path("real"), Path("link"));
  ExpectDenied(MakePrivateDirectory(Path("link")), Path("link"), "symbolic link");
  fs::create_directory_symlink(Path("nowhere"), Path("dangling"));
  ExpectDenied(MakePrivateDirectory(Path("dangling")), Path("dangling"), "symbolic link");
  EXPECT_FALSE(fs::exists(Path("nowhere")));
  EXPECT_TRUE(MakePrivateDirectory(Path("real/below")).ok()) << "parents may be links";
}

TEST_F(PrivateFiles, CheckDirectory_File_IsRefused) {
  Plant("run", "");
  ExpectDenied(MakePrivateDirectory(Path("run")), Path("run"), "no directory");
}

TEST_F(PrivateFiles, CheckDirectory_SomebodyElses_IsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_TRUE(MakePrivateDirectory(Path("run")).ok());
  ASSERT_EQ(chown(Path("run").c_str(), kNobody, kNobody), 0);
  ExpectDenied(MakePrivateDirectory(Path("run")), Path("run"), "not permitted: owned by nobody (user 65534)");
}

TEST_F(PrivateFiles, Write_ReplacesAll) {
  ASSERT_TRUE(WritePrivateFile(Path("file"), "a long text").ok());
  ASSERT_TRUE(WritePrivateFile(Path("file"), "short").ok());
  EXPECT_EQ(ReadPrivateFile(Path("file")).value(), "short");
}

TEST_F(PrivateFiles, Open_None_IsNotFound) {
  EXPECT_EQ(ReadPrivateFile(Path("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PrivateFiles, Open_Link_IsNotFollowed) {
  const std::string victim = Plant("victim", "precious");
  fs::create_symlink(victim, Path("file"));
  ExpectDenied(WritePrivateFile(Path("file"), "x"), Path("file"), "symbolic link");
  ExpectDenied(ReadPrivateFile(Path("file")).status(), Path("file"), "symbolic link");
  fs::create_symlink(Path("nowhere"), Path("dangling"));
  ExpectDenied(WritePrivateFile(Path("dangling"), "x"), Path("dangling"), "symbolic link");
  EXPECT_FALSE(fs::exists(Path("nowhere")));
  EXPECT_EQ(Read(victim), "precious");
}

TEST_F(PrivateFiles, Open_FileWithAnotherName_IsRefusedUntouched) {
  const std::string victim = Plant("victim", "precious");
  fs::create_hard_link(victim, Path("file"));
  ExpectDenied(WritePrivateFile(Path("file"), "x"), Path("file"), "another name");
  EXPECT_EQ(Read(victim), "precious");
}

TEST_F(PrivateFiles, Open_SomebodyElsesFile_IsRefusedUntouched) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = Plant("file", "theirs");
  ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  ExpectDenied(WritePrivateFile(path, "x"), path, "not permitted: owned by nobody (user 65534)");
  EXPECT_EQ(Read(path), "theirs");
}

// Whoever opens a pipe waits for its other end.
TEST_F(PrivateFiles, Open_Pipe_IsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(WritePrivateFile(Path("pipe"), "x").ok());
  ExpectDenied(ReadPrivateFile(Path("pipe")).status(), Path("pipe"), "no regular file");
}

TEST_F(PrivateFiles, Open_IsCloseOnExec) {
  const absl::StatusOr<UniqueFd> file = OpenPrivateFile(Path("file"), O_RDWR | O_CREAT);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
}

}  // namespace
}  // namespace islands::runtime
