// Procedures of loaded workloads, called through the gateway.
#include "instance/gateway/gateway_testing.h"

namespace islands::gateway {
namespace {

class CallTest : public TokenTest {
 protected:
  void LoadBank() {
    control::v1::LoadSpec load;
    load.set_workload("bank");
    for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(cluster_.island(i).Load(load).ok());
    AwaitIsland(0), AwaitIsland(1), AwaitLinks();
  }
  static client::v1::CallRequest Move(int64_t from, int64_t to, int64_t amount, const std::string& why) {
    client::v1::CallRequest request;
    request.set_procedure("bank.move");
    for (const int64_t number : {from, to, amount}) request.add_arguments()->set_number(number);
    request.add_arguments()->set_text(why);
    return request;
  }
  grpc::Status Call(client::v1::CallRequest request, const std::string& token = "") {
    request.set_token(token);
    grpc::ClientContext context;
    SetDeadline(context);
    called_.Clear();
    return stub_->Call(&context, request, &called_);
  }
  int64_t BalanceOf(uint64_t key) {
    const std::string row = ValueOf(key);
    int64_t balance = -1;
    if (row.size() == sizeof(balance)) std::memcpy(&balance, row.data(), sizeof(balance));
    return balance;
  }
  client::v1::CallResponse called_;
};

TEST_F(CallTest, Call_BeginsWhereItsFirstArgumentIs) {
  EXPECT_EQ(Call(Move(1, 999, 5, "x")).error_code(), grpc::StatusCode::NOT_FOUND) << "it is not loaded";
  {  // Nobody can say that there is none while an island is away.
    control::v1::ClusterStatus status;
    *status.add_configs() = cluster_.island(0).config();
    *status.add_islands() = cluster_.island(0).Status();
    status.add_islands()->set_island(1);
    EXPECT_FALSE((*View::Create(status))->all_answered);
    *status.mutable_islands(1) = cluster_.island(1).Status();
    EXPECT_TRUE((*View::Create(status))->all_answered);
  }
  LoadBank();  // after the view was made
  ASSERT_TRUE(Execute({Put(1, std::string(8, '\0')), Put(999, std::string(8, '\0'))}).ok());
  const grpc::Status moved = Call(Move(1, 999, 5, "rent\xff"));
  ASSERT_TRUE(moved.ok()) << moved.error_message();
  ASSERT_EQ(called_.results_size(), 2);
  EXPECT_EQ(called_.results(0).number(), -5);
  EXPECT_EQ(called_.results(1).text(), "rent\xff");
  EXPECT_TRUE(called_.transaction().starts_with("0.")) << called_.transaction();
  ASSERT_TRUE(Call(Move(999, 1, 2, "")).ok());
  EXPECT_TRUE(called_.transaction().starts_with("1.")) << called_.transaction();
  EXPECT_EQ(called_.results(0).number(), 3);
  EXPECT_EQ(BalanceOf(1), -3);
  EXPECT_EQ(BalanceOf(999), 3);
  const grpc::Status missing = Call(Move(1, 7, 5, ""));
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.error_message(), "there is no such account");
  EXPECT_EQ(FailureOf(missing).outcome(), Failure::ABORTED);
  EXPECT_EQ(FailureOf(missing).reason(), "procedure");
  EXPECT_EQ(BalanceOf(1), -3);
  EXPECT_TRUE(Becomes([&] { return LocksHeld() == 0; }));
  EXPECT_EQ(service_->open(), 0u);
  EXPECT_EQ(service_->counters().of(Method::kCall).calls[grpc::StatusCode::OK].Get(), 2u);
  EXPECT_EQ(service_->counters().of(Method::kCall).calls[grpc::StatusCode::NOT_FOUND].Get(), 2u);

  client::v1::ListProceduresResponse list;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListProcedures(&context, {}, &list).ok());
  ASSERT_EQ(list.procedures_size(), 2);
  EXPECT_EQ(list.procedures(0).name(), "bank.move");
  EXPECT_EQ(list.procedures(0).about(), "moves money");
  EXPECT_EQ(list.procedures(0).home_table(), "accounts");
  EXPECT_EQ(list.procedures(0).arguments(2).type(), "double");
  EXPECT_EQ(list.procedures(0).results(1).name(), "why");
}

TEST_F(CallTest, Call_SaysWhatIsWrongWithItsArguments) {
  LoadBank();
  const auto complaint = [&](const client::v1::CallRequest& request) {
    const grpc::Status status = Call(request);
    EXPECT_EQ(FailureOf(status).outcome(), Failure::ABORTED);
    EXPECT_EQ(FailureOf(status).reason(), "invalid");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  client::v1::CallRequest request = Move(1, 2, 3, "");
  request.mutable_arguments()->RemoveLast();
  EXPECT_THAT(complaint(request),
              HasSubstr("procedure 'bank.move': found 3 argument(s), expected 4: from int64, "
                        "to int64, amount double, why text"));
  request = Move(1, 2, 3, "");
  request.mutable_arguments(1)->set_text("two");
  EXPECT_THAT(complaint(request), HasSubstr("argument 2 'to': found text, expected int64"));
  request.mutable_arguments(1)->clear_text();
  EXPECT_THAT(complaint(request), HasSubstr("argument 2 'to': found nothing, expected int64"));
  EXPECT_THAT(complaint(Move(1000, 2, 3, "")), HasSubstr("argument 1 'from', of table 'accounts': "));
  EXPECT_THAT(complaint(Move(-1, 2, 3, "")), HasSubstr("argument 1 'from', of table 'accounts': "));
}

TEST_F(CallTest, Call_WithATokenIsCommittedOnce) {
  LoadBank();
  MakeTable();
  ASSERT_TRUE(Execute({Put(1, std::string(8, '\0')), Put(999, std::string(8, '\0'))}).ok());
  for (int again = 0; again < 3; ++again) {
    const grpc::Status moved = Call(Move(1, 999, 5, "x"), "t");
    ASSERT_TRUE(moved.ok()) << moved.error_message();
    EXPECT_EQ(called_.earlier(), again > 0);
    EXPECT_EQ(called_.results_size(), again > 0 ? 0 : 2);
    EXPECT_EQ(BalanceOf(1), -5);
  }
  EXPECT_EQ(OutcomeOf("t", 1), "committed");
  // The same when the procedure, a second time, fails by itself.
  client::v1::CallRequest once;
  once.set_procedure("bank.once");
  once.add_arguments()->set_number(700);
  for (int again = 0; again < 2; ++again) {
    const grpc::Status called = Call(once, "u");
    ASSERT_TRUE(called.ok()) << called.error_message();
    EXPECT_EQ(called_.earlier(), again > 0);
  }
  const grpc::Status other = Call(once, "v");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(other.error_message(), "it has been here before");
  EXPECT_EQ(OutcomeOf("v", 700), "never");
  EXPECT_EQ(OutcomeOf("w", 1), "never");
  const grpc::Status late = Call(Move(1, 999, 5, "x"), "w");
  EXPECT_EQ(FailureOf(late).reason(), "token");
  EXPECT_EQ(BalanceOf(1), -5);
}

}  // namespace
}  // namespace islands::gateway
