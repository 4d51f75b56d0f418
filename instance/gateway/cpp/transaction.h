// A transaction on a stream of its own, or on a line that nobody else has meanwhile.
//
// Thread safety: one thread.
// Invariants:
//  1. One request, one response: the gateway is asked nothing while it has not answered.
//  2. It is told to commit once at most. Before that nothing of it can be left, whatever breaks.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/gateway/cpp/connection.h"
#include "instance/gateway/cpp/convert.h"
#include "islands/client.h"

namespace islands {

namespace internal {

// Where the steps of a transaction go. After an error there are no more.
class Steps {
 public:
  virtual ~Steps() = default;  // what is open is rolled back
  virtual absl::Status Ask(client::v1::DirectCall* call, Effect effect, client::v1::DirectAnswer* answer) = 0;
  // The transaction has ended as it was asked to.
  virtual void End() = 0;
};

}  // namespace internal

class Transaction::Impl {
 public:
  Impl(std::shared_ptr<internal::Connection> connection, int64_t timeout_ms);
  ~Impl();

  absl::StatusOr<std::vector<Result>> Execute(const Batch& batch);
  absl::Status Commit(const std::string& token);
  absl::Status Rollback();

  const std::string& id() const { return id_; }
  bool has_ended() const { return !end_.ok(); }
  // By Commit or Rollback, and not by an error.
  bool ended_as_asked() const { return committed_ || rolled_back_; }
  bool committed() const { return committed_; }

 private:
  absl::StatusOr<client::v1::TransactResponse> Ask(client::v1::DirectCall* call, internal::Effect effect);
  absl::Status EndAsAsked(bool* how);

  const std::shared_ptr<internal::Connection> connection_;
  const int64_t timeout_ms_;
  std::unique_ptr<internal::Steps> steps_;  // null: it has ended
  std::string id_;
  absl::Status end_;  // OK while it is open; then what every further step returns
  bool committed_ = false;
  bool rolled_back_ = false;
  internal::Effect effect_ = internal::Effect::kNone;  // of all steps so far
  client::v1::Operation first_;  // a token is kept by it; of no kind before the first step
};

}  // namespace islands
