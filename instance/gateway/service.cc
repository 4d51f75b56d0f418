#include "instance/gateway/service.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <grpc/support/time.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "instance/gateway/answer.h"
#include "instance/gateway/translate.h"
#include "instance/worker/wire.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::gateway {

using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::TransactRequest;
using client::v1::TransactResponse;
using instance::Batch;

namespace {

constexpr uint32_t kMostInOneCall = 1024;  // transactions of ExecuteMany
// So much earlier than its client an island gives up, so that the client hears how it ended.
constexpr int64_t kMostMarginUs = 50'000;

int64_t TimeLeftUs(const grpc::CallbackServerContext& context, int64_t otherwise_us) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return otherwise_us;
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const int64_t left_us = std::max<int64_t>(0, left.tv_sec * 1'000'000 + left.tv_nsec / 1000);
  return left_us - std::min(kMostMarginUs, left_us / 10);
}

Answer TooMany(Service& service, uint32_t refused = 1) {
  service.counters().Full(refused);
  return Refusal(absl::ResourceExhaustedError(
                     fmt::format("{} transactions are open at this gateway; try again when some have ended",
                                 service.limits().most_transactions)),
                 "refused");
}

void Fill(const View& view, const Batch& batch, std::vector<uint32_t> may_miss,
          data::v1::ClientRequest* request) {
  request->set_tables(view.tables);
  instance::EncodeClientOperations(batch, request->mutable_operations());
  request->mutable_may_miss()->Assign(may_miss.begin(), may_miss.end());
}

// One transaction that is one request. Tells its owner once, then it may be destroyed.
class WholeTransaction final : public Waiting {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnEnd(const Answer& answer) = 0;
  };

  WholeTransaction(Service& service, std::shared_ptr<const View> view, Owner& owner)
      : service_(service), view_(std::move(view)), owner_(owner) {}

  void Start(const ExecuteRequest& request, int64_t deadline_us, ExecuteResponse* response) {
    response_ = response;
    std::vector<uint32_t> may_miss;
    if (absl::Status status = Translate(*view_, request.operations(), &batch_, &may_miss); !status.ok())
      return owner_.OnEnd(Refusal(status, "invalid"));
    const uint64_t session = service_.channels().NextSession();
    data::v1::ClientRequest asked;
    Fill(*view_, batch_, std::move(may_miss), &asked);
    asked.set_session(session);
    asked.set_begins(true);
    asked.set_whole(true);
    asked.set_end(data::v1::CLIENT_END_COMMIT);
    asked.set_deadline_us(deadline_us);
    const auto any = static_cast<uint32_t>(session % view_->workers.size());
    const uint32_t home = HomeOf(*view_, batch_, any);
    service_.channels().Send(service_.channels().WorkerFor(home, session), &asked, this);
  }

  void OnReply(const data::v1::ClientReply& reply) override {
    Answer answer = AnswerOf(reply);
    if (answer.failure.reason() == "refused") service_.NoteOtherTables();
    if (answer.ok()) {
      response_->set_transaction(instance::DecodeId(reply).ToString());
      if (const absl::Status status = instance::DecodeClientResults(reply.results(), &batch_); status.ok()) {
        FillResults(*view_, batch_, response_->mutable_results());
      } else {  // it was committed all the same, and nobody can say what it read
        answer = LostAnswer(/*may_have_committed=*/true, status);
      }
    }
    owner_.OnEnd(answer);
  }
  void OnLost(bool sent, const absl::Status& why) override { owner_.OnEnd(LostAnswer(sent, why)); }

 private:
  Service& service_;
  const std::shared_ptr<const View> view_;
  Owner& owner_;
  Batch batch_;
  ExecuteResponse* response_ = nullptr;
};

// Of calls with one answer gRPC's own reactor is told the end: of one of ours it would tell us, by way of
// a thread of its executor. What a call has here is gone when the answer is on its way.
class ExecuteCall final : private WholeTransaction::Owner {
 public:
  ExecuteCall(Service& service, grpc::ServerUnaryReactor& reactor)
      : service_(service),
        reactor_(reactor),
        meter_(service.counters(), Method::kExecute),
        transaction_(service, service.view(), *this) {}

  // It may be over, and this be gone, when Start returns.
  void Start(const ExecuteRequest& request, int64_t deadline_us, ExecuteResponse* response) {
    entered_ = service_.Enter();
    if (!entered_) return OnEnd(TooMany(service_));
    transaction_.Start(request, deadline_us, response);
  }

 private:
  void OnEnd(const Answer& answer) override {
    if (entered_) service_.Leave();
    service_.counters().TransactionEnded(answer);
    meter_.End(answer.code, transaction_.waited_ns());
    reactor_.Finish(answer.ToStatus());
    delete this;
  }

  Service& service_;
  grpc::ServerUnaryReactor& reactor_;
  bool entered_ = false;
  CallMeter meter_;
  WholeTransaction transaction_;
};

class ExecuteManyCall final {
 public:
  ExecuteManyCall(Service& service, grpc::ServerUnaryReactor& reactor)
      : service_(service), reactor_(reactor), meter_(service.counters(), Method::kExecuteMany) {}

  void Start(const client::v1::ExecuteManyRequest& request, int64_t deadline_us,
             client::v1::ExecuteManyResponse* response) {
    const auto count = static_cast<uint32_t>(request.transactions_size());
    if (count > kMostInOneCall) {
      return Refuse(Refusal(absl::InvalidArgumentError(fmt::format(
                                "{} transactions in one call, expected at most {}", count, kMostInOneCall)),
                            "invalid"),
                    count);
    }
    if (!service_.Enter(count)) return Refuse(TooMany(service_, count), count);
    entered_ = count;
    // One more than there are, so that none of them ends the call before all have begun.
    left_.store(count + 1, std::memory_order_relaxed);
    const std::shared_ptr<const View> view = service_.view();
    parts_.reserve(count);
    for (uint32_t i = 0; i < count; ++i) response->add_each();
    for (uint32_t i = 0; i < count; ++i) {
      parts_.push_back(std::make_unique<Part>(*this, view, response->mutable_each(static_cast<int>(i))));
      parts_.back()->transaction.Start(request.transactions(static_cast<int>(i)), deadline_us,
                                       parts_.back()->each->mutable_response());
    }
    OneEnded();
  }

 private:
  struct Part final : WholeTransaction::Owner {
    Part(ExecuteManyCall& call, std::shared_ptr<const View> view, client::v1::ExecuteManyResponse::Each* each)
        : call(call), each(each), transaction(call.service_, std::move(view), *this) {}
    void OnEnd(const Answer& answer) override {
      call.service_.counters().TransactionEnded(answer);
      if (!answer.ok()) {
        each->clear_response();
        each->set_code(answer.code);
        each->set_message(answer.message);
        *each->mutable_failure() = answer.failure;
      }
      call.OneEnded();
    }
    ExecuteManyCall& call;
    client::v1::ExecuteManyResponse::Each* each;
    WholeTransaction transaction;
  };

  void OneEnded() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) End(grpc::Status::OK);
  }
  void Refuse(const Answer& answer, uint32_t transactions) {
    service_.counters().TransactionEnded(answer, transactions);
    End(answer.ToStatus());
  }
  void End(const grpc::Status& status) {
    service_.Leave(entered_);
    meter_.End(status.error_code(), WaitedNs());
    reactor_.Finish(status);
    delete this;
  }

  // From when islands had the first to when they had answered the last.
  int64_t WaitedNs() const {
    int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = 0;
    for (const std::unique_ptr<Part>& part : parts_) {
      if (part->transaction.sent_ns() == 0) continue;
      first_ns = std::min(first_ns, part->transaction.sent_ns());
      last_ns = std::max(last_ns, part->transaction.returned_ns());
    }
    return last_ns == 0 ? 0 : last_ns - first_ns;
  }

  Service& service_;
  grpc::ServerUnaryReactor& reactor_;
  CallMeter meter_;
  uint32_t entered_ = 0;
  std::vector<std::unique_ptr<Part>> parts_;
  std::atomic<uint32_t> left_{0};
};

// A transaction that its client goes through step by step.
//
// Invariants:
//  1. The island is asked one thing at a time, and the stream is finished only while it is asked nothing.
//  2. When the stream has been finished the transaction has ended, unless its island is lost.
class TransactCall final : public grpc::ServerBidiReactor<TransactRequest, TransactResponse>,
                           private Waiting {
 public:
  TransactCall(Service& service, grpc::CallbackServerContext& context)
      : service_(service),
        context_(context),
        view_(service.view()),
        session_(service.channels().NextSession()),
        meter_(service.counters(), Method::kTransact) {}

  void Start() {
    entered_ = service_.Enter();
    if (!entered_) return Refuse(TooMany(service_));
    meter_.Rest();
    StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Abandon(grpc::Status::OK);  // the client has said all, or is gone
    meter_.Begin();
    batch_.Clear();
    std::vector<uint32_t> may_miss;
    if (absl::Status status = Translate(*view_, request_.operations(), &batch_, &may_miss); !status.ok())
      return Refuse(Refusal(status, "invalid"));
    if (!open_) {
      const auto any = static_cast<uint32_t>(session_ % view_->workers.size());
      home_ = service_.channels().WorkerFor(HomeOf(*view_, batch_, any), session_);
    }
    switch (request_.end()) {
      case TransactRequest::COMMIT:
        end_ = data::v1::CLIENT_END_COMMIT;
        break;
      case TransactRequest::ROLLBACK:
        end_ = data::v1::CLIENT_END_ROLLBACK;
        break;
      default:
        end_ = data::v1::CLIENT_END_UNSPECIFIED;
    }
    Ask(may_miss);
  }

  void Ask(const std::vector<uint32_t>& may_miss) {
    data::v1::ClientRequest asked;
    Fill(*view_, batch_, may_miss, &asked);
    asked.set_session(session_);
    asked.set_begins(!open_);
    asked.set_end(end_);
    const ServiceLimits& limits = service_.limits();
    asked.set_deadline_us(std::min(TimeLeftUs(context_, limits.call_us), limits.call_us));
    asked.set_idle_us(limits.idle_us);
    service_.channels().Send(home_, &asked, this);
  }

  // The client wants no more of what is open.
  void Abandon(grpc::Status status) {
    if (open_) service_.counters().RolledBack();
    GiveUp(std::move(status));
  }
  void Refuse(const Answer& answer) {
    service_.counters().TransactionEnded(answer);
    GiveUp(answer.ToStatus());
  }
  // Ends what is open, then the stream.
  void GiveUp(grpc::Status status) {
    if (!open_) return Finish(std::move(status));
    giving_up_ = true;
    last_ = std::move(status);
    batch_.Clear();
    end_ = data::v1::CLIENT_END_ROLLBACK;
    Ask({});
  }

  void OnReply(const data::v1::ClientReply& reply) override {
    open_ = reply.outcome() == data::v1::OUTCOME_PENDING;
    if (giving_up_) return Finish(last_);
    Answer answer = AnswerOf(reply);
    const bool rolled_back = !answer.ok() && end_ == data::v1::CLIENT_END_ROLLBACK &&
                             answer.failure.outcome() == client::v1::Failure::ABORTED;
    if (answer.failure.reason() == "refused") service_.NoteOtherTables();
    if (!answer.ok() && !rolled_back) return Refuse(answer);
    response_.Clear();
    response_.set_transaction(instance::DecodeId(reply).ToString());
    response_.set_committed(reply.outcome() == data::v1::OUTCOME_COMMITTED);
    if (!rolled_back) {
      if (absl::Status status = instance::DecodeClientResults(reply.results(), &batch_); !status.ok())
        return Refuse(LostAnswer(response_.committed(), status));
      FillResults(*view_, batch_, response_.mutable_results());
    }
    meter_.Answered(waited_ns());
    if (open_) return StartWrite(&response_);
    rolled_back ? service_.counters().RolledBack() : service_.counters().TransactionEnded(answer);
    meter_.Ended(grpc::StatusCode::OK);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnLost(bool sent, const absl::Status& why) override {
    open_ = false;
    if (giving_up_) return Finish(last_);
    Refuse(LostAnswer(sent && end_ == data::v1::CLIENT_END_COMMIT, why));
  }
  void Finish(grpc::Status status) {
    meter_.End(status.error_code(), waited_ns());
    ServerBidiReactor::Finish(std::move(status));
  }
  void OnWriteDone(bool ok) override {
    if (!open_) return;  // it was the last one
    ok ? StartRead(&request_) : Abandon(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    if (entered_) service_.Leave();
    delete this;
  }

  Service& service_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<const View> view_;
  const uint64_t session_;
  CallMeter meter_;
  bool entered_ = false;
  TransactRequest request_;
  TransactResponse response_;
  Batch batch_;
  messaging::Address home_;
  data::v1::ClientEnd end_ = data::v1::CLIENT_END_UNSPECIFIED;  // of the request that the island has
  bool open_ = false;                                           // the island has the transaction
  bool giving_up_ = false;
  grpc::Status last_;  // then
};

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

Service::Service(ServiceLimits limits, Channels& channels, Views views, std::function<void()> on_other_tables)
    : limits_(limits),
      channels_(channels),
      views_(std::move(views)),
      on_other_tables_(std::move(on_other_tables)) {
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
  auto call = std::make_unique<ExecuteCall>(*this, *reactor);  // deletes itself
  call.release()->Start(*request, TimeLeftUs(*context, limits_.call_us), response);
  return reactor;
}

grpc::ServerUnaryReactor* Service::ExecuteMany(grpc::CallbackServerContext* context,
                                               const client::v1::ExecuteManyRequest* request,
                                               client::v1::ExecuteManyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto call = std::make_unique<ExecuteManyCall>(*this, *reactor);  // deletes itself
  call.release()->Start(*request, TimeLeftUs(*context, limits_.call_us), response);
  return reactor;
}

grpc::ServerBidiReactor<TransactRequest, TransactResponse>* Service::Transact(
    grpc::CallbackServerContext* context) {
  auto call = std::make_unique<TransactCall>(*this, *context);  // deletes itself when gRPC is done with it
  call->Start();
  return call.release();
}

grpc::ServerUnaryReactor* Service::ListTables(grpc::CallbackServerContext* context,
                                              const client::v1::ListTablesRequest*,
                                              client::v1::ListTablesResponse* response) {
  CallMeter meter(counters_, Method::kListTables);
  for (const control::v1::TableSpec& spec : views_()->specs) {
    client::v1::Table* table = response->add_tables();
    table->set_name(spec.name());
    *table->mutable_key() = spec.key();
    table->set_range_begin(spec.range_begin());
    table->set_range_end(spec.range_end());
    table->set_row_bytes(spec.row_bytes());
    table->set_replicated(spec.replicated());
    for (const control::v1::IndexSpec& index : spec.indexes()) {
      client::v1::Index* described = table->add_indexes();
      described->set_name(index.name());
      *described->mutable_key() = index.key();
    }
    *table->mutable_key_names() = spec.key_names();
    for (const control::v1::FieldSpec& field : spec.fields()) {
      client::v1::Field* described = table->add_fields();
      described->set_name(field.name());
      described->set_type(field.type());
    }
  }
  meter.End(grpc::StatusCode::OK);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace islands::gateway
