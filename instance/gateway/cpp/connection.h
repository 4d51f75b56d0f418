// What calls to the gateway have in common: the channel, deadlines, pauses between attempts.
//
// Thread safety: a Connection is constant, and gRPC's stubs are for any thread; a Deadline is a value; Pauses
// belong to one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/client.grpc.pb.h"
#include "runtime/random.h"

namespace islands::internal {

class Deadline {
 public:
  explicit Deadline(int64_t timeout_ms)
      : at_(Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kLongestMs))) {}

  bool passed() const { return Clock::now() >= at_; }
  std::chrono::nanoseconds left() const { return at_ - Clock::now(); }
  void Set(grpc::ClientContext* context) const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kLongestMs = int64_t{365} * 24 * 3600 * 1000;  // as good as none
  Clock::time_point at_;
};

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
  int64_t timeout_ms;

  Deadline DeadlineIn(int64_t asked_ms) const { return Deadline(asked_ms > 0 ? asked_ms : timeout_ms); }
  // One call of AskOutcome.
  absl::StatusOr<bool> AskOutcome(const client::v1::AskOutcomeRequest& request,
                                  const Deadline& deadline) const;
  // Until somebody answers; an error if that is too late.
  absl::StatusOr<bool> AskUntilKnown(const client::v1::AskOutcomeRequest& request,
                                     const Deadline& deadline) const;
};

}  // namespace islands::internal
