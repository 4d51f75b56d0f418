// Keys, results, tables and errors between this library and islands.client.v1.
//
// Thread safety: pure functions.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "islands/values.h"
#include "proto/client.pb.h"

namespace islands {

struct Batch::Operations {
  google::protobuf::RepeatedPtrField<client::v1::Operation> list;
};

}  // namespace islands

namespace islands::internal {

// Of a call: whether something may be left of it of which nobody knows.
enum class Effect {
  kNone,    // it reads, or was not told to commit
  kCommit,  // it commits changes
};

using OperationList = google::protobuf::RepeatedPtrField<client::v1::Operation>;
Effect EffectOf(const OperationList& operations);
// What the token of a transaction with this first operation is kept by.
client::v1::AskOutcomeRequest QuestionOf(const std::string& token, const client::v1::Operation& first);

void FillKey(const Key& key, client::v1::Key* message);
std::vector<Result> FromResults(const google::protobuf::RepeatedPtrField<client::v1::Result>& messages);
Table FromTable(const client::v1::Table& message);
void FillTable(const Table& table, client::v1::Table* message);

// An error, of unknown outcome, if the answer is none to this request.
absl::StatusOr<Committed> FromResponse(const client::v1::ExecuteResponse& response,
                                       const client::v1::ExecuteRequest& request);

// INVALID_ARGUMENT: an int64 cannot hold it.
absl::Status FillValue(const Value& value, client::v1::Value* message);
Called FromCallResponse(const client::v1::CallResponse& response);
Procedure FromProcedure(const client::v1::Procedure& message);

// Of one operation.
absl::StatusOr<std::optional<std::string>> ValueOf(absl::StatusOr<Result> result);
absl::StatusOr<std::vector<Row>> RowsOf(absl::StatusOr<Result> result);

// Whether that may come from gRPC, without a word of the gateway.
bool IsLoss(const grpc::Status& status);
// Whether gRPC had no connection: for certain nothing was sent.
bool IsNotSent(const grpc::Status& status);
// Whether gRPC was not to send so much: likewise.
bool IsTooLarge(const grpc::Status& status);
// Of a call that has ended with an error. Keeps the invariant of errors.h.
absl::Status FromGrpc(const grpc::Status& status, Effect effect);
// The same where the gateway's word lies beside code and message.
absl::Status FromFailure(int code, const std::string& message, const client::v1::Failure& failure,
                         Effect effect);

}  // namespace islands::internal
