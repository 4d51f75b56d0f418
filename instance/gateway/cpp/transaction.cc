#include "instance/gateway/cpp/transaction.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace islands {

using client::v1::Operation;
using client::v1::TransactRequest;
using internal::Effect;

Transaction::Impl::Impl(std::shared_ptr<internal::Connection> connection, int64_t timeout_ms)
    : connection_(std::move(connection)), timeout_ms_(timeout_ms) {
  connection_->DeadlineIn(timeout_ms).Set(&context_);
  stream_ = connection_->stub->Transact(&context_);
}

Transaction::Impl::~Impl() {
  if (has_ended()) return;
  context_.TryCancel();  // the gateway rolls back what its client leaves
  stream_->Finish();
}

absl::Status Transaction::Impl::Lost(Effect effect) {
  stream_->WritesDone();
  const grpc::Status status = stream_->Finish();
  if (!status.ok()) return internal::FromGrpc(status, effect);
  // It has said that all is well, and has not answered.
  return internal::FromGrpc({grpc::StatusCode::ABORTED, "the gateway has ended the transaction"}, effect);
}

absl::StatusOr<Transaction::Impl::Response> Transaction::Impl::Ask(const Request& request, Effect effect) {
  if (!end_.ok()) return end_;
  Response response;
  // What could not be written may have been sent all the same: only the gateway knows.
  if (!stream_->Write(request) || !stream_->Read(&response)) return end_ = Lost(effect);
  if (!response.transaction().empty()) id_ = response.transaction();
  return response;
}

absl::Status Transaction::Impl::EndAsAsked(bool* how) {
  *how = true;
  end_ = absl::FailedPreconditionError(absl::StrCat(
      "transaction ", id_, " was ", committed_ ? "committed" : "rolled back", "; begin another"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Result>> Transaction::Impl::Execute(const Batch& batch) {
  const internal::OperationList& operations = batch.operations().list;
  TransactRequest request;
  *request.mutable_operations() = operations;
  if (first_.kind_case() == Operation::KIND_NOT_SET && !operations.empty()) first_ = operations[0];
  if (internal::EffectOf(operations) == Effect::kCommit) effect_ = Effect::kCommit;
  const absl::StatusOr<Response> response = Ask(request, Effect::kNone);
  if (!response.ok()) return response.status();
  if (response->results_size() == operations.size()) return internal::FromResults(response->results());
  context_.TryCancel();
  stream_->Finish();
  return end_ = absl::InternalError(absl::StrCat(
             "the gateway has given ", response->results_size(), " results of ", operations.size(),
             " operations, and the transaction is rolled back; is it of another version than this library?"));
}

absl::Status Transaction::Impl::Commit(const std::string& token) {
  if (has_ended()) return end_;
  TransactRequest request;
  request.set_end(TransactRequest::COMMIT);
  request.set_token(token);
  const absl::StatusOr<Response> response = Ask(request, effect_);
  if (response.ok()) {
    stream_->WritesDone();
    stream_->Finish();
    return EndAsAsked(&committed_);
  }
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
  TransactRequest request;
  request.set_end(TransactRequest::ROLLBACK);
  const absl::StatusOr<Response> response = Ask(request, Effect::kNone);
  if (!response.ok()) return response.status();
  stream_->WritesDone();
  stream_->Finish();
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
