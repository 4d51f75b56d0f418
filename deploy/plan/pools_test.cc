#include "deploy/plan/pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "instance/recovery/checkpoint.h"
#include "instance/storage/manifest.h"

namespace islands::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two islands of 8 MiB, and rows of 250 bytes: 15 to a page.
ResolvedDeployment Resolved(const std::string& storage, const std::string& key = "[uint64]",
                            const std::string& range = "[0, 150000]") {
  const auto deployment = ParseDeployment(
      "version: 1\nmachine: 'pack:1 [numa(memory=4GB)] core:2 pu:1'\nlayout: 2ISL\n"
      "control: {directory: /run/islands}\ndata: {directory: /d, sites: 4, tables: [{name: rows, key: " +
          key + ", range: " + range + ", row_bytes: 250}]}\nstorage: {buffer_pool: 16MiB" + storage + "}\n",
      "/d/f.yaml");
  EXPECT_TRUE(deployment.ok()) << deployment.status();
  auto resolved = Resolve(*deployment);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *std::move(resolved);
}

std::vector<bool> Paged(const PredictedPools& pools) {
  std::vector<bool> paged;
  for (const PredictedPool& pool : pools.islands) paged.push_back(pool.paged);
  return paged;
}

TEST(PredictPools, MoreThanThePool_AutoPages) {
  const ResolvedDeployment resolved = Resolved("");
  const PredictedPools pools = PredictPools(resolved);
  EXPECT_THAT(Paged(pools), ElementsAre(true, true));
  EXPECT_NEAR(static_cast<double>(pools.islands[1].data_bytes), 5000 * 4096, 300'000);
  EXPECT_THAT(
      NotesOnPools(resolved, pools),
      ElementsAre(HasSubstr("islands 0-1: tables will take about 19.7MiB, the buffer pool has 8MiB: what")));
}

TEST(PredictPools, LessThanThePool_IsResidentAndNobodySaysAWord) {
  const ResolvedDeployment resolved = Resolved("", "[uint64]", "[0, 50000]");
  EXPECT_THAT(Paged(PredictPools(resolved)), ElementsAre(false, false));
  EXPECT_THAT(NotesOnPools(resolved, PredictPools(resolved)), IsEmpty());
}

TEST(PredictPools, TheFileSaysResident_ANoteSaysHowMuchWouldDo) {
  const ResolvedDeployment resolved = Resolved(", mode: resident");
  const PredictedPools pools = PredictPools(resolved);
  EXPECT_THAT(Paged(pools), ElementsAre(false, false));
  ASSERT_EQ(NotesOnPools(resolved, pools).size(), 1u);
  EXPECT_THAT(NotesOnPools(resolved, pools)[0],
              HasSubstr("a load of them will fail; take storage.buffer_pool: 45MiB, or storage.mode: auto"));
  EXPECT_THAT(NotesOnPools(Resolved(", mode: resident, log: {durability: none}"), pools)[0],
              HasSubstr("or storage.mode: paged, which swaps"));
  EXPECT_THAT(Paged(PredictPools(Resolved(", log: {durability: none}"))), ElementsAre(false, false));
  const ResolvedDeployment enough = [] {
    ResolvedDeployment larger = Resolved(", mode: resident");
    for (topology::PlannedIsland& island : larger.plan.islands) island.memory_bytes = (45 << 20) / 2;
    return larger;
  }();
  EXPECT_THAT(NotesOnPools(enough, PredictPools(enough)), IsEmpty()) << "what the note said would do";
}

TEST(PredictPools, RowsThatNobodyCanCount_AreNamed) {
  const PredictedPools pools = PredictPools(Resolved("", "[uint64, uint8]"));
  EXPECT_THAT(pools.unknown_tables, ElementsAre("rows"));
  EXPECT_THAT(Paged(pools), ElementsAre(false, false));
}

class PredictPoolsWithFiles : public testing::Test {
 protected:
  static constexpr const char* kLoaded = R"({"loads": [{"workload": "micro"}]})";
  // Of each island so many pages.
  void Write(uint64_t pages, uint32_t islands, const std::string& load = kLoaded) {
    storage::Manifest manifest;
    manifest.cluster_id = std::string(32, 'a');
    manifest.deployment = "islands";
    manifest.sites = 4;
    manifest.islands = islands;
    manifest.boot_epochs.assign(islands, 1);
    manifest.workers.assign(islands, 1);
    manifest.data_generation = 3;
    manifest.load = load;
    ASSERT_TRUE(files_->MakeDirectories("/d").ok());
    ASSERT_TRUE(storage::SaveManifest(manifest, "/d", *files_).ok());
    for (const char* island : {"/d/island-0", "/d/island-1"}) {
      ASSERT_TRUE(files_->MakeDirectories(island).ok());
      for (const char* generation : {"/generation-0000000002", "/generation-0000000003"}) {
        const auto block = recovery::EncodeCheckpoint({.number = 1, .sites = {{.site = 0, .pages = pages}}});
        const std::string text(reinterpret_cast<const char*>(block.data()), block.size());
        ASSERT_TRUE(files_->ReplaceFile(std::string(island) + generation + "-checkpoint", text + text).ok());
      }
    }
  }
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
};

TEST_F(PredictPoolsWithFiles, TheyCountAndNotTheRanges) {
  const ResolvedDeployment resolved = Resolved("");
  ASSERT_NO_FATAL_FAILURE(Write(1792, 2));  // 7/8 of the pool
  PredictedPools pools = PredictPools(resolved, *files_);
  EXPECT_EQ(pools.islands[1].data_bytes, 1792u * 4096);
  EXPECT_TRUE(pools.islands[1].on_disk);
  EXPECT_THAT(Paged(pools), ElementsAre(false, false));
  ASSERT_NO_FATAL_FAILURE(Write(1793, 2));
  EXPECT_THAT(Paged(PredictPools(resolved, *files_)), ElementsAre(true, true));
  ASSERT_NO_FATAL_FAILURE(Write(3000, 2));
  const ResolvedDeployment resident = Resolved(", mode: resident");
  EXPECT_THAT(
      NotesOnPools(resident, PredictPools(resident, *files_)),
      ElementsAre(HasSubstr("data files have 11.7MiB, the buffer pool has 8MiB: it is resident, and will not "
                            "start; take storage.buffer_pool: 27MiB")));
}

TEST_F(PredictPoolsWithFiles, OfTablesThatNobodyHasLoaded_CountIfTheyAreLarger) {
  const ResolvedDeployment resolved = Resolved("");
  for (const char* load : {"", R"({"loads": [{"tables": [{"name": "rows"}]}]})"}) {
    ASSERT_NO_FATAL_FAILURE(Write(100, 2, load));
    EXPECT_EQ(PredictPools(resolved, *files_).islands[0].data_bytes,
              PredictPools(resolved).islands[0].data_bytes);
    EXPECT_FALSE(PredictPools(resolved, *files_).islands[0].on_disk);
    ASSERT_NO_FATAL_FAILURE(Write(6000, 2, load));
    EXPECT_TRUE(PredictPools(resolved, *files_).islands[0].on_disk);
  }
}

TEST_F(PredictPoolsWithFiles, OfAnotherLayout_SayNothingOfThisOne) {
  ASSERT_NO_FATAL_FAILURE(Write(1792, 4));
  EXPECT_FALSE(PredictPools(Resolved(""), *files_).islands[0].on_disk);
}

}  // namespace
}  // namespace islands::deploy
