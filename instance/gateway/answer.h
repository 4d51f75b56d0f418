// How a transaction ended, as gRPC says it: a status, with a Failure in its details.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "proto/client.pb.h"
#include "proto/data.pb.h"

namespace islands::gateway {

struct Answer {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
  client::v1::Failure failure;  // unless the code is OK

  bool ok() const { return code == grpc::StatusCode::OK; }
  // With the failure in its details, as google.rpc.Status has them.
  grpc::Status ToStatus() const;
};

// Of a reply: OK if the transaction was committed, or is open.
Answer AnswerOf(const data::v1::ClientReply& reply);
// No reply will come. `may_have_committed`: the request that was sent told the island to commit.
Answer LostAnswer(bool may_have_committed, const absl::Status& why);
// It never began. `reason`: the word of the Failure.
Answer Refusal(const absl::Status& why, const std::string& reason);

}  // namespace islands::gateway
