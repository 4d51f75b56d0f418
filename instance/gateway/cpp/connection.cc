#include "instance/gateway/cpp/connection.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "instance/gateway/cpp/convert.h"
#include "islands/errors.h"

namespace islands::internal {

namespace {

constexpr int64_t kFirstPauseUs = 1000;
constexpr int64_t kLongestPauseUs = 500'000;

uint64_t Seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

Pauses::Pauses() : random_(Seed()), longest_us_(kFirstPauseUs) {}

std::chrono::nanoseconds Pauses::Next() {
  const auto pause = std::chrono::microseconds(random_.Below(static_cast<uint64_t>(longest_us_) + 1));
  longest_us_ = std::min(2 * longest_us_, kLongestPauseUs);
  return pause;
}

void Pauses::Wait() { std::this_thread::sleep_for(Next()); }

bool Pauses::WaitUntil(const Deadline& deadline) {
  std::this_thread::sleep_for(std::min(Next(), deadline.left()));
  return !deadline.passed();
}

absl::Status Connection::Ask(client::v1::DirectCall* call, Effect effect, const Deadline& deadline,
                             client::v1::DirectAnswer* answer) const {
  if (std::unique_ptr<Line> line = direct != nullptr ? direct->Take() : nullptr) {
    if (absl::Status status = line->Ask(call, effect, deadline, answer); !status.ok()) return status;
    direct->Give(std::move(line));
    return StatusOf(*answer, effect);
  }
  grpc::ClientContext context;
  deadline.Set(&context);
  grpc::Status status(grpc::StatusCode::UNIMPLEMENTED, "no such call");
  if (call->has_execute()) status = stub->Execute(&context, call->execute(), answer->mutable_execute());
  if (call->has_execute_many())
    status = stub->ExecuteMany(&context, call->execute_many(), answer->mutable_execute_many());
  if (call->has_call_procedure())
    status = stub->Call(&context, call->call_procedure(), answer->mutable_call_procedure());
  return status.ok() ? absl::OkStatus() : FromGrpc(status, effect);
}

absl::StatusOr<bool> Connection::AskOutcome(const client::v1::AskOutcomeRequest& request,
                                            const Deadline& deadline) const {
  grpc::ClientContext context;
  deadline.Set(&context);
  client::v1::AskOutcomeResponse response;
  const grpc::Status status = stub->AskOutcome(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, Effect::kNone);
  return response.committed();
}

absl::StatusOr<bool> Connection::AskUntilKnown(const client::v1::AskOutcomeRequest& request,
                                               const Deadline& deadline) const {
  Pauses pauses;
  for (;;) {
    absl::StatusOr<bool> committed = AskOutcome(request, deadline);
    if (committed.ok() || !MayRunAgain(committed.status())) return committed;
    if (!pauses.WaitUntil(deadline)) return committed;
  }
}

}  // namespace islands::internal
