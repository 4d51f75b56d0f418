#include "instance/gateway/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "instance/gateway/service.h"
#include "instance/gateway/translate.h"
#include "instance/worker/wire.h"

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

Answer TooMany(Service& service, uint32_t refused = 1) {
  service.counters().Full(refused);
  return Refusal(absl::ResourceExhaustedError(
                     fmt::format("{} transactions are open at this gateway; try again when some have ended",
                                 service.limits().most_transactions)),
                 "refused");
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

// What a call has here is gone when its answer is on its way.
class ExecuteCall final : private WholeTransaction::Owner {
 public:
  ExecuteCall(Service& service, End end)
      : service_(service),
        end_(std::move(end)),
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
    end_(answer);
    delete this;
  }

  Service& service_;
  End end_;
  bool entered_ = false;
  CallMeter meter_;
  WholeTransaction transaction_;
};

class CallCall final : private WholeTransaction::Owner {
 public:
  CallCall(Service& service, End end, const CallRequest& request, CallResponse& response, int64_t deadline_us)
      : service_(service),
        end_(std::move(end)),
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
    end_(answer);
    delete this;
  }

  Service& service_;
  End end_;
  const CallRequest& request_;
  CallResponse& response_;
  const int64_t deadline_us_;
  bool entered_ = false;
  CallMeter meter_;
  std::unique_ptr<WholeTransaction> transaction_;
};

class ExecuteManyCall final {
 public:
  ExecuteManyCall(Service& service, End end)
      : service_(service), end_(std::move(end)), meter_(service.counters(), Method::kExecuteMany) {}

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
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) OnEnd(Answer());
  }
  void Refuse(const Answer& answer, uint32_t transactions) {
    service_.counters().TransactionEnded(answer, transactions);
    OnEnd(answer);
  }
  void OnEnd(const Answer& answer) {
    service_.Leave(entered_);
    meter_.End(answer.code, WaitedNs());
    end_(answer);
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
  End end_;
  CallMeter meter_;
  uint32_t entered_ = 0;
  std::unique_ptr<std::optional<Part>[]> parts_;  // one piece of memory; entered_ of them
  std::atomic<uint32_t> left_{0};
};

class AskOutcomeCall final : private TokenQuestion::Owner {
 public:
  AskOutcomeCall(Service& service, End end, client::v1::AskOutcomeResponse& response)
      : service_(service),
        end_(std::move(end)),
        response_(response),
        meter_(service.counters(), Method::kAskOutcome),
        view_(service.view()),
        question_(service.channels(), *this) {}

  void Start(const client::v1::AskOutcomeRequest& request, int64_t deadline_us) {
    entered_ = service_.Enter();
    if (!entered_) return OnEnd(TooMany(service_));
    if (Answer answer = CheckToken(service_, *view_, request.token()); !answer.ok()) return OnEnd(answer);
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
      return OnEnd(Refusal(status, "invalid"));
    question_.Ask(view_, TokenSiteOf(*view_, batch), request.token(), /*settle=*/true, deadline_us);
  }

 private:
  void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) override {
    response_.set_committed(outcome == TokenOutcome::kCommitted);
    // A row that was there a moment ago has become too old.
    if (answer.ok() && !outcome)
      return OnEnd(Refusal(absl::AbortedError("the token is being removed"), "token"));
    OnEnd(answer);
  }
  void OnEnd(const Answer& answer) {
    if (entered_) service_.Leave();
    meter_.End(answer.code);
    end_(answer);
    delete this;
  }

  Service& service_;
  bool entered_ = false;
  End end_;
  client::v1::AskOutcomeResponse& response_;
  CallMeter meter_;
  const std::shared_ptr<const View> view_;
  TokenQuestion question_;
};

}  // namespace

void Execute(Service& service, const ExecuteRequest& request, int64_t deadline_us, ExecuteResponse* response,
             End end) {
  auto call =
      std::make_unique<ExecuteCall>(service, std::move(end));  // deletes itself, and so do all of these
  call.release()->Start(request, deadline_us, response);
}

void ExecuteMany(Service& service, const client::v1::ExecuteManyRequest& request, int64_t deadline_us,
                 client::v1::ExecuteManyResponse* response, End end) {
  auto call = std::make_unique<ExecuteManyCall>(service, std::move(end));
  call.release()->Start(request, deadline_us, response);
}

void Call(Service& service, const CallRequest& request, int64_t deadline_us, CallResponse* response,
          End end) {
  auto call = std::make_unique<CallCall>(service, std::move(end), request, *response, deadline_us);
  call.release()->Start();
}

void AskOutcome(Service& service, const client::v1::AskOutcomeRequest& request, int64_t deadline_us,
                client::v1::AskOutcomeResponse* response, End end) {
  auto call = std::make_unique<AskOutcomeCall>(service, std::move(end), *response);
  call.release()->Start(request, deadline_us);
}

// ---- step by step

Dialogue::Dialogue(Service& service, Client& client)
    : service_(service),
      client_(client),
      view_(service.view()),
      session_(service.channels().NextSession()),
      meter_(service.counters(), Method::kTransact),
      deadline_us_(service.limits().call_us) {}

Dialogue::~Dialogue() {
  if (entered_) service_.Leave();
}

void Dialogue::Start() {
  entered_ = service_.Enter();
  if (!entered_) return Refuse(TooMany(service_));
  meter_.Rest();
}

void Dialogue::Step(const TransactRequest& request, int64_t deadline_us, TransactResponse* response) {
  request_ = &request;
  response_ = response;
  deadline_us_ = deadline_us;
  meter_.Begin();
  batch_.Clear();
  std::vector<uint32_t> may_miss;
  if (absl::Status status = Translate(*view_, request.operations(), &batch_, &may_miss); !status.ok())
    return Refuse(Refusal(status, "invalid"));
  if (!open_) {
    const auto any = static_cast<uint32_t>(session_ % view_->workers.size());
    home_ = service_.channels().WorkerFor(HomeOf(*view_, batch_, any), session_);
  }
  if (!has_first_ && batch_.size() != 0) {
    has_first_ = true;
    token_site_ = TokenSiteOf(*view_, batch_);
  }
  with_token_ = !request.token().empty() && request.end() == TransactRequest::COMMIT;
  if (with_token_) {
    if (Answer answer = CheckToken(service_, *view_, request.token()); !answer.ok()) return Refuse(answer);
    InsertToken(*view_, token_site_, request.token(), TokenOutcome::kCommitted, &batch_);
  }
  switch (request.end()) {
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

void Dialogue::Ask(const std::vector<uint32_t>& may_miss) {
  data::v1::ClientRequest asked;
  asked.set_tables(view_->tables);
  instance::EncodeClientOperations(batch_, asked.mutable_operations());
  asked.mutable_may_miss()->Assign(may_miss.begin(), may_miss.end());
  asked.set_session(session_);
  asked.set_begins(!open_);
  asked.set_end(end_);
  const ServiceLimits& limits = service_.limits();
  asked.set_deadline_us(std::min(deadline_us_, limits.call_us));
  asked.set_idle_us(limits.idle_us);
  service_.channels().Send(home_, asked, this);
}

void Dialogue::Abandon(const Answer& why) {
  if (open_) service_.counters().RolledBack();
  GiveUp(why);
}

void Dialogue::Refuse(const Answer& answer) {
  service_.counters().TransactionEnded(answer);
  GiveUp(answer);
}

void Dialogue::GiveUp(const Answer& answer) {
  if (!open_) return Finish(answer);
  giving_up_ = true;
  last_ = answer;
  batch_.Clear();
  end_ = data::v1::CLIENT_END_ROLLBACK;
  Ask({});
}

void Dialogue::OnReply(const data::v1::ClientReply& reply) {
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
    return question_->Ask(view_, token_site_, request_->token(), /*settle=*/false, service_.limits().call_us);
  }
  if (!answer.ok() && !rolled_back) return Refuse(answer);
  response_->Clear();
  response_->set_transaction(instance::DecodeId(reply).ToString());
  response_->set_committed(reply.outcome() == data::v1::OUTCOME_COMMITTED);
  if (!rolled_back) {
    if (absl::Status status = instance::DecodeClientResults(reply.results(), &batch_); !status.ok())
      return Refuse(LostAnswer(response_->committed(), status));
    FillResults(*view_, batch_, response_->mutable_results());
    if (with_token_) response_->mutable_results()->RemoveLast();
  }
  meter_.Answered(waited_ns());
  if (!open_) {
    rolled_back ? service_.counters().RolledBack() : service_.counters().TransactionEnded(answer);
    meter_.Ended(grpc::StatusCode::OK);
  }
  client_.OnAnswered(/*last=*/!open_);
}

void Dialogue::OnLost(bool sent, const absl::Status& why) {
  open_ = false;
  if (giving_up_) return Finish(last_);
  Refuse(LostAnswer(sent && end_ == data::v1::CLIENT_END_COMMIT, why));
}

void Dialogue::Finish(const Answer& answer) {
  meter_.End(answer.code, waited_ns());
  client_.OnEnd(answer);
}

void Dialogue::OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) {
  if (!answer.ok())
    return Refuse(LostAnswer(/*may_have_committed=*/true, absl::UnknownError(answer.message)));
  const Answer said = AnswerOfToken(outcome, aborted_);
  if (!said.ok()) return Refuse(said);
  response_->Clear();
  response_->set_committed(true);
  response_->set_earlier(true);
  service_.counters().TransactionEnded(said);
  meter_.End(grpc::StatusCode::OK, waited_ns());
  client_.OnAnswered(/*last=*/true);
}

}  // namespace islands::gateway
