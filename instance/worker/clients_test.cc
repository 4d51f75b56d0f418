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
  void Next(runtime::Random&, Request& request) override {
    ++generated;
    request.audit_delta = 1;
    request.pause_ns = pause_ns;
  }
  void OnEnd(const coordinator::TransactionId& id, const Request&, Outcome outcome) override {
    ended.push_back(fmt::format("{} {}", id.sequence, OutcomeName(outcome)));
  }

  std::optional<uint32_t> DrawSite(runtime::Random&) override {
    const uint32_t site = sites.empty() ? 0 : sites[drawn % sites.size()];
    ++drawn;
    return site;
  }

  std::vector<std::optional<AbortReason>> script;
  std::vector<uint32_t> sites;  // where transactions of the deployment's clients begin, again and again
  size_t drawn = 0;
  int generated = 0;
  int64_t pause_ns = 0;
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
  void BeginWith(uint32_t mpl, const ArrivalPlan& arrivals, std::vector<uint32_t> sites = {}) {
    PutRow(1);
    auto generator = std::make_unique<Scripted>();
    generator->sites = std::move(sites);
    generator_ = generator.get();
    clients_.BeginRun(workload_, std::move(generator), mpl, 1, arrivals);
  }
  // What a worker does in a round, beside Pump.
  void Round() {
    clients_.Arrive();
    Pump();
    clients_.Send();
    Pump();
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
  Clients clients_{options_, shared_, turns_, lock_waits_, engine_, peers_, outbox_, coordinated_, counters_};
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

TEST_F(ClientsTest, Anywhere_GoesWhereTheNextTransactionBegins) {
  // Two begin here; what they do next is for island 1.
  BeginWith(2, {.run_id = 7, .anywhere = true}, {0, 0, 1, 1});
  Round();
  EXPECT_EQ(Committed(), 2u);
  EXPECT_EQ(FarHeard(), std::vector<std::string>({fmt::format("clients of run 7: {0} {0}", clock_.NowNs())}));
  EXPECT_EQ(counters_.clients_moved.Get(), 2u);
  EXPECT_EQ(counters_.client_messages.Get(), 1u);
  EXPECT_TRUE(clients_.running());
  EXPECT_TRUE(clients_.active());
  EXPECT_FALSE(clients_.busy());  // both slots rest
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Committed(), 2u);

  // One comes back; its latency counts from when it set out.
  const int64_t due[] = {clock_.NowNs()};
  clock_.AdvanceNs(5 * runtime::kNsPerMs);
  EXPECT_TRUE(far_.outbox.SendClients(0, 7, due));
  Pump();
  ASSERT_EQ(run_.Take().size(), 1u);  // the worker's inbox has it for its clients
  clients_.OnClients(7, due);
  EXPECT_EQ(clients_.NextDeadlineNs(), turns_.now_ns());  // somebody waits, and a slot is free
  Round();
  EXPECT_EQ(Committed(), 2u + 3u);  // its next two begin here as well
  const LatencyHistogram& latency = counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].latency;
  EXPECT_GE(latency.sum_ns(), 5 * runtime::kNsPerMs);
  End();
}

TEST_F(ClientsTest, Anywhere_WhoeverComesBeforeTheRunIsKeptAndWhoeverIsLateIsNot) {
  const int64_t due[] = {1, 2, 3};
  clients_.OnClients(6, due);
  clients_.OnClients(7, due);
  BeginWith(4, {.run_id = 7, .anywhere = true}, {1});
  Round();
  EXPECT_EQ(Committed(), 3u);
  EXPECT_EQ(counters_.clients_moved.Get(), 4u + 3u);
  End();
  clients_.OnClients(7, due);
  BeginWith(1, {.run_id = 8, .anywhere = true}, {1});
  clients_.OnClients(6, due);
  Round();
  EXPECT_EQ(Committed(), 3u);
  End();
}

TEST_F(ClientsTest, Anywhere_ChoosesAgainWhileAnIslandIsOutOfReach) {
  BeginWith(1, {.run_id = 7, .anywhere = true}, {2, 0});  // there is no island 2
  Round();
  EXPECT_EQ(Committed(), 0u);
  EXPECT_EQ(counters_.clients_moved.Get(), 0u);
  clients_.Sweep();
  Round();
  EXPECT_EQ(Committed(), 1u);  // and it is for island 2 again
  Round();
  EXPECT_EQ(Committed(), 1u);
  End();
}

TEST_F(ClientsTest, Rate_IsDueByTheClockWhateverIsDone) {
  BeginWith(2, {.run_id = 7, .rate_per_s = 1000, .even = true});
  Round();
  EXPECT_EQ(Committed(), 0u);
  EXPECT_EQ(clients_.NextDeadlineNs(), turns_.now_ns() + runtime::kNsPerMs);
  clock_.AdvanceNs(10 * runtime::kNsPerMs);
  Pump();
  Round();
  EXPECT_EQ(Committed(), 10u);
  // 9 + 8 + ... + 0 ms after they were due.
  const LatencyHistogram& latency = counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].latency;
  EXPECT_EQ(latency.sum_ns(), 45 * runtime::kNsPerMs);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Committed(), 10u);
  End();
}

TEST_F(ClientsTest, Rate_ThatIsTooHighIsTurnedAwayAndLeavesTurnsToOthers) {
  BeginWith(1, {.run_id = 7, .rate_per_s = 1e9});
  for (int i = 0; i < 1'500; ++i) {
    clock_.AdvanceNs(10 * runtime::kNsPerMs);
    turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
    clients_.Arrive();
    ASSERT_LE(counters_.clients_waiting.Get(), Arrivals::kMostWaiting);
  }
  EXPECT_EQ(counters_.clients_waiting.Get(), Arrivals::kMostWaiting);
  EXPECT_GT(counters_.arrivals_refused.Get(), 1'000'000'000u);
  EXPECT_LT(counters_.arrivals_refused.Get(), 15'000'000'000u);
  End();
}

TEST_F(ClientsTest, Rate_IsAPoissonProcessUnlessItIsEven) {
  BeginWith(1, {.run_id = 7, .rate_per_s = 10'000});
  std::vector<uint64_t> in_each;
  for (int i = 0; i < 400; ++i) {
    const uint64_t before = Committed();
    clock_.AdvanceNs(runtime::kNsPerMs);
    Pump();
    Round();
    in_each.push_back(Committed() - before);
  }
  double mean = 0, variance = 0;
  for (const uint64_t n : in_each) mean += static_cast<double>(n) / 400;
  for (const uint64_t n : in_each)
    variance += (static_cast<double>(n) - mean) * (static_cast<double>(n) - mean) / 399;
  EXPECT_NEAR(mean, 10, 0.8);      // five standard deviations
  EXPECT_NEAR(variance, 10, 3.6);  // likewise
  End();
}

TEST_F(ClientsTest, Pause_IsTheClientsAndNoLatency) {
  PutRow(1);
  auto generator = std::make_unique<Scripted>();
  generator->pause_ns = runtime::kNsPerSecond;
  clients_.BeginRun(workload_, std::move(generator), 2, 1);
  Pump();
  EXPECT_FALSE(clients_.busy());
  EXPECT_LE(turns_.NextDeadlineNs(), turns_.now_ns() + runtime::kNsPerSecond);
  for (uint64_t second = 1; second <= 3; ++second) {
    for (int ms = 0; ms < 999; ++ms) {
      clock_.AdvanceNs(runtime::kNsPerMs);
      Pump();
    }
    EXPECT_EQ(Committed(), 2 * (second - 1));
    for (int ms = 0; ms < 25; ++ms) {  // both draw the next, and think again
      clock_.AdvanceNs(runtime::kNsPerMs / 25);
      Pump();
    }
    EXPECT_EQ(Committed(), 2 * second);
  }
  const LatencyHistogram& latency = counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].latency;
  EXPECT_LT(latency.sum_ns(), 6 * 25 * runtime::kNsPerMs);
  const uint64_t before = Committed();
  End();  // while both think, and long before they have done
  EXPECT_EQ(Committed(), before);
}

TEST_F(ClientsTest, Pause_IsNobodysWhereTransactionsArrive) {
  PutRow(1);
  auto generator = std::make_unique<Scripted>();
  generator->pause_ns = runtime::kNsPerSecond;
  clients_.BeginRun(workload_, std::move(generator), 2, 1, {.run_id = 7, .rate_per_s = 1000, .even = true});
  clock_.AdvanceNs(10 * runtime::kNsPerMs);
  Pump();
  Round();
  EXPECT_EQ(Committed(), 10u);
  End();
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
