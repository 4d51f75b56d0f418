#include "instance/gateway/cpp/transaction.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace islands {

using client::v1::DirectCall;
using client::v1::Operation;
using client::v1::TransactRequest;
using client::v1::TransactResponse;
using internal::Connection;
using internal::Deadline;
using internal::Effect;
using internal::Line;

namespace {

class StepsOnStream final : public internal::Steps {
 public:
  StepsOnStream(const Connection& connection, const Deadline& deadline) {
    deadline.Set(&context_);
    stream_ = connection.stub->Transact(&context_);
  }
  ~StepsOnStream() override {
    if (finished_) return;
    context_.TryCancel();  // the gateway rolls back what its client leaves
    stream_->Finish();
  }
  absl::Status Ask(client::v1::DirectCall* call, Effect effect, client::v1::DirectAnswer* answer) override {
    // What could not be written may have been sent all the same: only the gateway knows.
    if (stream_->Write(call->transact()) && stream_->Read(answer->mutable_transact()))
      return absl::OkStatus();
    const grpc::Status status = Finish();
    if (!status.ok()) return internal::FromGrpc(status, effect);
    // It has said that all is well, and has not answered.
    return internal::FromGrpc({grpc::StatusCode::ABORTED, "the gateway has ended the transaction"}, effect);
  }
  void End() override { Finish(); }

 private:
  grpc::Status Finish() {
    finished_ = true;
    stream_->WritesDone();
    return stream_->Finish();
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<TransactRequest, client::v1::TransactResponse>> stream_;
  bool finished_ = false;
};

class StepsOnLine final : public internal::Steps {
 public:
  StepsOnLine(const Connection& connection, std::unique_ptr<Line> line, const Deadline& deadline)
      : direct_(*connection.direct), line_(std::move(line)), deadline_(deadline) {}
  // A line that is closed tells the gateway to roll back.
  ~StepsOnLine() override {
    if (!asked_) End();
  }
  absl::Status Ask(client::v1::DirectCall* call, Effect effect, client::v1::DirectAnswer* answer) override {
    call->set_continues(asked_);
    asked_ = true;
    if (absl::Status status = line_->Ask(call, effect, deadline_, answer); !status.ok()) return status;
    absl::Status status = internal::StatusOf(*answer, effect);
    if (!status.ok() && answer->has_failure()) End();  // the gateway has ended it
    return status;
  }
  void End() override { direct_.Give(std::move(line_)); }

 private:
  internal::Direct& direct_;
  std::unique_ptr<Line> line_;
  const Deadline deadline_;
  bool asked_ = false;
};

std::unique_ptr<internal::Steps> StepsOn(const Connection& connection, const Deadline& deadline) {
  if (std::unique_ptr<Line> line = connection.direct != nullptr ? connection.direct->Take() : nullptr)
    return std::make_unique<StepsOnLine>(connection, std::move(line), deadline);
  return std::make_unique<StepsOnStream>(connection, deadline);
}

}  // namespace

Transaction::Impl::Impl(std::shared_ptr<Connection> connection, int64_t timeout_ms)
    : connection_(std::move(connection)),
      timeout_ms_(timeout_ms),
      steps_(StepsOn(*connection_, connection_->DeadlineIn(timeout_ms))) {}

Transaction::Impl::~Impl() = default;

absl::StatusOr<TransactResponse> Transaction::Impl::Ask(DirectCall* call, Effect effect) {
  if (!end_.ok()) return end_;
  client::v1::DirectAnswer answer;
  end_ = steps_->Ask(call, effect, &answer);
  if (!end_.ok()) {
    steps_ = nullptr;
    return end_;
  }
  if (!answer.transact().transaction().empty()) id_ = answer.transact().transaction();
  return std::move(*answer.mutable_transact());
}

absl::Status Transaction::Impl::EndAsAsked(bool* how) {
  if (steps_ != nullptr) steps_->End();
  steps_ = nullptr;
  *how = true;
  end_ = absl::FailedPreconditionError(absl::StrCat(
      "transaction ", id_, " was ", committed_ ? "committed" : "rolled back", "; begin another"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Result>> Transaction::Impl::Execute(const Batch& batch) {
  const internal::OperationList& operations = batch.operations().list;
  DirectCall call;
  *call.mutable_transact()->mutable_operations() = operations;
  if (first_.kind_case() == Operation::KIND_NOT_SET && !operations.empty()) first_ = operations[0];
  if (internal::EffectOf(operations) == Effect::kCommit) effect_ = Effect::kCommit;
  const absl::StatusOr<TransactResponse> response = Ask(&call, Effect::kNone);
  if (!response.ok()) return response.status();
  if (response->results_size() == operations.size()) return internal::FromResults(response->results());
  steps_ = nullptr;
  return end_ = absl::InternalError(absl::StrCat(
             "the gateway has given ", response->results_size(), " results of ", operations.size(),
             " operations, and the transaction is rolled back; is it of another version than this library?"));
}

absl::Status Transaction::Impl::Commit(const std::string& token) {
  if (has_ended()) return end_;
  DirectCall call;
  call.mutable_transact()->set_end(TransactRequest::COMMIT);
  call.mutable_transact()->set_token(token);
  const absl::StatusOr<TransactResponse> response = Ask(&call, effect_);
  if (response.ok()) return EndAsAsked(&committed_);
  if (token.empty() || !absl::IsUnknown(end_)) return end_;
  // It may have been lost because its time was over.
  const absl::StatusOr<bool> committed =
      connection_->AskUntilKnown(internal::QuestionOf(token, first_), connection_->DeadlineIn(timeout_ms_));
  if (!committed.ok()) return end_;  // still nobody knows
  if (*committed) return EndAsAsked(&committed_);
  return end_ = absl::AbortedError(
             absl::StrCat("the commit of transaction ", id_,
                          " was lost, and its token says that it never will be; run it again"));
}

absl::Status Transaction::Impl::Rollback() {
  if (committed_) return end_;
  // Whoever has ended by an error has nothing left, unless it was to be committed and nobody knows.
  if (has_ended()) return absl::IsUnknown(end_) ? end_ : absl::OkStatus();
  DirectCall call;
  call.mutable_transact()->set_end(TransactRequest::ROLLBACK);
  const absl::StatusOr<TransactResponse> response = Ask(&call, Effect::kNone);
  if (!response.ok()) return response.status();
  return EndAsAsked(&rolled_back_);
}

// ---- what programs see

Transaction::Transaction(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transaction::Transaction(Transaction&& other) noexcept = default;
Transaction& Transaction::operator=(Transaction&& other) noexcept = default;
Transaction::~Transaction() = default;

const std::string& Transaction::id() const { return impl_->id(); }
bool Transaction::has_ended() const { return impl_->has_ended(); }
absl::StatusOr<std::vector<Result>> Transaction::Execute(const Batch& batch) { return impl_->Execute(batch); }
absl::Status Transaction::Commit(const std::string& token) { return impl_->Commit(token); }
absl::Status Transaction::Rollback() { return impl_->Rollback(); }

absl::StatusOr<Result> Transaction::One(const Batch& batch) {
  absl::StatusOr<std::vector<Result>> results = impl_->Execute(batch);
  if (!results.ok()) return results.status();
  return std::move(results->front());
}

absl::StatusOr<bool> Transaction::Found(const Batch& batch) {
  const absl::StatusOr<Result> result = One(batch);
  if (!result.ok()) return result.status();
  return result->found;
}

absl::StatusOr<std::optional<std::string>> Transaction::Get(std::string_view table, const Key& key) {
  Batch batch;
  batch.Get(table, key);
  return internal::ValueOf(One(batch));
}

absl::StatusOr<std::optional<std::string>> Transaction::GetForUpdate(std::string_view table, const Key& key) {
  Batch batch;
  batch.GetForUpdate(table, key);
  return internal::ValueOf(One(batch));
}

absl::Status Transaction::Put(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Put(table, key, value);
  return One(batch).status();
}

absl::StatusOr<bool> Transaction::Insert(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Insert(table, key, value);
  return Found(batch);
}

absl::StatusOr<bool> Transaction::Replace(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Replace(table, key, value);
  return Found(batch);
}

absl::StatusOr<bool> Transaction::Delete(std::string_view table, const Key& key) {
  Batch batch;
  batch.Delete(table, key);
  return Found(batch);
}

absl::StatusOr<std::optional<int64_t>> Transaction::Add(std::string_view table, const Key& key, int64_t delta,
                                                        uint32_t offset) {
  Batch batch;
  batch.Add(table, key, delta, offset);
  const absl::StatusOr<Result> result = One(batch);
  if (!result.ok()) return result.status();
  return result->found ? std::optional(result->number) : std::nullopt;
}

absl::StatusOr<std::vector<Row>> Transaction::Scan(std::string_view table, const ScanOptions& scan) {
  Batch batch;
  batch.Scan(table, scan);
  return internal::RowsOf(One(batch));
}

absl::StatusOr<std::vector<Row>> Transaction::IndexScan(std::string_view table, std::string_view index,
                                                        const Key& at, const ScanOptions& scan) {
  Batch batch;
  batch.IndexScan(table, index, at, scan);
  return internal::RowsOf(One(batch));
}

}  // namespace islands
