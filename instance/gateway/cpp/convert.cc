#include "instance/gateway/cpp/convert.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "islands/errors.h"

namespace islands::internal {

namespace pb = client::v1;

Effect EffectOf(const OperationList& operations) {
  const bool reads = std::all_of(operations.begin(), operations.end(), [](const pb::Operation& operation) {
    return operation.has_get() || operation.has_scan() || operation.has_index_scan();
  });
  return reads ? Effect::kNone : Effect::kCommit;
}

namespace {

const pb::Key& KeyOf(const pb::Operation& operation) {
  switch (operation.kind_case()) {
    case pb::Operation::kGet:
      return operation.get().key();
    case pb::Operation::kPut:
      return operation.put().key();
    case pb::Operation::kInsert:
      return operation.insert().key();
    case pb::Operation::kReplace:
      return operation.replace().key();
    case pb::Operation::kDelete:
      return operation.delete_().key();
    case pb::Operation::kAdd:
      return operation.add().key();
    case pb::Operation::kScan:
      return operation.scan().begin();
    case pb::Operation::kIndexScan:
      return operation.index_scan().at();
    case pb::Operation::KIND_NOT_SET:
      break;
  }
  return pb::Key::default_instance();
}

Key FromKey(const pb::Key& message) {
  std::vector<KeyPart> parts;
  for (const pb::KeyPart& part : message.parts()) {
    if (part.has_text())
      parts.emplace_back(part.text());
    else if (part.has_signed_())
      parts.emplace_back(part.signed_());
    else
      parts.emplace_back(part.unsigned_());
  }
  return Key(std::move(parts));
}

}  // namespace

pb::AskOutcomeRequest QuestionOf(const std::string& token, const pb::Operation& first) {
  pb::AskOutcomeRequest question;
  question.set_token(token);
  question.set_table(first.table());
  *question.mutable_key() = KeyOf(first);
  return question;
}

void FillKey(const Key& key, pb::Key* message) {
  for (const KeyPart& part : key.parts()) {
    pb::KeyPart* added = message->add_parts();
    if (part.is_text())
      added->set_text(part.text());
    else if (part.is_negative())
      added->set_signed_(part.as_int64());
    else
      added->set_unsigned_(part.as_uint64());
  }
}

std::vector<Result> FromResults(const google::protobuf::RepeatedPtrField<pb::Result>& messages) {
  std::vector<Result> results;
  results.reserve(static_cast<size_t>(messages.size()));
  for (const pb::Result& message : messages) {
    Result& result = results.emplace_back();
    result.found = message.code() == pb::Result::DONE;
    result.value = message.value();
    result.number = message.number();
    for (const pb::Row& row : message.rows()) result.rows.push_back({FromKey(row.key()), row.value()});
  }
  return results;
}

Table FromTable(const pb::Table& message) {
  Table table;
  table.name = message.name();
  table.key.assign(message.key().begin(), message.key().end());
  table.range_begin = message.range_begin();
  table.range_end = message.range_end();
  table.row_bytes = message.row_bytes();
  table.replicated = message.replicated();
  for (const pb::Index& index : message.indexes())
    table.indexes.push_back({index.name(), {index.key().begin(), index.key().end()}});
  table.key_names.assign(message.key_names().begin(), message.key_names().end());
  for (const pb::Field& field : message.fields()) table.fields.push_back({field.name(), field.type()});
  return table;
}

void FillTable(const Table& table, pb::Table* message) {
  message->set_name(table.name);
  message->mutable_key()->Assign(table.key.begin(), table.key.end());
  message->set_range_begin(table.range_begin);
  message->set_range_end(table.range_end);
  message->set_row_bytes(table.row_bytes);
  message->set_replicated(table.replicated);
  for (const Index& index : table.indexes) {
    pb::Index* added = message->add_indexes();
    added->set_name(index.name);
    added->mutable_key()->Assign(index.key.begin(), index.key.end());
  }
  message->mutable_key_names()->Assign(table.key_names.begin(), table.key_names.end());
  for (const Field& field : table.fields) {
    pb::Field* added = message->add_fields();
    added->set_name(field.name);
    added->set_type(field.type);
  }
}

absl::StatusOr<Committed> FromResponse(const pb::ExecuteResponse& response,
                                       const pb::ExecuteRequest& request) {
  const int operations = request.operations_size();
  const bool earlier = response.earlier() && !request.token().empty();
  if (!earlier && response.results_size() != operations) {
    return absl::UnknownError(absl::StrCat("the gateway has given ", response.results_size(), " results of ",
                                           operations,
                                           " operations; is it of another version than this library?"));
  }
  return Committed{FromResults(response.results()), response.transaction(), earlier};
}

absl::Status FillValue(const Value& value, pb::Value* message) {
  if (value.is_double()) message->set_real(value.as_double());
  if (value.is_bytes()) message->set_text(value.bytes());
  if (!value.is_integer()) return absl::OkStatus();
  if (!value.is_negative() && value.as_int64() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument ", value.as_uint64(), ": expected a number that an int64 can hold"));
  }
  message->set_number(value.as_int64());
  return absl::OkStatus();
}

Called FromCallResponse(const pb::CallResponse& response) {
  Called called{{}, response.transaction(), response.earlier()};
  for (const pb::Value& value : response.results()) {
    if (value.has_real()) {
      called.results.emplace_back(value.real());
    } else if (value.has_text()) {
      called.results.emplace_back(value.text());
    } else {
      called.results.emplace_back(int64_t{value.number()});
    }
  }
  return called;
}

Procedure FromProcedure(const pb::Procedure& message) {
  Procedure procedure{message.name(), message.about(), {}, {}, message.home_table()};
  for (const pb::NamedType& argument : message.arguments())
    procedure.arguments.push_back({argument.name(), argument.type()});
  for (const pb::NamedType& result : message.results())
    procedure.results.push_back({result.name(), result.type()});
  return procedure;
}

absl::StatusOr<std::optional<std::string>> ValueOf(absl::StatusOr<Result> result) {
  if (!result.ok()) return result.status();
  return result->found ? std::optional(std::move(result->value)) : std::nullopt;
}

absl::StatusOr<std::vector<Row>> RowsOf(absl::StatusOr<Result> result) {
  if (!result.ok()) return result.status();
  return std::move(result->rows);
}

// ---- errors

namespace {

// Where an error keeps what the gateway has said: a serialized client.v1.Failure.
constexpr char kFailureUrl[] = "type.googleapis.com/islands.client.v1.Failure";

// Of an outcome that is known: nothing is left.
absl::StatusCode CodeOf(int code) {
  if (code <= 0 || code > static_cast<int>(grpc::StatusCode::UNAUTHENTICATED))
    return absl::StatusCode::kInternal;
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kCancelled:  // by a gateway that ends
      return absl::StatusCode::kAborted;
    case absl::StatusCode::kUnknown:
      return absl::StatusCode::kInternal;
    default:
      return static_cast<absl::StatusCode>(code);
  }
}

bool FailureIn(const grpc::Status& status, pb::Failure* failure) {
  pb::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) return false;
  for (const google::protobuf::Any& detail : details.details()) {
    if (detail.UnpackTo(failure)) return true;
  }
  return false;
}

}  // namespace

absl::Status FromFailure(int code, const std::string& message, const pb::Failure& failure, Effect effect) {
  // Whoever has changed nothing, and has no answer, may simply ask again.
  const bool unknown = failure.outcome() != pb::Failure::ABORTED;
  absl::Status error(!unknown                    ? CodeOf(code)
                     : effect == Effect::kCommit ? absl::StatusCode::kUnknown
                                                 : absl::StatusCode::kUnavailable,
                     message);
  error.SetPayload(kFailureUrl, absl::Cord(failure.SerializeAsString()));
  return error;
}

bool IsLoss(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED ||
         code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::UNKNOWN;
}

// A connection that breaks under a call has other words.
bool IsNotSent(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         status.error_message().starts_with("failed to connect to all addresses");
}

bool IsTooLarge(const grpc::Status& status) {
  const std::string text = status.error_message();
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         (text.starts_with("Sent message larger than max") ||
          text.starts_with("CLIENT: Sent message larger than max"));
}

absl::Status FromGrpc(const grpc::Status& status, Effect effect) {
  if (pb::Failure failure; FailureIn(status, &failure))
    return FromFailure(status.error_code(), status.error_message(), failure, effect);
  if (IsNotSent(status)) {
    return absl::UnavailableError(
        absl::StrCat("there is no connection to a gateway, and nothing was sent; try again (",
                     status.error_message(), ")"));
  }
  if (IsTooLarge(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gateways take no request of that size, and nothing was sent; send less at a time (",
                     status.error_message(), ")"));
  }
  const absl::StatusCode code = CodeOf(status.error_code());
  // A call that the gateway does not know was not begun.
  if (effect == Effect::kNone || code == absl::StatusCode::kUnimplemented) {
    const char* prefix = IsLoss(status) ? "the gateway has not answered: " : "";
    return {code, absl::StrCat(prefix, status.error_message())};
  }
  return absl::UnknownError(absl::StrCat(
      "the gateway has not said how it ended (", absl::StatusCodeToString(code), ": ", status.error_message(),
      "); it may have been committed: look at the data before it is run again, or use a token"));
}

}  // namespace islands::internal

namespace islands {

Failure FailureOf(const absl::Status& error) {
  Failure said;
  said.outcome = absl::IsUnknown(error) ? Outcome::kUnknown : Outcome::kAborted;
  client::v1::Failure failure;
  const absl::optional<absl::Cord> payload = error.GetPayload(internal::kFailureUrl);
  if (!payload || !failure.ParseFromString(std::string(*payload))) return said;
  said.reason = failure.reason();
  said.operation = said.reason == "condition" ? failure.operation() : -1;
  said.transaction = failure.transaction();
  return said;
}

bool IsConditionFailed(const absl::Status& error) {
  return absl::IsFailedPrecondition(error) && FailureOf(error).reason == "condition";
}

bool MayRunAgain(const absl::Status& error) { return absl::IsAborted(error) || absl::IsUnavailable(error); }

}  // namespace islands
