// When a call is to have its answer.
//
// Thread safety: plain values.
#pragma once

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace islands::internal {

class Deadline {
 public:
  explicit Deadline(int64_t timeout_ms)
      : at_(Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kLongestMs))) {}

  bool passed() const { return Clock::now() >= at_; }
  std::chrono::nanoseconds left() const { return at_ - Clock::now(); }
  void Set(grpc::ClientContext* context) const {
    // gRPC has another clock.
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(left()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kLongestMs = int64_t{365} * 24 * 3600 * 1000;  // as good as none
  Clock::time_point at_;
};

}  // namespace islands::internal
