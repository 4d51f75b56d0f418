// What the worker's source files share and nobody else needs.
//
// Thread safety: as worker.h.
#pragma once

#include <algorithm>

#include "instance/worker/worker.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

// Waits until a point in time.
struct Worker::Pause {
  Worker& worker;
  int64_t until_ns;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) {
    worker.sleepers_.push_back({until_ns, self});
    std::push_heap(worker.sleepers_.begin(), worker.sleepers_.end());
  }
  void await_resume() const noexcept {}
};

// Lets the loop go round once: links are polled, and whoever is ready has a turn.
struct Worker::Breath {
  Worker& worker;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) { worker.ready_.Push(self); }
  void await_resume() const noexcept {}
};

// Lets everybody go first who is ready, and the other slots that are about to begin a transaction.
struct Worker::Yield {
  Worker& worker;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) { worker.fresh_.Push(self); }
  void await_resume() const noexcept {}
};

// Executing that happens in the midst of messaging: counted apart, for two readings of the clock.
class Worker::Executing {
 public:
  explicit Executing(Worker& worker) : worker_(worker) {
    worker_.Account(Activity::kMessaging, worker_.clock_.NowNs());
  }
  ~Executing() { worker_.Account(Activity::kExecuting, worker_.clock_.NowNs()); }
  Executing(const Executing&) = delete;
  Executing& operator=(const Executing&) = delete;

 private:
  Worker& worker_;
};

// Message objects that are cleared and filled again, so that protobuf keeps their memory. Parsing and
// building never overlap for the same type: a handler finishes with what it parsed before anything of that
// type is parsed again.
struct Worker::Messages {
  data::v1::ExecuteRequest execute_in, execute_out;
  data::v1::ExecuteReply execute_reply_in, execute_reply_out;
  data::v1::PrepareRequest prepare_in, prepare_out;
  data::v1::Vote vote_in, vote_out;
  data::v1::Decision decision_in, decision_out;
  data::v1::Acknowledge acknowledge_in, acknowledge_out;
  data::v1::CommitOnePhase one_phase_in, one_phase_out;
  data::v1::OnePhaseReply one_phase_reply_in, one_phase_reply_out;
  data::v1::OnePhaseConfirm confirm_in, confirm_out;
  data::v1::Inquiry inquiry_in, inquiry_out;
  data::v1::InquiryReply inquiry_reply_in, inquiry_reply_out;
  data::v1::DecisionRequest decision_request_in, decision_request_out;
  data::v1::DecisionReply decision_reply_in;
  data::v1::Probe probe_in, probe_out;
};

inline constexpr int64_t kSweepIntervalNs = 10 * runtime::kNsPerMs;
inline constexpr int64_t kInquiryIntervalNs = 200 * runtime::kNsPerMs;
// Fellows in doubt learn of their coordinator's death at about the same time.
inline constexpr int64_t kFellowIntervalNs = 20 * runtime::kNsPerMs;
// With so many bytes waiting for a peer nothing new is begun with it. Phase two always queues.
inline constexpr size_t kCongestionBytes = 1u << 20;

// Planted: nobody looks at boot epochs, or nobody does when both islands have restarted before.
inline bool OverlooksEpochs(uint64_t a, uint64_t b) {
  using runtime::Planted;
  using runtime::PlantedBug;
  return Planted(PlantedBug::kIgnoreBootEpoch) || (Planted(PlantedBug::kIgnoreLaterEpochs) && a > 1 && b > 1);
}

}  // namespace islands::instance
