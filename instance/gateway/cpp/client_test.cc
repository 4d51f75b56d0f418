// The client library before a gateway that says what each test wants it to say, over gRPC and in frames.
#include "islands/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "instance/gateway/cpp/frame_server.h"
#include "proto/client.grpc.pb.h"

namespace islands {
namespace {

namespace pb = client::v1;
using messaging::FrameType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_frames::FrameServer;
using testing_frames::Peer;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

pb::Failure Said(pb::Failure::Outcome outcome, const std::string& reason, int operation = -1) {
  pb::Failure failure;
  failure.set_outcome(outcome);
  failure.set_reason(reason);
  failure.set_operation(operation);
  failure.set_transaction("1.2.3");
  return failure;
}

grpc::Status With(grpc::StatusCode code, const pb::Failure& failure) {
  pb::Status details;
  details.set_code(code);
  details.add_details()->PackFrom(failure);
  return {code, "as the test wants it", details.SerializeAsString()};
}

const grpc::Status kLost(grpc::StatusCode::UNAVAILABLE, "Socket closed");
grpc::Status Deadlock() { return With(grpc::StatusCode::ABORTED, Said(pb::Failure::ABORTED, "deadlock")); }
grpc::Status NoCondition(int operation) {
  return With(grpc::StatusCode::FAILED_PRECONDITION, Said(pb::Failure::ABORTED, "condition", operation));
}

// Answers in the order in which they were given; all is well when there are none left.
class FakeGateway final : public pb::Islands::Service {
 public:
  using Step = std::function<grpc::Status(const pb::TransactRequest&, pb::TransactResponse*)>;

  std::deque<grpc::Status> execute, ask, commit, create;
  bool committed = false;             // what a token's outcome is
  bool earlier = false;               // what Execute says
  std::deque<pb::Result> results;     // of operations, in all calls; DONE when there are none left
  std::function<void()> before_step;  // of Transact
  int unanswered_steps = 0;           // those after which Transact ends without a word
  std::vector<pb::ExecuteRequest> executed;
  std::vector<pb::CallRequest> called;  // each answers its arguments
  std::vector<pb::TransactRequest> steps;
  std::vector<pb::AskOutcomeRequest> asked;
  pb::Table created;
  std::string dropped;
  std::atomic<int> open{0}, cancelled{0};

  grpc::Status Execute(grpc::ServerContext*, const pb::ExecuteRequest* request,
                       pb::ExecuteResponse* response) override {
    const std::scoped_lock lock(mutex_);
    executed.push_back(*request);
    const grpc::Status status = Next(execute);
    response->set_earlier(earlier);
    response->set_transaction("1.2.3");
    if (!earlier) Fill(request->operations_size(), response->mutable_results());
    return status;
  }
  grpc::Status ExecuteMany(grpc::ServerContext*, const pb::ExecuteManyRequest* request,
                           pb::ExecuteManyResponse* response) override {
    const std::scoped_lock lock(mutex_);
    for (const pb::ExecuteRequest& transaction : request->transactions()) {
      executed.push_back(transaction);
      pb::ExecuteManyResponse::Each* each = response->add_each();
      const grpc::Status status = Next(execute);
      each->set_code(status.error_code());
      each->set_message(status.error_message());
      pb::Status details;
      if (details.ParseFromString(status.error_details()) && details.details_size() == 1)
        details.details(0).UnpackTo(each->mutable_failure());
      if (status.ok()) Fill(transaction.operations_size(), each->mutable_response()->mutable_results());
    }
    return grpc::Status::OK;
  }
  grpc::Status Transact(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<pb::TransactResponse, pb::TransactRequest>* stream) override {
    return Follow(stream, [&] { return context->IsCancelled(); });
  }
  // The same in frames, as the gateway has them. Ends with the client.
  void Serve(Peer& peer) {
    for (pb::DirectCall call; peer.Read(&call);) {
      pb::DirectAnswer answer;
      grpc::Status status;
      if (call.has_execute()) status = Execute(nullptr, &call.execute(), answer.mutable_execute());
      if (call.has_execute_many())
        status = ExecuteMany(nullptr, &call.execute_many(), answer.mutable_execute_many());
      if (call.has_call_procedure())
        status = Call(nullptr, &call.call_procedure(), answer.mutable_call_procedure());
      if (call.has_transact()) {
        FrameStream stream(peer, call.transact());
        status = Follow(&stream, [&] { return stream.gone(); });
        if (status.ok() && stream.answered()) continue;
        if (status.ok()) return;  // without a word
      }
      if (!status.ok()) {
        answer.Clear();
        answer.set_code(static_cast<uint32_t>(status.error_code()));
        answer.set_message(status.error_message());
        pb::Status details;
        if (details.ParseFromString(status.error_details()) && details.details_size() == 1)
          details.details(0).UnpackTo(answer.mutable_failure());
      }
      peer.Write(answer);
    }
  }
  grpc::Status AskOutcome(grpc::ServerContext*, const pb::AskOutcomeRequest* request,
                          pb::AskOutcomeResponse* response) override {
    const std::scoped_lock lock(mutex_);
    asked.push_back(*request);
    response->set_committed(committed);
    return Next(ask);
  }
  grpc::Status Call(grpc::ServerContext*, const pb::CallRequest* request,
                    pb::CallResponse* response) override {
    const std::scoped_lock lock(mutex_);
    called.push_back(*request);
    const grpc::Status status = Next(execute);
    response->set_earlier(earlier);
    response->set_transaction("1.2.3");
    if (!earlier) {
      for (const pb::Value& argument : request->arguments()) *response->add_results() = argument;
    }
    return status;
  }
  grpc::Status ListProcedures(grpc::ServerContext*, const pb::ListProceduresRequest*,
                              pb::ListProceduresResponse* response) override {
    pb::Procedure* procedure = response->add_procedures();
    procedure->set_name("bank.echo");
    procedure->set_home_table("accounts");
    for (const std::string type : {"int64", "double", "text"}) {
      pb::NamedType* argument = procedure->add_arguments();
      argument->set_name("a_" + type);
      argument->set_type(type);
      *procedure->add_results() = *argument;
    }
    return grpc::Status::OK;
  }
  grpc::Status ListTables(grpc::ServerContext*, const pb::ListTablesRequest*,
                          pb::ListTablesResponse* response) override {
    *response->add_tables() = created;
    return grpc::Status::OK;
  }
  grpc::Status CreateTable(grpc::ServerContext*, const pb::CreateTableRequest* request,
                           pb::CreateTableResponse*) override {
    created = request->table();
    return Next(create);
  }
  grpc::Status DropTable(grpc::ServerContext*, const pb::DropTableRequest* request,
                         pb::DropTableResponse*) override {
    dropped = request->table();
    return Next(create);
  }

 private:
  // The steps of one transaction.
  class FrameStream {
   public:
    FrameStream(Peer& peer, pb::TransactRequest first) : peer_(peer), first_(std::move(first)) {}
    bool Read(pb::TransactRequest* request) {
      answered_ = false;
      if (first_) {
        *request = *std::exchange(first_, std::nullopt);
        return true;
      }
      pb::DirectCall call;
      gone_ = !peer_.Read(&call);
      EXPECT_TRUE(gone_ || call.continues());
      *request = call.transact();
      return !gone_;
    }
    void Write(const pb::TransactResponse& response) {
      pb::DirectAnswer answer;
      *answer.mutable_transact() = response;
      answered_ = peer_.Write(answer);
    }
    bool gone() const { return gone_; }
    bool answered() const { return answered_; }  // the last step

   private:
    Peer& peer_;
    std::optional<pb::TransactRequest> first_;
    bool gone_ = false;
    bool answered_ = false;
  };

  template <typename Stream, typename IsCancelled>
  grpc::Status Follow(Stream* stream, const IsCancelled& is_cancelled) {
    open.fetch_add(1);
    const grpc::Status status = Steps(stream);
    if (is_cancelled()) cancelled.fetch_add(1);
    open.fetch_sub(1);
    return status;
  }

  static grpc::Status Next(std::deque<grpc::Status>& answers) {
    if (answers.empty()) return grpc::Status::OK;
    grpc::Status answer = answers.front();
    answers.pop_front();
    return answer;
  }
  void Fill(int count, google::protobuf::RepeatedPtrField<pb::Result>* filled) {
    for (int i = 0; i < count; ++i) {
      pb::Result* result = filled->Add();
      result->set_code(pb::Result::DONE);
      if (results.empty()) continue;
      *result = results.front();
      results.pop_front();
    }
  }
  template <typename Stream>
  grpc::Status Steps(Stream* stream) {
    pb::TransactRequest request;
    while (stream->Read(&request)) {
      if (before_step) before_step();
      pb::TransactResponse response;
      {
        const std::scoped_lock lock(mutex_);
        steps.push_back(request);
        if (unanswered_steps > 0 && --unanswered_steps == 0) return grpc::Status::OK;
        const bool commits = request.end() == pb::TransactRequest::COMMIT;
        if (const grpc::Status status = Next(commits ? commit : execute); !status.ok()) return status;
        response.set_transaction("1.2.3");
        response.set_committed(commits);
        Fill(request.operations_size(), response.mutable_results());
      }
      stream->Write(response);
      if (request.end() != pb::TransactRequest::END_UNSPECIFIED) return grpc::Status::OK;
    }
    return grpc::Status::OK;
  }

  std::mutex mutex_;
};

class ClientTest : public testing::TestWithParam<bool> {
 protected:
  ClientTest() { Listen(); }
  ~ClientTest() override { Close(); }
  bool in_frames() const { return GetParam(); }

  void Listen() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&gateway_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    if (!in_frames()) return;
    frames_ = std::make_unique<FrameServer>(address_.substr(5) + ".direct",
                                            [this](Peer& peer) { gateway_.Serve(peer); });
    ASSERT_TRUE(frames_->listens());
  }
  void Close() {
    frames_ = nullptr;
    server_->Shutdown(std::chrono::system_clock::now());
  }
  static Client Dial(const std::string& address) {
    absl::StatusOr<Client> client = Client::Connect(address, {.timeout_ms = 10'000});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  static Batch PutOf(const Key& key) {
    Batch batch;
    batch.Put("accounts", key, "x");
    return batch;
  }

  const std::string address_ =
      "unix:" +
      (std::filesystem::temp_directory_path() / ("client-" + std::to_string(getpid()) + ".sock")).string();
  FakeGateway gateway_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<FrameServer> frames_;  // null: gRPC is all there is
  Client db_ = Dial(address_);
};
INSTANTIATE_TEST_SUITE_P(Over, ClientTest, testing::Bool(),
                         [](const auto& over) { return over.param ? "Frames" : "Grpc"; });

// ---- values

TEST(Key, PartsAreWhatTheyWereMadeOf) {
  const Key key{-5, "ann", 7u, std::string("bob")};
  EXPECT_EQ(key.size(), 4u);
  EXPECT_EQ(key[0].as_int64(), -5);
  EXPECT_EQ(key[1].text(), "ann");
  EXPECT_EQ(key[2].as_uint64(), 7u);
  EXPECT_TRUE(key[3].is_text());
  EXPECT_EQ(Key(7), Key{uint64_t{7}});
  EXPECT_EQ(Key(int8_t{7}), Key(7ll));
  EXPECT_NE(Key(-1), Key(~0ull));
  EXPECT_LT(Key(-5), Key(-1));
  EXPECT_LT(Key(-1), Key(1));
  EXPECT_LT(Key(1), Key("1"));
  EXPECT_EQ(Key(), Key{});
  EXPECT_EQ(Key("ann")[0].as_int64(), 0);
  EXPECT_EQ(Key(7)[0].text(), "");
}

TEST(Batch, IsAValue) {
  Batch batch;
  EXPECT_EQ(batch.Get("t", 1), 0u);
  EXPECT_EQ(batch.Put("t", 1, "x"), 1u);
  Batch copy = batch;
  Batch moved = std::move(batch);
  EXPECT_EQ(moved.size(), 2u);
  EXPECT_EQ(batch.size(), 0u);  // NOLINT: as promised
  copy.Clear();
  EXPECT_EQ(moved.size(), 2u);
  copy = moved;
  EXPECT_EQ(copy.size(), 2u);
}

TEST(NewToken, IsNeverTheSame) {
  EXPECT_EQ(NewToken().size(), 16u);
  EXPECT_NE(NewToken(), NewToken());
}

TEST(Connect, OverTcpWantsCertificates) {
  const absl::Status naked = Client::Connect("localhost:7777").status();
  EXPECT_TRUE(absl::IsInvalidArgument(naked));
  EXPECT_THAT(TextOf(naked),
              HasSubstr("localhost:7777: gateways speak to nobody over TCP who shows no certificate"));
  const Tls paths{"a.pem", "b.pem", "c.pem"};
  const absl::Status not_pem = Client::Connect("localhost:7777", {.tls = paths}).status();
  EXPECT_THAT(TextOf(not_pem), HasSubstr("Tls::authority is no PEM text"));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("unix:x", {.tls = paths}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("unix:x", {.timeout_ms = 0}).status()));
}

// ---- whole transactions

TEST_P(ClientTest, Execute_SaysTheOperationsAsTheyAre) {
  Batch batch;
  batch.Get("t", 1);
  batch.GetForUpdate("t", 1);
  batch.Put("t", {-5, "ann"}, std::string_view("a\0b", 3));
  batch.Insert("t", 1, "i");
  batch.Replace("t", 1, "r");
  batch.Delete("t", 1);
  batch.DeleteIfThere("t", 1);
  batch.Add("t", 1, -30, 8);
  batch.Scan("t", {.begin = 0, .end = {9, "z"}, .limit = 3, .reverse = true});
  batch.IndexScan("t", "by_age", 4, {.begin = 20});
  ASSERT_TRUE(db_.Execute(batch).ok());
  const auto& said = gateway_.executed.at(0).operations();
  ASSERT_EQ(said.size(), 10);
  EXPECT_EQ(said[0].table(), "t");
  EXPECT_EQ(said[0].get().key().parts(0).unsigned_(), 1u);
  EXPECT_FALSE(said[0].get().for_update());
  EXPECT_TRUE(said[1].get().for_update());
  EXPECT_EQ(said[2].put().key().parts(0).signed_(), -5);
  EXPECT_EQ(said[2].put().key().parts(1).text(), "ann");
  EXPECT_EQ(said[2].put().value(), std::string("a\0b", 3));
  EXPECT_EQ(said[3].insert().value(), "i");
  EXPECT_EQ(said[4].replace().value(), "r");
  EXPECT_FALSE(said[5].delete_().may_miss());
  EXPECT_TRUE(said[6].delete_().may_miss());
  EXPECT_EQ(said[7].add().delta(), -30);
  EXPECT_EQ(said[7].add().offset(), 8u);
  EXPECT_EQ(said[8].scan().begin().parts(0).unsigned_(), 0u);
  EXPECT_EQ(said[8].scan().end().parts_size(), 2);
  EXPECT_EQ(said[8].scan().limit(), 3u);
  EXPECT_TRUE(said[8].scan().reverse());
  EXPECT_EQ(said[9].index_scan().index(), "by_age");
  EXPECT_EQ(said[9].index_scan().at().parts(0).unsigned_(), 4u);
  EXPECT_EQ(said[9].index_scan().end().parts_size(), 0);
}

TEST_P(ClientTest, Execute_GivesBackWhatWasFound) {
  pb::Result row, sum, none, rows;
  row.set_code(pb::Result::DONE), row.set_value("seven");
  sum.set_code(pb::Result::DONE), sum.set_number(-3);
  none.set_code(pb::Result::NOT_FOUND);
  rows.set_code(pb::Result::DONE);
  for (const int key : {-1, 2}) {
    pb::Row* added = rows.add_rows();
    added->mutable_key()->add_parts()->set_signed_(key);
    added->mutable_key()->add_parts()->set_text("t");
    added->set_value(std::to_string(key));
  }
  gateway_.results = {row, none, sum, rows};
  EXPECT_EQ(*db_.Get("t", 7), "seven");
  EXPECT_EQ(*db_.Get("t", 8), std::nullopt);
  EXPECT_EQ(*db_.Add("t", 7, -10), -3);
  EXPECT_THAT(*db_.Scan("t"), ElementsAre(Row{{-1, "t"}, "-1"}, Row{{2, "t"}, "2"}));
  EXPECT_TRUE(db_.Put("t", 1, "x").ok() && db_.Insert("t", 1, "x").ok() && db_.Replace("t", 1, "x").ok() &&
              db_.Delete("t", 1).ok() && db_.IndexScan("t", "i", 1).ok());
}

// What the gateway says, and what becomes of it here.
struct Case {
  grpc::Status said;
  absl::StatusCode code;
  Outcome outcome;
  bool again = false;
};

TEST_P(ClientTest, EveryError_HasACodeAndAnOutcome) {
  using enum grpc::StatusCode;
  const auto aborted = [](grpc::StatusCode code, const char* reason) {
    return With(code, Said(pb::Failure::ABORTED, reason));
  };
  const Case cases[] = {
      {Deadlock(), absl::StatusCode::kAborted, Outcome::kAborted, true},
      {aborted(CANCELLED, "client_gone"), absl::StatusCode::kAborted, Outcome::kAborted, true},
      {aborted(UNAVAILABLE, "peer_lost"), absl::StatusCode::kUnavailable, Outcome::kAborted, true},
      {aborted(DEADLINE_EXCEEDED, "deadline"), absl::StatusCode::kDeadlineExceeded, Outcome::kAborted},
      {aborted(RESOURCE_EXHAUSTED, "refused"), absl::StatusCode::kResourceExhausted, Outcome::kAborted},
      {aborted(INVALID_ARGUMENT, "invalid"), absl::StatusCode::kInvalidArgument, Outcome::kAborted},
      {aborted(OUT_OF_RANGE, "invalid"), absl::StatusCode::kOutOfRange, Outcome::kAborted},
      {aborted(FAILED_PRECONDITION, "tables"), absl::StatusCode::kFailedPrecondition, Outcome::kAborted},
      {aborted(UNKNOWN, "procedure"), absl::StatusCode::kInternal, Outcome::kAborted},
      {NoCondition(0), absl::StatusCode::kFailedPrecondition, Outcome::kAborted},
      {With(UNKNOWN, Said(pb::Failure::UNKNOWN, "unknown")), absl::StatusCode::kUnknown, Outcome::kUnknown},
      {With(ABORTED, Said(pb::Failure::OUTCOME_UNSPECIFIED, "new")), absl::StatusCode::kUnknown,
       Outcome::kUnknown},
      {kLost, absl::StatusCode::kUnknown, Outcome::kUnknown},
      {{ABORTED, "not from a gateway"}, absl::StatusCode::kUnknown, Outcome::kUnknown},
      {{DEADLINE_EXCEEDED, "at the client"}, absl::StatusCode::kUnknown, Outcome::kUnknown},
      {{UNAVAILABLE, "m", "no details"}, absl::StatusCode::kUnknown, Outcome::kUnknown},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.said.error_message() + " " + std::to_string(each.said.error_code()));
    gateway_.execute = {each.said};
    const absl::Status error = db_.Put("accounts", 1, "x");
    EXPECT_EQ(error.code(), each.code) << error;
    EXPECT_EQ(FailureOf(error).outcome, each.outcome);
    EXPECT_EQ(MayRunAgain(error), each.again);
    EXPECT_THAT(TextOf(error), HasSubstr(each.said.error_message()));
  }
}

TEST_P(ClientTest, Failure_SaysWhy) {
  gateway_.execute = {NoCondition(1), Deadlock(), kLost};
  const absl::Status condition = db_.Execute(PutOf(1)).status();
  EXPECT_TRUE(IsConditionFailed(condition));
  EXPECT_EQ(FailureOf(condition).reason, "condition");
  EXPECT_EQ(FailureOf(condition).operation, 1);
  EXPECT_EQ(FailureOf(condition).transaction, "1.2.3");
  const absl::Status deadlock = db_.Put("accounts", 1, "x");
  EXPECT_FALSE(IsConditionFailed(deadlock));
  EXPECT_EQ(FailureOf(deadlock).reason, "deadlock");
  EXPECT_EQ(FailureOf(deadlock).operation, -1);
  const absl::Status lost = db_.Put("accounts", 1, "x");
  EXPECT_EQ(FailureOf(lost).reason, "");
  EXPECT_THAT(TextOf(lost), HasSubstr("it may have been committed"));
}

// Of what only reads nothing can be left.
TEST_P(ClientTest, LostRead_MayRunAgain) {
  gateway_.execute = {kLost, With(grpc::StatusCode::UNKNOWN, Said(pb::Failure::UNKNOWN, "unknown"))};
  EXPECT_TRUE(absl::IsUnavailable(db_.Get("accounts", 1).status()));
  EXPECT_TRUE(absl::IsUnavailable(db_.Scan("accounts").status()));
}

TEST_P(ClientTest, AnswerThatIsNone_IsUnknown) {
  gateway_.earlier = true;  // to a request without a token: with no results
  EXPECT_TRUE(absl::IsUnknown(db_.Execute(PutOf(1)).status()));
  EXPECT_TRUE(absl::IsUnknown(db_.Add("accounts", 1, 1).status()));
}

TEST_P(ClientTest, Gateway_ThatIsGoneAndBack) {
  ASSERT_TRUE(db_.Put("accounts", 1, "x").ok());
  Close();
  absl::Status put;
  do put = db_.Put("accounts", 1, "x");
  while (absl::IsUnknown(put));  // written to the connection that breaks
  EXPECT_TRUE(absl::IsUnavailable(put)) << put;
  EXPECT_THAT(std::string(put.message()), HasSubstr("nothing was sent; try again"));
  EXPECT_TRUE(absl::IsUnavailable(db_.Begin().Commit(NewToken())));
  EXPECT_TRUE(absl::IsUnavailable(db_.DropTable("accounts")));
  EXPECT_TRUE(absl::IsUnavailable(db_.Get("accounts", 1).status()));
  Listen();
  const absl::StatusOr<Committed> done = db_.Execute(PutOf(1), {.timeout_ms = 20'000, .token = NewToken()});
  EXPECT_TRUE(done.ok()) << done.status();
}

TEST_P(ClientTest, WhatIsTooLarge_IsNotSent) {
  Batch batch;
  for (int key = 0; key < 9; ++key) batch.Put("accounts", key, std::string(1 << 20, 'x'));
  for (const std::string& token : {std::string(), NewToken()}) {
    const absl::Status status = db_.Execute(batch, {.token = token}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nothing was sent; send less at a time"));
  }
}

TEST_P(ClientTest, ExecuteMany_EachIsForItself) {
  gateway_.execute = {grpc::Status::OK, NoCondition(0),
                      With(grpc::StatusCode::UNKNOWN, Said(pb::Failure::UNKNOWN, "unknown"))};
  const std::vector<Batch> batches = {PutOf(1), PutOf(2), PutOf(3)};
  const auto done = db_.ExecuteMany(batches, {.tokens = {"a", "b", "c"}});
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_EQ(done->size(), 3u);
  EXPECT_TRUE((*done)[0].ok());
  EXPECT_EQ((*done)[0]->results.size(), 1u);
  EXPECT_TRUE(IsConditionFailed((*done)[1].status()));
  EXPECT_TRUE(absl::IsUnknown((*done)[2].status()));
  EXPECT_EQ(gateway_.executed[2].token(), "c");
  EXPECT_TRUE(absl::IsInvalidArgument(db_.ExecuteMany(batches, {.tokens = {"a"}}).status()));
}

// ---- tokens

TEST_P(ClientTest, Token_IsSentAgainUntilTheOutcomeIsKnown) {
  gateway_.execute = {kLost, With(grpc::StatusCode::UNAVAILABLE, Said(pb::Failure::ABORTED, "peer_lost")),
                      With(grpc::StatusCode::UNKNOWN, Said(pb::Failure::UNKNOWN, "unknown"))};
  const std::string token = NewToken();
  const absl::StatusOr<Committed> done = db_.Execute(PutOf(1), {.token = token});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_FALSE(done->earlier);
  ASSERT_EQ(gateway_.executed.size(), 4u);
  for (const pb::ExecuteRequest& request : gateway_.executed) EXPECT_EQ(request.token(), token);
  EXPECT_TRUE(gateway_.asked.empty());
  // Once one was lost, an abort of another one is no answer.
  gateway_.execute = {kLost, Deadlock()};
  EXPECT_TRUE(db_.Execute(PutOf(1), {.token = token}).ok());
  EXPECT_EQ(gateway_.executed.size(), 7u);
}

TEST_P(ClientTest, Token_ThatWasCommittedEarlier) {
  gateway_.earlier = true;
  const absl::StatusOr<Committed> done = db_.Execute(PutOf(1), {.token = "t"});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->earlier);
  EXPECT_TRUE(done->results.empty());
}

TEST_P(ClientTest, Token_WithoutALossIsNotAskedFor) {
  gateway_.execute = {Deadlock(), NoCondition(0)};
  EXPECT_TRUE(absl::IsAborted(db_.Execute(PutOf(1), {.token = "t"}).status()));
  EXPECT_TRUE(IsConditionFailed(db_.Execute(PutOf(1), {.token = "t"}).status()));
  EXPECT_EQ(gateway_.executed.size(), 2u);
  EXPECT_TRUE(gateway_.asked.empty());
}

// The attempt that was lost may still be under way: an abort of the next one says nothing of it.
TEST_P(ClientTest, Token_AfterALossOnlyItsOwnWordCounts) {
  for (const bool committed : {true, false}) {
    gateway_.execute = {kLost, NoCondition(0)};
    gateway_.ask = {kLost};
    gateway_.committed = committed;
    gateway_.asked.clear();
    const absl::StatusOr<Committed> done = db_.Execute(PutOf({7, "ann"}), {.token = "t"});
    if (committed)
      EXPECT_TRUE(done.ok() && done->earlier) << done.status();
    else
      EXPECT_TRUE(IsConditionFailed(done.status())) << done.status();
    ASSERT_EQ(gateway_.asked.size(), 2u);
    EXPECT_EQ(gateway_.asked[1].token(), "t");
    EXPECT_EQ(gateway_.asked[1].table(), "accounts");
    EXPECT_EQ(gateway_.asked[1].key().parts(1).text(), "ann");
  }
  gateway_.execute = {kLost, NoCondition(0)};
  gateway_.ask = {grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older gateway")};
  EXPECT_TRUE(absl::IsUnknown(db_.Execute(PutOf(1), {.token = "t"}).status()));
}

TEST_P(ClientTest, Token_AtTheDeadlineTheOutcomeIsUnknownIfOneWasLost) {
  const grpc::Status away = With(grpc::StatusCode::UNAVAILABLE, Said(pb::Failure::ABORTED, "peer_lost"));
  gateway_.execute.assign(100'000, away);
  // The last attempt may be the one that the deadline cuts off.
  EXPECT_THAT(db_.Execute(PutOf(1), {.timeout_ms = 50, .token = "t"}).status().code(),
              testing::AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kUnknown));
  gateway_.execute.push_front(kLost);
  EXPECT_TRUE(absl::IsUnknown(db_.Execute(PutOf(1), {.timeout_ms = 50, .token = "t"}).status()));
}

// ---- procedures

TEST_P(ClientTest, Call_SaysTheArgumentsAsTheyAre) {
  const absl::StatusOr<Called> done = db_.Call("bank.echo", {-7, 0.5, "ann"});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_THAT(done->results, ElementsAre(Value(-7), Value(0.5), Value("ann")));
  EXPECT_EQ(done->transaction, "1.2.3");
  EXPECT_FALSE(done->earlier);
  ASSERT_EQ(gateway_.called.size(), 1u);
  EXPECT_EQ(gateway_.called[0].procedure(), "bank.echo");
  EXPECT_EQ(gateway_.called[0].token(), "");
  EXPECT_TRUE(absl::IsInvalidArgument(db_.Call("bank.echo", {~uint64_t{0}}).status()));
  const absl::StatusOr<std::vector<Procedure>> procedures = db_.Procedures();
  ASSERT_TRUE(procedures.ok()) << procedures.status();
  ASSERT_EQ(procedures->size(), 1u);
  EXPECT_EQ(procedures->front().home_table, "accounts");
  EXPECT_EQ(procedures->front().arguments[1].type, "double");
  EXPECT_EQ(procedures->front().results[2].name, "a_text");
}

TEST_P(ClientTest, Call_ThatIsLostIsUnknownAndWithATokenSentAgain) {
  gateway_.execute = {kLost};
  EXPECT_TRUE(absl::IsUnknown(db_.Call("bank.echo", {7, 0.5, "ann"}).status()));
  gateway_.execute = {kLost, kLost};
  EXPECT_TRUE(db_.Call("bank.echo", {7, 0.5, "ann"}, {.token = "t"}).ok());
  EXPECT_EQ(gateway_.called.size(), 4u);
  // What another attempt says is no answer: the token's word is, where the first argument is.
  for (const bool committed : {true, false}) {
    gateway_.committed = committed;
    gateway_.execute = {kLost, NoCondition(0)};
    const absl::StatusOr<Called> done = db_.Call("bank.echo", {7, 0.5, "ann"}, {.token = "t"});
    EXPECT_EQ(done.ok(), committed) << done.status();
    EXPECT_EQ(done.ok() && done->earlier, committed);
    ASSERT_FALSE(gateway_.asked.empty());
    EXPECT_EQ(gateway_.asked.back().table(), "accounts");
    EXPECT_EQ(gateway_.asked.back().key().parts(0).signed_(), 7);
  }
}

TEST_P(ClientTest, AskOutcome_IsOfTheFirstOperation) {
  gateway_.committed = true;
  EXPECT_TRUE(*db_.AskOutcome("t", "accounts", 7));
  EXPECT_EQ(gateway_.asked[0].key().parts(0).unsigned_(), 7u);
  Batch batch;
  batch.Scan("accounts", {.begin = 3});
  batch.Put("other", 1, "x");
  EXPECT_TRUE(*db_.AskOutcome("t", batch));
  EXPECT_EQ(gateway_.asked[1].table(), "accounts");
  EXPECT_EQ(gateway_.asked[1].key().parts(0).unsigned_(), 3u);
  EXPECT_TRUE(absl::IsInvalidArgument(db_.AskOutcome("t", Batch()).status()));
  gateway_.ask = {kLost, Deadlock()};
  EXPECT_TRUE(*db_.AskOutcome("t", "accounts", 7));
  EXPECT_EQ(gateway_.asked.size(), 5u);
  gateway_.ask = {grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older gateway")};
  EXPECT_TRUE(absl::IsUnimplemented(db_.AskOutcome("t", "accounts", 7).status()));
}

// ---- step by step

TEST_P(ClientTest, Transaction_GoesOnAfterAMiss) {
  Transaction t = db_.Begin();
  EXPECT_EQ(t.id(), "");
  pb::Result missing, there, sum;
  missing.set_code(pb::Result::NOT_FOUND), there.set_code(pb::Result::ALREADY_EXISTS);
  sum.set_code(pb::Result::DONE), sum.set_number(5);
  gateway_.results = {missing, missing, missing, there, sum};
  EXPECT_EQ(*t.Get("accounts", 1), std::nullopt);
  EXPECT_EQ(*t.Add("accounts", 1, 5), std::nullopt);
  EXPECT_FALSE(*t.Replace("accounts", 1, "x"));
  EXPECT_FALSE(*t.Insert("accounts", 1, "x"));
  EXPECT_EQ(*t.Add("accounts", 1, 5), 5);
  EXPECT_TRUE(t.Put("accounts", 1, "x").ok());
  EXPECT_TRUE(*t.Delete("accounts", 1));
  EXPECT_EQ(*t.GetForUpdate("accounts", 1), "");
  EXPECT_TRUE(t.Scan("accounts")->empty());
  EXPECT_TRUE(t.IndexScan("accounts", "i", 1)->empty());
  EXPECT_EQ(t.Execute(PutOf(1))->size(), 1u);
  EXPECT_EQ(t.id(), "1.2.3");
  EXPECT_FALSE(t.has_ended());
  EXPECT_TRUE(t.Commit().ok());
  EXPECT_TRUE(t.has_ended());
  EXPECT_THAT(TextOf(t.Commit()), HasSubstr("transaction 1.2.3 was committed"));
  EXPECT_THAT(TextOf(t.Rollback()), HasSubstr("was committed"));
  EXPECT_EQ(gateway_.steps.back().end(), pb::TransactRequest::COMMIT);
}

TEST_P(ClientTest, Transaction_ThatIsLeftIsRolledBack) {
  {
    Transaction t = db_.Begin();
    ASSERT_TRUE(t.Put("accounts", 1, "x").ok());
    Transaction moved = std::move(t);
    ASSERT_TRUE(moved.Put("accounts", 1, "x").ok());
    EXPECT_EQ(gateway_.open.load(), 1);
  }
  for (int i = 0; i < 4000 && gateway_.cancelled.load() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(gateway_.cancelled.load(), 1);
  { const Transaction never = db_.Begin(); }
  Transaction t = db_.Begin();
  EXPECT_TRUE(t.Rollback().ok());
  EXPECT_TRUE(t.Rollback().ok());
  EXPECT_EQ(gateway_.steps.back().end(), pb::TransactRequest::ROLLBACK);
  EXPECT_THAT(TextOf(t.Put("accounts", 1, "x")), HasSubstr("rolled back; begin another"));
}

TEST_P(ClientTest, Transaction_ErrorEndsIt) {
  gateway_.execute = {Deadlock()};
  Transaction t = db_.Begin();
  EXPECT_TRUE(absl::IsAborted(t.Put("accounts", 1, "x")));
  EXPECT_TRUE(t.has_ended());
  EXPECT_EQ(FailureOf(t.Put("accounts", 1, "x")).reason, "deadlock");
  EXPECT_EQ(FailureOf(t.Commit()).reason, "deadlock");
  EXPECT_TRUE(t.Rollback().ok());
  EXPECT_EQ(gateway_.steps.size(), 1u);
}

// Before it was told to commit nothing can be left; afterwards nobody knows, unless it has only read.
TEST_P(ClientTest, Transaction_ThatIsLost) {
  gateway_.execute = {kLost};
  Transaction step = db_.Begin();
  EXPECT_TRUE(absl::IsUnavailable(step.Put("accounts", 1, "x")));
  gateway_.commit = {kLost, kLost};
  Transaction commit = db_.Begin();
  ASSERT_TRUE(commit.Put("accounts", 1, "x").ok());
  EXPECT_TRUE(absl::IsUnknown(commit.Commit()));
  EXPECT_TRUE(absl::IsUnknown(commit.Rollback()));
  Transaction reads = db_.Begin();
  ASSERT_TRUE(reads.Get("accounts", 1).ok());
  EXPECT_TRUE(absl::IsUnavailable(reads.Commit()));
  gateway_.unanswered_steps = 2;
  Transaction silent = db_.Begin();
  ASSERT_TRUE(silent.Put("accounts", 1, "x").ok());
  EXPECT_TRUE(absl::IsUnknown(silent.Commit()));
  gateway_.unanswered_steps = 1;
  Transaction early = db_.Begin();
  EXPECT_TRUE(MayRunAgain(early.Put("accounts", 1, "x")));
}

TEST_P(ClientTest, Transaction_DeadlineIsOfAllOfIt) {
  gateway_.before_step = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
  Transaction t = db_.Begin(/*timeout_ms=*/100);
  EXPECT_TRUE(absl::IsDeadlineExceeded(t.Put("accounts", 1, "x")));
  gateway_.before_step = nullptr;
}

TEST_P(ClientTest, Commit_WithATokenIsAskedFor) {
  for (const bool committed : {true, false}) {
    gateway_.committed = committed;
    gateway_.commit = {kLost};
    Transaction t = db_.Begin();
    ASSERT_TRUE(t.Get("accounts", {7, "ann"}).ok());
    ASSERT_TRUE(t.Put("other", 1, "x").ok());
    const absl::Status status = t.Commit("token");
    EXPECT_EQ(status.code(), committed ? absl::StatusCode::kOk : absl::StatusCode::kAborted) << status;
    EXPECT_EQ(gateway_.asked.back().token(), "token");
    EXPECT_EQ(gateway_.asked.back().table(), "accounts");
    EXPECT_EQ(gateway_.asked.back().key().parts(1).text(), "ann");
    EXPECT_EQ(t.Rollback().ok(), !committed);
  }
  gateway_.commit = {kLost};
  gateway_.ask = {grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older gateway")};
  Transaction t = db_.Begin();
  ASSERT_TRUE(t.Put("accounts", 1, "x").ok());
  EXPECT_TRUE(absl::IsUnknown(t.Commit("token")));
}

// ---- again and again

TEST_P(ClientTest, Run_AgainUntilItWasCommitted) {
  gateway_.execute = {Deadlock(), grpc::Status::OK, kLost};
  gateway_.commit = {Deadlock()};
  int calls = 0;
  const absl::StatusOr<int> done = db_.Run([&](Transaction& t) -> absl::StatusOr<int> {
    ++calls;
    if (absl::Status status = t.Put("accounts", 1, "x"); !status.ok()) return status;
    return calls;
  });
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(*done, 4);  // a step that was a victim, a commit that was, a step that was lost
}

TEST_P(ClientTest, Run_EndsSometime) {
  gateway_.execute.assign(10, Deadlock());
  int calls = 0;
  const absl::Status status = db_.Run(
      [&](Transaction& t) {
        ++calls;
        return t.Put("accounts", 1, "x");
      },
      {.attempts = 3});
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(calls, 3);
}

TEST_P(ClientTest, Run_WhatNobodyKnowsIsNotRunAgain) {
  gateway_.commit = {kLost};
  int calls = 0;
  const auto put = [&](Transaction& t) {
    ++calls;
    return t.Put("accounts", 1, "x");
  };
  EXPECT_TRUE(absl::IsUnknown(db_.Run(put)));
  EXPECT_EQ(calls, 1);
  // With tokens it is known: of the first attempt that nothing is left, so there is a second.
  gateway_.commit = {kLost};
  EXPECT_TRUE(db_.Run(put, {.once = true}).ok());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(gateway_.asked.size(), 1u);
  EXPECT_NE(gateway_.asked[0].token(), gateway_.steps.back().token());
}

TEST_P(ClientTest, Run_ErrorOfTheFunctionRollsBack) {
  const absl::Status status = db_.Run([](Transaction& t) -> absl::Status {
    if (absl::Status put = t.Put("accounts", 1, "x"); !put.ok()) return put;
    return absl::NotFoundError("there is not so much");
  });
  EXPECT_EQ(TextOf(status), "there is not so much");
  EXPECT_EQ(gateway_.steps.back().end(), pb::TransactRequest::ROLLBACK);
}

TEST_P(ClientTest, Run_ErrorThatTheFunctionOverlooksIsNone) {
  gateway_.execute = {NoCondition(0)};
  const absl::Status status = db_.Run([](Transaction& t) {
    t.Put("accounts", 1, "x").IgnoreError();
    return absl::OkStatus();
  });
  EXPECT_TRUE(IsConditionFailed(status)) << status;
}

TEST_P(ClientTest, Run_FunctionMayEndItByItself) {
  EXPECT_TRUE(db_.Run([](Transaction& t) { return t.Rollback(); }).ok());
  EXPECT_EQ(gateway_.steps.size(), 1u);
  // What it has committed is not run again, whatever it says then; nor what it has lost.
  int calls = 0;
  const auto commits = [&](Transaction& t) -> absl::Status {
    ++calls;
    t.Put("accounts", 1, "x").IgnoreError();
    t.Commit().IgnoreError();
    return absl::AbortedError("of the function");
  };
  EXPECT_TRUE(absl::IsAborted(db_.Run(commits)));
  EXPECT_EQ(calls, 1);
  gateway_.commit = {kLost};
  EXPECT_TRUE(absl::IsUnknown(db_.Run(commits)));
  EXPECT_EQ(calls, 2);
}

TEST_P(ClientTest, IsForManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        if (!db_.Put("accounts", i, "x").ok()) ++failed;
        if (!db_.Run([&](Transaction& t) { return t.Put("accounts", i, "y"); }).ok()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(gateway_.executed.size(), 80u);
}

// ---- tables

TEST_P(ClientTest, Tables_ComeAndGo) {
  Table table{.name = "people",
              .key = {"int32", "string"},
              .range_begin = -100,
              .range_end = 100,
              .row_bytes = 12,
              .indexes = {{"by_age", {"row:0:uint32"}}},
              .key_names = {"group", "name"},
              .fields = {{"age", "uint32"}, {"town", "string:8"}}};
  ASSERT_TRUE(db_.CreateTable(table).ok());
  EXPECT_EQ(gateway_.created.fields(1).type(), "string:8");
  const absl::StatusOr<std::vector<Table>> tables = db_.Tables();
  ASSERT_TRUE(tables.ok());
  ASSERT_EQ(tables->size(), 1u);
  const Table& found = tables->front();
  EXPECT_EQ(found.name, "people");
  EXPECT_THAT(found.key, ElementsAre("int32", "string"));
  EXPECT_EQ(found.range_begin, -100);
  EXPECT_EQ(found.range_end, 100);
  EXPECT_EQ(found.row_bytes, 12u);
  EXPECT_FALSE(found.replicated);
  EXPECT_EQ(found.indexes.at(0).name, "by_age");
  EXPECT_THAT(found.indexes.at(0).key, ElementsAre("row:0:uint32"));
  EXPECT_THAT(found.key_names, ElementsAre("group", "name"));
  EXPECT_EQ(found.fields.at(0).name, "age");
  EXPECT_EQ(found.fields.at(1).type, "string:8");
  EXPECT_TRUE(db_.DropTable("people").ok());
  EXPECT_EQ(gateway_.dropped, "people");
  gateway_.create = {With(grpc::StatusCode::FAILED_PRECONDITION, Said(pb::Failure::ABORTED, "rows")), kLost,
                     grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older gateway"),
                     grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such type")};
  EXPECT_EQ(FailureOf(db_.DropTable("people")).reason, "rows");
  EXPECT_TRUE(absl::IsUnknown(db_.CreateTable(table)));
  EXPECT_TRUE(absl::IsUnimplemented(db_.CreateTable(table)));
  EXPECT_EQ(TextOf(db_.CreateTable(table)), "no such type");
}

// ---- frames

// A gateway that takes one call on each connection, and answers with these bytes, whatever they are.
class FramesTest : public testing::Test {
 protected:
  static std::string Frame(FrameType type, const std::string& payload) {
    messaging::FrameHeader header;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.type = static_cast<uint8_t>(type);
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
  }
  static std::string Answered(const std::string& value) {
    pb::DirectAnswer answer;
    pb::Result* result = answer.mutable_execute()->add_results();
    result->set_code(pb::Result::DONE);
    result->set_value(value);
    return answer.SerializeAsString();
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("frames-" + std::to_string(getpid()) + ".sock")).string();
  std::string bytes_;
  std::atomic<int> calls_{0};
  FrameServer server_{path_ + ".direct", [this](Peer& peer) {
                        pb::DirectCall call;
                        if (!peer.Read(&call)) return;
                        ++calls_;
                        peer.WriteBytes(bytes_);
                      }};
  Client db_ = *Client::Connect("unix:" + path_);
};

TEST_F(FramesTest, AnswerInParts_IsOne) {
  const std::string value(100'000, 'v');
  const std::string answer = Answered(value);
  bytes_ = Frame(FrameType::kDirectAnswerPart, answer.substr(0, 70'000)) +
           Frame(FrameType::kDirectAnswerPart, "") + Frame(FrameType::kDirectAnswer, answer.substr(70'000));
  EXPECT_EQ(*db_.Get("accounts", 1), value);
  while (server_.closed() == 0) std::this_thread::yield();
  bytes_ = Frame(FrameType::kDirectAnswer, answer);
  EXPECT_EQ(*db_.Get("accounts", 1), value);  // on another connection: the first is closed
  EXPECT_EQ(calls_.load(), 2);
}

// Whatever comes instead of an answer: a change is of unknown outcome, and has been asked for once.
TEST_F(FramesTest, AnswerThatIsNone_LeavesTheOutcomeUnknown) {
  const std::string whole = Frame(FrameType::kDirectAnswer, Answered("v"));
  std::string version = whole, size = whole;
  version[4] ^= 1;
  size[3] = '\x7f';
  for (const std::string& bytes :
       {std::string(), whole.substr(0, 7), whole.substr(0, whole.size() - 1), version, size, whole + "x",
        Frame(FrameType::kDirectAnswer, "\xff\xff"), Frame(FrameType::kHello, Answered("v"))}) {
    bytes_ = bytes;
    calls_ = 0;
    EXPECT_TRUE(absl::IsUnknown(db_.Put("accounts", 1, "x"))) << absl::CEscape(bytes);
    EXPECT_EQ(calls_.load(), 1);
    const absl::Status read = db_.Get("accounts", 1).status();
    EXPECT_THAT(read.code(), testing::AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kInternal));
  }
}

TEST_F(FramesTest, AnswerWithoutEnd_IsNotTakenForever) {
  const std::string part = Frame(FrameType::kDirectAnswerPart, std::string(12 << 20, 'p'));
  bytes_ = part + part + part;
  const absl::Status put = db_.Put("accounts", 1, "x");
  EXPECT_TRUE(absl::IsUnknown(put));
  EXPECT_THAT(TextOf(put), HasSubstr("too large"));
}

TEST_F(FramesTest, GatewayThatSaysNothing_IsWaitedForUntilTheDeadline) {
  std::atomic<bool> over{false};
  const std::string path = path_ + "2";
  FrameServer silent(path + ".direct", [&](Peer& peer) {
    pb::DirectCall call;
    peer.Read(&call);
    EXPECT_GT(call.timeout_us(), 0u);
    EXPECT_LE(call.timeout_us(), 50'000u);
    peer.Read(&call);  // until the client is gone
    over = true;
  });
  Client db = *Client::Connect("unix:" + path);
  Batch batch;
  batch.Put("accounts", 1, "x");
  EXPECT_TRUE(absl::IsUnknown(db.Execute(batch, {.timeout_ms = 50}).status()));
  for (int i = 0; i < 4000 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(over) << "the connection is not used again";
}

}  // namespace
}  // namespace islands
