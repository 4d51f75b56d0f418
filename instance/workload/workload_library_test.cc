// Who may have written what an island opens. A file that passes fails later, when it is opened: it is no
// object.
#include "instance/workload/workload_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace islands::instance {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;
constexpr const char* kPasses = "cannot open workload";

class WorkloadLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/workload-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = fs::canonical(name).string();
    object_ = folder_ + "/w.so";
    std::ofstream(object_) << "no object";
    ASSERT_EQ(chmod(object_.c_str(), 0644), 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Open(const std::string& object) {
    const storage::Catalog catalog = *storage::Catalog::Create({}, 1);
    return std::string(OpenWorkload(object, catalog, {}).status().message());
  }

  std::string folder_;
  std::string object_;
};

TEST_F(WorkloadLibrary, FilesOfOurs_Pass) {
  EXPECT_THAT(Open(object_), HasSubstr(kPasses));
  ASSERT_EQ(chmod(object_.c_str(), 0664), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0775), 0);
  EXPECT_THAT(Open(object_), HasSubstr(kPasses)) << "as umask 002 makes them";
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_THAT(Open(object_), HasSubstr(kPasses)) << "sticky";
  EXPECT_THAT(Open(folder_ + "/none.so"), HasSubstr(kPasses));
}

TEST_F(WorkloadLibrary, FilesThatOthersMayChange_AreRefused) {
  ASSERT_EQ(chmod(object_.c_str(), 0646), 0);
  EXPECT_THAT(Open(object_), HasSubstr("`chmod go-w " + object_ + "`"));
  fs::create_symlink(object_, folder_ + "/link.so");
  EXPECT_THAT(Open(folder_ + "/link.so"), HasSubstr("`chmod go-w " + object_ + "`"));
  ASSERT_EQ(chmod(object_.c_str(), 0644), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(Open(object_), HasSubstr("`chmod go-w " + folder_ + "`"));
}

TEST_F(WorkloadLibrary, FilesOfSomebodyElse_AreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(object_.c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(Open(object_), HasSubstr(object_ + " belongs to user 65534"));
  ASSERT_EQ(chown(object_.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(Open(object_), HasSubstr(folder_ + " belongs to user 65534"));
}

}  // namespace
}  // namespace islands::instance
