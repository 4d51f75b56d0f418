// The gateway before real islands, spoken to over gRPC as its clients do.
#include <map>
#include <set>
#include <sstream>

#include "instance/gateway/gateway_testing.h"
#include "instance/gateway/metrics.h"
#include "instance/server/metric_descriptors.h"

namespace islands::gateway {
namespace {

client::v1::Table Notes() {
  client::v1::Table table;
  table.set_name("notes");
  table.add_key("uint64");
  table.add_key_names("id");
  table.set_range_end(1000);
  table.add_fields()->set_name("stars");
  table.mutable_fields(0)->set_type("int64");
  table.add_fields()->set_name("text");
  table.mutable_fields(1)->set_type("string:12");
  client::v1::Index* index = table.add_indexes();
  index->set_name("by_stars");
  index->add_key("row:0:int64");
  return table;
}

TEST_F(GatewayTest, Tables_ComeAndGo) {
  const auto create = [&](const client::v1::Table& table) {
    client::v1::CreateTableRequest request;
    *request.mutable_table() = table;
    client::v1::CreateTableResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    return stub_->CreateTable(&context, request, &response);
  };
  const auto drop = [&](const std::string& name) {
    client::v1::DropTableRequest request;
    request.set_table(name);
    client::v1::DropTableResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    return stub_->DropTable(&context, request, &response);
  };
  ASSERT_TRUE(Execute({Put(1, "a"), Put(999, "b")}).ok());
  ASSERT_TRUE(create(Notes()).ok());
  ASSERT_TRUE(create(Notes()).ok()) << "it is the same";
  std::vector<Operation> inserts;
  for (const uint64_t key : {1, 2, 999}) {
    inserts.push_back(Insert(key, std::string(20, static_cast<char>(key % 100))));
    inserts.back().set_table("notes");
  }
  const grpc::Status inserted = Execute(inserts);
  ASSERT_TRUE(inserted.ok()) << inserted.error_message();
  client::v1::ListTablesResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListTables(&context, {}, &list).ok());
  ASSERT_EQ(list.tables_size(), 3);
  EXPECT_EQ(list.tables(2).row_bytes(), 20u);  // that its fields take
  client::v1::Table known = Notes();
  known.set_row_bytes(20);
  EXPECT_EQ(list.tables(2).SerializeAsString(), known.SerializeAsString());

  client::v1::Table other = Notes();
  other.set_range_end(7);
  EXPECT_EQ(create(other).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  other.set_name("islands.mine");
  EXPECT_EQ(create(other).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  other.set_name("other");
  other.mutable_fields(1)->set_type("text");
  const grpc::Status wrong = create(other);
  EXPECT_EQ(wrong.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(wrong.error_message(), HasSubstr("'text' is no type"));

  const grpc::Status full = drop("notes");
  EXPECT_EQ(full.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(full.error_message(), HasSubstr("table 'notes' has rows; delete"));
  std::vector<Operation> deletes;
  for (const uint64_t key : {1, 2, 999}) {
    deletes.push_back(On("notes"));
    deletes.back().mutable_delete_()->mutable_key()->add_parts()->set_unsigned_(key);
  }
  ASSERT_TRUE(Execute(deletes).ok());
  ASSERT_TRUE(drop("notes").ok());
  EXPECT_EQ(Execute({inserts[0]}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(create(Notes()).ok()) << "another one of that name";
  ASSERT_TRUE(Execute({inserts[0]}).ok());
  EXPECT_EQ(ValueOf(999), "b");
  for (uint32_t i = 0; i < 2; ++i) EXPECT_TRUE(cluster_.island(i).store().Check().ok());
}

// The deployment says by then that it is dropped: an island that refused would have to die.
TEST_F(GatewayTest, DropTable_TakesWhatIsWrittenMeanwhile) {
  control::v1::TablesRequest change;
  control::v1::TableSpec* spec = change.add_add();
  spec->set_name("notes");
  spec->add_key("uint64");
  spec->set_range_end(1000);
  const auto expect_ok = [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; };
  Change(change, expect_ok);
  Operation put = Put(1, "late");
  put.set_table("notes");
  between_ = [&] { EXPECT_TRUE(Execute({put}).ok()); };
  change.Clear();
  change.set_drop("notes");
  Change(change, expect_ok);
  EXPECT_EQ(Execute({put}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Execute({Put(1, "a"), Put(999, "b")}).ok());
}

TEST_F(GatewayTest, Transact_GoesOnWhenTablesComeAndGo) {
  grpc::ClientContext context;
  SetDeadline(context);
  auto stream = stub_->Transact(&context);
  TransactRequest request;
  TransactResponse response;
  *request.add_operations() = Put(1, "first");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  control::v1::TablesRequest change;
  control::v1::TableSpec* spec = change.add_add();
  spec->set_name("notes");
  spec->add_key("uint64");
  spec->set_range_end(1000);
  Change(change, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  change.Clear();
  change.set_drop("notes");
  Change(change, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  request.Clear();
  *request.add_operations() = Put(999, "second");
  request.set_end(TransactRequest::COMMIT);
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_TRUE(response.committed());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(ValueOf(1), "first");
}

TEST_F(TokenTest, Execute_IsCommittedOnce) {
  MakeTable();
  ASSERT_TRUE(Execute({Put(1, std::string(8, '\0')), Put(999, std::string(8, '\0'))}).ok());
  for (int again = 0; again < 3; ++again) {
    const grpc::Status added = ExecuteWith("t", {Add(1, 5), Add(999, -5)});
    ASSERT_TRUE(added.ok()) << added.error_message();
    EXPECT_EQ(response_.earlier(), again > 0);
    EXPECT_EQ(response_.results_size(), again > 0 ? 0 : 2);
    ASSERT_TRUE(Execute({Get(1)}).ok());
    EXPECT_EQ(response_.results(0).value()[0], 5);
  }
  EXPECT_EQ(OutcomeOf("t", 1), "committed");
  // The same when the transaction, a second time, would fail by itself.
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(ExecuteWith("u", {Insert(7, "seven")}).ok());
    EXPECT_EQ(response_.earlier(), again > 0);
  }
  const grpc::Status other = ExecuteWith("v", {Insert(7, "eight")});
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(FailureOf(other).reason(), "condition");
  EXPECT_EQ(FailureOf(other).operation(), 0);
  EXPECT_EQ(OutcomeOf("v", 7), "never");
  EXPECT_EQ(ExecuteWith(std::string(65, 't'), {Get(1)}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // Nobody else has use of the table.
  Operation scan = On(kTokensTable);
  scan.mutable_scan();
  EXPECT_EQ(Execute({scan}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Whoever has been told "never" can rely on it.
TEST_F(TokenTest, AskOutcome_EndsWhatIsUnderWay) {
  MakeTable();
  EXPECT_EQ(OutcomeOf("t", 1), "never");
  const grpc::Status late = ExecuteWith("t", {Put(1, "late")});
  EXPECT_EQ(late.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(FailureOf(late).reason(), "token");
  EXPECT_EQ(FailureOf(late).outcome(), Failure::ABORTED);
  EXPECT_EQ(ValueOf(1), "none");
  EXPECT_EQ(OutcomeOf("t", 1), "never");
  EXPECT_EQ(OutcomeOf("t", 2), "never") << "it was not committed there either";
}

TEST_F(TokenTest, Transact_IsCommittedOnce) {
  MakeTable();
  for (int again = 0; again < 2; ++again) {
    grpc::ClientContext context;
    SetDeadline(context);
    auto stream = stub_->Transact(&context);
    client::v1::TransactRequest request;
    client::v1::TransactResponse response;
    *request.add_operations() = Get(1);
    ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_EQ(response.results(0).code(), again > 0 ? Result::DONE : Result::NOT_FOUND);
    request.Clear();
    *request.add_operations() = Put(999, "put");  // elsewhere
    *request.add_operations() = Put(1, again > 0 ? "again" : "once");
    request.set_end(client::v1::TransactRequest::COMMIT);
    request.set_token("t");
    ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_TRUE(response.committed());
    EXPECT_EQ(response.earlier(), again > 0);
    EXPECT_EQ(response.results_size(), again > 0 ? 0 : 2);
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(ValueOf(1), "once");
    EXPECT_TRUE(Becomes([&] { return LocksHeld() == 0; }));  // the other island hears of it a little later
  }
  EXPECT_EQ(OutcomeOf("t", 1), "committed");
}

// Who asks knows the first operation's table and key, and nothing else.
TEST_F(TokenTest, AskOutcome_AsksWhereTheTokenIs) {
  MakeTable();
  Operation back = On("accounts");
  back.mutable_scan()->mutable_begin()->add_parts()->set_unsigned_(0);
  back.mutable_scan()->mutable_end()->add_parts()->set_unsigned_(1000);
  back.mutable_scan()->set_reverse(true);  // begins on the other island
  ASSERT_TRUE(ExecuteWith("back", {back, Put(1, "x")}).ok());
  EXPECT_EQ(OutcomeOf("back", 0), "committed");

  grpc::ClientContext context;
  SetDeadline(context);
  auto stream = stub_->Transact(&context);
  TransactRequest request;
  TransactResponse response;
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));  // no operation yet
  *request.add_operations() = Put(999, "x");
  request.set_end(TransactRequest::COMMIT);
  request.set_token("later");
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_TRUE(response.committed());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(OutcomeOf("later", 999), "committed");
}

// Two at the same time, and who asks besides: they agree.
TEST_F(TokenTest, Concurrently_AllAreToldTheSame) {
  MakeTable();
  ASSERT_TRUE(Execute({Put(1, std::string(8, '\0')), Put(999, std::string(8, '\0'))}).ok());
  int64_t committed = 0;
  for (int round = 0; round < 100; ++round) {
    const std::string token = "round " + std::to_string(round);
    std::array<std::atomic<int>, 3> told{};  // 1 committed, 2 never
    std::vector<std::thread> clients;
    for (int i = 0; i < 2; ++i) {
      clients.emplace_back([&, i] {
        ExecuteRequest request;
        *request.add_operations() = Add(1, 1);
        *request.add_operations() = Add(999, 1);
        request.set_token(token);
        grpc::ClientContext context;
        SetDeadline(context);
        client::v1::ExecuteResponse response;
        const grpc::Status status = stub_->Execute(&context, request, &response);
        told[static_cast<size_t>(i)] = status.ok() ? 1 : FailureOf(status).reason() == "token" ? 2 : 3;
      });
    }
    clients.emplace_back([&] { told[2] = OutcomeOf(token, 1) == "committed" ? 1 : 2; });
    for (std::thread& client : clients) client.join();
    ASSERT_EQ(told[0], told[2]) << round;
    ASSERT_EQ(told[1], told[2]) << round;
    committed += told[2] == 1;
  }
  ASSERT_TRUE(Execute({Get(1), Get(999)}).ok());
  for (int i = 0; i < 2; ++i) {
    int64_t sum = 0;
    std::memcpy(&sum, response_.results(i).value().data(), sizeof(sum));
    EXPECT_EQ(sum, committed);
  }
}

TEST_F(TokenTest, Sweeper_RemovesWhatIsOld) {
  MakeTable();
  TokenSweeper sweeper(*channels_);
  const int64_t now_s = time(nullptr);
  for (int i = 0; i < 700; ++i) ASSERT_TRUE(ExecuteWith(std::to_string(i), {Put(1, "x")}).ok());
  ASSERT_TRUE(ExecuteWith("there", {Put(999, "x")}).ok());
  const auto tokens = [&] {
    uint64_t rows = 0;
    for (uint32_t i = 0; i < 2; ++i)
      rows += cluster_.island(i).store().CountRows(FindTokensTable(*view())->id);
    return rows;
  };
  const auto pass = [&](int64_t at_s) {
    while (sweeper.Step(*view(), at_s)) {
    }
  };
  pass(now_s + kTokensKeptS - 60);
  EXPECT_EQ(tokens(), 701u);
  pass(now_s + kTokensKeptS + 60);
  EXPECT_TRUE(Becomes([&] { return tokens() == 0; }));
}

TEST_F(GatewayTest, Execute_IsOneTransactionOverAllIslands) {
  ASSERT_TRUE(Execute({Put(1, "one"), Put(900, "nine hundred")}).ok());
  EXPECT_FALSE(response_.transaction().empty());
  ASSERT_TRUE(Execute({Get(900), Get(1), Get(2)}).ok());
  ASSERT_EQ(response_.results_size(), 3);
  EXPECT_EQ(response_.results(0).value(), "nine hundred");
  EXPECT_EQ(response_.results(1).value(), "one");
  EXPECT_EQ(response_.results(2).code(), Result::NOT_FOUND);
  // Begun where its first key lives: island 1.
  EXPECT_EQ(response_.transaction().substr(0, 2), "1.");
  EXPECT_GE(cluster_.Sum().distributed, 2u);
}

TEST_F(GatewayTest, Condition_ThatDoesNotHoldUndoesAllOfIt) {
  ASSERT_TRUE(Execute({Put(900, "there")}).ok());
  const grpc::Status status = Execute({Put(1, "one"), Insert(900, "again")});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const Failure failure = FailureOf(status);
  EXPECT_EQ(failure.outcome(), Failure::ABORTED);
  EXPECT_EQ(failure.reason(), "condition");
  EXPECT_EQ(failure.operation(), 1);
  EXPECT_EQ(ValueOf(1), "none");
  EXPECT_EQ(ValueOf(900), "there");
}

TEST_F(GatewayTest, Add_SaysTheSum) {
  ASSERT_TRUE(Execute({Put(1, std::string(8, '\0'))}).ok());
  ASSERT_TRUE(Execute({Add(1, 7), Add(1, -9)}).ok());
  EXPECT_EQ(response_.results(0).number(), 7);
  EXPECT_EQ(response_.results(1).number(), -2);
}

TEST_F(GatewayTest, Scan_GoesOverIslandsInKeyOrder) {
  for (const uint64_t key : {10, 499, 500, 999}) ASSERT_TRUE(Execute({Put(key, std::to_string(key))}).ok());
  const auto scanned = [this](Operation scan) {
    EXPECT_TRUE(Execute({std::move(scan)}).ok());
    std::vector<std::string> rows;
    for (const client::v1::Row& row : response_.results(0).rows())
      rows.push_back(std::to_string(row.key().parts(0).unsigned_()) + "=" + row.value());
    return rows;
  };
  Operation scan = On("accounts");
  scan.mutable_scan();
  EXPECT_THAT(scanned(scan), ElementsAre("10=10", "499=499", "500=500", "999=999"));
  scan.mutable_scan()->mutable_begin()->add_parts()->set_unsigned_(499);
  scan.mutable_scan()->mutable_end()->add_parts()->set_unsigned_(999);
  EXPECT_THAT(scanned(scan), ElementsAre("499=499", "500=500"));
  scan.mutable_scan()->set_reverse(true);
  scan.mutable_scan()->set_limit(1);
  EXPECT_THAT(scanned(scan), ElementsAre("500=500"));
}

TEST_F(GatewayTest, IndexScan_FindsByWhatTheRowSays) {
  ASSERT_TRUE(
      Execute({Person(-7, "ann", 30), Person(-7, "bob", 20), Person(-8, "cid", 25), Person(99, "dan", 25)})
          .ok());
  Operation scan = On("people");
  scan.mutable_index_scan()->set_index("by_age");
  scan.mutable_index_scan()->mutable_at()->add_parts()->set_signed_(-7);
  scan.mutable_index_scan()->mutable_begin()->add_parts()->set_unsigned_(21);
  ASSERT_TRUE(Execute({scan}).ok());
  std::vector<std::string> names;
  for (const client::v1::Row& row : response_.results(0).rows()) names.push_back(row.key().parts(1).text());
  EXPECT_THAT(names, ElementsAre("cid", "ann"));  // by age, of the partition that -7 is in
}

TEST_F(GatewayTest, WhatMakesNoSense_IsRefusedInWords) {
  const auto refused = [this](const Operation& operation) {
    const grpc::Status status = Execute({Get(1), operation});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
    return status.error_message();
  };
  Operation operation = On("account");
  operation.mutable_get();
  EXPECT_EQ(refused(operation), "operation 1, table 'account': there is no such table");
  EXPECT_EQ(Execute({operation}).error_message(), "table 'account': there is no such table");
  operation = On("accounts");
  EXPECT_THAT(refused(operation), HasSubstr("an operation of no kind"));
  operation.mutable_get();
  EXPECT_THAT(refused(operation), HasSubstr("a key of 0 part(s), expected 1: uint64"));
  operation.mutable_get()->mutable_key()->add_parts()->set_text("x");
  EXPECT_THAT(refused(operation), HasSubstr("part 0 of the key is text, expected one that uint64 can hold"));
  operation.mutable_get()->mutable_key()->mutable_parts(0)->set_signed_(-1);
  EXPECT_THAT(refused(operation), HasSubstr("part 0 of the key is a signed number"));
  operation = Put(3, std::string(2000, 'x'));
  EXPECT_THAT(refused(operation), HasSubstr("a row of 2000 bytes, expected at most 1536"));
  operation = Person(1, "eve", 1);
  operation.mutable_insert()->set_value("short");
  EXPECT_THAT(refused(operation), HasSubstr("a row of 5 bytes, expected 12"));
  operation = Person(1, std::string(400, 'n'), 1);
  EXPECT_THAT(refused(operation), HasSubstr("table 'people'"));
  operation = On("people");
  operation.mutable_index_scan()->set_index("by_name");
  EXPECT_THAT(refused(operation), HasSubstr("there is no index 'by_name'"));
  operation = Add(1, 1);
  operation.mutable_add()->set_offset(0xffffffff);
  EXPECT_THAT(refused(operation), HasSubstr("offset 4294967295"));
  const grpc::Status status = Execute({Person(1000, "eve", 1)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr("1000 is outside the table's range [-100, 100)"));
  EXPECT_EQ(LocksHeld(), 0u);
}

TEST_F(GatewayTest, ExecuteMany_EachIsForItself) {
  client::v1::ExecuteManyRequest request;
  *request.add_transactions()->add_operations() = Put(1, "one");
  *request.add_transactions()->add_operations() = Add(3, 1);  // there is no row 3
  *request.add_transactions()->add_operations() = On("nowhere");
  *request.add_transactions()->add_operations() = Put(900, "nine hundred");
  grpc::ClientContext context;
  SetDeadline(context);
  client::v1::ExecuteManyResponse response;
  ASSERT_TRUE(stub_->ExecuteMany(&context, request, &response).ok());
  ASSERT_EQ(response.each_size(), 4);
  EXPECT_EQ(response.each(0).code(), 0u);
  EXPECT_EQ(response.each(0).response().results_size(), 1);
  EXPECT_EQ(response.each(1).code(), static_cast<uint32_t>(grpc::StatusCode::FAILED_PRECONDITION));
  EXPECT_EQ(response.each(1).failure().reason(), "condition");
  EXPECT_EQ(response.each(2).code(), static_cast<uint32_t>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(response.each(3).code(), 0u);
  EXPECT_EQ(ValueOf(900), "nine hundred");
  EXPECT_TRUE(Becomes([&] { return service_->open() == 0; }));
}

TEST_F(GatewayTest, ListTables_SaysWhatThereIs) {
  grpc::ClientContext context;
  client::v1::ListTablesResponse response;
  ASSERT_TRUE(stub_->ListTables(&context, {}, &response).ok());
  ASSERT_EQ(response.tables_size(), 2);
  EXPECT_EQ(response.tables(1).name(), "people");
  EXPECT_THAT(response.tables(1).key(), ElementsAre("int32", "string"));
  EXPECT_EQ(response.tables(1).indexes(0).name(), "by_age");
}

// A client's side of Transact.
class Steps {
 public:
  explicit Steps(client::v1::Islands::Stub& stub) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stream_ = stub.Transact(&context_);
  }
  // Whether there is a response.
  bool Do(const std::vector<Operation>& operations,
          TransactRequest::End end = TransactRequest::END_UNSPECIFIED) {
    TransactRequest request;
    for (const Operation& operation : operations) *request.add_operations() = operation;
    request.set_end(end);
    return stream_->Write(request) && stream_->Read(&response);
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() {
    stream_->WritesDone();
    while (stream_->Read(&response)) {
    }
    return stream_->Finish();
  }
  TransactResponse response;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<TransactRequest, TransactResponse>> stream_;
};

TEST_F(GatewayTest, Transact_IsCommittedAsOne) {
  Steps steps(*stub_);
  ASSERT_TRUE(steps.Do({Put(1, "one")}));
  EXPECT_FALSE(steps.response.committed());
  ASSERT_TRUE(steps.Do({Get(1), Put(900, "nine hundred")}));
  EXPECT_EQ(steps.response.results(0).value(), "one");
  ASSERT_TRUE(steps.Do({}, TransactRequest::COMMIT));
  EXPECT_TRUE(steps.response.committed());
  EXPECT_TRUE(steps.End().ok());
  EXPECT_EQ(ValueOf(1), "one");
  EXPECT_EQ(ValueOf(900), "nine hundred");
}

TEST_F(GatewayTest, Transact_ThatIsNotCommittedIsRolledBack) {
  ASSERT_TRUE(Execute({Put(1, "before"), Put(900, "before")}).ok());
  {
    Steps steps(*stub_);
    ASSERT_TRUE(steps.Do({Put(1, "after"), Put(900, "after")}));
    ASSERT_TRUE(steps.Do({}, TransactRequest::ROLLBACK));
    EXPECT_FALSE(steps.response.committed());
    EXPECT_TRUE(steps.End().ok());
  }
  EXPECT_EQ(ValueOf(1), "before");
  {
    Steps steps(*stub_);  // its client just stops
    ASSERT_TRUE(steps.Do({Put(1, "after"), Put(900, "after")}));
    EXPECT_TRUE(steps.End().ok());
  }
  EXPECT_EQ(ValueOf(900), "before");
  {
    Steps steps(*stub_);  // or is gone
    ASSERT_TRUE(steps.Do({Put(1, "after"), Put(900, "after")}));
    steps.Cancel();
    EXPECT_EQ(steps.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(ValueOf(1), "before");  // waits for the lock, if need be
  {
    Steps steps(*stub_);  // or says nonsense
    ASSERT_TRUE(steps.Do({Put(1, "after")}));
    EXPECT_FALSE(steps.Do({On("nowhere")}));
    const grpc::Status status = steps.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
  }
  EXPECT_EQ(LocksHeld(), 0u);
  EXPECT_EQ(ValueOf(1), "before");
}

TEST_F(GatewayTest, Transact_MissIsAResultUntilItIsToCommit) {
  Steps steps(*stub_);
  ASSERT_TRUE(steps.Do({Insert(1, "one")}));
  ASSERT_TRUE(steps.Do({Insert(1, "two"), Get(1)}));
  EXPECT_EQ(steps.response.results(0).code(), Result::ALREADY_EXISTS);
  EXPECT_EQ(steps.response.results(1).value(), "one");
  EXPECT_FALSE(steps.Do({Add(2, 1)}, TransactRequest::COMMIT));
  const grpc::Status status = steps.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(FailureOf(status).operation(), 0);
  EXPECT_EQ(ValueOf(1), "none");
}

TEST_F(GatewayTest, Deadlock_EndsOneOfTwo) {
  ASSERT_TRUE(Execute({Put(1, "a"), Put(900, "b")}).ok());
  Steps first(*stub_), second(*stub_);
  ASSERT_TRUE(first.Do({Put(1, "first")}));
  ASSERT_TRUE(second.Do({Put(900, "second")}));
  bool first_goes_on = false;
  std::thread crossing([&] { first_goes_on = first.Do({Put(900, "first")}, TransactRequest::COMMIT); });
  const bool second_goes_on = second.Do({Put(1, "second")}, TransactRequest::COMMIT);
  crossing.join();
  EXPECT_NE(first_goes_on, second_goes_on);
  const grpc::Status victim = first_goes_on ? second.End() : first.End();
  EXPECT_EQ(victim.error_code(), grpc::StatusCode::ABORTED) << victim.error_message();
  EXPECT_EQ(FailureOf(victim).outcome(), Failure::ABORTED);
  EXPECT_EQ(ValueOf(1), first_goes_on ? "first" : "second");
}

TEST_F(GatewayTest, IslandThatDies_IsSaidSoAndNoLie) {
  ASSERT_TRUE(Execute({Put(1, "one")}).ok());
  Steps open(*stub_);
  ASSERT_TRUE(open.Do({Put(901, "open")}));
  cluster_.Crash(1);
  AwaitIsland(1, false);
  // It was not told to commit: for certain nothing is left of it.
  EXPECT_FALSE(open.Do({}, TransactRequest::COMMIT));
  const grpc::Status ended = open.End();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  EXPECT_EQ(FailureOf(ended).outcome(), Failure::ABORTED);
  const grpc::Status never = Execute({Put(900, "x")});
  EXPECT_EQ(never.error_code(), grpc::StatusCode::UNAVAILABLE) << never.error_message();
  EXPECT_EQ(FailureOf(never).outcome(), Failure::ABORTED);
  EXPECT_THAT(never.error_message(), HasSubstr("island 1 cannot be reached"));
  EXPECT_EQ(ValueOf(1), "one");  // the other one goes on
  ASSERT_TRUE(cluster_.Restart(1).ok());
  AwaitIsland(1);
  EXPECT_TRUE(Execute({Put(900, "x")}).ok());
}

// What was sent, and told to commit, may have been carried out when the link breaks.
TEST_F(GatewayTest, LinkThatBreaksUnderACommit_LeavesItUnknown) {
  ASSERT_TRUE(Execute({Put(900, "before")}).ok());
  Steps holder(*stub_);
  ASSERT_TRUE(holder.Do({Put(900, "holder")}));
  grpc::Status status;
  std::thread waiting([&] { status = Execute({Put(900, "waiting")}); });  // for the lock
  EXPECT_TRUE(Becomes([&] { return service_->open() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  cluster_.hub().Break({2, 0}, 1);
  waiting.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNKNOWN) << status.error_message();
  EXPECT_EQ(FailureOf(status).outcome(), Failure::UNKNOWN);
  const grpc::Status held = holder.End();
  EXPECT_TRUE(held.error_code() == grpc::StatusCode::UNAVAILABLE || held.ok()) << held.error_message();
  AwaitIsland(1);
  // It was: what a gateway leaves behind goes on if it was told to commit.
  EXPECT_TRUE(Becomes([&] { return ValueOf(900) == "waiting"; }));
}

TEST_F(GatewayTest, OtherTables_AreNoticed) {
  auto other = std::make_shared<View>(*view());
  other->tables += 1;
  SetView(other);
  const grpc::Status status = Execute({Get(1)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_TRUE(other_tables_);
}

class LimitedGatewayTest : public GatewayTest {
 protected:
  LimitedGatewayTest() : GatewayTest({.call_us = 300'000, .idle_us = 200'000, .most_transactions = 2}) {}
};

TEST_F(LimitedGatewayTest, TooMany_AreRefused) {
  Steps first(*stub_), second(*stub_);
  ASSERT_TRUE(first.Do({Put(1, "one")}));
  ASSERT_TRUE(second.Do({Put(2, "two")}));
  Steps third(*stub_);
  EXPECT_FALSE(third.Do({Put(3, "three")}));
  const grpc::Status status = third.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
  EXPECT_EQ(service_->counters().full(), 1);
  EXPECT_TRUE(first.End().ok());
  EXPECT_TRUE(second.End().ok());
}

TEST_F(LimitedGatewayTest, ClientThatSaysNothing_LosesItsTransaction) {
  Steps silent(*stub_);
  ASSERT_TRUE(silent.Do({Put(1, "silent")}));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(ValueOf(1), "none");
  EXPECT_FALSE(silent.Do({}, TransactRequest::COMMIT));
  const grpc::Status status = silent.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
}

TEST_F(LimitedGatewayTest, CallWithoutADeadline_HasOne) {
  Steps holder(*stub_);
  ASSERT_TRUE(holder.Do({Put(1, "holder")}));
  ExecuteRequest request;
  *request.add_operations() = Put(1, "waiting");
  grpc::ClientContext context;
  std::thread keeper([&] {
    for (int i = 0; i < 5; ++i)
      holder.Do({Get(1)}), std::this_thread::sleep_for(std::chrono::milliseconds(80));
  });
  const grpc::Status status = stub_->Execute(&context, request, &response_);
  keeper.join();
  EXPECT_THAT(status.error_code(),
              testing::AnyOf(grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::ABORTED))
      << status.error_message();
  EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
  holder.End();
}

// ---- what is counted

class Counted : public GatewayTest {
 protected:
  using GatewayTest::GatewayTest;
  uint64_t Calls(Method method, grpc::StatusCode code) { return counters().of(method).calls[code].Get(); }
  static uint64_t Times(const TimeHistogram& histogram) {
    uint64_t times = 0;
    for (uint32_t b = 0; b < TimeHistogram::kBuckets; ++b) times += histogram.bucket(b);
    return times;
  }
  uint64_t Failed(const std::string& reason) {
    for (size_t i = 0; i < kReasons; ++i) {
      if (ReasonName(i) == reason) return counters().failed(i);
    }
    ADD_FAILURE() << "no such reason: " << reason;
    return 0;
  }
  // committed, aborted, unknown, rolled back
  std::vector<uint64_t> Ended() {
    std::vector<uint64_t> ended;
    for (size_t i = 0; i < kOutcomes; ++i) ended.push_back(counters().ended(static_cast<Outcome>(i)));
    return ended;
  }
  const Counters& counters() { return service_->counters(); }
};

TEST_F(Counted, Execute_ByCodeOutcomeAndReason) {
  ASSERT_TRUE(Execute({Put(1, "one"), Put(900, "far")}).ok());
  ASSERT_TRUE(Execute({Get(1)}).ok());
  ASSERT_FALSE(Execute({Insert(1, "again")}).ok());
  ASSERT_FALSE(Execute({On("nowhere")}).ok());
  EXPECT_EQ(Calls(Method::kExecute, grpc::StatusCode::OK), 2);
  EXPECT_EQ(Calls(Method::kExecute, grpc::StatusCode::FAILED_PRECONDITION), 1);
  EXPECT_EQ(Calls(Method::kExecute, grpc::StatusCode::INVALID_ARGUMENT), 1);
  EXPECT_THAT(Ended(), ElementsAre(2, 2, 0, 0));
  EXPECT_EQ(Failed("condition"), 1);
  EXPECT_EQ(Failed("invalid"), 1);
  const MethodCounters& execute = counters().of(Method::kExecute);
  EXPECT_EQ(Times(execute.latency), 4);
  EXPECT_EQ(Times(execute.island_wait), 4);
  EXPECT_GT(execute.island_wait.sum_ns(), 0);
  EXPECT_GT(execute.latency.sum_ns(), execute.island_wait.sum_ns());
  EXPECT_EQ(channels_->Traffic(0).messages_sent.Get(), 3);
  EXPECT_EQ(channels_->Traffic(0).messages_received.Get(), 3);
  EXPECT_GT(channels_->Traffic(0).bytes_sent.Get(), 30);
  EXPECT_EQ(channels_->Traffic(1).messages_sent.Get(), 0);
  EXPECT_EQ(server_->admitted(), 1);
}

TEST_F(Counted, ExecuteMany_OneCallAndEachTransaction) {
  client::v1::ExecuteManyRequest request;
  *request.add_transactions()->add_operations() = Put(1, "one");
  *request.add_transactions()->add_operations() = Put(900, "far");
  *request.add_transactions()->add_operations() = On("nowhere");
  client::v1::ExecuteManyResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  ASSERT_TRUE(stub_->ExecuteMany(&context, request, &response).ok());
  EXPECT_EQ(Calls(Method::kExecuteMany, grpc::StatusCode::OK), 1);
  EXPECT_THAT(Ended(), ElementsAre(2, 1, 0, 0));
  const MethodCounters& many = counters().of(Method::kExecuteMany);
  EXPECT_EQ(Times(many.latency), 1);
  EXPECT_GT(many.island_wait.sum_ns(), 0);
  EXPECT_GE(many.latency.sum_ns(), many.island_wait.sum_ns());
  for (int i = 0; i < 1022; ++i) request.add_transactions();
  grpc::ClientContext again;
  SetDeadline(again);
  ASSERT_FALSE(stub_->ExecuteMany(&again, request, &response).ok());
  EXPECT_EQ(Calls(Method::kExecuteMany, grpc::StatusCode::INVALID_ARGUMENT), 1);
  EXPECT_THAT(Ended(), ElementsAre(2, 1 + 1025, 0, 0));
}

TEST_F(Counted, Transact_EachRequestIsTimedAndEachTransactionEndsOnce) {
  {
    Steps committed(*stub_);
    ASSERT_TRUE(committed.Do({Put(1, "one")}));
    ASSERT_TRUE(committed.Do({Put(900, "far")}, TransactRequest::COMMIT));
    EXPECT_TRUE(committed.End().ok());
  }
  EXPECT_THAT(Ended(), ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(Times(counters().of(Method::kTransact).latency), 2);
  EXPECT_EQ(Calls(Method::kTransact, grpc::StatusCode::OK), 1);
  {
    Steps taken_back(*stub_), left(*stub_), wrong(*stub_), nothing(*stub_);
    ASSERT_TRUE(taken_back.Do({Put(1, "two")}, TransactRequest::ROLLBACK));
    EXPECT_TRUE(taken_back.End().ok());
    EXPECT_THAT(Ended(), ElementsAre(1, 0, 0, 1));
    ASSERT_TRUE(left.Do({Put(2, "two")}));
    EXPECT_TRUE(left.End().ok());
    ASSERT_TRUE(wrong.Do({Put(3, "three")}));
    EXPECT_FALSE(wrong.Do({On("nowhere")}));
    EXPECT_FALSE(wrong.End().ok());
    EXPECT_TRUE(nothing.End().ok());
  }
  EXPECT_THAT(Ended(), ElementsAre(1, 1, 0, 2));
  EXPECT_EQ(Failed("invalid"), 1);
  EXPECT_EQ(Times(counters().of(Method::kTransact).latency), 2 + 1 + 1 + 2);
  EXPECT_EQ(Times(counters().of(Method::kTransact).island_wait), 2 + 1 + 1 + 2);
  EXPECT_EQ(Calls(Method::kTransact, grpc::StatusCode::OK), 4);
  EXPECT_EQ(Calls(Method::kTransact, grpc::StatusCode::INVALID_ARGUMENT), 1);
}

// What a client thinks about while its transaction is open is nobody's time.
TEST_F(Counted, Transact_ClientsOwnTimeIsInNoHistogram) {
  Steps slow(*stub_);
  ASSERT_TRUE(slow.Do({Put(1, "one")}));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ASSERT_TRUE(slow.Do({}, TransactRequest::COMMIT));
  EXPECT_TRUE(slow.End().ok());
  const MethodCounters& transact = counters().of(Method::kTransact);
  EXPECT_LT(transact.latency.sum_ns(), 500 * runtime::kNsPerMs);
  EXPECT_LE(transact.island_wait.sum_ns(), transact.latency.sum_ns());
}

// One waits for the lock of another: that is the island's time.
TEST_F(Counted, WaitsForLocksAreTheIslandsTime) {
  Steps holder(*stub_);
  ASSERT_TRUE(holder.Do({Put(1, "held")}));
  std::thread waiting([this] { EXPECT_TRUE(Execute({Put(1, "waits")}).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(holder.Do({}, TransactRequest::COMMIT));
  EXPECT_TRUE(holder.End().ok());
  waiting.join();
  const MethodCounters& execute = counters().of(Method::kExecute);
  EXPECT_GT(execute.island_wait.sum_ns(), 50 * runtime::kNsPerMs);
  EXPECT_LT(execute.latency.sum_ns() - execute.island_wait.sum_ns(), 50 * runtime::kNsPerMs);
}

TEST_F(Counted, LostIslands_LeaveAbortedAndUnknown) {
  Steps open(*stub_), committing(*stub_);
  ASSERT_TRUE(open.Do({Put(1, "open")}));
  ASSERT_TRUE(committing.Do({Put(900, "far")}));
  cluster_.Crash(0);
  AwaitIsland(0, false);
  EXPECT_FALSE(open.Do({Get(1)}));
  EXPECT_EQ(open.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Execute({Put(2, "nobody there")}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Ended(), ElementsAre(0, 2, 0, 0));
  EXPECT_EQ(Failed("peer_lost"), 2);
  EXPECT_EQ(Times(counters().of(Method::kExecute).island_wait), 1);
  EXPECT_EQ(counters().of(Method::kExecute).island_wait.sum_ns(), 0) << "no island ever had it";
}

TEST(TimeHistogram, BoundsAreWhereIslandsHaveThem) {
  EXPECT_EQ(TimeHistogram::BucketOf(0), 0u);
  EXPECT_EQ(TimeHistogram::BucketOf(3), 0u);
  EXPECT_EQ(TimeHistogram::BucketOf(4), 1u);
  for (uint32_t b = 0; b + 1 < TimeHistogram::kBuckets; ++b) {
    EXPECT_EQ(TimeHistogram::BucketOf(TimeHistogram::BoundUs(b) - 1), b);
    EXPECT_EQ(TimeHistogram::BucketOf(TimeHistogram::BoundUs(b)), b + 1);
  }
  EXPECT_EQ(TimeHistogram::BoundUs(TimeHistogram::kBuckets - 2), 1u << 23);
  EXPECT_EQ(TimeHistogram::BucketOf(UINT64_MAX), TimeHistogram::kBuckets - 1);
}

TEST(Counters, EveryReasonAndOutcomeOnItsOwn) {
  Counters counters;
  counters.TransactionEnded({});
  counters.TransactionEnded(LostAnswer(/*may_have_committed=*/true, absl::UnavailableError("lost")));
  counters.TransactionEnded(LostAnswer(false, absl::UnavailableError("lost")), 3);
  counters.TransactionEnded(Refusal(absl::InternalError(""), "of another version"));
  counters.RolledBack();
  EXPECT_EQ(counters.ended(Outcome::kCommitted), 1u);
  EXPECT_EQ(counters.ended(Outcome::kUnknown), 1u);
  EXPECT_EQ(counters.ended(Outcome::kAborted), 4u);
  EXPECT_EQ(counters.ended(Outcome::kRolledBack), 1u);
  std::map<std::string_view, uint64_t> reasons;
  for (size_t i = 0; i < kReasons; ++i) reasons[ReasonName(i)] = counters.failed(i);
  EXPECT_EQ(reasons.size(), kReasons) << "a word twice";
  EXPECT_EQ(reasons["unknown"], 1u);
  EXPECT_EQ(reasons["peer_lost"], 3u);
  EXPECT_EQ(reasons["other"], 1u);
}

// ---- what is served of it

std::set<std::string> Words(std::string_view text, char between) {
  std::set<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; std::getline(stream, word, between);) words.insert(word);
  return words;
}

TEST_F(Counted, Collect_ServesWhatThePageSays) {
  ASSERT_TRUE(Execute({Put(1, "one")}).ok());
  const MetricsCollector collector(*service_, *channels_, *server_, 1.5e9);
  std::map<std::string, prometheus::MetricFamily> families;
  for (prometheus::MetricFamily& family : collector.Collect())
    EXPECT_TRUE(families.emplace(family.name, family).second) << family.name;
  for (const server::MetricDescriptor& metric : server::AllMetrics()) {
    EXPECT_EQ(families.contains(std::string(metric.name)), metric.section == server::kGatewaySection)
        << metric.name;
    if (metric.section != server::kGatewaySection) continue;
    std::map<std::string, std::set<std::string>> seen;
    for (const prometheus::ClientMetric& each : families[std::string(metric.name)].metric) {
      for (const prometheus::ClientMetric::Label& label : each.label) seen[label.name].insert(label.value);
    }
    for (const std::string& label : Words(metric.labels, ' ')) {
      const std::string name = label.substr(0, label.find('='));
      ASSERT_TRUE(seen.contains(name)) << metric.name << ", " << name;
      if (name != label) {
        EXPECT_EQ(seen[name], Words(label.substr(name.size() + 1), '|')) << metric.name;
      }
      seen.erase(name);
    }
    EXPECT_TRUE(seen.empty()) << metric.name << ": " << testing::PrintToString(seen);
  }
}

}  // namespace
}  // namespace islands::gateway
