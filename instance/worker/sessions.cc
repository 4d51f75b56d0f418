#include "instance/worker/sessions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "instance/worker/wire.h"
#include "runtime/check.h"

namespace islands::instance {

using coordinator::Outcome;
using data::v1::ClientRequest;

namespace {

constexpr int64_t kFirstBackoffNs = 100 * runtime::kNsPerUs;
constexpr int64_t kLongestBackoffNs = 20 * runtime::kNsPerMs;
constexpr size_t kMostInputBytes = 4 << 10;  // of a call that is in the log as such
constexpr size_t kMostResultBytes =
    messaging::kMaxFrameBytes - (64 << 10);  // beside them: what a message can say

int64_t WaitNs(int64_t us) {
  return std::clamp<int64_t>(us, 0, Sessions::kLongestWaitNs / runtime::kNsPerUs) * runtime::kNsPerUs;
}

// Whether this is what a write of its kind cannot do its work on.
bool Misses(OperationKind kind, absl::StatusCode code) {
  if (!IsWrite(kind)) return false;
  return code == absl::StatusCode::kNotFound || code == absl::StatusCode::kAlreadyExists;
}

// False: it has no kind.
bool DecodeValue(const data::v1::Value& from, Value* to) {
  switch (from.kind_case()) {
    case data::v1::Value::kNumber:
      *to = from.number();
      return true;
    case data::v1::Value::kReal:
      *to = from.real();
      return true;
    case data::v1::Value::kText:
      *to = from.text();
      return true;
    case data::v1::Value::KIND_NOT_SET:
      break;
  }
  return false;
}

void EncodeValue(const Value& from, data::v1::Value* to) {
  if (const auto* number = std::get_if<int64_t>(&from)) to->set_number(*number);
  if (const auto* real = std::get_if<double>(&from)) to->set_real(*real);
  if (const auto* text = std::get_if<std::string>(&from)) to->set_text(*text);
}

// At least what they take in a reply.
size_t ValueBytes(std::span<const Value> values) {
  constexpr size_t kMostBesideText = 16;
  size_t bytes = 0;
  for (const Value& value : values) {
    bytes += kMostBesideText;
    if (const auto* text = std::get_if<std::string>(&value)) bytes += text->size();
  }
  return bytes;
}

}  // namespace

void Sessions::OnRequest(messaging::ConnectionId gateway, std::span<const std::byte> payload) {
  if (!incoming_.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    spdlog::warn("a gateway sent a request that makes no sense; dropped");
    return;
  }
  const Name name{gateway, incoming_.session()};
  const auto it = sessions_.find(name);
  if (it != sessions_.end() && (incoming_.begins() || it->second->has_request)) {  // invariant 2
    spdlog::warn("a gateway sent a second request of session {}; its transactions end", name.second);
    return OnGatewayLost(gateway);
  }
  if (it != sessions_.end()) return GoOn(*it->second);
  if (!incoming_.begins()) return Refuse(name, absl::AbortedError("the transaction has ended"));
  if (sessions_.size() >= kMost) {
    return Refuse(name, absl::ResourceExhaustedError(fmt::format(
                            "{} transactions of clients are under way on one worker; try again", kMost)));
  }
  Begin(name);
}

void Sessions::Begin(const Name& name) {
  std::unique_ptr<Session>& session = sessions_[name];
  if (spare_.empty()) {
    session = std::make_unique<Session>(parts_);
  } else {
    session = std::move(spare_.back());
    spare_.pop_back();
  }
  session->name = name;
  session->gone = session->open = false;
  session->begun_ns = 0;
  session->waits_for = 0;
  SetRequest(*session);
  counters_.sessions.Set(sessions_.size());
  session->task = Serve(*session);
  session->task.Start();
}

void Sessions::SetRequest(Session& session) {
  session.request.Swap(&incoming_);
  session.has_request = true;
  session.deadline_ns = turns_.now_ns() + WaitNs(session.request.deadline_us());
}

void Sessions::GoOn(Session& session) {
  SetRequest(session);
  Extend(session, session.deadline_ns);
  turns_.Resume(session.transaction);
}

void Sessions::OnGatewayLost(messaging::ConnectionId gateway) {
  for (auto it = sessions_.lower_bound({gateway, 0}); it != sessions_.end() && it->first.first == gateway;
       ++it) {
    Session& session = *it->second;
    session.gone = true;
    if (session.open)
      session.transaction.Fail(AbortReason::kClientGone, absl::CancelledError("its gateway is gone"));
    if (!session.has_request) turns_.Resume(session.transaction);
  }
}

// Until then it waits, here and on other islands.
void Sessions::Extend(Session& session, int64_t until_ns) {
  session.deadline_ns = session.transaction.deadline_ns = until_ns;
  if (session.transaction.entry != nullptr) session.transaction.entry->deadline_ns = until_ns;
}

// From the first request to the last reply.
runtime::Task<void> Sessions::Serve(Session& session) {
  Turns::Yield yield = turns_.LetOthersBegin();
  co_await yield;
  session.begun_ns = turns_.NoteBegin();
  RunningTransaction& transaction = session.transaction;
  transaction.stays.Forget();
  if (session.request.whole() && --until_watched_ == 0) {
    until_watched_ = kWatchEvery;
    transaction.stays.Begin(Stay::kRunning, session.begun_ns);
  }
  Outcome outcome = Outcome::kAborted;
  for (int64_t backoff_ns = kFirstBackoffNs;; backoff_ns = std::min(2 * backoff_ns, kLongestBackoffNs)) {
    runtime::Task<Outcome> attempt = Attempt(session);
    outcome = co_await attempt;
    const bool again = outcome == Outcome::kAborted && session.request.whole() && !session.gone &&
                       RetryAtOnce(transaction.failure.reason) && turns_.now_ns() < session.deadline_ns;
    if (!again) break;
    Count(session, outcome);
    turns_.Note(transaction, Stay::kRetry);
    const auto wait_ns = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(backoff_ns))) + 1;
    Turns::Pause pause = turns_.PauseUntil(turns_.now_ns() + wait_ns);
    co_await pause;
    turns_.Note(transaction, Stay::kRunning);
  }
  if (shared_.answers_wait && MustWait(session, outcome, &session.waits_for)) {
    for_disk_.push_back(&session);
    while (session.waits_for != 0 && turns_.now_ns() < session.deadline_ns) {
      turns_.Note(transaction, Stay::kDisk);
      Waiter::Suspension suspension = transaction.Suspend();
      co_await suspension;
    }
    if (session.waits_for != 0) {
      std::erase(for_disk_, &session);
      counters_.answers_overdue.Add(1);
      outcome = Outcome::kUnknown;
    }
  }
  Count(session, outcome);
  // It ended between two requests: the next one is told.
  while (!session.has_request && !session.gone && turns_.now_ns() < session.deadline_ns) {
    Waiter::Suspension suspension = transaction.Suspend();
    co_await suspension;
  }
  if (session.has_request) Reply(session, outcome);
  End(session);
}

// Not destroyed: this is its coroutine.
void Sessions::End(Session& session) {
  const auto it = sessions_.find(session.name);
  session.begun_ns = 0;
  session.request.Clear();
  session.arguments.clear();
  session.values.clear();
  spare_.push_back(std::move(it->second));
  sessions_.erase(it);
  counters_.sessions.Set(sessions_.size());
}

runtime::Task<Outcome> Sessions::Attempt(Session& session) {
  RunningTransaction& transaction = session.transaction;
  transaction.Begin(coordinated_.NextId(), session.deadline_ns);
  session.tables = 0;
  while (true) {
    transaction.idle_ns = session.request.whole() ? 0 : WaitNs(session.request.idle_us());
    runtime::Task<void> executed = Execute(session);
    co_await executed;
    if (transaction.failure.set() || session.request.end() != data::v1::CLIENT_END_UNSPECIFIED) break;
    Reply(session, Outcome::kPending);
    session.has_request = false;
    Extend(session, turns_.now_ns() + transaction.idle_ns);
    session.open = !session.gone;
    if (session.gone) transaction.Fail(AbortReason::kClientGone, absl::CancelledError("its gateway is gone"));
    while (!session.has_request && !transaction.failure.set()) {
      Waiter::Suspension suspension = transaction.Suspend();
      co_await suspension;
    }
    session.open = false;
    if (transaction.failure.set()) break;
  }
  runtime::Task<Outcome> finish = Finish(session);
  co_return co_await finish;
}

runtime::Task<Outcome> Sessions::Finish(Session& session) {
  RunningTransaction& transaction = session.transaction;
  if (!transaction.failure.set() && session.request.end() == data::v1::CLIENT_END_ROLLBACK)
    transaction.Fail(AbortReason::kClientGone, absl::CancelledError("rolled back by its client"));
  if (transaction.failure.set()) {
    runtime::Task<Outcome> abort = transaction.Abort();
    co_return co_await abort;
  }
  if (shared_.commands && !session.request.procedure().empty()) NoteCommand(session);
  runtime::Task<Outcome> commit = transaction.Commit();
  co_return co_await commit;
}

// As Clients::NoteCommand. The call has to be all that the transaction did: its request may have operations
// behind it, or requests before it.
void Sessions::NoteCommand(Session& session) {
  RunningTransaction& transaction = session.transaction;
  const ProcedureTable::Entry& called = *shared_.procedures.Find(session.request.procedure());
  if (!session.request.begins() || !called.procedure->repeatable || !transaction.batch().empty() ||
      !transaction.repeatable() || !transaction.branch.wrote() || transaction.branch.published)
    return;
  // A long text would be longer than what it changes, or not much shorter.
  if (ValueBytes(session.arguments) > kMostInputBytes) return;
  session.input.clear();
  InputCoder coder(&session.input);
  std::string name = called.procedure->name;
  CodeCall(coder, name, session.arguments);
  transaction.branch.command = {.called = true, .workload = called.commands_of, .input = session.input};
}

runtime::Task<void> Sessions::Execute(Session& session) {
  RunningTransaction& transaction = session.transaction;
  Batch& batch = transaction.batch();
  if (!session.request.procedure().empty()) {
    transaction.more_follows = !session.request.operations().empty();
    runtime::Task<void> call = Call(session);
    co_await call;
    if (transaction.failure.set()) co_return;
  }
  Decode(session);
  if (transaction.failure.set()) co_return;
  transaction.more_follows = false;
  if (session.request.end() == data::v1::CLIENT_END_COMMIT) batch.LastElsewhere();
  if (!batch.empty()) {
    runtime::Task<absl::Status> executed = transaction.Execute(batch);
    absl::Status status = co_await executed;
    if (!status.ok()) transaction.Fail(AbortReason::kProcedure, std::move(status));
  }
  if (transaction.failure.set()) co_return;
  if (ClientResultBytes(batch) + ValueBytes(session.values) > kMostResultBytes) {
    transaction.Fail(AbortReason::kProcedure,
                     absl::OutOfRangeError(fmt::format("the results have more than {} MiB; scan with a limit",
                                                       kMostResultBytes >> 20)));
    co_return;
  }
  const int32_t miss =
      session.request.end() == data::v1::CLIENT_END_COMMIT ? FindMiss(session.request, batch) : -1;
  if (miss < 0) co_return;
  const bool there = batch.code(static_cast<size_t>(miss)) == absl::StatusCode::kAlreadyExists;
  transaction.Fail(AbortReason::kCondition,
                   absl::FailedPreconditionError(
                       fmt::format("{}{}", batch.size() == 1 ? "" : fmt::format("operation {}: ", miss),
                                   there ? "there is such a row already" : "there is no such row")));
}

// Whoever has the session keeps procedures from being replaced (Island::Load): they outlive this.
runtime::Task<void> Sessions::Call(Session& session) {
  RunningTransaction& transaction = session.transaction;
  const ClientRequest& request = session.request;
  session.arguments.clear();
  session.values.clear();
  if (!CheckTables(session)) co_return;
  const ProcedureTable::Entry* found = shared_.procedures.Find(request.procedure());
  if (found == nullptr || !request.whole()) {
    transaction.Fail(
        AbortReason::kRefused,
        absl::InvalidArgumentError(
            fmt::format("procedure '{}': {}", request.procedure(),
                        found == nullptr ? fmt::format("island {} has none of that name: its workload is not "
                                                       "loaded there",
                                                       options_.island)
                                         : "expected a request that is a whole transaction")));
    co_return;
  }
  const Procedure& procedure = *found->procedure;
  absl::Status status;
  for (const data::v1::Value& argument : request.arguments()) {
    if (!DecodeValue(argument, &session.arguments.emplace_back()))
      status = absl::InvalidArgumentError("an argument of no kind that this version knows");
  }
  status.Update(CheckValues(procedure.arguments, session.arguments, "argument"));
  if (!status.ok()) {
    transaction.Fail(AbortReason::kRefused,
                     absl::InvalidArgumentError(fmt::format("procedure '{}': {}", request.procedure(),
                                                            std::string(status.message()))));
    co_return;
  }
  runtime::Task<absl::Status> called =
      found->workload->Call(transaction, procedure, session.arguments, &session.values);
  status = co_await called;
  if (!status.ok()) {  // as Clients::Blame
    const bool contradicts = !transaction.failure.set() && absl::IsDataLoss(status);
    if (contradicts) {
      spdlog::error("transaction {}, procedure '{}', has read what cannot be: {}",
                    transaction.id().ToString(), request.procedure(), std::string(status.message()));
    }
    transaction.Fail(contradicts ? AbortReason::kContradiction : AbortReason::kProcedure, std::move(status));
    co_return;
  }
  status = CheckValues(procedure.results, session.values, "result");
  if (status.ok() || transaction.failure.set()) co_return;
  transaction.Fail(AbortReason::kProcedure,
                   absl::InternalError(fmt::format("procedure '{}' answers something else than it says: {}",
                                                   request.procedure(), std::string(status.message()))));
}

bool Sessions::CheckTables(Session& session) {
  // What is under way goes on when tables come or go: none changes its place. They are replaced only while
  // there is no session.
  if (session.tables == 0) session.tables = shared_.tables;
  if (session.request.tables() == session.tables) return true;
  session.transaction.Fail(AbortReason::kRefused, absl::FailedPreconditionError("the tables have changed"));
  return false;
}

void Sessions::Decode(Session& session) {
  RunningTransaction& transaction = session.transaction;
  Batch& batch = transaction.batch();
  batch.Clear();
  if (!CheckTables(session)) return;
  const absl::Status decoded = DecodeClientOperations(session.request.operations(), *shared_.catalog, &batch);
  if (decoded.ok()) return;
  batch.Clear();
  transaction.Fail(AbortReason::kRefused, decoded);
}

int32_t Sessions::FindMiss(const ClientRequest& request, const Batch& batch) {
  for (uint32_t i = 0; i < batch.size(); ++i) {
    if (!Misses(batch.operation(i).kind, batch.code(i))) continue;
    const auto& may_miss = request.may_miss();
    if (std::find(may_miss.begin(), may_miss.end(), i) == may_miss.end()) return static_cast<int32_t>(i);
  }
  return -1;
}

// As Clients::MustWait.
bool Sessions::MustWait(const Session& session, Outcome outcome, uint64_t* epoch) const {
  const RunningTransaction& transaction = session.transaction;
  const AbortReason reason = transaction.failure.reason;
  const bool explains = reason == AbortReason::kProcedure || reason == AbortReason::kCondition ||
                        reason == AbortReason::kContradiction;
  if (outcome != Outcome::kCommitted && !(outcome == Outcome::kAborted && explains)) return false;
  *epoch = std::max(parts_.engine.commit_epoch(), transaction.others_epoch);
  if (*epoch <= shared_.board->durable()) *epoch = 0;
  return *epoch != 0;
}

size_t Sessions::GiveDurable() {
  if (for_disk_.empty()) return 0;
  const uint64_t durable = shared_.board->durable();
  const size_t before = for_disk_.size();
  std::erase_if(for_disk_, [&](Session* session) {
    if (session->waits_for > durable) return false;
    session->waits_for = 0;
    turns_.Resume(session->transaction);
    return true;
  });
  return before - for_disk_.size();
}

void Sessions::Count(Session& session, Outcome outcome) {
  ScopeCounters& scope = counters_.scopes[static_cast<uint8_t>(session.transaction.scope())];
  switch (outcome) {
    case Outcome::kCommitted:
      scope.committed.Add(1);
      // What a client does between its steps is none of our latency.
      if (session.request.whole()) CountLatency(session);
      break;
    case Outcome::kUnknown:
    case Outcome::kPending:
      scope.unknown.Add(1);
      break;
    case Outcome::kAborted:
      scope.aborted.Add(1);
      counters_.aborts[static_cast<uint8_t>(session.transaction.failure.reason)].Add(1);
      break;
  }
}

void Sessions::CountLatency(Session& session) {
  const auto scope = static_cast<size_t>(session.transaction.scope());
  const int64_t now_ns = turns_.NowNs();
  counters_.scopes[scope].latency.Record(now_ns - session.begun_ns);
  Stays& stays = session.transaction.stays;
  if (stays.on()) counters_.stays[scope].Add(stays.End(now_ns));
}

void Sessions::Reply(Session& session, Outcome outcome) {
  RunningTransaction& transaction = session.transaction;
  const Failure& failure = transaction.failure;
  reply_.Clear();
  reply_.set_session(session.name.second);
  reply_.set_outcome(ToWire(outcome));
  reply_.set_failed_operation(-1);
  EncodeId(transaction.own_id, &reply_);
  const bool succeeded = outcome == Outcome::kCommitted || outcome == Outcome::kPending;
  const bool missed = failure.reason == AbortReason::kCondition;
  const Batch& batch = transaction.batch();
  if (succeeded || missed) EncodeClientResults(batch, reply_.mutable_results());
  if (outcome == Outcome::kCommitted && !session.request.procedure().empty()) {
    for (const Value& value : session.values) EncodeValue(value, reply_.add_values());
  }
  if (missed) reply_.set_failed_operation(FindMiss(session.request, batch));
  if (!succeeded) {
    reply_.set_abort_reason(static_cast<uint32_t>(failure.reason));
    reply_.set_code(
        static_cast<uint32_t>(failure.set() ? failure.status.code() : absl::StatusCode::kUnknown));
    reply_.set_message(failure.set() ? std::string(failure.status.message()) : "the outcome is not known");
  }
  links_.SendToGateway(session.name.first, messaging::FrameType::kClientReply, reply_);
}

void Sessions::Refuse(const Name& name, const absl::Status& why) {
  reply_.Clear();
  reply_.set_session(name.second);
  reply_.set_outcome(data::v1::OUTCOME_ABORTED);
  reply_.set_failed_operation(-1);
  reply_.set_abort_reason(static_cast<uint32_t>(AbortReason::kRefused));
  reply_.set_code(static_cast<uint32_t>(why.code()));
  reply_.set_message(std::string(why.message()));
  links_.SendToGateway(name.first, messaging::FrameType::kClientReply, reply_);
}

void Sessions::Sweep() {
  const int64_t now_ns = turns_.now_ns();
  for (const auto& [name, session] : sessions_) {
    if (session->begun_ns == 0 || now_ns < session->deadline_ns) continue;
    RunningTransaction& transaction = session->transaction;
    if (transaction.branch.locks.waiting()) {
      transaction.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("still waits for a lock"));
    } else if (session->open) {
      transaction.Fail(AbortReason::kClientGone,
                       absl::AbortedError("its client let it wait for too long between two requests"));
    } else if (session->has_request && session->waits_for == 0) {
      continue;  // at work, or the coordinator has an eye on it
    }
    turns_.Resume(transaction);
  }
}

uint64_t Sessions::OldestBegun() const {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const auto& [name, session] : sessions_) {
    if (session->begun_ns != 0) oldest = std::min(oldest, session->transaction.own_id.sequence);
  }
  return oldest;
}

void Sessions::VisitBegun(absl::FunctionRef<void(const RunningTransaction&, int64_t)> visit) const {
  for (const auto& [name, session] : sessions_) {
    if (session->begun_ns != 0) visit(session->transaction, session->begun_ns);
  }
}

CoordinatedTransaction* Sessions::FindExecuting(const coordinator::TransactionId& id) {
  for (const auto& [name, session] : sessions_) {
    RunningTransaction& transaction = session->transaction;
    if (session->begun_ns != 0 && transaction.own_id == id)
      return transaction.Executes() ? &transaction : nullptr;
  }
  return nullptr;
}

void Sessions::CheckInvariants() const {
  for (const auto& [name, session] : sessions_) {
    ISLANDS_CHECK(session != nullptr && session->name == name && !session->task.done());
    ISLANDS_CHECK(!session->open || !session->has_request);
    if (session->begun_ns != 0) ISLANDS_CHECK(options_.Began(session->transaction.own_id));
  }
  for (const Session* session : for_disk_) ISLANDS_CHECK(session->waits_for != 0);
  for (const std::unique_ptr<Session>& session : spare_) {
    ISLANDS_CHECK(session->task.done() && session->transaction.entry == nullptr);
    ISLANDS_CHECK(session->transaction.branch.locks.held() == 0);
  }
}

}  // namespace islands::instance
