#include "instance/worker/transaction_list.h"

#include <gmock/gmock.h>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using control::v1::TransactionWork;
using coordinator::CoordinatorEvent;
using coordinator::VoteKind;
using testing::ElementsAre;
using testing::IsEmpty;

// Adds 1 to row 1, with as many transactions at once as there are slots: the second has to wait for the first
// if somebody else holds the row.
class AddOne : public Workload, public Generator {
 public:
  const char* name() const override { return "add one"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext&) const override {
    return std::make_unique<AddOne>();
  }
  runtime::Task<absl::Status> Run(Transaction& transaction, const Request&) const override {
    Batch& batch = transaction.batch();
    batch.Add(0, partitioner::Uint64Key(1), 0, 1);
    runtime::Task<absl::Status> executed = transaction.Execute(batch);
    absl::Status status = co_await executed;
    co_return status;
  }
  std::unique_ptr<Request> MakeRequest() override { return std::make_unique<Request>(); }
  void Next(runtime::Random&, Request&) override {}
  void OnEnd(const coordinator::TransactionId&, const Request&, coordinator::Outcome) override {}
};

class TransactionListTest : public WorkerPartsTest {
 protected:
  control::v1::Transactions List(bool in_doubt = false, uint32_t most = 10) {
    control::v1::TransactionsRequest request;
    request.set_in_doubt(in_doubt);
    request.set_most(most);
    return ListTransactions({.options = options_,
                             .turns = turns_,
                             .clients = clients_,
                             .sessions = sessions_,
                             .coordinated = coordinated_,
                             .branches = branches_,
                             .peers = peers_,
                             .links = links_},
                            request);
  }
  TransactionWork Only() {
    const control::v1::Transactions listed = List();
    EXPECT_EQ(listed.work_size(), 1);
    return listed.work_size() == 1 ? listed.work(0) : TransactionWork();
  }

  // On behalf of island 1.
  void Execute(uint64_t sequence, uint64_t row) {
    Batch batch;
    batch.Add(0, Key(0, row), 0, 1);
    const RoutedOperation route{0, 0, 0};
    far_.outbox.SendExecute(0, TheirId(sequence),
                            {.participant_epoch = kOurEpoch, .number = 1, .deadline_us = 1'000'000}, {},
                            batch, {&route, 1});
    Pump();
  }
  void Prepare(uint64_t sequence, std::span<const Fellow> fellows = {}) {
    far_.outbox.SendPrepare({0, kOurEpoch}, TheirId(sequence), /*early=*/false, fellows);
    Pump();
  }

  Clients clients_{options_, shared_, turns_, lock_waits_, engine_, peers_, outbox_, coordinated_, counters_};
  Sessions sessions_{options_, shared_,      turns_, lock_waits_, engine_,
                     peers_,   coordinated_, links_, counters_};
};

TEST_F(TransactionListTest, Branch_FromItsFirstStepToTheDecision) {
  EXPECT_EQ(List().total(), 0u);
  PutRow(1);
  Execute(7, 1);
  Advance(200 * runtime::kNsPerMs);
  TransactionWork work = Only();
  EXPECT_EQ(work.id(), "1.0.5.7");
  EXPECT_EQ(work.coordinator(), 1u);
  EXPECT_EQ(work.state(), control::v1::RUNNING);
  EXPECT_EQ(work.wait(), control::v1::FOR_NEXT_STEP);
  EXPECT_THAT(work.awaited(), ElementsAre(1));
  EXPECT_THAT(work.out_of_reach(), IsEmpty());
  EXPECT_THAT(work.participants(), IsEmpty());  // PREPARE names them
  EXPECT_EQ(work.age_us(), 200'000);
  EXPECT_EQ(work.locks(), 2u);  // its table and site, and the row
  EXPECT_EQ(List(/*in_doubt=*/true).total(), 0u);

  const Fellow fellow{2, 8};
  Prepare(7, {&fellow, 1});
  Advance(300 * runtime::kNsPerMs);
  work = Only();
  EXPECT_EQ(work.state(), control::v1::PREPARED);
  EXPECT_EQ(work.wait(), control::v1::FOR_DECISION);
  EXPECT_THAT(work.awaited(), ElementsAre(1));
  EXPECT_THAT(work.participants(), ElementsAre(0, 2));
  EXPECT_EQ(work.age_us(), 500'000);
  EXPECT_EQ(work.in_doubt_us(), 300'000);
  EXPECT_FALSE(work.restored());
  EXPECT_EQ(List(/*in_doubt=*/true).total(), 1u);
  EXPECT_EQ(counters_.in_doubt_since_ns.Get(), static_cast<uint64_t>(clock_.NowNs() - 300'000'000));

  far_.outbox.SendDecision({0, kOurEpoch}, TheirId(7), true);
  Pump();
  EXPECT_EQ(List().total(), 0u);
  EXPECT_EQ(counters_.in_doubt_since_ns.Get(), 0u);
}

TEST_F(TransactionListTest, Branch_ThatRecoveryHasRestored) {
  shared_.keeps = true;
  PutRow(1);
  recovery::Unsettled::Prepared prepared{.fellows = {{2, 8}}};
  const int64_t before = 41;
  prepared.undo.RecordWrite(0, 0, Key(0, 1), 0, std::as_bytes(std::span(&before, 1)));
  ASSERT_TRUE(branches_.RestorePrepared(TheirId(7), prepared).ok());
  Advance(4 * runtime::kNsPerSecond);
  const TransactionWork work = Only();
  EXPECT_EQ(work.state(), control::v1::PREPARED);
  EXPECT_TRUE(work.restored());
  EXPECT_EQ(work.age_us(), 4'000'000);
  EXPECT_EQ(work.in_doubt_us(), 4'000'000);
  EXPECT_GT(work.locks(), 0u);
  branches_.OnDecision(TheirId(7), kOurEpoch - 1, false);
  // What it was restored with is gone with it: another's entry uses the same memory.
  Pump();
  Execute(8, 1);
  EXPECT_FALSE(Only().restored());
}

TEST_F(TransactionListTest, OldestInDoubt_IsFoundAmongSeveral) {
  PutRow(1);
  PutRow(2);
  Execute(7, 1);
  Prepare(7);
  const auto first_ns = static_cast<uint64_t>(clock_.NowNs());
  Advance(runtime::kNsPerMs);
  Execute(8, 2);
  Prepare(8);
  const auto second_ns = static_cast<uint64_t>(clock_.NowNs());
  branches_.Sweep();
  EXPECT_EQ(counters_.in_doubt_since_ns.Get(), first_ns);
  far_.outbox.SendDecision({0, kOurEpoch}, TheirId(7), true);
  Pump();
  branches_.Sweep();
  EXPECT_EQ(counters_.in_doubt_since_ns.Get(), second_ns);
}

TEST_F(TransactionListTest, Coordination_NamesWhomItWaitsFor) {
  CoordinatedTransaction transaction;
  transaction.own_id = coordinated_.NextId();
  transaction.deadline_ns = clock_.NowNs() + options_.transaction_timeout_ns;
  Batch batch;
  batch.Read(0, Key(1, 5));
  batch.ResetResults();
  transaction.plan.Clear();
  transaction.plan.Add(1, 0, {0, 1, 1});
  transaction.executing = &batch;
  coordinated_.Ship(transaction, batch);
  TransactionWork work = Only();
  EXPECT_EQ(work.id(), "0.0.3.1");
  EXPECT_EQ(work.coordinator(), 0u);
  EXPECT_EQ(work.state(), control::v1::RUNNING);
  EXPECT_EQ(work.wait(), control::v1::FOR_REPLIES);
  EXPECT_THAT(work.awaited(), ElementsAre(1));
  EXPECT_THAT(work.participants(), ElementsAre(1));

  const RoutedOperation route{0, 1, 1};
  Failure failure;
  Batch results;
  results.Read(0, Key(1, 5));
  results.ResetResults();
  results.result(0).code = absl::StatusCode::kNotFound;
  far_.outbox.SendResults(transaction.own_id, 1, /*wrote=*/true, results, {&route, 1}, &failure);
  Pump();
  transaction.executing = nullptr;
  coordinated_.Step(*transaction.entry, {.kind = CoordinatorEvent::kCommitRequested, .local_wrote = true});
  work = Only();
  EXPECT_EQ(work.state(), control::v1::VOTING);
  EXPECT_EQ(work.wait(), control::v1::FOR_VOTES);
  EXPECT_THAT(work.awaited(), ElementsAre(1));

  far_.outbox.SendVote(transaction.own_id, VoteKind::kYes);
  Pump();
  work = Only();
  EXPECT_EQ(work.state(), control::v1::COMMITTING);
  EXPECT_EQ(work.wait(), control::v1::FOR_ACKNOWLEDGEMENTS);
  EXPECT_THAT(work.awaited(), ElementsAre(1));
  EXPECT_EQ(List(/*in_doubt=*/true).total(), 0u);

  far_.outbox.SendAcknowledge(transaction.own_id);
  Pump();
  EXPECT_EQ(List().total(), 0u);
}

TEST_F(TransactionListTest, Decider_AskedByACoordinatorAndDecidedHere) {
  coordinated_.Restore({0, 0, kOurEpoch - 1, 9}, {.participants = {{1, kTheirEpoch}}});
  TransactionWork work = Only();
  EXPECT_EQ(work.id(), "0.0.2.9");
  EXPECT_EQ(work.state(), control::v1::COMMITTING);
  EXPECT_TRUE(work.restored());
  far_.outbox.SendAcknowledge({0, 0, kOurEpoch - 1, 9});
  coordinated_.OnAcknowledge(1, {0, 0, kOurEpoch - 1, 9}, false);
  shared_.keeps = true;
  branches_.RestoreDecided(TheirId(7), {});
  work = Only();
  EXPECT_EQ(work.state(), control::v1::DECIDED);
  EXPECT_EQ(work.wait(), control::v1::FOR_CONFIRMATION);
  EXPECT_THAT(work.awaited(), ElementsAre(1));
  EXPECT_TRUE(work.restored());
}

// Of clients' own transactions those are listed that have begun; who waits for a row says so.
TEST_F(TransactionListTest, Local_WaitsForALock) {
  PutRow(1);
  Execute(7, 1);
  AddOne workload;
  clients_.BeginRun(workload, std::make_unique<AddOne>(), 2, 1);
  Pump();
  Advance(50 * runtime::kNsPerMs);
  const control::v1::Transactions listed = List();
  ASSERT_EQ(listed.work_size(), 3);
  EXPECT_EQ(listed.total(), 3u);
  int waiting = 0;
  for (const TransactionWork& work : listed.work()) {
    if (work.coordinator() != 0) continue;
    EXPECT_EQ(work.state(), control::v1::RUNNING);
    EXPECT_EQ(work.age_us(), 50'000);
    waiting += work.wait() == control::v1::FOR_LOCK && work.wait_us() == 50'000;
  }
  EXPECT_EQ(waiting, 2);
  clients_.EndRun();
  far_.outbox.SendDecision({0, kOurEpoch}, TheirId(7), false);
  for (int i = 0; i < 100 && clients_.running(); ++i) {
    Pump();
    clock_.AdvanceNs(runtime::kNsPerMs);
  }
  EXPECT_EQ(List().total(), 0u);
}

TEST_F(TransactionListTest, Most_TheOldestAreListedAndAllAreCounted) {
  for (uint64_t row = 1; row <= 5; ++row) {
    PutRow(row);
    Execute(10 - row, row);
    Advance(runtime::kNsPerMs);
  }
  const control::v1::Transactions listed = List(/*in_doubt=*/false, /*most=*/2);
  EXPECT_EQ(listed.total(), 5u);
  ASSERT_EQ(listed.work_size(), 2);
  EXPECT_EQ(listed.work(0).id(), "1.0.5.9");
  EXPECT_EQ(listed.work(1).id(), "1.0.5.8");
  control::v1::Transactions all = List();
  KeepOldest(3, &all);
  EXPECT_EQ(all.total(), 5u);
  ASSERT_EQ(all.work_size(), 3);
  EXPECT_EQ(all.work(0).id(), "1.0.5.9");
  EXPECT_EQ(all.work(2).id(), "1.0.5.7");
}

// Its link to us is down as well, or it would be told of the end.
TEST_F(TransactionListTest, OutOfReach_WhoseLinkIsDown) {
  PutRow(1);
  Execute(7, 1);
  Prepare(7);
  hub_.Partition(0, 1);
  Pump();
  const TransactionWork work = Only();
  EXPECT_EQ(work.state(), control::v1::PREPARED);
  EXPECT_THAT(work.out_of_reach(), ElementsAre(1));
}

}  // namespace
}  // namespace islands::instance
