#include "instance/gateway/answer.h"

#include "instance/execution/abort_reason.h"
#include "instance/worker/wire.h"

namespace islands::gateway {

using client::v1::Failure;
using instance::AbortReason;

namespace {

// What a client is to do about it, which is what gRPC's codes are for.
grpc::StatusCode CodeOf(AbortReason reason, absl::StatusCode code) {
  switch (reason) {
    case AbortReason::kDeadlock:
    case AbortReason::kLockTimeout:
    case AbortReason::kVoteNo:
    case AbortReason::kPeerRestarted:
    case AbortReason::kClientGone:
      return grpc::StatusCode::ABORTED;
    case AbortReason::kDeadline:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case AbortReason::kPeerLost:
    case AbortReason::kPeerUnresponsive:
      return grpc::StatusCode::UNAVAILABLE;
    case AbortReason::kStorage:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case AbortReason::kCondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case AbortReason::kRefused:
      // The tables have changed, an island was loading, the transaction is over: another attempt is
      // another matter.
      return code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kInvalidArgument
                 ? static_cast<grpc::StatusCode>(code)
                 : grpc::StatusCode::ABORTED;
    case AbortReason::kNone:
    case AbortReason::kProcedure:
    case AbortReason::kContradiction:
      break;
  }
  return code == absl::StatusCode::kOk ? grpc::StatusCode::INTERNAL : static_cast<grpc::StatusCode>(code);
}

}  // namespace

grpc::Status Answer::ToStatus() const {
  if (ok()) return grpc::Status::OK;
  client::v1::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(failure);
  return {code, message, details.SerializeAsString()};
}

Answer AnswerOf(const data::v1::ClientReply& reply) {
  Answer answer;
  if (reply.outcome() == data::v1::OUTCOME_COMMITTED || reply.outcome() == data::v1::OUTCOME_PENDING)
    return answer;
  if (reply.sequence() != 0) answer.failure.set_transaction(instance::DecodeId(reply).ToString());
  answer.failure.set_operation(reply.failed_operation());
  answer.message = reply.message();
  if (reply.outcome() != data::v1::OUTCOME_ABORTED) {
    answer.code = grpc::StatusCode::UNKNOWN;
    answer.failure.set_outcome(Failure::UNKNOWN);
    answer.failure.set_reason("unknown");
    return answer;
  }
  const auto reason = reply.abort_reason() < instance::kAbortReasons
                          ? static_cast<AbortReason>(reply.abort_reason())
                          : AbortReason::kNone;
  answer.code = CodeOf(reason, static_cast<absl::StatusCode>(reply.code()));
  answer.failure.set_outcome(Failure::ABORTED);
  answer.failure.set_reason(std::string(instance::AbortReasonName(reason)));
  return answer;
}

Answer LostAnswer(bool may_have_committed, const absl::Status& why) {
  Answer answer = Refusal(why, std::string(instance::AbortReasonName(AbortReason::kPeerLost)));
  if (!may_have_committed) return answer;
  answer.code = grpc::StatusCode::UNKNOWN;
  answer.failure.set_outcome(Failure::UNKNOWN);
  answer.failure.set_reason("unknown");
  return answer;
}

Answer Refusal(const absl::Status& why, const std::string& reason) {
  Answer answer;
  answer.code = static_cast<grpc::StatusCode>(why.code());
  answer.message = std::string(why.message());
  answer.failure.set_outcome(Failure::ABORTED);
  answer.failure.set_reason(reason);
  answer.failure.set_operation(-1);
  return answer;
}

}  // namespace islands::gateway
