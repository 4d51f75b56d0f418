// Where a transaction that is watched has been from its beginning to its answer, and for how long. One in
// kWatchEvery is: reading the clock for all of them would cost what it tells.
//
// Thread safety: none; it lives on one worker.
//
// Invariant: between Begin and End every moment belongs to one stay, so that together they are its latency.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace islands::instance {

enum class Stay : uint8_t {
  kQueue = 0,  // due, and no slot had begun it: none was free, or the worker slept (open loop, clients of the
               // deployment)
  kRunning = 1,  // on its worker's core
  kTurn = 2,     // it could go on, and others had the core
  kLock = 3,     // waits for a lock
  kRemote = 4,   // for results of other islands
  kVotes = 5,    // for votes, decisions, acknowledgements of other islands
  kDisk = 6,     // for room in the log or a paged pool, for pages of it, or for EPOCH
  kRetry = 7,    // has been a deadlock's victim, and pauses before it tries again
};
inline constexpr uint32_t kStays = 8;
inline constexpr std::array<const char*, kStays> kStayNames = {"queue",  "running", "turn", "lock",
                                                               "remote", "votes",   "disk", "retry"};
inline constexpr const char* kStaysTogether = "together";  // all of them: the latency
// Prime, so that it does not fall in step with slots, batches and rounds.
inline constexpr uint32_t kWatchEvery = 61;

class Stays {
 public:
  using Times = std::array<uint64_t, kStays>;

  bool on() const { return since_ns_ != 0; }
  void Begin(Stay stay, int64_t now_ns) {
    times_ns_ = {};
    stay_ = stay;
    since_ns_ = now_ns;
  }
  void Move(Stay stay, int64_t now_ns) {
    times_ns_[static_cast<size_t>(stay_)] += static_cast<uint64_t>(now_ns - since_ns_);
    stay_ = stay;
    since_ns_ = now_ns;
  }
  const Times& End(int64_t now_ns) {
    Move(stay_, now_ns);
    since_ns_ = 0;
    return times_ns_;
  }
  void Forget() { since_ns_ = 0; }

 private:
  Times times_ns_{};
  Stay stay_ = Stay::kRunning;
  int64_t since_ns_ = 0;  // 0: not watched
};

}  // namespace islands::instance
