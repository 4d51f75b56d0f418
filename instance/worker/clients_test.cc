#include "instance/worker/clients.h"

#include <gmock/gmock.h>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using coordinator::Outcome;
using testing::ElementsAre;

// Each transaction adds 1 to row 1, and then does what `script` says of it.
class Scripted : public Workload, public Generator {
 public:
  const char* name() const override { return "scripted"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext&) const override {
    return std::make_unique<Scripted>(script);
  }
  runtime::Task<absl::Status> Run(Transaction& transaction, const Request&) const override {
    const uint32_t run = runs_++;
    Batch& batch = transaction.batch();
    batch.Add(0, partitioner::Uint64Key(1), 0, 1);
    runtime::Task<absl::Status> executed = transaction.Execute(batch);
    absl::Status status = co_await executed;
    if (status.ok() && run < script.size() && script[run] == AbortReason::kContradiction)
      co_return absl::DataLossError("row 1 is not what it was");
    if (status.ok() && run < script.size() && script[run]) {
      static_cast<RunningTransaction&>(transaction)
          .Fail(*script[run], absl::AbortedError("as the script says"));
      status = absl::AbortedError("as the script says");
    }
    co_return status;
  }

  explicit Scripted(std::vector<std::optional<AbortReason>> script = {}) : script(std::move(script)) {}
  std::unique_ptr<Request> MakeRequest() override { return std::make_unique<Request>(); }
  void Next(runtime::Random&, Request& request) override { ++generated, request.audit_delta = 1; }
  void OnEnd(const coordinator::TransactionId& id, const Request&, Outcome outcome) override {
    ended.push_back(fmt::format("{} {}", id.sequence, OutcomeName(outcome)));
  }

  std::vector<std::optional<AbortReason>> script;
  int generated = 0;
  std::vector<std::string> ended;
  uint32_t runs() const { return runs_; }

 private:
  mutable uint32_t runs_ = 0;
};

class ClientsTest : public WorkerPartsTest {
 protected:
  void Begin(uint32_t mpl) {
    PutRow(1);
    auto generator = std::make_unique<Scripted>();
    generator_ = generator.get();
    clients_.BeginRun(workload_, std::move(generator), mpl, 1);
  }
  void End() {
    clients_.EndRun();
    for (int i = 0; i < 100 && clients_.running(); ++i) {
      Pump();
      clock_.AdvanceNs(runtime::kNsPerMs);
    }
    EXPECT_FALSE(clients_.running());
    EXPECT_FALSE(clients_.active());
  }
  uint64_t Committed() const { return counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].committed.Get(); }

  Scripted workload_;
  Scripted* generator_ = nullptr;
  Clients clients_{options_, shared_, turns_, lock_waits_, engine_, peers_, coordinated_, counters_};
};

TEST_F(ClientsTest, Run_CommitsUntilItIsEnded) {
  Begin(3);
  EXPECT_TRUE(clients_.running());
  EXPECT_EQ(counters_.in_flight.Get(), 3u);
  Pump();
  EXPECT_GT(Committed(), 3u);
  EXPECT_EQ(clients_.OldestBegun(), std::numeric_limits<uint64_t>::max());  // all have their answer
  End();
  EXPECT_EQ(counters_.in_flight.Get(), 0u);
  EXPECT_EQ(Counter(1), static_cast<int64_t>(Committed()));
  EXPECT_EQ(counters_.audit_committed.Get(), Committed());
  EXPECT_EQ(workload_.runs(), Committed());
  EXPECT_EQ(generator_->ended.size(), Committed());
}

TEST_F(ClientsTest, Victim_RunsTheSameRequestAgainUnderAnotherId) {
  workload_.script = {AbortReason::kDeadlock, AbortReason::kLockTimeout};
  Begin(1);
  for (int i = 0; i < 30; ++i) {
    Pump();
    clock_.AdvanceNs(runtime::kNsPerMs);
    if (generator_->ended.size() >= 3) break;
  }
  ASSERT_GE(generator_->ended.size(), 3u);
  EXPECT_THAT(std::vector(generator_->ended.begin(), generator_->ended.begin() + 3),
              ElementsAre("1 aborted", "2 aborted", "3 committed"));
  EXPECT_EQ(workload_.runs() - generator_->generated, 2u);
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kDeadlock)].Get(), 1u);
  End();
  EXPECT_EQ(Counter(1), static_cast<int64_t>(Committed()));
}

TEST_F(ClientsTest, Refused_IsNotRunAgainAndPausesTheSlotAfterFour) {
  workload_.script.assign(6, AbortReason::kPeerUnresponsive);
  Begin(1);
  for (int i = 0; i < 10; ++i) Pump();  // the clock stands still
  EXPECT_EQ(workload_.runs(), 4u);
  EXPECT_EQ(generator_->generated, 4);
  clock_.AdvanceNs(runtime::kNsPerMs);
  Pump();
  EXPECT_GT(workload_.runs(), 6u);
  End();
}

TEST_F(ClientsTest, DataLoss_IsCountedApartAndNotRunAgain) {
  workload_.script = {AbortReason::kContradiction};
  Begin(1);
  for (int i = 0; i < 5; ++i) Pump();
  End();
  EXPECT_EQ(generator_->ended.at(0), "1 aborted");
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kContradiction)].Get(), 1u);
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kProcedure)].Get(), 0u);
  EXPECT_EQ(workload_.runs(), static_cast<uint32_t>(generator_->generated));
  EXPECT_EQ(Counter(1), static_cast<int64_t>(Committed()));
}

TEST_F(ClientsTest, Sweep_EndsWaitsPastTheDeadline) {
  PutRow(1);
  Branch holder;
  holder.locks.transaction = OurId(1'000);
  holder.locks.wake_token = lock_waits_.NextToken();
  Batch batch;
  batch.Add(0, Key(0, 1), 0, 1);
  ASSERT_EQ(Run(holder, batch), Progress::kDone);
  clients_.BeginRun(workload_, std::make_unique<Scripted>(), 1, 1);
  Pump();
  EXPECT_EQ(clients_.OldestBegun(), 1u);
  ASSERT_NE(clients_.FindExecuting(OurId(1)), nullptr);
  EXPECT_EQ(clients_.FindExecuting({0, 0, kOurEpoch - 1, 1}), nullptr);
  Advance(options_.transaction_timeout_ns);
  clients_.Sweep();
  End();
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kDeadline)].Get(), 1u);
  engine_.Rollback(holder);
}

}  // namespace
}  // namespace islands::instance
