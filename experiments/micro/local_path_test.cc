// A local transaction takes nothing from the heap once everything is warm.
#include "experiments/micro/local_path.h"

#include <gtest/gtest.h>

namespace islands::experiments {
namespace {

class LocalPathTest : public testing::TestWithParam<LocalPathOptions> {};

TEST_P(LocalPathTest, Run_AllocatesNothingAfterWarmUp) {
  LocalPath path(GetParam());
  const absl::Status opened = path.Open();
  ASSERT_TRUE(opened.ok()) << opened;
  path.Run(20'000);  // every one of 500 slots takes some turns
  EXPECT_EQ(path.Run(20'000).allocations, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Local, LocalPathTest,
    testing::Values(LocalPathOptions{.op = "read", .range = 20'000},
                    LocalPathOptions{.op = "update", .range = 20'000},
                    LocalPathOptions{.op = "add", .range = 20'000},
                    LocalPathOptions{.op = "read", .range = 20'000, .locks = true},
                    LocalPathOptions{.op = "update", .range = 20'000, .locks = true},
                    LocalPathOptions{.op = "add", .range = 20'000, .locks = true},
                    LocalPathOptions{.op = "update", .range = 24'000, .sites = 24, .mpl = 500},
                    LocalPathOptions{.op = "update", .rows = 100, .range = 20'000, .mpl = 1, .zipf = 1}),
    [](const testing::TestParamInfo<LocalPathOptions>& info) {
      const LocalPathOptions& o = info.param;
      return o.op + std::to_string(o.rows) + (o.locks ? "Locked" : "") + "Mpl" + std::to_string(o.mpl) +
             (o.zipf > 0 ? "Skewed" : "");
    });

}  // namespace
}  // namespace islands::experiments
