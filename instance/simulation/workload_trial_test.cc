#include "instance/simulation/workload_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>

namespace islands::simulation {
namespace {

using instance::RowView;
using testing::HasSubstr;

constexpr int64_t kRows = 24;

// What the workload of the test now running has seen: it is made by a plain function.
struct Seen {
  std::set<std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>> lives;  // run, boot epoch, island, worker
  std::set<int64_t> counts;                                            // that committed ones have found
  uint64_t attempts = 0, ended = 0;
};
Seen seen;
bool forgets = false;  // its changes are not what it says

struct Count final : instance::Request {
  mutable int64_t found = 0;
};

// Adds 1 to one row, again and again; its count reaches OnEnd.
class Counter final : public instance::Generator {
 public:
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Count>(); }
  void Next(runtime::Random&, instance::Request& request) override { request.audit_delta = 1; }
  void OnEnd(const coordinator::TransactionId&, const instance::Request& request,
             coordinator::Outcome outcome) override {
    ++seen.ended;
    if (outcome == coordinator::Outcome::kCommitted)
      seen.counts.insert(static_cast<const Count&>(request).found);
  }
};

class CountingWorkload final : public instance::Workload {
 public:
  const char* name() const override { return "counting"; }
  std::vector<std::string> tables() const override { return {"counts"}; }
  absl::Status Load(instance::Loader& loader) const override {
    constexpr int64_t kNone = 0;
    for (int64_t key = 0; key < kRows; ++key) {
      absl::Status status = loader.Insert(0, partitioner::Uint64Key(static_cast<uint64_t>(key)),
                                          std::as_bytes(std::span(&kNone, 1)));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    seen.lives.emplace(context.run_id, context.boot_epoch, context.island, context.worker);
    return std::make_unique<Counter>();
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    ++seen.attempts;
    instance::Batch& batch = transaction.batch();
    const partitioner::Uint64Key key(0);
    batch.Add(0, key, 0, forgets ? 2 : 1);
    absl::Status status = co_await transaction.Execute(batch);
    if (status.ok()) static_cast<const Count&>(request).found = Number(batch.row(0));
    co_return status;
  }
  int64_t AuditRow(instance::TableId, instance::KeyView, RowView row) const override { return Number(row); }

 private:
  static int64_t Number(RowView row) {
    int64_t number = 0;
    std::memcpy(&number, row.data(), sizeof(number));
    return number;
  }
};

instance::Workload* OpenCounting(uint32_t, const storage::Catalog*, const instance::Parameters* parameters,
                                 std::string* error) {
  if (parameters->empty()) return std::make_unique<CountingWorkload>().release();
  *error = "it takes none";
  return nullptr;
}

TrialOptions Options() {
  seen = {};
  TrialOptions options;
  auto* table = options.tables.Add();
  table->set_name("counts");
  table->add_key("uint64");
  table->set_range_end(kRows);
  table->set_row_bytes(8);
  return options;
}

TEST(TryWorkload, Results_ReachOnEndOnceForEachAttempt) {
  const absl::StatusOr<Trial> trial = TryWorkload(OpenCounting, Options());
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_GT(trial->committed, 50u);
  EXPECT_GT(trial->distributed, 0u) << "the row is the other island's for half of them";
  EXPECT_EQ(seen.attempts, seen.ended);
  EXPECT_EQ(seen.counts.size(), trial->committed) << "two have found the same";
  EXPECT_EQ(*seen.counts.begin(), 1);
  EXPECT_EQ(*seen.counts.rbegin(), trial->sum_after);
  EXPECT_TRUE(trial->SumHolds());
}

TEST(TryWorkload, Generators_KnowTheirLife) {
  ASSERT_TRUE(TryWorkload(OpenCounting, Options()).ok());
  const std::set<std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>> expected = {
      {1, 1, 0, 0}, {1, 1, 0, 1}, {1, 1, 1, 0}, {1, 1, 1, 1}};
  EXPECT_EQ(seen.lives, expected);
}

TEST(TryWorkload, WrongSum_IsSeen) {
  forgets = true;
  const absl::StatusOr<Trial> trial = TryWorkload(OpenCounting, Options());
  forgets = false;
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_FALSE(trial->SumHolds());
  EXPECT_EQ(trial->sum_after, 2 * trial->sum_committed);
}

TEST(TryWorkload, SameSeed_IsTheSameTrial) {
  const absl::StatusOr<Trial> one = TryWorkload(OpenCounting, Options());
  const absl::StatusOr<Trial> again = TryWorkload(OpenCounting, Options());
  ASSERT_TRUE(one.ok() && again.ok());
  EXPECT_EQ(one->committed, again->committed);
  EXPECT_EQ(one->aborted, again->aborted);
}

TEST(TryWorkload, Complaints_AreTheWorkloadsOrOurs) {
  const auto complaint = [](const TrialOptions& options) {
    return std::string(TryWorkload(OpenCounting, options).status().message());
  };
  TrialOptions options = Options();
  options.parameters = {{"rows", "1"}};
  EXPECT_THAT(complaint(options), HasSubstr("it takes none"));
  options = Options();
  options.sites = 1;
  EXPECT_THAT(complaint(options), HasSubstr("found sites 1, expected one for each island"));
  options = Options();
  options.mpl = 0;
  EXPECT_THAT(complaint(options), HasSubstr("found mpl 0, expected 1 to 1000"));
}

}  // namespace
}  // namespace islands::simulation
