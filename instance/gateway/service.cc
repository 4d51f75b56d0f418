#include "instance/gateway/service.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <grpc/support/time.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "instance/gateway/answer.h"
#include "instance/gateway/calls.h"
#include "instance/gateway/tokens.h"
#include "instance/gateway/translate.h"
#include "runtime/latch_site.h"

namespace islands::gateway {

using client::v1::CallRequest;
using client::v1::CallResponse;
using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::TransactRequest;
using client::v1::TransactResponse;

namespace {

// gRPC writes a client's time with four digits at most, and rounds up: what comes may be so much too long.
int64_t RoundedUpUs(int64_t left_us) {
  constexpr int64_t kSecondUs = 1'000'000;
  return left_us >= 100 * kSecondUs  ? kSecondUs
         : left_us >= 10 * kSecondUs ? kSecondUs / 10
                                     : kSecondUs / 100;
}

int64_t TimeLeftUs(const grpc::CallbackServerContext& context, int64_t otherwise_us) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return otherwise_us;
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const int64_t left_us = std::max<int64_t>(0, left.tv_sec * 1'000'000 + left.tv_nsec / 1000);
  return DeadlineUs(left_us, RoundedUpUs(left_us));
}

// What gRPC's own reactor is told: of one of ours it would tell us, by way of a thread of its executor.
End FinishOf(grpc::ServerUnaryReactor* reactor) {
  return [reactor](const Answer& answer) { reactor->Finish(answer.ToStatus()); };
}

// A dialogue on a stream of its own, which is finished when it has ended.
class TransactCall final : public grpc::ServerBidiReactor<TransactRequest, TransactResponse>,
                           private Dialogue::Client {
 public:
  TransactCall(Service& service, grpc::CallbackServerContext& context)
      : limits_(service.limits()), context_(context), dialogue_(service, *this) {}

  void Start() {
    dialogue_.Start();
    if (!ended_) StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return dialogue_.Abandon(Answer());  // the client has said all, or is gone
    dialogue_.Step(request_, TimeLeftUs(context_, limits_.call_us), &response_);
  }
  void OnAnswered(bool last) override {
    last_ = last;
    if (!last) return StartWrite(&response_);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnEnd(const Answer& answer) override {
    ended_ = true;
    Finish(answer.ToStatus());
  }
  void OnWriteDone(bool ok) override {
    if (last_) return;
    ok ? StartRead(&request_) : dialogue_.Abandon({.code = grpc::StatusCode::CANCELLED});
  }
  void OnDone() override { delete this; }

  const ServiceLimits& limits_;
  grpc::CallbackServerContext& context_;
  TransactRequest request_;
  TransactResponse response_;
  bool last_ = false;   // response has been given
  bool ended_ = false;  // before the first request, if Start is to know
  Dialogue dialogue_;
};

client::v1::Procedure ProcedureOf(const control::v1::ProcedureSpec& spec) {
  client::v1::Procedure procedure;
  procedure.set_name(spec.name());
  procedure.set_about(spec.about());
  procedure.set_home_table(spec.home_table());
  const auto describe = [](const control::v1::ValueSpec& from, client::v1::NamedType* to) {
    to->set_name(from.name());
    to->set_type(from.type());
  };
  for (const control::v1::ValueSpec& argument : spec.arguments())
    describe(argument, procedure.add_arguments());
  for (const control::v1::ValueSpec& result : spec.results()) describe(result, procedure.add_results());
  return procedure;
}

absl::Status CheckTableName(const std::string& name) {
  if (storage::IsTableName(name)) return absl::OkStatus();  // those of the deployment itself are none
  return absl::InvalidArgumentError(
      fmt::format("table '{}': expected a name [a-z][a-z0-9_-]*, at most 32 characters", name));
}

// Request and response of a call in one piece of memory: with many transactions they are thousands of
// small objects.
template <typename Request, typename Response>
class InOneArena final : public grpc::MessageAllocator<Request, Response> {
 public:
  grpc::MessageHolder<Request, Response>* AllocateMessages() override {
    return std::make_unique<Holder>().release();  // deletes itself
  }

 private:
  class Holder final : public grpc::MessageHolder<Request, Response> {
   public:
    Holder() {
      this->set_request(google::protobuf::Arena::CreateMessage<Request>(&arena_));
      this->set_response(google::protobuf::Arena::CreateMessage<Response>(&arena_));
    }
    void Release() override { delete this; }

   private:
    google::protobuf::Arena arena_;
  };
};

}  // namespace

Service::Service(ServiceLimits limits, Channels& channels, Views views, std::function<void()> on_other_tables,
                 ChangeTables change_tables)
    : limits_(limits),
      channels_(channels),
      views_(std::move(views)),
      on_other_tables_(std::move(on_other_tables)),
      change_tables_(std::move(change_tables)) {
  static InOneArena<client::v1::ExecuteManyRequest, client::v1::ExecuteManyResponse> many;
  SetMessageAllocatorFor_ExecuteMany(&many);
}

bool Service::Enter(uint32_t transactions) {
  const uint32_t before = open_.fetch_add(transactions, std::memory_order_relaxed);
  if (before + uint64_t{transactions} <= limits_.most_transactions) return true;
  Leave(transactions);
  return false;
}

grpc::ServerUnaryReactor* Service::Execute(grpc::CallbackServerContext* context,
                                           const ExecuteRequest* request, ExecuteResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  gateway::Execute(*this, *request, TimeLeftUs(*context, limits_.call_us), response, FinishOf(reactor));
  return reactor;
}

grpc::ServerUnaryReactor* Service::ExecuteMany(grpc::CallbackServerContext* context,
                                               const client::v1::ExecuteManyRequest* request,
                                               client::v1::ExecuteManyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  gateway::ExecuteMany(*this, *request, TimeLeftUs(*context, limits_.call_us), response, FinishOf(reactor));
  return reactor;
}

grpc::ServerBidiReactor<TransactRequest, TransactResponse>* Service::Transact(
    grpc::CallbackServerContext* context) {
  auto call = std::make_unique<TransactCall>(*this, *context);  // deletes itself when gRPC is done with it
  call->Start();
  return call.release();
}

grpc::ServerUnaryReactor* Service::Call(grpc::CallbackServerContext* context, const CallRequest* request,
                                        CallResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  gateway::Call(*this, *request, TimeLeftUs(*context, limits_.call_us), response, FinishOf(reactor));
  return reactor;
}

grpc::ServerUnaryReactor* Service::AskOutcome(grpc::CallbackServerContext* context,
                                              const client::v1::AskOutcomeRequest* request,
                                              client::v1::AskOutcomeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  gateway::AskOutcome(*this, *request, TimeLeftUs(*context, limits_.call_us), response, FinishOf(reactor));
  return reactor;
}

void Service::Refresh(std::function<void()> done) {
  change_tables_({}, [done = std::move(done)](const absl::Status&) { done(); });
}

absl::Status Service::MakeTokensTable(const View& view) {
  absl::Status why;
  {
    const runtime::MutexLock lock(tokens_mutex_, ISLANDS_LATCH("gateway.tokens"));
    why = no_tokens_;
    if (std::exchange(makes_tokens_table_, true)) return why;
  }
  control::v1::TablesRequest request;
  *request.add_add() = TokensTable(view);
  change_tables_(std::move(request), [this](const absl::Status& made) {
    const runtime::MutexLock lock(tokens_mutex_, ISLANDS_LATCH("gateway.tokens"));
    makes_tokens_table_ = false;
    if (made.ok()) return;
    no_tokens_ = absl::Status(
        made.code(), fmt::format("the table of tokens cannot be made: {}", std::string(made.message())));
  });
  return why;
}

grpc::ServerUnaryReactor* Service::CreateTable(grpc::CallbackServerContext* context,
                                               const client::v1::CreateTableRequest* request,
                                               client::v1::CreateTableResponse*) {
  control::v1::TablesRequest change;
  control::v1::TableSpec& spec = *change.add_add() = SpecOf(request->table());
  absl::Status status = CheckTableName(spec.name());
  if (status.ok() && spec.row_bytes() == 0 && !spec.fields().empty()) {
    const absl::StatusOr<uint32_t> bytes = storage::RowBytesOf(spec.fields());
    bytes.ok() ? spec.set_row_bytes(*bytes) : status.Update(bytes.status());
  }
  return Change(context, status, std::move(change));
}

grpc::ServerUnaryReactor* Service::DropTable(grpc::CallbackServerContext* context,
                                             const client::v1::DropTableRequest* request,
                                             client::v1::DropTableResponse*) {
  control::v1::TablesRequest change;
  change.set_drop(request->table());
  return Change(context, CheckTableName(request->table()), std::move(change));
}

grpc::ServerUnaryReactor* Service::Change(grpc::CallbackServerContext* context, const absl::Status& may,
                                          control::v1::TablesRequest request) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Method method = !request.add().empty() ? Method::kCreateTable : Method::kDropTable;
  auto end = [reactor, meter = CallMeter(counters_, method)](const absl::Status& status) mutable {
    const Answer answer = status.ok() ? Answer() : Refusal(status, "tables");
    meter.End(answer.code);
    reactor->Finish(answer.ToStatus());
  };
  may.ok() ? change_tables_(std::move(request), end) : end(may);
  return reactor;
}

// A workload may have been loaded a moment ago.
grpc::ServerUnaryReactor* Service::ListProcedures(grpc::CallbackServerContext* context,
                                                  const client::v1::ListProceduresRequest*,
                                                  client::v1::ListProceduresResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Refresh([this, reactor, response, meter = std::make_shared<CallMeter>(counters_, Method::kListProcedures)] {
    for (const control::v1::ProcedureSpec& spec : views_()->procedures)
      *response->add_procedures() = ProcedureOf(spec);
    meter->End(grpc::StatusCode::OK);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* Service::ListTables(grpc::CallbackServerContext* context,
                                              const client::v1::ListTablesRequest*,
                                              client::v1::ListTablesResponse* response) {
  CallMeter meter(counters_, Method::kListTables);
  for (const control::v1::TableSpec& spec : views_()->specs) {
    if (spec.dropped() == 0 && !spec.name().starts_with(kSystemPrefix))
      *response->add_tables() = TableOf(spec);
  }
  meter.End(grpc::StatusCode::OK);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace islands::gateway
