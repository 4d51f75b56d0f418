// Answers that wait for EPOCH: the queue, and clients whose worker has a log.
#include "instance/worker/answers.h"

#include <gmock/gmock.h>

#include "instance/worker/clients.h"
#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using coordinator::Outcome;
using coordinator::VoteKind;
using testing::ElementsAre;
using testing::IsEmpty;

WaitingAnswer Waiting(uint64_t sequence, uint64_t epoch, int64_t deadline_ns = 0) {
  WaitingAnswer waiting;
  waiting.answer.id.sequence = sequence;
  waiting.epoch = epoch;
  waiting.deadline_ns = deadline_ns;
  return waiting;
}

TEST(WaitingAnswers, Order_IsThatOfEpochsThenOfArrival) {
  WaitingAnswers answers;
  for (const auto& [sequence, epoch] : {std::pair{1, 5}, {2, 7}, {3, 5}, {4, 900}, {5, 6}, {6, 7}}) {
    answers.Add(Waiting(sequence, epoch));
    answers.CheckInvariants();
  }
  EXPECT_FALSE(answers.Ready(4));
  std::vector<uint64_t> taken;
  while (answers.Ready(7)) taken.push_back(answers.TakeFirst().answer.id.sequence);
  EXPECT_THAT(taken, ElementsAre(1, 3, 5, 2, 6));
  EXPECT_EQ(answers.size(), 1u);  // one that may never come is in nobody's way
}

TEST(WaitingAnswers, Overdue_AreTakenOutOfTurn) {
  WaitingAnswers answers;
  answers.Add(Waiting(1, 5, 30));
  answers.Add(Waiting(2, 6, 10));
  answers.Add(Waiting(3, 7, 20));
  std::vector<uint64_t> taken;
  for (const WaitingAnswer& answer : answers.TakeOverdue(20)) taken.push_back(answer.answer.id.sequence);
  EXPECT_THAT(taken, ElementsAre(2, 3));
  EXPECT_EQ(answers.TakeFirst().answer.id.sequence, 1u);
  EXPECT_TRUE(answers.empty());
}

// Adds 1 to its row, reads it, or inserts it where it is and gives up.
class Deeds : public Workload, public Generator {
 public:
  enum Deed : uint8_t { kAdd, kRead, kGiveUp };
  struct Told {
    uint64_t sequence;
    Outcome outcome;
    int number;
  };
  struct Asked : Request {
    int number = 0;
    Deed deed = kAdd;
  };

  explicit Deeds(std::vector<Told>* told = nullptr) : told_(told) {}
  const char* name() const override { return "deeds"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext&) const override {
    return std::make_unique<Deeds>();
  }
  runtime::Task<absl::Status> Run(Transaction& transaction, const Request& request) const override {
    Batch& batch = transaction.batch();
    const Deed deed = static_cast<const Asked&>(request).deed;
    const partitioner::Uint64Key key(1);
    const std::byte row[16] = {};
    if (deed == kAdd) batch.Add(0, key, 0, 1);
    if (deed == kRead) batch.Read(0, key);
    if (deed == kGiveUp) batch.Insert(0, key, row);
    runtime::Task<absl::Status> executed = transaction.Execute(batch);
    absl::Status status = co_await executed;
    if (status.ok() && deed == kGiveUp) status = absl::Status(batch.code(0), "it is there");
    co_return status;
  }
  std::unique_ptr<Request> MakeRequest() override { return std::make_unique<Asked>(); }
  void Next(runtime::Random&, Request& request) override {
    auto& asked = static_cast<Asked&>(request);
    asked.number = ++generated_;
    asked.deed = deed;
    asked.audit_delta = deed == kAdd ? 1 : 0;
  }
  void OnEnd(const coordinator::TransactionId& id, const Request& request, Outcome outcome) override {
    told_->push_back({id.sequence, outcome, static_cast<const Asked&>(request).number});
  }

  Deed deed = kAdd;

 private:
  std::vector<Told>* told_;
  int generated_ = 0;
};

struct PartsLog {
  log::Board board{std::vector<uint32_t>{1, 1, 1}};
  std::shared_ptr<log::Ring> ring = log::Ring::InMemory({kOurEpoch, 0, 0}, 1 << 22);
  log::Journal journal{board, *ring, log::Lsn()};
};

class SyncTest : public PartsLog, public WorkerPartsTest {
 protected:
  SyncTest() : WorkerPartsTest(false, &journal) {
    shared_.board = &board;
    shared_.answers_wait = true;
    engine_.BeginStep();
  }
  ~SyncTest() override { engine_.EndStep(); }

  void Begin(uint32_t mpl, Deeds::Deed deed = Deeds::kAdd) {
    auto generator = std::make_unique<Deeds>(&told_);
    generator_ = generator.get();
    generator_->deed = deed;
    clients_.BeginRun(workload_, std::move(generator), mpl, 1);
  }
  // A round of the worker.
  void Round() {
    clients_.GiveDurable();
    Pump();
    engine_.EndStep();
    engine_.BeginStep();
  }
  // The logger's: all that was appended is durable.
  void MakeDurable() {
    board.RaiseEpoch(board.epoch() + 1);
    board.SetDurable(board.epoch() - 1);
  }
  void End() {
    clients_.EndRun();
    for (int i = 0; i < 100 && clients_.running(); ++i) {
      Round();
      MakeDurable();
      clock_.AdvanceNs(runtime::kNsPerMs);
    }
    EXPECT_FALSE(clients_.running());
  }
  uint64_t Committed() const { return counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].committed.Get(); }
  uint64_t Unknown() const { return counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].unknown.Get(); }

  Deeds workload_;
  Deeds* generator_ = nullptr;
  std::vector<Deeds::Told> told_;
  Clients clients_{options_, shared_, turns_, lock_waits_, engine_, peers_, outbox_, coordinated_, counters_};
};

TEST_F(SyncTest, Commit_IsToldWhenItIsDurable) {
  PutRow(1);
  Begin(2);
  Round();
  EXPECT_GT(Counter(1), 10);  // slots go on meanwhile
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(Committed(), 0u);
  EXPECT_TRUE(clients_.waits());
  const auto done = static_cast<uint64_t>(Counter(1));
  MakeDurable();
  clock_.AdvanceNs(runtime::kNsPerMs);
  clients_.GiveDurable();
  EXPECT_EQ(Committed(), done);
  ASSERT_EQ(told_.size(), done);
  for (size_t i = 0; i < told_.size(); ++i) {
    EXPECT_EQ(told_[i].outcome, Outcome::kCommitted);
    EXPECT_EQ(told_[i].number, static_cast<int>(i) + 1);  // each with its own request
  }
  // They have waited for a millisecond.
  EXPECT_GE(counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].latency.sum_ns(), done * runtime::kNsPerMs);
  End();
  EXPECT_EQ(Counter(1), static_cast<int64_t>(Committed()));
  EXPECT_EQ(counters_.audit_committed.Get(), Committed());
}

TEST_F(SyncTest, Run_EndsWithItsLastAnswer) {
  PutRow(1);
  Begin(1);
  Round();
  clients_.EndRun();
  Round();
  EXPECT_EQ(counters_.in_flight.Get(), 0u);
  EXPECT_TRUE(clients_.running());
  EXPECT_TRUE(clients_.active());
  MakeDurable();
  Round();
  EXPECT_FALSE(clients_.running());
  EXPECT_EQ(Counter(1), static_cast<int64_t>(Committed()));
}

TEST_F(SyncTest, Reader_WaitsForWhatItHasSeen) {
  PutRow(1);
  Begin(1, Deeds::kRead);
  Round();
  EXPECT_THAT(told_, IsEmpty());  // the row is not durable yet
  MakeDurable();
  Round();
  EXPECT_GT(told_.size(), 1u);  // and now at once
  EXPECT_FALSE(clients_.waits());
  End();
}

TEST_F(SyncTest, ProcedureThatGivesUp_WaitsForWhatItHasSeen) {
  PutRow(1);
  Begin(1, Deeds::kGiveUp);
  Round();
  EXPECT_THAT(told_, IsEmpty());
  MakeDurable();
  Round();
  ASSERT_FALSE(told_.empty());
  EXPECT_EQ(told_[0].outcome, Outcome::kAborted);
  End();
}

// What nobody has changed since the log was begun: nothing may wait for the epoch of now, in which nobody
// appends.
TEST_F(SyncTest, Reader_OfWhatIsOldWaitsForNothing) {
  MakeDurable();
  MakeDurable();
  Begin(1, Deeds::kRead);
  Round();
  EXPECT_FALSE(told_.empty());
  End();
}

TEST_F(SyncTest, StuckDisk_StopsTheWorkAndAnswersUnknown) {
  PutRow(1);
  Begin(2);
  for (int i = 0; i < 400; ++i) Round(), clock_.AdvanceNs(runtime::kNsPerMs);
  const auto most = static_cast<int64_t>(options_.most_answers_waiting);
  EXPECT_GE(Counter(1), most);
  EXPECT_LE(Counter(1), most + 2);  // two slots
  EXPECT_THAT(told_, IsEmpty());
  Advance(options_.transaction_timeout_ns);
  clients_.Sweep();  // nobody waits for longer than that
  EXPECT_EQ(Unknown(), static_cast<uint64_t>(Counter(1)));
  EXPECT_EQ(Committed(), 0u);
  clients_.EndRun();
  Round();
  clock_.AdvanceNs(runtime::kNsPerMs);
  Round();
  clients_.GiveUp();
  EXPECT_EQ(Committed(), 0u);
  EXPECT_EQ(told_.size(), static_cast<size_t>(Counter(1)));
}

TEST_F(SyncTest, Replies_SayWhatTheyDependOn) {
  PutRow(1);
  const uint64_t epoch = engine_.commit_epoch();
  EXPECT_EQ(epoch, board.epoch());
  Batch batch;
  Failure failure;
  outbox_.SendResults(TheirId(9), 2, true, batch, {}, &failure);
  outbox_.SendOnePhaseReply(TheirId(9), Outcome::kCommitted);
  outbox_.SendDecidersReply(TheirId(9), Outcome::kCommitted);
  FarHeard();
  EXPECT_THAT(far_.heard.epochs, ElementsAre(epoch, epoch, epoch));
  shared_.answers_wait = false;  // `lazy`
  outbox_.SendOnePhaseReply(TheirId(9), Outcome::kCommitted);
  FarHeard();
  EXPECT_EQ(far_.heard.epochs.back(), 0u);
}

// `votes: forced`.
TEST_F(SyncTest, HeldMessages_WaitForTheirRecord) {
  shared_.answers_wait = false;
  shared_.votes_wait = true;
  const Id id = TheirId(9);
  const Fellow far{1, kTheirEpoch};
  MakeDurable();
  outbox_.SendVote(id, VoteKind::kYes);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 9: yes"));  // its record is old
  PutRow(1);
  engine_.EndStep(), engine_.BeginStep();
  outbox_.SendVote(id, VoteKind::kYes);
  outbox_.SendAcknowledge(id);
  outbox_.SendOnePhaseReply(id, Outcome::kCommitted);
  outbox_.SendDecidersReply(id, Outcome::kCommitted);
  outbox_.SendDecision(far, OurId(3), true);
  outbox_.SendInquiryReply(1, OurId(3), Outcome::kCommitted);
  EXPECT_TRUE(outbox_.holds());
  EXPECT_EQ(outbox_.SendHeld(), 0u);
  // What speaks of no record goes on.
  outbox_.SendVote(id, VoteKind::kRead);
  outbox_.SendVote(id, VoteKind::kNo);
  outbox_.SendInquiry(id);
  outbox_.SendOnePhaseReply(id, Outcome::kAborted);
  outbox_.SendDecidersReply(id, Outcome::kPending);
  outbox_.SendDecision(far, OurId(3), false);
  outbox_.SendInquiryReply(1, OurId(3), Outcome::kPending);
  EXPECT_EQ(FarHeard().size(), 7u);
  MakeDurable();
  EXPECT_EQ(outbox_.SendHeld(), 6u);
  EXPECT_FALSE(outbox_.holds());
  EXPECT_THAT(FarHeard(),
              ElementsAre("vote from 0 on 9: yes", "acknowledge from 0 of 9",
                          "one-phase reply from 0 on 9: committed", "decider's reply from 0 on 9: committed",
                          "commit 3 epoch 5", "inquiry reply on 3: committed"));
}

}  // namespace
}  // namespace islands::instance
