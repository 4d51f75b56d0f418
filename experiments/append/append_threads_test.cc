// Real histories of real threads: two islands of two workers each append and read for a moment, and the
// checker of strict serializability judges what their transactions saw. With the engine that has planted bugs
// it has to find them (instance/simulation/planted).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "experiments/append/append.h"
#include "experiments/append/append_judge.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {
namespace {

constexpr int64_t kRows = 48;  // few, so that transactions meet

instance::ClusterOptions Options(uint32_t islands, uint32_t workers, const std::string& directory) {
  instance::ClusterOptions options;
  options.islands = islands;
  options.workers = workers;
  control::v1::TableSpec& table = *options.config.add_tables();
  table.set_name(kAppendTable);
  table.add_key("uint64");
  table.set_range_end(kRows);
  table.set_row_bytes(120);
  options.open = [directory](const storage::Catalog& catalog) {
    return AppendWorkload::Create(
        catalog, {{"history", directory}, {"rows", "3"}, {"multisite", "50"}, {"zipf", "0.5"}});
  };
  return options;
}

std::vector<RecordedHistory> ReadAll(const std::string& directory) {
  std::vector<RecordedHistory> histories;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    absl::StatusOr<RecordedHistory> history = ReadHistory(entry.path().string());
    EXPECT_TRUE(history.ok()) << history.status();
    if (history.ok()) histories.push_back(*std::move(history));
  }
  return histories;
}

struct Shape {
  uint32_t islands;
  uint32_t workers;
};

class AppendThreads : public testing::TestWithParam<Shape> {};

TEST_P(AppendThreads, Histories_AreStrictlySerializable) {
  std::string directory = testing::TempDir() + "/append-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  {
    instance::InProcessCluster cluster(Options(GetParam().islands, GetParam().workers, directory));
    const absl::Status started = cluster.Start();
    ASSERT_TRUE(started.ok()) << started;
    for (int round = 0; round < 2; ++round) {  // files of its own each
      ASSERT_TRUE(cluster.StartRun(/*mpl=*/4).ok());
      cluster.RunFor(200 * runtime::kNsPerMs);
      EXPECT_TRUE(cluster.Drain(30 * runtime::kNsPerSecond));
    }
    const instance::InProcessCluster::Totals totals = cluster.Sum();
    EXPECT_EQ(totals.audit_sum, totals.audit_committed);
  }
  const std::vector<RecordedHistory> histories = ReadAll(directory);
  EXPECT_EQ(histories.size(), 2 * GetParam().islands * GetParam().workers);
  const Judgement found = JudgeAppends(histories);
  for (const std::string& violation : found.violations) ADD_FAILURE() << "VIOLATION: " << violation;
  EXPECT_GT(found.committed, 100u);
  EXPECT_EQ(found.distributed > 0, GetParam().islands > 1);
  EXPECT_EQ(found.open, 0u);
  EXPECT_EQ(found.deaths, 0u);
  printf("%lu attempts, %lu committed, %lu distributed, %lu aborted, %lu unknown, %lu edges\n",
         found.attempts, found.committed, found.distributed, found.aborted, found.unknown, found.edges);
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AppendThreads, testing::Values(Shape{2, 2}, Shape{1, 3}, Shape{3, 1}),
                         [](const auto& info) {
                           return std::to_string(info.param.islands) + "x" +
                                  std::to_string(info.param.workers);
                         });

}  // namespace
}  // namespace islands::experiments
