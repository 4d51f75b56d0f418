#include "experiments/peers/bare_pages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace islands::experiments {
namespace {

namespace fs = std::filesystem;

class BarePagesTest : public testing::Test {
 protected:
  BarePagesTest()
      : path_((fs::current_path() / "bare-pages-test-XXXXXX").string()) {  // tmpfs may have no O_DIRECT
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~BarePagesTest() override { fs::remove_all(path_); }

  BarePagesOptions Options() const {
    return {.directory = path_,
            .pages = 1000,
            .depth = 16,
            .pool_pages = 100,
            .batch_pages = 32,
            .log_bytes = 20};
  }
  // Of the counters in the file, by other means.
  int64_t Sum() const {
    std::ifstream file(path_ + "/pages", std::ios::binary);
    int64_t sum = 0, counter = 0;
    for (uint64_t page = 0; page < 1000; ++page) {
      file.seekg(static_cast<std::streamoff>(page * 4096));
      file.read(reinterpret_cast<char*>(&counter), sizeof(counter));
      sum += counter;
    }
    EXPECT_TRUE(file.good());
    return sum;
  }

  std::string path_;
};

TEST_F(BarePagesTest, Measure_UpdatesComeHome) {
  const auto pages = BarePages::Create(Options());
  ASSERT_TRUE(pages.ok()) << pages.status();
  const auto read = (*pages)->Measure(false, 0.01, 0.05);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(read->pages, 0u);
  EXPECT_GE(read->seconds, 0.05);
  EXPECT_EQ(Sum(), 0);
  uint64_t home = 0;
  for (int round = 0; round < 2; ++round) {  // nothing is left over from the one before
    const auto updated = (*pages)->Measure(true, 0.01, 0.3);
    ASSERT_TRUE(updated.ok()) << updated.status();
    home += updated->pages;
  }
  EXPECT_GT(home, 0u);
  EXPECT_GE(Sum(), static_cast<int64_t>(home));  // and those before and after the measurement
}

TEST_F(BarePagesTest, Measure_LostChangeIsAnError) {
  const auto pages = BarePages::Create(Options());
  ASSERT_TRUE(pages.ok()) << pages.status();
  std::fstream file(path_ + "/pages", std::ios::binary | std::ios::in | std::ios::out);
  const int64_t less = -1'000'000;
  file.write(reinterpret_cast<const char*>(&less), sizeof(less)).flush();
  EXPECT_EQ((*pages)->Measure(true, 0, 0.05).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BarePagesTest, Create_PoolThatIsTooSmallOrTooLarge) {
  for (const uint32_t pool : {47u, 501u}) {
    BarePagesOptions options = Options();
    options.pool_pages = pool;
    EXPECT_EQ(BarePages::Create(options).status().code(), absl::StatusCode::kInvalidArgument) << pool;
  }
}

}  // namespace
}  // namespace islands::experiments
