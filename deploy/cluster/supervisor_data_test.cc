#include "deploy/cluster/supervisor_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::deploy {
namespace {

storage::Manifest MakeManifest(uint32_t islands, int64_t rows) {
  storage::Manifest manifest;
  manifest.cluster_id = "0123456789abcdef0123456789abcdef";
  manifest.deployment = "test";
  manifest.sites = 24;
  manifest.islands = islands;
  control::v1::TableSpec& table = *manifest.tables.Add();
  table.set_name("micro");
  table.add_key("uint64");
  table.set_range_end(rows);
  table.set_row_bytes(250);
  manifest.boot_epochs.assign(islands, 0);
  return manifest;
}

TEST(AdaptManifest, SameDeployment_KeepsEverything) {
  storage::Manifest have = MakeManifest(2, 1000);
  have.boot_epochs = {3, 5};
  have.layout_generation = 7;
  const auto adapted = AdaptManifest(have, MakeManifest(2, 1000), Durability::kNone);
  ASSERT_TRUE(adapted.ok());
  EXPECT_EQ(adapted->layout_generation, 7u);
  EXPECT_THAT(adapted->boot_epochs, testing::ElementsAre(3, 5));
}

TEST(AdaptManifest, OtherLayoutWithoutDurability_NewGenerationAndUnusedEpochs) {
  storage::Manifest have = MakeManifest(2, 1000);
  have.boot_epochs = {3, 5};
  storage::Manifest want = MakeManifest(4, 1000);
  want.cluster_id = "ffffffffffffffffffffffffffffffff";
  const auto adapted = AdaptManifest(have, want, Durability::kNone);
  ASSERT_TRUE(adapted.ok());
  EXPECT_EQ(adapted->cluster_id, have.cluster_id);
  EXPECT_EQ(adapted->layout_generation, have.layout_generation + 1);
  EXPECT_EQ(adapted->islands, 4u);
  EXPECT_THAT(adapted->boot_epochs, testing::ElementsAre(5, 5, 5, 5));
}

// There and back again: an epoch that an island has used must not come back.
TEST(AdaptManifest, FewerIslandsAndMoreAgain_NeverReusesAnEpoch) {
  storage::Manifest have = MakeManifest(3, 1000);
  have.boot_epochs = {1, 1, 9};
  const auto fewer = AdaptManifest(have, MakeManifest(1, 1000), Durability::kNone);
  ASSERT_TRUE(fewer.ok());
  const auto more = AdaptManifest(*fewer, MakeManifest(3, 1000), Durability::kNone);
  ASSERT_TRUE(more.ok());
  EXPECT_THAT(more->boot_epochs, testing::Each(testing::Ge(9u)));
}

TEST(AdaptManifest, RowsThatOutliveIslands_AreNotLostByAnEditedFile) {
  storage::Manifest have = MakeManifest(2, 1000);
  EXPECT_TRUE(AdaptManifest(have, MakeManifest(2, 2000), Durability::kSync).ok());  // nothing is there yet
  have.data_generation = 1;
  EXPECT_TRUE(AdaptManifest(have, MakeManifest(2, 1000), Durability::kLazy).ok());
  for (const storage::Manifest& want : {MakeManifest(2, 2000), MakeManifest(3, 1000)}) {
    const auto adapted = AdaptManifest(have, want, Durability::kSync);
    EXPECT_EQ(adapted.status().code(), absl::StatusCode::kFailedPrecondition) << adapted.status();
  }
  const auto hidden = AdaptManifest(have, MakeManifest(2, 1000), Durability::kNone);
  EXPECT_THAT(std::string(hidden.status().message()), testing::HasSubstr("outlive"));
}

// Which clients have made: its rows are there, whether the file names it or not.
TEST(AdaptManifest, ATableMadeSince_MayBeNamedAsItIs) {
  storage::Manifest have = MakeManifest(2, 1000);
  have.data_generation = 1;
  have.load = R"({"loads": [{"tables": [
      {"name": "made", "key": ["uint64"], "rangeEnd": 7, "rowBytes": 8, "keyNames": ["id"],
       "fields": [{"name": "n", "type": "int64"}]},
      {"name": "gone", "key": ["uint64"], "rangeEnd": 7, "dropped": 3}]}]})";
  storage::Manifest want = MakeManifest(2, 1000);
  control::v1::TableSpec& made = *want.tables.Add();
  made.set_name("made");
  made.add_key("uint64");
  made.add_key_names("id");
  made.set_range_end(7);
  made.set_row_bytes(8);
  made.add_fields()->set_name("n");
  made.mutable_fields(0)->set_type("int64");
  want.tables.SwapElements(0, 1);  // anywhere
  const auto adapted = AdaptManifest(have, want, Durability::kLazy);
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  EXPECT_EQ(storage::ManifestToText(*adapted), storage::ManifestToText(have));

  const auto complaint = [&](auto change) {
    storage::Manifest other = want;
    change(other.tables.Mutable(0));
    return std::string(AdaptManifest(have, other, Durability::kLazy).status().message());
  };
  EXPECT_THAT(complaint([](auto* table) { table->set_row_bytes(9); }),
              testing::AllOf(testing::HasSubstr("table 'made', which clients have made, has rows of 8 bytes"),
                             testing::HasSubstr("leave it out")));
  EXPECT_THAT(complaint([](auto* table) { table->set_key_names(0, "key"); }),
              testing::HasSubstr("'made', which clients have made, has other names"));
  EXPECT_THAT(complaint([](auto* table) { table->set_name("gone"); }),
              testing::HasSubstr("the deployment has table 'gone', the data has none"));
}

}  // namespace
}  // namespace islands::deploy
