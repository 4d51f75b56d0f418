// A participant votes early, with its answer, dies and comes back, while another still waits for its locks:
// what it has only read is not locked any more (Executor::AdoptPrepared), whatever its vote says.
//
//   T2 (of island 2) writes y there, and stops
//   T1 (of island 0) reads x and adds to z on island 1, reads y and adds to w on island 2; then island 0
//   stands still
//   island 1 votes, dies, comes back; T2 writes x there and commits; island 2 reads y for T1, and votes
//   island 0 goes on: both votes are there, and nothing has told it of a death, which comes behind them
//
// On sockets, and rings: they show a death in a round after the last words.
#include <gtest/gtest.h>

#include <coroutine>
#include <cstring>
#include <filesystem>

#include "instance/simulation/fault_injector.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using coordinator::Outcome;
using instance::Batch;
using instance::RowView;
using instance::TableId;
using partitioner::Uint64Key;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

constexpr uint64_t kRowsPerIsland = 8;
constexpr uint64_t kX = kRowsPerIsland, kZ = kX + 1;      // on island 1
constexpr uint64_t kY = 2 * kRowsPerIsland, kW = kY + 1;  // on island 2

// What both transactions are to do, and what became of them.
struct Script {
  bool early = false;
  bool breaks_promise = false;  // T1 begins at home, with what it says is its last batch for others
  absl::Status one_said;
  bool begins_one = false, begins_two = false;
  std::coroutine_handle<> two_waits;
  int64_t x = -1, y = -1;  // as T1 has read them
  std::optional<coordinator::TransactionId> one, two;
  std::optional<Outcome> one_ended, two_ended;
};

struct Stop {
  Script& script;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) { script.two_waits = self; }
  void await_resume() const noexcept {}
};

struct OfIsland final : instance::Request {
  uint32_t island = 0;
};

class Client final : public instance::Generator {
 public:
  Client(std::shared_ptr<Script> script, uint32_t island) : script_(std::move(script)), island_(island) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<OfIsland>(); }
  void Next(runtime::Random&, instance::Request& request) override {
    static_cast<OfIsland&>(request).island = island_;
  }
  void OnEnd(const coordinator::TransactionId& id, const instance::Request&, Outcome outcome) override {
    if (script_->one == id) script_->one_ended = outcome;
    if (script_->two == id) script_->two_ended = outcome;
  }

 private:
  const std::shared_ptr<Script> script_;
  const uint32_t island_;
};

int64_t ValueOf(RowView row) {
  int64_t value = 0;
  std::memcpy(&value, row.data(), sizeof(value));
  return value;
}

class Scripted final : public instance::Workload {
 public:
  Scripted(TableId table, std::shared_ptr<Script> script) : table_(table), script_(std::move(script)) {}
  const char* name() const override { return "scripted"; }
  std::vector<std::string> tables() const override { return {"rows"}; }

  absl::Status Load(instance::Loader& loader) const override {
    const int64_t row[2] = {0, 0};
    absl::Status status;
    for (uint64_t n = 0; n < 3 * kRowsPerIsland; ++n)
      status.Update(loader.Insert(table_, Uint64Key(n), std::as_bytes(std::span(row))));
    return status;
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Client>(script_, context.island);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const uint32_t island = static_cast<const OfIsland&>(request).island;
    const bool one = island == 0 && std::exchange(script_->begins_one, false);
    const bool two = island == 2 && std::exchange(script_->begins_two, false);
    if (!one && !two) co_return absl::FailedPreconditionError("it has nothing to do");
    runtime::Task<absl::Status> run = one ? RunOne(transaction) : RunTwo(transaction);
    co_return co_await run;
  }

 private:
  runtime::Task<absl::Status> RunOne(instance::Transaction& transaction) const {
    script_->one = transaction.id();
    Batch& batch = transaction.batch();
    if (script_->breaks_promise) {
      batch.Read(table_, Uint64Key(0));
      batch.LastElsewhere();
      runtime::Task<absl::Status> at_home = transaction.Execute(batch);
      absl::Status home = co_await at_home;
      if (!home.ok()) co_return home;
      batch.Clear();
    }
    batch.Read(table_, Uint64Key(kX));
    batch.Add(table_, Uint64Key(kZ), 0, 1);
    batch.Read(table_, Uint64Key(kY));
    batch.Add(table_, Uint64Key(kW), 0, 1);
    if (script_->early) batch.LastElsewhere();
    runtime::Task<absl::Status> all = transaction.Execute(batch);
    absl::Status status = co_await all;
    script_->one_said = status;
    if (!status.ok()) co_return status;
    script_->x = ValueOf(batch.row(0));
    script_->y = ValueOf(batch.row(2));
    co_return status;
  }

  runtime::Task<absl::Status> RunTwo(instance::Transaction& transaction) const {
    script_->two = transaction.id();
    Batch& batch = transaction.batch();
    batch.Add(table_, Uint64Key(kY), 0, 1);
    runtime::Task<absl::Status> here = transaction.Execute(batch);
    absl::Status status = co_await here;
    if (!status.ok()) co_return status;
    Stop stop{*script_};
    co_await stop;
    batch.Clear();
    batch.Add(table_, Uint64Key(kX), 0, 1);
    runtime::Task<absl::Status> there = transaction.Execute(batch);
    co_return co_await there;
  }

  const TableId table_;
  const std::shared_ptr<Script> script_;
};

struct Case {
  bool early;
  bool keeps;
};

class EarlyPrepare : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("islands-early-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  SimOptions OptionsFor(std::shared_ptr<Script> script) const {
    SimOptions options;
    options.keeps = GetParam().keeps;
    options.islands = options.sites = 3;
    options.sockets = folder_;
    control::v1::TableSpec& table = *options.config.add_tables();
    table.set_name("rows");
    table.add_key("uint64");
    table.set_range_end(3 * kRowsPerIsland);
    table.set_row_bytes(16);
    options.open = [script](const storage::Catalog& catalog) -> absl::StatusOr<instance::OpenedWorkload> {
      return std::make_shared<Scripted>(catalog.Find("rows")->id, script);
    };
    return options;
  }

  std::filesystem::path folder_;
};

TEST_P(EarlyPrepare, Voter_WhoseNextLifeHasBegunDoesNotCount) {
  const auto script = std::make_shared<Script>();
  script->early = GetParam().early;
  SimCluster cluster(OptionsFor(script));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(1).ok());
  cluster.RunFor(kNsPerMs);
  script->begins_two = true;
  ASSERT_TRUE(cluster.RunUntil([&] { return script->two_waits != nullptr; }, kNsPerSecond));

  script->begins_one = true;
  const auto state_of_one = [&](uint32_t island) -> std::optional<StateIndex> {
    for (const Machine& machine : Machines(cluster)) {
      if (script->one == machine.id && machine.where.island == island) return machine.state;
    }
    return std::nullopt;
  };
  ASSERT_TRUE(cluster.RunUntil([&] { return state_of_one(0).has_value(); }, kNsPerSecond));
  cluster.Stall(0, 0, 250 * kNsPerMs);
  cluster.RunFor(5 * kNsPerMs);
  using coordinator::Participant;
  EXPECT_EQ(state_of_one(1),
            IndexOf(GetParam().early ? Participant::State::kPrepared : Participant::State::kActive));
  EXPECT_EQ(state_of_one(2), IndexOf(Participant::State::kActive)) << "it waits for y";
  cluster.CrashWith(1, SimCluster::LastWords::kArrive);
  ASSERT_TRUE(cluster.Restart(1).ok());
  ASSERT_TRUE(cluster.StartRun(1).ok());
  cluster.RunFor(60 * kNsPerMs);
  std::exchange(script->two_waits, nullptr).resume();
  ASSERT_TRUE(cluster.RunUntil([&] { return script->two_ended.has_value(); }, 100 * kNsPerMs));
  EXPECT_EQ(script->two_ended, Outcome::kCommitted);

  ASSERT_TRUE(cluster.RunUntil([&] { return script->one_ended.has_value(); }, 3 * kNsPerSecond));
  EXPECT_EQ(script->one_ended, Outcome::kAborted) << "x is " << script->x << ", y is " << script->y;
  cluster.RequestStop();
  ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
}

TEST_P(EarlyPrepare, Promise_ThatIsBrokenFailsTheTransaction) {
  const auto script = std::make_shared<Script>();
  script->breaks_promise = script->begins_one = true;
  SimCluster cluster(OptionsFor(script));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(1).ok());
  ASSERT_TRUE(cluster.RunUntil([&] { return script->one_ended.has_value(); }, kNsPerSecond));
  EXPECT_EQ(script->one_ended, Outcome::kAborted);
  EXPECT_EQ(script->one_said.code(), absl::StatusCode::kFailedPrecondition) << script->one_said;
  cluster.RequestStop();
  ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
}

INSTANTIATE_TEST_SUITE_P(Cases, EarlyPrepare,
                         testing::Values(Case{.early = true, .keeps = true},
                                         Case{.early = true, .keeps = false},
                                         Case{.early = false, .keeps = true},
                                         Case{.early = false, .keeps = false}),
                         [](const testing::TestParamInfo<Case>& param) {
                           return std::string(param.param.early ? "Early" : "AtTheCommit") +
                                  (param.param.keeps ? "_Keeps" : "_None");
                         });

}  // namespace
}  // namespace islands::simulation
