// What calls to the gateway have in common: the ways there, and pauses between attempts.
//
// Thread safety: a Connection is constant, and its ways are for any thread; Pauses belong to one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/gateway/cpp/convert.h"
#include "instance/gateway/cpp/deadline.h"
#include "instance/gateway/cpp/direct.h"
#include "proto/client.grpc.pb.h"
#include "runtime/random.h"

namespace islands::internal {

// Between attempts: at random, and longer each time.
class Pauses {
 public:
  Pauses();
  void Wait();
  // Not longer than until then; false if it has passed.
  bool WaitUntil(const Deadline& deadline);

 private:
  std::chrono::nanoseconds Next();

  runtime::Random random_;
  int64_t longest_us_;
};

struct Connection {
  std::unique_ptr<client::v1::Islands::Stub> stub;
  std::unique_ptr<Direct> direct;  // null: the gateway is on another machine
  int64_t timeout_ms;

  Deadline DeadlineIn(int64_t asked_ms) const { return Deadline(asked_ms > 0 ? asked_ms : timeout_ms); }
  // A call that is no step of a transaction, by the shortest way that is there. OK: it is carried out, and
  // `answer` has what the gateway says of it.
  absl::Status Ask(client::v1::DirectCall* call, Effect effect, const Deadline& deadline,
                   client::v1::DirectAnswer* answer) const;
  // One call of AskOutcome.
  absl::StatusOr<bool> AskOutcome(const client::v1::AskOutcomeRequest& request,
                                  const Deadline& deadline) const;
  // Until somebody answers; an error if that is too late.
  absl::StatusOr<bool> AskUntilKnown(const client::v1::AskOutcomeRequest& request,
                                     const Deadline& deadline) const;
};

}  // namespace islands::internal
