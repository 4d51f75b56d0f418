// Voter: parameters, whose votes are drawn, what becomes of them, and the totals after runs.
#include "experiments/voter/voter.h"

#include <map>

#include "experiments/workload_testing.h"

namespace islands::experiments {
namespace {

using instance::Parameters;

constexpr int64_t kPhones = 80;
constexpr uint32_t kSites = 4;
enum : instance::TableId { kContestant, kPhone, kVote, kTotal };

storage::Catalog::TableSpecs Tables(int64_t phones = kPhones, int64_t totals = kPhones) {
  return TestTables({TestTable("contestant", {"uint8"}, 0, 0, 50),
                     TestTable("phone", {"uint64"}, 0, phones, 8),
                     TestTable("vote", {"uint64", "uint32"}, 0, phones, 8),
                     TestTable("total", {"uint64", "uint8"}, 0, totals, 16)});
}

std::string ErrorOf(const storage::Catalog::TableSpecs& tables, const Parameters& parameters) {
  const storage::Catalog catalog = TestCatalog(tables, kSites);
  const auto workload = VoterWorkload::Create(catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

TEST(Voter, Create_SaysWhatIsWrong) {
  EXPECT_TRUE(instance::CheckDescription(VoterWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(Tables(), {{"contestants", "12"}, {"limit", "2"}, {"remote", "10"}}), "");
  EXPECT_EQ(ErrorOf(Tables(), {{"contestants", "13"}}),
            "--contestants: found '13', expected a whole number from 1 to 12");
  EXPECT_EQ(ErrorOf(Tables(3, 3), {}), "voter: found 3 phones in 4 sites, expected one in each at least");
  const std::string other = ErrorOf(Tables(kPhones, 81), {});
  EXPECT_NE(other.find("tables 'phone' and 'total' have different ranges"), std::string::npos) << other;
  EXPECT_NE(other.find("- {name: contestant, key: [uint8], replicated: true"), std::string::npos) << other;
}

TEST(Voter, Next_PhonesAreOwnUnlessRemote) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  for (const double remote : {0.0, 50.0}) {
    VoterGenerator generator({.contestants = 3, .remote_percent = remote}, *catalog.table(kPhone).partition,
                             {1, 2});
    runtime::Random random(1);
    const auto request = generator.MakeRequest();
    const auto& voter = static_cast<const VoterRequest&>(*request);
    std::map<int, double> for_whom;
    double elsewhere = 0;
    constexpr int kCount = 20'000;
    for (int i = 0; i < kCount; ++i) {
      generator.Next(random, *request);
      ++for_whom[voter.contestant];
      elsewhere += voter.phone < 20 || voter.phone >= 60;
      ASSERT_EQ(voter.first_phone, voter.phone / 20 * 20);
      ASSERT_EQ(voter.audit_delta, voter.contestant == 4 ? 0 : kCallWeight);
    }
    EXPECT_NEAR(elsewhere / kCount, remote / 200, 0.02);
    for (int contestant = 1; contestant <= 3; ++contestant)
      EXPECT_NEAR(for_whom[contestant] / kCount, 0.33, 0.02);
    EXPECT_NEAR(for_whom[4] / kCount, 0.01, 0.004);
    EXPECT_EQ(for_whom.size(), 4u);
  }
}

TEST(VoterProcedure, Run_AsManyVotesAsAPhoneMayGive) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  const auto workload = *VoterWorkload::Create(catalog, {{"limit", "2"}});
  MapStore store(catalog);
  ASSERT_TRUE(workload->Load(store).ok());
  EXPECT_EQ(store.rows.size(), 6 + 6 * kSites);
  VoterRequest request;
  request.phone = 33;
  request.first_phone = 20;
  const auto vote = [&](uint8_t contestant) {
    request.contestant = contestant;
    return store.Run(*workload, request);
  };
  const auto total = [&](uint8_t contestant) {
    TotalRow row{};
    std::memcpy(&row, store.rows.at({kTotal, KeyText(TotalKey(20, contestant))}).data(), sizeof(row));
    return std::pair(row.votes, row.rejected);
  };
  const MapRows loaded = store.rows;
  EXPECT_TRUE(vote(7).ok());
  EXPECT_EQ(store.rows, loaded) << "a vote for nobody";
  EXPECT_TRUE(vote(6).ok());
  EXPECT_TRUE(vote(5).ok());
  EXPECT_EQ(store.rows.size(), loaded.size() + 3);
  EXPECT_TRUE(store.rows.contains({kVote, KeyText(VoteKey(33, 1))}));
  EXPECT_EQ(store.rows.at({kPhone, KeyText(PhoneKey(33))})[0], std::byte{2});
  EXPECT_TRUE(vote(5).ok());
  EXPECT_EQ(store.rows.size(), loaded.size() + 3) << "one vote too many";
  EXPECT_EQ(total(6), std::pair(int64_t{1}, int64_t{0}));
  EXPECT_EQ(total(5), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(store.AuditedSum(*workload), 3 * kCallWeight);

  store.rows.at({kPhone, KeyText(PhoneKey(33))})[0] = std::byte{1};
  EXPECT_EQ(vote(5).code(), absl::StatusCode::kDataLoss) << "its second vote is there already";
}

struct Case {
  const char* name;
  TestLayout layout;
};

class VoterClusters : public testing::TestWithParam<Case> {};

TEST_P(VoterClusters, Run_TotalsAreTheVotes) {
  const TestLayout& layout = GetParam().layout;
  instance::InProcessCluster cluster(TestCluster<VoterWorkload>(Tables(), layout));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_EQ(cluster.Sum().audit_sum, 0);
  ASSERT_NO_FATAL_FAILURE(RunSome(cluster, 2'000));
  const auto totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum, totals.audit_committed);
  EXPECT_EQ(totals.distributed > 0, layout.islands > 1 && layout.parameters.contains("remote"));
  EXPECT_EQ(totals.unknown, 0u);

  std::map<uint64_t, int64_t> rows, counted, given, said;  // by contestant, and by phone
  int64_t rejected = 0;
  cluster.VisitRows(kVote, [&](instance::KeyView key, instance::RowView row) {
    VoteRow vote{};
    std::memcpy(&vote, row.data(), sizeof(vote));
    ++rows[vote.contestant];
    ++given[static_cast<uint64_t>(key[7])];
  });
  cluster.VisitRows(kTotal, [&](instance::KeyView key, instance::RowView row) {
    TotalRow total{};
    std::memcpy(&total, row.data(), sizeof(total));
    counted[static_cast<uint64_t>(key[8])] += total.votes;
    rejected += total.rejected;
  });
  cluster.VisitRows(kPhone, [&](instance::KeyView key, instance::RowView row) {
    PhoneRow phone{};
    std::memcpy(&phone, row.data(), sizeof(phone));
    said[static_cast<uint64_t>(key[7])] = phone.votes;
  });
  EXPECT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows, counted);
  EXPECT_EQ(given, said);
  EXPECT_EQ(rejected > 0, layout.parameters.contains("limit"));

  LoseRow(cluster, kVote);
  EXPECT_NE(cluster.Sum().audit_sum, totals.audit_committed) << "a lost row shows";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, VoterClusters,
    testing::Values(Case{"OneWorker", {}},
                    Case{"TwoWorkersRejecting", {.workers = 2, .parameters = {{"limit", "9"}}}},
                    Case{"TwoIslands", {.islands = 2}},
                    Case{"TwoIslandsRemote",
                         {.islands = 2, .workers = 2, .parameters = {{"remote", "50"}, {"limit", "9"}}}}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace islands::experiments
