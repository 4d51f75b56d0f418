// What participants do whose coordinator has died, when the words of the dead are still under way: one
// transaction that writes on islands 1, 2 and 3 for island 0, and messages that take as long as a scenario
// wants. Islands 1 and 2 live to the end; whatever happens, they agree.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "instance/simulation/bank.h"
#include "instance/simulation/fault_injector.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using coordinator::Coordinator;
using coordinator::Participant;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

constexpr uint32_t kIslands = 4;
constexpr uint32_t kCoordinator = 0, kOne = 1, kTwo = 2, kThird = 3;
constexpr StateIndex kPrepared = IndexOf(Participant::State::kPrepared);
constexpr StateIndex kOrphaned = IndexOf(Participant::State::kOrphaned);

// Of island 0: adds 1 to the first row of each of the others. The others read a row of their own.
class AllIslands final : public instance::Workload {
 public:
  explicit AllIslands(const storage::TableDefinition& table) : table_(table.id), range_(*table.partition) {}
  const char* name() const override { return "all-islands"; }
  std::vector<std::string> tables() const override { return {"accounts"}; }

  absl::Status Load(instance::Loader& loader) const override {
    const int64_t row[2] = {0, 0};
    for (uint32_t site = 0; site < kIslands; ++site) {
      const partitioner::Uint64Key key(FirstKey(site));
      if (absl::Status status = loader.Insert(table_, key, std::as_bytes(std::span(row))); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Asks>(context.island);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const uint32_t island = static_cast<const Asked&>(request).island;
    instance::Batch& batch = transaction.batch();
    if (island != kCoordinator) batch.Read(table_, partitioner::Uint64Key(FirstKey(island) + 1));
    for (uint32_t to = kOne; island == kCoordinator && to < kIslands; ++to)
      batch.Add(table_, partitioner::Uint64Key(FirstKey(to)), 0, 1);
    runtime::Task<absl::Status> all = transaction.Execute(batch);
    co_return co_await all;
  }

  int64_t AuditRow(instance::TableId, instance::KeyView, instance::RowView row) const override {
    int64_t added = 0;
    std::memcpy(&added, row.data(), sizeof(added));
    return added;
  }

 private:
  struct Asked final : instance::Request {
    uint32_t island = 0;
  };
  class Asks final : public instance::Generator {
   public:
    explicit Asks(uint32_t island) : island_(island) {}
    std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Asked>(); }
    void Next(runtime::Random&, instance::Request& request) override {
      static_cast<Asked&>(request).island = island_;
    }

   private:
    const uint32_t island_;
  };

  uint64_t FirstKey(uint32_t site) const { return static_cast<uint64_t>(range_.SiteBegin(site)); }

  const instance::TableId table_;
  const partitioner::RangePartition range_;
};

class OrphansTest : public testing::TestWithParam<uint64_t> {
 protected:
  // Until the coordinator is about to decide: all have voted, and its word to islands 1 and 2 will take so
  // long. Then until island 3 has heard it.
  void CommitOnIslandThree(int64_t to_one_ns, int64_t to_two_ns) {
    SimOptions options;
    options.seed = GetParam();
    options.islands = options.sites = kIslands;
    *options.config.add_tables() = BankTable();
    options.open = [](const storage::Catalog& catalog) {
      return std::make_shared<AllIslands>(*catalog.Find("accounts"));
    };
    options.delay = [this](runtime::Random& random, messaging::Address from, messaging::Address to) {
      const auto slow = slow_ns_.find({from.island, to.island});
      const auto usual_ns = static_cast<int64_t>(random.Below(200 * runtime::kNsPerUs));
      return slow == slow_ns_.end() ? usual_ns : slow->second;
    };
    cluster_.emplace(options);
    ASSERT_TRUE(cluster_->Start().ok());
    ASSERT_TRUE(cluster_->StartRun(1).ok());
    cluster_->RunFor(5 * kNsPerMs);
    ASSERT_TRUE(StepUntil([this] {
      return StateAt(kOne) == kPrepared && StateAt(kTwo) == kPrepared && StateAt(kThird) == kPrepared &&
             StateAt(kCoordinator) == IndexOf(Coordinator::State::kVoting);
    }));
    cluster_->RequestStop();
    with_it_ = Added(kThird);
    ASSERT_EQ(Added(kOne), with_it_);
    slow_ns_[{kCoordinator, kOne}] = to_one_ns;
    slow_ns_[{kCoordinator, kTwo}] = to_two_ns;
    ASSERT_TRUE(StepUntil([this] { return !StateAt(kThird); }));
    ASSERT_EQ(StateAt(kOne), kPrepared);
    ASSERT_EQ(StateAt(kTwo), kPrepared);
  }
  // Its word to islands 1 and 2 is lost; they learn of the links' end when the word would have come.
  void KillCoordinatorAndItsWord() {
    cluster_->hub().Partition(kCoordinator, kOne);
    cluster_->hub().Partition(kCoordinator, kTwo);
    cluster_->Crash(kCoordinator);
  }

  template <typename Wanted>
  bool StepUntil(Wanted&& wanted) {
    for (int step = 0; step < 200'000; ++step) {
      if (wanted()) return true;
      cluster_->Step();
    }
    return false;
  }
  // Of island 0's transaction there.
  std::optional<StateIndex> StateAt(uint32_t island) {
    for (const Machine& machine : Machines(*cluster_)) {
      if (machine.id.island == kCoordinator && machine.where.island == island) return machine.state;
    }
    return std::nullopt;
  }
  int64_t Added(uint32_t island) { return cluster_->island(island).Audit({})->value(); }
  void ExpectCommittedOnBoth() {
    for (const uint32_t island : {kOne, kTwo}) {
      EXPECT_EQ(StateAt(island), std::nullopt) << island;
      EXPECT_EQ(Added(island), with_it_) << "island " << island << " has aborted what was committed";
    }
  }

  std::map<std::pair<uint32_t, uint32_t>, int64_t> slow_ns_;  // by islands from and to
  std::optional<SimCluster> cluster_;
  int64_t with_it_ = 0;  // what the rows hold with it
};

INSTANTIATE_TEST_SUITE_P(Seeds, OrphansTest, testing::Range<uint64_t>(1, 7));

// The coordinator has told everybody, and died: its word lies in the sockets for much longer than proof of
// its death takes.
TEST_P(OrphansTest, LastWordsOfACoordinator_AreRead) {
  CommitOnIslandThree(500 * kNsPerMs, 500 * kNsPerMs);
  cluster_->Crash(kThird);  // who could tell them
  cluster_->Crash(kCoordinator);
  cluster_->RunFor(300 * kNsPerMs);
  EXPECT_EQ(StateAt(kOne), kPrepared) << "it may still hear from its coordinator";
  cluster_->RunFor(kNsPerSecond);
  ExpectCommittedOnBoth();
}

// Both ask island 3, which has heard of the commit and says so, and dies while its answers are under way.
TEST_P(OrphansTest, LastWordsOfAFellow_AreRead) {
  CommitOnIslandThree(5 * kNsPerMs, 5 * kNsPerMs);
  slow_ns_[{kThird, kOne}] = slow_ns_[{kThird, kTwo}] = 500 * kNsPerMs;
  KillCoordinatorAndItsWord();
  cluster_->RunFor(50 * kNsPerMs);
  cluster_->Crash(kThird);
  cluster_->RunFor(200 * kNsPerMs);
  EXPECT_EQ(StateAt(kOne), kOrphaned) << "it may still hear from a fellow";
  EXPECT_EQ(StateAt(kTwo), kOrphaned);
  cluster_->RunFor(kNsPerSecond);
  ExpectCommittedOnBoth();
}

// Island 3 has told island 2, which has not heard it yet, and is there again in another life. Island 1, an
// orphan only then, asks both. The later life knows nothing: that says nothing about what the earlier one has
// told island 2.
TEST_P(OrphansTest, LaterLifeOfAFellow_DoesNotSpeakForTheEarlierOne) {
  CommitOnIslandThree(300 * kNsPerMs, 5 * kNsPerMs);
  slow_ns_[{kThird, kTwo}] = 600 * kNsPerMs;
  KillCoordinatorAndItsWord();
  ASSERT_TRUE(StepUntil([this] { return StateAt(kTwo) == kOrphaned; }));
  cluster_->RunFor(5 * kNsPerMs);
  cluster_->Crash(kThird);
  ASSERT_TRUE(cluster_->Restart(kThird).ok());
  cluster_->RunFor(200 * kNsPerMs);
  ASSERT_EQ(StateAt(kOne), kPrepared);
  ASSERT_EQ(cluster_->island(kOne).workers()[0]->links().BootEpoch(kThird), 2u);
  cluster_->RunFor(200 * kNsPerMs);
  EXPECT_EQ(StateAt(kOne), kOrphaned) << "island 2 may still hear from the dead";
  ASSERT_EQ(StateAt(kTwo), kOrphaned);
  cluster_->RunFor(kNsPerSecond);
  ExpectCommittedOnBoth();
}

}  // namespace
}  // namespace islands::simulation
