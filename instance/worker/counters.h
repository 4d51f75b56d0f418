// What a worker counts. Written by the worker alone, without read-modify-write, on cache lines nobody else
// writes; read by the metrics and control threads whenever they like. Everything only grows, so readers take
// differences.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "instance/execution/abort_reason.h"
#include "instance/worker/latency_histogram.h"
#include "instance/worker/stays.h"
#include "runtime/work_account.h"

namespace islands::instance {

// By what the transaction touched: one site, several sites of one island, several islands.
enum class Scope : uint8_t { kLocal = 0, kMultisite = 1, kDistributed = 2 };
inline constexpr uint32_t kScopes = 3;
inline constexpr std::array<const char*, kScopes> kScopeNames = {"local", "multisite", "distributed"};

// What a worker spends its time on. What a message asks to be done with rows is executing; ending branches
// when their coordinator says so is messaging: it takes less time than telling it apart is worth.
enum class Activity : uint8_t {
  kExecuting = 0,  // procedures, operations, commits, with the encoding of what they send
  kMessaging = 1,  // polling, the commit protocol, sending
  kWaiting = 2,    // spinning or sleeping while transactions are open here
  kIdle = 3,       // spinning or sleeping, and nothing is open
};
inline constexpr uint32_t kActivities = 4;
inline constexpr std::array<const char*, kActivities> kActivityNames = {"executing", "messaging", "waiting",
                                                                        "idle"};

// Messages of two-phase commit, each counted by the island that sends it.
enum class TwoPhaseStep : uint8_t {
  kPrepareSent = 0,
  kOnePhaseSent = 1,  // the only writer decides alone
  kVotedYes = 2,
  kVotedRead = 3,
  kVotedNo = 4,
  kCommitSent = 5,
  kAbortSent = 6,
  kAcknowledged = 7,
  kInquirySent = 8,  // by a participant in doubt, or for a one-phase answer that was lost
  kFellowAsked = 9,  // by a participant in doubt whose coordinator has died
};
inline constexpr uint32_t kTwoPhaseSteps = 10;
inline constexpr std::array<const char*, kTwoPhaseSteps> kTwoPhaseStepNames = {
    "prepare_sent", "one_phase_sent", "voted_yes",    "voted_read",   "voted_no",
    "commit_sent",  "abort_sent",     "acknowledged", "inquiry_sent", "fellow_asked"};

class Counter {
 public:
  void Add(uint64_t by) { value_.store(Get() + by, std::memory_order_relaxed); }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A counter of what is no whole number.
class Sum {
 public:
  void Add(double by) { value_.store(Get() + by, std::memory_order_relaxed); }
  double Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

struct ScopeCounters {
  Counter committed;
  Counter aborted;  // attempts; a transaction that is retried counts once per attempt
  Counter unknown;
  LatencyHistogram latency;  // of committed ones, from the first attempt to the answer
};

// Waits that have ended, for room in a queue.
struct WaitCounters {
  Counter waits;
  Counter ns;

  void Add(int64_t waited_ns) {
    waits.Add(1);
    ns.Add(static_cast<uint64_t>(waited_ns));
  }
};

// Of committed transactions that were watched (stays.h).
struct StayCounters {
  Counter transactions;
  std::array<Counter, kStays> ns;
  std::array<Sum, kStays + 1> seconds_squared;  // the last of all stays of a transaction together

  void Add(const Stays::Times& times_ns) {
    transactions.Add(1);
    double together = 0;
    for (size_t i = 0; i < kStays; ++i) {
      ns[i].Add(times_ns[i]);
      const double seconds = static_cast<double>(times_ns[i]) / 1e9;
      seconds_squared[i].Add(seconds * seconds);
      together += seconds;
    }
    seconds_squared[kStays].Add(together * together);
  }
};

// Of what writes changed pages home (recovery/cleaner.h), on the worker that has it.
struct CleanerCounters {
  Counter pages_written;
  Counter checkpoints;     // times the checkpoint has moved on
  Gauge checkpoint_bound;  // the epoch from which on the log is needed
  // When the checkpoint has last moved on, or this life has begun with it, or nothing was committed that it
  // does not cover; 0: there is none.
  Gauge covered_ns;
  Gauge failed;  // 1: it has ended with an error
};

struct alignas(64) WorkerCounters {
  std::array<ScopeCounters, kScopes> scopes;
  std::array<Counter, kAbortReasons> aborts;
  std::array<Counter, kActivities> activity_ns;  // together: the worker's life
  std::array<Counter, runtime::kWorks> work_ns;  // of measured rounds (work_sampler.h)
  std::array<StayCounters, kScopes> stays;
  std::array<Counter, kTwoPhaseSteps> two_phase;
  Counter lock_waits;       // that have begun
  Counter lock_wait_ns;     // of those that have ended
  Counter audit_committed;  // two's complement sum of audit deltas
  Counter audit_unknown;
  Counter probes_sent;    // deadlock probes handed to another island or worker
  Counter probe_victims;  // transactions of this worker that a probe found in a cycle
  Counter shares_lost;  // of committed transactions begun here: the participant died before it had committed
  WaitCounters room;    // pauses of operations for which the log's ring, or a paged pool, had no room
  WaitCounters pages;   // of operations, for pages that were not in memory
  Counter answers_overdue;   // that ended as unknown: EPOCH has not come far enough in time
  Gauge answers_waiting;     // for EPOCH, when the worker last looked
  Counter clients_moved;     // to other islands, where their next transactions begin (arrivals.h)
  Counter client_messages;   // that they went in
  Counter arrivals_refused;  // too many waited
  CleanerCounters cleaner;
  Gauge clients_waiting;  // for a slot, when the last round began
  Gauge in_flight;
  Gauge sessions;           // transactions of clients outside
  Gauge longest_wait_ns;    // that a transaction begun here waited for its answer, or has been waiting by now
  Gauge branches_open;      // as participant
  Gauge in_doubt;           // of those: have voted yes and do not know the decision
  Gauge in_doubt_since_ns;  // the oldest of them, at most 10 ms out of date; 0: there is none
  Gauge coordinated;        // begun here, with participants, not forgotten yet
  Gauge ready;              // coroutines that could go on when the last round began

  uint64_t ActivityNs(Activity activity) const { return activity_ns[static_cast<uint8_t>(activity)].Get(); }
  uint64_t BusyNs() const { return ActivityNs(Activity::kExecuting) + ActivityNs(Activity::kMessaging); }
  uint64_t QuietNs() const { return ActivityNs(Activity::kWaiting) + ActivityNs(Activity::kIdle); }
};

}  // namespace islands::instance
