#include "instance/worker/sessions.h"

#include <gmock/gmock.h>

#include "instance/messaging/frame.h"
#include "instance/worker/wire.h"
#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using data::v1::CLIENT_END_COMMIT;
using data::v1::CLIENT_END_ROLLBACK;
using data::v1::CLIENT_END_UNSPECIFIED;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kTables = 77;
constexpr int64_t kSecondUs = 1'000'000;

// A gateway's link to the worker, without a gateway.
class FakeGateway : public messaging::TransportHandler {
 public:
  explicit FakeGateway(messaging::MemoryHub& hub) : transport(hub.MakeTransport({9, 0})) {}
  void Dial(const std::string& cluster = "parts") {
    connection = transport->Dial({0, 0});
    data::v1::Hello hello;
    hello.set_cluster_id(cluster);
    hello.set_gateway(true);
    Send(messaging::FrameType::kHello, hello);
  }
  void Send(messaging::FrameType type, const google::protobuf::MessageLite& message) {
    const std::string bytes = message.SerializeAsString();
    transport->Send(connection, type, std::as_bytes(std::span(bytes.data(), bytes.size())));
    transport->Flush();
  }
  void OnAccepted(messaging::ConnectionId, int64_t) override {}
  void OnFrame(messaging::ConnectionId, messaging::FrameType type,
               std::span<const std::byte> payload) override {
    if (type == messaging::FrameType::kHelloReply) {
      data::v1::HelloReply reply;
      ASSERT_TRUE(reply.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
      welcome = reply.accepted();
      return;
    }
    ASSERT_EQ(type, messaging::FrameType::kClientReply);
    ASSERT_TRUE(replies.emplace_back().ParseFromArray(payload.data(), static_cast<int>(payload.size())));
  }
  void OnClosed(messaging::ConnectionId, const absl::Status&) override { closed = true; }

  std::unique_ptr<messaging::Transport> transport;
  messaging::ConnectionId connection = 0;
  std::vector<data::v1::ClientReply> replies;
  bool welcome = false;
  bool closed = false;
};

// Procedures that count in a row of site 0.
class CountingWorkload final : public Workload {
 public:
  const char* name() const override { return "counting"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext&) const override {
    return absl::UnimplementedError("nobody runs it");
  }
  runtime::Task<absl::Status> Run(Transaction&, const Request&) const override {
    co_return absl::UnimplementedError("nobody runs it");
  }
  const std::vector<Procedure>& procedures() const override {
    using enum ValueType;
    static const std::vector<Procedure> kProcedures = {
        {"count",
         "",
         {{"row", kInt64}, {"by", kDouble}, {"word", kText}},
         {{"now", kInt64}, {"half", kDouble}, {"word", kText}},
         "rows",
         /*repeatable=*/true},
        {"by_chance", "", {{"row", kInt64}}, {}, "rows"},
        {"fail", "", {{"row", kInt64}}, {}, "rows"},
        {"lie", "", {{"row", kInt64}}, {{"none", kInt64}}, "rows"},
        {"flood", "", {{"row", kInt64}}, {{"much", kText}}, "rows"}};
    return kProcedures;
  }
  runtime::Task<absl::Status> Call(Transaction& transaction, const Procedure& procedure,
                                   std::span<const Value> arguments,
                                   std::vector<Value>* results) const override {
    Batch& batch = transaction.batch();
    const bool count = procedure.name == "count";
    const auto row = static_cast<uint64_t>(std::get<int64_t>(arguments[0]));
    batch.Add(0, partitioner::Uint64Key(row), 0,
              count ? static_cast<int64_t>(std::get<double>(arguments[1])) : 1);
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    if (procedure.name == "fail") co_return absl::OutOfRangeError("counted far enough");
    if (procedure.name == "flood") results->emplace_back(std::string(messaging::kMaxFrameBytes, 'x'));
    if (!count) co_return absl::OkStatus();
    int64_t now = 0;
    std::memcpy(&now, batch.row(0).data(), sizeof(now));
    results->assign({now, 0.5 * static_cast<double>(now), std::get<std::string>(arguments[2]) + "!"});
    co_return absl::OkStatus();
  }
};

data::v1::Value Wire(int64_t number) {
  data::v1::Value value;
  value.set_number(number);
  return value;
}
data::v1::Value Wire(double real) {
  data::v1::Value value;
  value.set_real(real);
  return value;
}
data::v1::Value Wire(const std::string& text) {
  data::v1::Value value;
  value.set_text(text);
  return value;
}

class SessionsTest : public WorkerPartsTest {
 protected:
  explicit SessionsTest(bool log = false, log::Journal* journal = nullptr) : WorkerPartsTest(log, journal) {
    shared_.tables = kTables;
    EXPECT_TRUE(shared_.procedures.Add("test", std::make_shared<CountingWorkload>(), *catalog_).ok());
    gateway_.Dial();
    Round();
    EXPECT_TRUE(gateway_.welcome);
  }
  void OnClientRequest(messaging::ConnectionId gateway, std::span<const std::byte> payload) override {
    sessions_.OnRequest(gateway, payload);
  }
  void OnGatewayLost(messaging::ConnectionId gateway) override { sessions_.OnGatewayLost(gateway); }

  void Round() {
    for (int i = 0; i < 3; ++i) {
      gateway_.transport->Flush();
      Pump();
      gateway_.transport->Poll(gateway_);
      sessions_.CheckInvariants();
    }
  }
  // A request as a gateway makes it; `fill` adds the operations.
  template <typename Fill>
  static data::v1::ClientRequest Request(uint64_t session, data::v1::ClientEnd end, Fill fill) {
    Batch batch;
    fill(batch);
    data::v1::ClientRequest request;
    request.set_session(session);
    request.set_tables(kTables);
    request.set_end(end);
    request.set_deadline_us(kSecondUs);
    request.set_idle_us(5 * kSecondUs);
    EncodeClientOperations(batch, request.mutable_operations());
    return request;
  }
  template <typename Fill>
  void Whole(uint64_t session, Fill fill) {
    data::v1::ClientRequest request = Request(session, CLIENT_END_COMMIT, fill);
    request.set_begins(true);
    request.set_whole(true);
    gateway_.Send(messaging::FrameType::kClientRequest, request);
    Round();
  }
  // A call with operations after it.
  template <typename Fill>
  void Call(uint64_t session, const std::string& procedure, const std::vector<data::v1::Value>& arguments,
            Fill fill, bool whole = true) {
    data::v1::ClientRequest request = Request(session, CLIENT_END_COMMIT, fill);
    request.set_begins(true);
    request.set_whole(whole);
    request.set_procedure(procedure);
    request.mutable_arguments()->Assign(arguments.begin(), arguments.end());
    gateway_.Send(messaging::FrameType::kClientRequest, request);
    Round();
  }
  template <typename Fill>
  void Step(uint64_t session, bool begins, data::v1::ClientEnd end, Fill fill) {
    data::v1::ClientRequest request = Request(session, end, fill);
    request.set_begins(begins);
    gateway_.Send(messaging::FrameType::kClientRequest, request);
    Round();
  }
  // "SESSION OUTCOME [CODE REASON MESSAGE]" of each reply since.
  std::vector<std::string> Replies() {
    std::vector<std::string> lines;
    for (const data::v1::ClientReply& reply : std::exchange(gateway_.replies, {})) {
      std::string line = fmt::format("{} {}", reply.session(),
                                     OutcomeName(static_cast<coordinator::Outcome>(reply.outcome())));
      if (reply.code() != 0)
        line += fmt::format(" {}: {}", AbortReasonName(static_cast<AbortReason>(reply.abort_reason())),
                            reply.message());
      lines.push_back(line);
      last_ = reply;
    }
    return lines;
  }
  void Wait(int64_t ns) {
    Advance(ns);
    lock_waits_.Sweep();
    sessions_.Sweep();
    coordinated_.Sweep();
    Round();
  }
  static void AddOne(Batch& batch) { batch.Add(0, Key(0, 1), 0, 1); }
  static void Nothing(Batch&) {}

  data::v1::ClientReply last_;
  FakeGateway gateway_{hub_};
  Sessions sessions_{options_, shared_,      turns_, lock_waits_, engine_,
                     peers_,   coordinated_, links_, counters_};
};

TEST_F(SessionsTest, Whole_IsCommittedAndAnswered) {
  PutRow(1);
  Whole(7, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("7 committed"));
  EXPECT_EQ(Counter(1), 1);
  Batch batch;
  AddOne(batch);
  ASSERT_TRUE(DecodeClientResults(last_.results(), &batch).ok());
  EXPECT_EQ(batch.code(0), absl::StatusCode::kOk);
  EXPECT_EQ(batch.row(0).size(), sizeof(int64_t));
  EXPECT_EQ(DecodeId(last_).worker, 0u);
  EXPECT_FALSE(sessions_.active());
  EXPECT_EQ(counters_.scopes[static_cast<uint8_t>(Scope::kLocal)].committed.Get(), 1u);
}

TEST_F(SessionsTest, Put_IsThereWhetherItWasOrNot) {
  const std::string first(16, 'a'), second(40, 'b');
  const auto put = [](const std::string& row) {
    return [&row](Batch& batch) { batch.Put(0, Key(0, 5), std::as_bytes(std::span(row))); };
  };
  Whole(1, put(first));
  Whole(2, put(second));
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed"));
  std::vector<std::byte> row;
  ASSERT_EQ(store_->At(0, 0)->Read(Key(0, 5), &row), absl::StatusCode::kOk);
  EXPECT_EQ(row.size(), second.size());
  // And rolled back to what it was.
  Step(3, true, CLIENT_END_UNSPECIFIED, put(first));
  Step(3, false, CLIENT_END_ROLLBACK, Nothing);
  EXPECT_THAT(Replies(), ElementsAre("3 pending", "3 aborted client_gone: rolled back by its client"));
  ASSERT_EQ(store_->At(0, 0)->Read(Key(0, 5), &row), absl::StatusCode::kOk);
  EXPECT_EQ(row.size(), second.size());
}

TEST_F(SessionsTest, Condition_ThatDoesNotHoldUndoesAll) {
  PutRow(1);
  const auto both = [](Batch& batch) {
    AddOne(batch);
    batch.Add(0, Key(0, 2), 0, 1);  // there is no row 2
  };
  Whole(1, both);
  EXPECT_THAT(Replies(), ElementsAre("1 aborted condition: operation 1: there is no such row"));
  EXPECT_EQ(last_.failed_operation(), 1);
  EXPECT_FALSE(last_.results().empty());
  EXPECT_EQ(Counter(1), 0);
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kCondition)].Get(), 1u);
  // Unless the client says that it does not mind.
  data::v1::ClientRequest request = Request(2, CLIENT_END_COMMIT, both);
  request.set_begins(true);
  request.add_may_miss(1);
  gateway_.Send(messaging::FrameType::kClientRequest, request);
  Round();
  EXPECT_THAT(Replies(), ElementsAre("2 committed"));
  EXPECT_EQ(Counter(1), 1);
  Whole(3, [](Batch& batch) { batch.Insert(0, Key(0, 1), {}); });
  EXPECT_THAT(Replies(), ElementsAre("3 aborted condition: there is such a row already"));
}

TEST_F(SessionsTest, Steps_KeepTheirLocksUntilTheEnd) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("1 pending"));
  Whole(2, AddOne);
  EXPECT_THAT(Replies(), IsEmpty());  // waits for the row
  Step(1, false, CLIENT_END_COMMIT, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed"));
  EXPECT_EQ(Counter(1), 3);
}

TEST_F(SessionsTest, Open_IsRolledBackWhenItsClientSaysNothing) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Replies();
  Wait(4 * runtime::kNsPerSecond);
  Step(1, false, CLIENT_END_UNSPECIFIED, Nothing);
  EXPECT_THAT(Replies(), ElementsAre("1 pending"));  // five seconds are allowed, from one word to the next
  Wait(4 * runtime::kNsPerSecond);
  EXPECT_EQ(Counter(1), 1);
  Wait(2 * runtime::kNsPerSecond);
  EXPECT_EQ(Counter(1), 0);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  Step(1, false, CLIENT_END_COMMIT, AddOne);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("1 aborted")));
  EXPECT_EQ(Counter(1), 0);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, GatewayThatIsGone_LeavesNoLockAndNoChange) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Whole(2, AddOne);  // waits for the row; it was told to commit
  gateway_.transport->Close(gateway_.connection);
  Round();
  Round();
  EXPECT_FALSE(sessions_.active());
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  EXPECT_EQ(Counter(1), 1);
}

TEST_F(SessionsTest, Stranger_IsRefused) {
  PutRow(1);
  Step(5, false, CLIENT_END_COMMIT, AddOne);  // of no session that there is
  EXPECT_THAT(Replies(), ElementsAre("5 aborted refused: the transaction has ended"));
  data::v1::ClientRequest request = Request(6, CLIENT_END_COMMIT, AddOne);
  request.set_begins(true);
  request.set_tables(kTables + 1);
  gateway_.Send(messaging::FrameType::kClientRequest, request);
  Round();
  EXPECT_THAT(Replies(), ElementsAre("6 aborted refused: the tables have changed"));
  request.set_session(7);
  request.set_tables(kTables);
  request.set_operations("nonsense");
  gateway_.Send(messaging::FrameType::kClientRequest, request);
  Round();
  EXPECT_THAT(Replies(), ElementsAre("7 aborted refused: bytes that are not operations"));
  request = Request(8, CLIENT_END_COMMIT, [](Batch& batch) { batch.Add(0, Key(3, 5), 0, 1); });
  request.set_begins(true);
  gateway_.Send(messaging::FrameType::kClientRequest, request);
  Round();
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("8 aborted procedure: ")));  // a key outside the table
  EXPECT_EQ(Counter(1), 0);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, GatewayOfAnotherCluster_IsNotLetIn) {
  FakeGateway stranger(hub_);
  stranger.Dial("another");
  Round();
  stranger.transport->Poll(stranger);
  EXPECT_FALSE(stranger.welcome);
  data::v1::ClientRequest request = Request(1, CLIENT_END_COMMIT, AddOne);
  request.set_begins(true);
  PutRow(1);
  stranger.Send(messaging::FrameType::kClientRequest, request);
  Round();
  EXPECT_EQ(Counter(1), 0);
}

TEST_F(SessionsTest, GatewayThatSpeaksLikeAnIsland_LosesItsLink) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  data::v1::ExecuteRequest request;
  EncodeId(TheirId(1), &request);
  gateway_.Send(messaging::FrameType::kExecuteRequest, request);
  Round();
  EXPECT_TRUE(gateway_.closed);
  EXPECT_FALSE(sessions_.active());
  EXPECT_EQ(Counter(1), 0);
}

TEST_F(SessionsTest, SecondRequestAtATime_EndsTheLinksTransactions) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Step(2, true, CLIENT_END_UNSPECIFIED, AddOne);  // waits for the row
  Step(2, false, CLIENT_END_COMMIT, Nothing);
  Wait(2 * runtime::kNsPerSecond);
  EXPECT_FALSE(sessions_.active());
  EXPECT_EQ(Counter(1), 0);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(SessionsTest, LockThatIsWaitedForTooLong_EndsIt) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Replies();
  Step(2, true, CLIENT_END_COMMIT, AddOne);
  Wait(options_.lock_timeout_ns + runtime::kNsPerMs);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("2 aborted lock_timeout")));
  Step(1, false, CLIENT_END_COMMIT, Nothing);
  EXPECT_THAT(Replies(), ElementsAre("1 committed"));
  EXPECT_EQ(Counter(1), 1);
}

// A whole one is run again by itself, for as long as its client waits.
TEST_F(SessionsTest, WholeVictim_IsRunAgain) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Replies();
  Whole(2, AddOne);
  Wait(options_.lock_timeout_ns + runtime::kNsPerMs);
  EXPECT_THAT(Replies(), IsEmpty());
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kLockTimeout)].Get(), 1u);
  Step(1, false, CLIENT_END_COMMIT, Nothing);
  for (int i = 0; i < 20; ++i) Wait(runtime::kNsPerMs);
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed"));
  EXPECT_EQ(Counter(1), 2);
}

TEST_F(SessionsTest, Distributed_WaitsForTheOtherIslandAsLongAsItsStepMay) {
  Step(1, true, CLIENT_END_UNSPECIFIED, [](Batch& batch) { batch.Add(0, Key(1, 1), 0, 1); });
  EXPECT_THAT(FarHeard(), ElementsAre(HasSubstr("execute 1 step 1")));
  EXPECT_THAT(Replies(), IsEmpty());
  Wait(1100 * runtime::kNsPerMs);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("1 aborted deadline")));
  EXPECT_FALSE(sessions_.active());
}

// The loss of a participant between two steps is told with the next one.
TEST_F(SessionsTest, ParticipantLostBetweenSteps_IsToldWithTheNext) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, [](Batch& batch) {
    AddOne(batch);
    batch.Read(0, Key(1, 1));
  });
  data::v1::ExecuteReply reply;
  EncodeId(OurId(1), &reply);
  reply.set_step(1);
  Batch far;
  far.Read(0, Key(1, 1));
  far.ResetResults();
  far.result(0).code = absl::StatusCode::kNotFound;
  EncodeResults(far, std::vector<RoutedOperation>{{0, 1, 1}}, reply.mutable_results());
  far_.links.SendBack(messaging::Address{0, 0}, messaging::FrameType::kExecuteReply, reply);
  Round();
  EXPECT_THAT(Replies(), ElementsAre("1 pending"));
  coordinated_.OnPeerLost(1, kTheirEpoch, absl::UnavailableError("it died"));
  Round();
  EXPECT_EQ(Counter(1), 0);  // no lock is left behind meanwhile
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  Step(1, false, CLIENT_END_COMMIT, AddOne);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("1 aborted peer_lost")));
  EXPECT_EQ(Counter(1), 0);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, TooMany_AreRefused) {
  PutRow(1);
  for (uint64_t i = 1; i <= Sessions::kMost; ++i) Step(i, true, CLIENT_END_UNSPECIFIED, Nothing);
  EXPECT_EQ(Replies().size(), Sessions::kMost);
  Whole(Sessions::kMost + 1, AddOne);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("1025 aborted refused: 1024 transactions of clients")));
  Step(1, false, CLIENT_END_ROLLBACK, Nothing);
  Replies();
  Whole(Sessions::kMost + 2, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("1026 committed"));
}

TEST_F(SessionsTest, Call_IsCommittedWithWhatFollowsIt) {
  PutRow(1), PutRow(2);
  Call(1, "test.count", {Wire(int64_t{1}), Wire(7.0), Wire("w")},
       [](Batch& batch) { batch.Add(0, Key(0, 2), 0, 5); });
  EXPECT_THAT(Replies(), ElementsAre("1 committed"));
  EXPECT_EQ(Counter(1), 7);
  EXPECT_EQ(Counter(2), 5);
  ASSERT_EQ(last_.values_size(), 3);
  EXPECT_EQ(last_.values(0).number(), 7);
  EXPECT_EQ(last_.values(1).real(), 3.5);
  EXPECT_EQ(last_.values(2).text(), "w!");
  Batch batch;
  batch.Add(0, Key(0, 2), 0, 5);
  EXPECT_TRUE(DecodeClientResults(last_.results(), &batch).ok());  // of what follows it, and nothing else
  Whole(2, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("2 committed"));
  EXPECT_EQ(last_.values_size(), 0);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, Call_ThatFailsLeavesNothing) {
  PutRow(1), PutRow(2);
  Call(1, "test.fail", {Wire(int64_t{1})}, [](Batch& batch) { batch.Add(0, Key(0, 2), 0, 5); });
  EXPECT_THAT(Replies(), ElementsAre("1 aborted procedure: counted far enough"));
  EXPECT_EQ(static_cast<absl::StatusCode>(last_.code()), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(last_.values_size(), 0);
  // What follows it does not find what it needs.
  Call(2, "test.count", {Wire(int64_t{1}), Wire(7.0), Wire("w")},
       [](Batch& batch) { batch.Insert(0, Key(0, 2), {}); });
  EXPECT_THAT(Replies(), ElementsAre("2 aborted condition: there is such a row already"));
  EXPECT_EQ(last_.values_size(), 0);
  Call(3, "test.lie", {Wire(int64_t{1})}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("answers something else than it says: found 0 results")));
  Call(4, "test.flood", {Wire(int64_t{1})}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("the results have more than")));
  EXPECT_EQ(Counter(1), 0);
  EXPECT_EQ(Counter(2), 0);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, Call_ThatMakesNoSenseIsRefused) {
  PutRow(1);
  Call(1, "test.nothing", {}, Nothing);
  EXPECT_THAT(Replies(),
              ElementsAre(HasSubstr("1 aborted refused: procedure 'test.nothing': island 0 has none")));
  EXPECT_EQ(static_cast<absl::StatusCode>(last_.code()), absl::StatusCode::kInvalidArgument);
  Call(2, "test.fail", {}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("2 aborted refused: procedure 'test.fail': found 0 arguments, "
                                               "expected 1")));
  Call(3, "test.fail", {Wire("one")}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("argument 1 'row': found text, expected int64")));
  Call(4, "test.fail", {data::v1::Value()}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("an argument of no kind")));
  Call(5, "test.fail", {Wire(int64_t{1})}, Nothing, /*whole=*/false);
  EXPECT_THAT(Replies(), ElementsAre(HasSubstr("expected a request that is a whole transaction")));
  shared_.tables = kTables + 1;
  Call(6, "test.fail", {Wire(int64_t{1})}, Nothing);
  EXPECT_THAT(Replies(), ElementsAre("6 aborted refused: the tables have changed"));
  EXPECT_EQ(Counter(1), 0);
  EXPECT_FALSE(sessions_.active());
}

TEST_F(SessionsTest, CallThatIsAVictim_IsRunAgain) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  Replies();
  Call(2, "test.count", {Wire(int64_t{1}), Wire(10.0), Wire("w")}, Nothing);
  Wait(options_.lock_timeout_ns + runtime::kNsPerMs);
  EXPECT_THAT(Replies(), IsEmpty());
  EXPECT_EQ(counters_.aborts[static_cast<uint8_t>(AbortReason::kLockTimeout)].Get(), 1u);
  Step(1, false, CLIENT_END_COMMIT, Nothing);
  for (int i = 0; i < 20; ++i) Wait(runtime::kNsPerMs);
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed"));
  ASSERT_EQ(last_.values_size(), 3);
  EXPECT_EQ(last_.values(0).number(), 11);
  EXPECT_EQ(Counter(1), 11);
}

// Durability `sync`.
class SyncSessionsTest : public SessionsTest {
 protected:
  SyncSessionsTest() : SessionsTest(/*log=*/true) {
    shared_.board = &board_;
    shared_.answers_wait = true;
    engine_.BeginStep();
  }
  void MakeDurable() {
    engine_.EndStep();
    engine_.BeginStep();
    board_.RaiseEpoch(board_.epoch() + 1);
    board_.SetDurable(board_.epoch() - 1);
  }
};

TEST_F(SyncSessionsTest, Commit_IsToldWhenItIsDurable) {
  PutRow(1);
  Step(1, true, CLIENT_END_UNSPECIFIED, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("1 pending"));  // says nothing that counts
  Step(1, false, CLIENT_END_COMMIT, Nothing);
  Whole(2, [](Batch& batch) { batch.Insert(0, Key(0, 1), {}); });  // says that the row is there
  EXPECT_THAT(Replies(), IsEmpty());
  EXPECT_TRUE(sessions_.waits());
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  MakeDurable();
  EXPECT_EQ(sessions_.GiveDurable(), 2u);
  Round();
  EXPECT_THAT(Replies(), ElementsAre("1 committed", HasSubstr("2 aborted condition")));
  Whole(3, AddOne);
  Wait(1100 * runtime::kNsPerMs);  // the disk is stuck
  EXPECT_THAT(Replies(), ElementsAre("3 unknown none: the outcome is not known"));
  EXPECT_FALSE(sessions_.waits());
  EXPECT_FALSE(sessions_.active());
  engine_.EndStep();
}

// Durability `command`.
class CommandSessionsTest : public SessionsTest {
 protected:
  CommandSessionsTest() : SessionsTest(/*log=*/true) {
    shared_.commands = true;
    const auto whose = std::as_bytes(std::span(kWhose));
    EXPECT_TRUE(
        shared_.procedures
            .Add("test", std::make_shared<CountingWorkload>(), *catalog_, {whose.begin(), whose.end()})
            .ok());
    engine_.BeginStep();
    PutRow(1);
    NewEntries();
  }
  ~CommandSessionsTest() override { engine_.EndStep(); }

  // "KIND" or, of commands, "KIND WHOSE PROCEDURE/ARGUMENTS" of each record since.
  std::vector<std::string> NewEntries() {
    engine_.EndStep();
    engine_.BeginStep();
    std::vector<std::string> found;
    while (seen_ < ring_->tail()) {
      size_t taken = 0;
      const auto record =
          log::ParseRecord(ring_->stream(), seen_, ring_->Bytes(seen_, ring_->tail()), &taken);
      EXPECT_TRUE(record.ok());
      seen_ += taken;
      const absl::StatusOr<log::Entry> entry = log::DecodeEntry(*record);
      EXPECT_TRUE(entry.ok());
      found.push_back(fmt::format("{}", static_cast<int>(entry->kind)));
      if (!log::IsCommand(entry->kind)) continue;
      std::string procedure;
      std::vector<Value> arguments;
      InputCoder coder(entry->input);
      CodeCall(coder, procedure, arguments);
      EXPECT_TRUE(coder.ok());
      found.back() += fmt::format(
          " {} {}/{}",
          std::string(reinterpret_cast<const char*>(entry->workload.data()), entry->workload.size()),
          procedure, arguments.size());
    }
    return found;
  }
  void Count(uint64_t session, bool begins, data::v1::ClientEnd end) {
    data::v1::ClientRequest request = Request(session, end, Nothing);
    request.set_begins(begins);
    request.set_whole(true);
    request.set_procedure("test.count");
    for (const data::v1::Value& argument : kArguments) *request.add_arguments() = argument;
    gateway_.Send(messaging::FrameType::kClientRequest, request);
    Round();
  }

  static constexpr std::string_view kWhose = "whose";
  const std::vector<data::v1::Value> kArguments = {Wire(int64_t{1}), Wire(2.0), Wire(std::string("a"))};
  uint64_t seen_ = 0;
};

TEST_F(CommandSessionsTest, CallThatCanBeMadeAgain_IsInTheLogAsSuch) {
  Call(1, "test.count", kArguments, Nothing);
  Call(2, "test.count", kArguments, Nothing);
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed"));
  EXPECT_THAT(NewEntries(), ElementsAre("11 whose count/3", "11  count/3"));  // whose: once
}

TEST_F(CommandSessionsTest, WhatIsMoreThanACall_IsInTheLogByItsChanges) {
  Call(1, "test.by_chance", {Wire(int64_t{1})}, Nothing);  // does not say that it can be repeated
  Call(2, "test.count", kArguments, AddOne);
  Whole(3, AddOne);
  EXPECT_THAT(Replies(), ElementsAre("1 committed", "2 committed", "3 committed"));
  EXPECT_THAT(NewEntries(), ElementsAre("1", "1", "1"));
  Count(4, /*begins=*/true, CLIENT_END_UNSPECIFIED);
  EXPECT_THAT(Replies(), ElementsAre("4 pending"));
  Count(4, /*begins=*/false, CLIENT_END_COMMIT);  // two calls in one transaction
  EXPECT_THAT(Replies(), ElementsAre("4 committed"));
  EXPECT_THAT(NewEntries(), ElementsAre("2", "4"));
  EXPECT_EQ(Counter(1), 1 + 2 + 1 + 1 + 2 + 2);
  Call(5, "test.fail", {Wire(int64_t{1})}, Nothing);
  EXPECT_THAT(NewEntries(), ElementsAre("1"));  // and its undo
}

}  // namespace
}  // namespace islands::instance
