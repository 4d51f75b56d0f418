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
#include "instance/gateway/tokens.h"
#include "instance/gateway/translate.h"
#include "instance/worker/wire.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::gateway {

using client::v1::CallRequest;
using client::v1::CallResponse;
using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::TransactRequest;
using client::v1::TransactResponse;
using instance::Batch;

namespace {

constexpr uint32_t kMostInOneCall = 1024;  // transactions of ExecuteMany
// So much earlier than its client an island gives up, so that the client hears how it ended: an island
// looks for who is late a few times a second.
constexpr int64_t kMostMarginUs = 100'000;

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
  return left_us - std::min(kMostMarginUs + RoundedUpUs(left_us), left_us / 10);
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

// What a token says of a transaction that was to be committed with it, and was not: `answer` otherwise.
Answer AnswerOfToken(std::optional<TokenOutcome> outcome, Answer answer) {
  if (outcome == TokenOutcome::kCommitted) return {};
  if (outcome == TokenOutcome::kNever) {
    return Refusal(absl::FailedPreconditionError(
                       "somebody has asked what became of this token when nothing was committed with it, and "
                       "was told that nothing ever will be; take another one"),
                   "token");
  }
  return answer;
}

// A token that cannot be used now; OK: it can.
Answer CheckToken(Service& service, const View& view, const std::string& token) {
  if (absl::Status status = gateway::CheckToken(token); !status.ok()) return Refusal(status, "invalid");
  if (FindTokensTable(view) != nullptr) return {};
  return Refusal(service.MakeTokensTable(view), "not_ready");
}

// One transaction that is one request. Tells its owner once, then it may be destroyed.
class WholeTransaction final : public Waiting, private TokenQuestion::Owner {
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
    data::v1::ClientRequest asked;
    asked.mutable_may_miss()->Assign(may_miss.begin(), may_miss.end());
    const std::optional<uint32_t> site = SiteOf(*view_, batch_);
    if (!request.token().empty() && !UseToken(request.token(), TokenSiteOf(*view_, batch_), deadline_us))
      return;
    Begin(site, deadline_us, &asked);
  }

  // A procedure, and nothing else.
  void Start(const CallRequest& request, const control::v1::ProcedureSpec& procedure, int64_t deadline_us,
             CallResponse* response) {
    call_response_ = response;
    data::v1::ClientRequest asked;
    asked.set_procedure(procedure.name());
    if (absl::Status status = TranslateArguments(procedure, request, &asked); !status.ok())
      return owner_.OnEnd(Refusal(status, "invalid"));
    const absl::StatusOr<uint32_t> site = SiteOfCall(*view_, procedure, asked);
    if (!site.ok()) return owner_.OnEnd(Refusal(site.status(), "invalid"));
    if (!request.token().empty() && !UseToken(request.token(), *site, deadline_us)) return;
    Begin(*site, deadline_us, &asked);
  }

  void OnReply(const data::v1::ClientReply& reply) override {
    Answer answer = AnswerOf(reply);
    if (answer.failure.reason() == "refused") service_.NoteOtherTables();
    if (answer.ok()) {
      // It was committed all the same, and nobody can say what it read.
      if (const absl::Status status = Fill(reply); !status.ok())
        answer = LostAnswer(/*may_have_committed=*/true, status);
    }
    // It may be that it was committed before. A procedure runs before the token is looked at, and what it
    // finds then may be what it has left itself.
    const bool says_no = answer.code == grpc::StatusCode::FAILED_PRECONDITION ||
                         (call_response_ != nullptr && (answer.failure.reason() == "procedure" ||
                                                        answer.failure.reason() == "contradiction"));
    if (token_ == nullptr || !says_no) return owner_.OnEnd(answer);
    token_->aborted = std::move(answer);
    token_->question.Ask(view_, token_->site, token_->token, /*settle=*/false, token_->deadline_us);
  }
  void OnLost(bool sent, const absl::Status& why) override { owner_.OnEnd(LostAnswer(sent, why)); }

 private:
  // What only those have that have a token: most have none.
  struct Token {
    Token(Channels& channels, TokenQuestion::Owner& owner) : question(channels, owner) {}
    std::string token;
    uint32_t site = 0;
    int64_t deadline_us = 0;
    Answer aborted;
    TokenQuestion question;
  };
  // False: it cannot be, and the owner knows.
  bool UseToken(const std::string& token, uint32_t site, int64_t deadline_us) {
    if (Answer answer = CheckToken(service_, *view_, token); !answer.ok()) {
      owner_.OnEnd(answer);
      return false;
    }
    TokenQuestion::Owner& owner = *this;
    token_ = std::make_unique<Token>(service_.channels(), owner);
    token_->token = token;
    token_->site = site;
    token_->deadline_us = deadline_us;
    InsertToken(*view_, site, token, TokenOutcome::kCommitted, &batch_);
    return true;
  }
  // `site`: where it begins; nothing: anywhere.
  void Begin(std::optional<uint32_t> site, int64_t deadline_us, data::v1::ClientRequest* asked) {
    const uint64_t session = service_.channels().NextSession();
    asked->set_tables(view_->tables);
    instance::EncodeClientOperations(batch_, asked->mutable_operations());
    asked->set_session(session);
    asked->set_begins(true);
    asked->set_whole(true);
    asked->set_end(data::v1::CLIENT_END_COMMIT);
    asked->set_deadline_us(deadline_us);
    const auto any = static_cast<uint32_t>(session % view_->workers.size());
    const uint32_t home = site ? view_->sites.IslandOf(*site) : any;
    service_.channels().Send(service_.channels().WorkerFor(home, session), *asked, this);
  }
  absl::Status Fill(const data::v1::ClientReply& reply) {
    std::string id = instance::DecodeId(reply).ToString();
    if (call_response_ != nullptr) {
      call_response_->set_transaction(std::move(id));
      FillValues(reply, call_response_);
      return absl::OkStatus();
    }
    response_->set_transaction(std::move(id));
    if (absl::Status status = instance::DecodeClientResults(reply.results(), &batch_); !status.ok())
      return status;
    FillResults(*view_, batch_, response_->mutable_results());
    if (token_ != nullptr) response_->mutable_results()->RemoveLast();
    return absl::OkStatus();
  }
  void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) override {
    if (!answer.ok())
      return owner_.OnEnd(LostAnswer(/*may_have_committed=*/true, absl::UnknownError(answer.message)));
    const Answer said = AnswerOfToken(outcome, token_->aborted);
    call_response_ != nullptr ? call_response_->set_earlier(said.ok()) : response_->set_earlier(said.ok());
    owner_.OnEnd(said);
  }

  Service& service_;
  const std::shared_ptr<const View> view_;
  Owner& owner_;
  Batch batch_;
  ExecuteResponse* response_ = nullptr;  // one of these two
  CallResponse* call_response_ = nullptr;
  std::unique_ptr<Token> token_;  // null: it has none
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

// Likewise.
class CallCall final : private WholeTransaction::Owner {
 public:
  CallCall(Service& service, grpc::ServerUnaryReactor& reactor, const CallRequest& request,
           CallResponse& response, int64_t deadline_us)
      : service_(service),
        reactor_(reactor),
        request_(request),
        response_(response),
        deadline_us_(deadline_us),
        meter_(service.counters(), Method::kCall) {}

  void Start() {
    entered_ = service_.Enter();
    if (!entered_) return OnEnd(TooMany(service_));
    if (!Begin()) service_.Refresh([this] { BeginOrRefuse(); });  // it may be new
  }

 private:
  // False: the newest view has no such procedure. Otherwise it may be over, and this be gone.
  bool Begin() {
    std::shared_ptr<const View> view = service_.view();
    const control::v1::ProcedureSpec* procedure = view->FindProcedure(request_.procedure());
    if (procedure == nullptr) return false;
    WholeTransaction::Owner& owner = *this;
    transaction_ = std::make_unique<WholeTransaction>(service_, view, owner);
    transaction_->Start(request_, *procedure, deadline_us_, &response_);
    return true;
  }
  void BeginOrRefuse() {
    if (Begin()) return;
    if (!service_.view()->all_answered) {
      return OnEnd(Refusal(absl::UnavailableError(
                               fmt::format("procedure '{}' is not known, and not all islands have said which "
                                           "they know: one of them is away; try again",
                                           request_.procedure())),
                           std::string(instance::AbortReasonName(instance::AbortReason::kPeerLost))));
    }
    OnEnd(Refusal(
        absl::NotFoundError(fmt::format("there is no procedure '{}'; expected WORKLOAD.PROCEDURE, of a "
                                        "workload that is loaded",
                                        request_.procedure())),
        "invalid"));
  }
  void OnEnd(const Answer& answer) override {
    if (entered_) service_.Leave();
    service_.counters().TransactionEnded(answer);
    meter_.End(answer.code, transaction_ != nullptr ? transaction_->waited_ns() : 0);
    reactor_.Finish(answer.ToStatus());
    delete this;
  }

  Service& service_;
  grpc::ServerUnaryReactor& reactor_;
  const CallRequest& request_;
  CallResponse& response_;
  const int64_t deadline_us_;
  bool entered_ = false;
  CallMeter meter_;
  std::unique_ptr<WholeTransaction> transaction_;
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
    parts_ = std::make_unique<std::optional<Part>[]>(count);
    for (uint32_t i = 0; i < count; ++i) response->add_each();
    for (uint32_t i = 0; i < count; ++i) {
      Part& part = parts_[i].emplace(*this, view, response->mutable_each(static_cast<int>(i)));
      part.transaction.Start(request.transactions(static_cast<int>(i)), deadline_us,
                             part.each->mutable_response());
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
    for (uint32_t i = 0; i < entered_; ++i) {
      const std::optional<Part>& part = parts_[i];
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
  std::unique_ptr<std::optional<Part>[]> parts_;  // one piece of memory; entered_ of them
  std::atomic<uint32_t> left_{0};
};

// A transaction that its client goes through step by step.
//
// Invariants:
//  1. The island is asked one thing at a time, and the stream is finished only while it is asked nothing.
//  2. When the stream has been finished the transaction has ended, unless its island is lost.
class TransactCall final : public grpc::ServerBidiReactor<TransactRequest, TransactResponse>,
                           private Waiting,
                           private TokenQuestion::Owner {
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
    if (!has_first_ && batch_.size() != 0) {
      has_first_ = true;
      token_site_ = TokenSiteOf(*view_, batch_);
    }
    with_token_ = !request_.token().empty() && request_.end() == TransactRequest::COMMIT;
    if (with_token_) {
      if (Answer answer = CheckToken(service_, *view_, request_.token()); !answer.ok()) return Refuse(answer);
      InsertToken(*view_, token_site_, request_.token(), TokenOutcome::kCommitted, &batch_);
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
    service_.channels().Send(home_, asked, this);
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
    if (with_token_ && answer.code == grpc::StatusCode::FAILED_PRECONDITION) {
      // It may be that it was committed before.
      aborted_ = std::move(answer);
      TokenQuestion::Owner& owner = *this;
      question_ = std::make_unique<TokenQuestion>(service_.channels(), owner);
      return question_->Ask(view_, token_site_, request_.token(), /*settle=*/false,
                            service_.limits().call_us);
    }
    if (!answer.ok() && !rolled_back) return Refuse(answer);
    response_.Clear();
    response_.set_transaction(instance::DecodeId(reply).ToString());
    response_.set_committed(reply.outcome() == data::v1::OUTCOME_COMMITTED);
    if (!rolled_back) {
      if (absl::Status status = instance::DecodeClientResults(reply.results(), &batch_); !status.ok())
        return Refuse(LostAnswer(response_.committed(), status));
      FillResults(*view_, batch_, response_.mutable_results());
      if (with_token_) response_.mutable_results()->RemoveLast();
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
  void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) override {
    if (!answer.ok())
      return Refuse(LostAnswer(/*may_have_committed=*/true, absl::UnknownError(answer.message)));
    const Answer said = AnswerOfToken(outcome, aborted_);
    if (!said.ok()) return Refuse(said);
    response_.Clear();
    response_.set_committed(true);
    response_.set_earlier(true);
    service_.counters().TransactionEnded(said);
    meter_.End(grpc::StatusCode::OK, waited_ns());
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
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
  uint32_t token_site_ = 0;
  bool has_first_ = false;   // an operation, by which token_site_ is
  bool with_token_ = false;  // the commit that the island has been asked for
  Answer aborted_;
  std::unique_ptr<TokenQuestion> question_;
};

class AskOutcomeCall final : private TokenQuestion::Owner {
 public:
  AskOutcomeCall(Service& service, grpc::ServerUnaryReactor& reactor,
                 client::v1::AskOutcomeResponse& response)
      : service_(service),
        reactor_(reactor),
        response_(response),
        meter_(service.counters(), Method::kAskOutcome),
        view_(service.view()),
        question_(service.channels(), *this) {}

  void Start(const client::v1::AskOutcomeRequest& request, int64_t deadline_us) {
    entered_ = service_.Enter();
    if (!entered_) return End(TooMany(service_));
    if (Answer answer = CheckToken(service_, *view_, request.token()); !answer.ok()) return End(answer);
    Operations first;
    first.Add()->set_table(request.table());
    client::v1::Key* key = first[0].mutable_get()->mutable_key();
    *key = request.key();
    const storage::TableDefinition* table = view_->catalog.Find(request.table());
    // Of a call its client knows the first part.
    if (table != nullptr && !key->parts().empty() &&
        static_cast<size_t>(key->parts_size()) < table->key.size())
      *key = Completed(*table, request.key());
    Batch batch;
    std::vector<uint32_t> may_miss;
    if (absl::Status status = Translate(*view_, first, &batch, &may_miss); !status.ok())
      return End(Refusal(status, "invalid"));
    question_.Ask(view_, TokenSiteOf(*view_, batch), request.token(), /*settle=*/true, deadline_us);
  }

 private:
  void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) override {
    response_.set_committed(outcome == TokenOutcome::kCommitted);
    // A row that was there a moment ago has become too old.
    if (answer.ok() && !outcome)
      return End(Refusal(absl::AbortedError("the token is being removed"), "token"));
    End(answer);
  }
  void End(const Answer& answer) {
    if (entered_) service_.Leave();
    meter_.End(answer.code);
    reactor_.Finish(answer.ToStatus());
    delete this;
  }

  Service& service_;
  bool entered_ = false;
  grpc::ServerUnaryReactor& reactor_;
  client::v1::AskOutcomeResponse& response_;
  CallMeter meter_;
  const std::shared_ptr<const View> view_;
  TokenQuestion question_;
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

grpc::ServerUnaryReactor* Service::Call(grpc::CallbackServerContext* context, const CallRequest* request,
                                        CallResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const int64_t deadline_us = TimeLeftUs(*context, limits_.call_us);
  auto call =
      std::make_unique<CallCall>(*this, *reactor, *request, *response, deadline_us);  // deletes itself
  call.release()->Start();
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

grpc::ServerUnaryReactor* Service::AskOutcome(grpc::CallbackServerContext* context,
                                              const client::v1::AskOutcomeRequest* request,
                                              client::v1::AskOutcomeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto call = std::make_unique<AskOutcomeCall>(*this, *reactor, *response);  // deletes itself
  call.release()->Start(*request, TimeLeftUs(*context, limits_.call_us));
  return reactor;
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
