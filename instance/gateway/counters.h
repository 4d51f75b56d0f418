// What a gateway counts about its clients: calls, transactions, how long they took, and how much of that the
// islands had them.
//
// Calls end on the channels' thread as a rule, and now and then on one of gRPC's: counters take relaxed
// atomic additions, which cost a few nanoseconds each where nobody else adds. A call that ends well costs
// six of them and two looks at the clock, and nothing is locked or allocated.
//
// Thread safety: any thread. A reader may see a call that is counted and whose time is not yet.
//
// Invariants:
//  1. Whatever is counted of a call is counted before its client has the answer.
//  2. Every transaction that a client has begun, or was refused, ends in one outcome, once.
#pragma once

#include <grpcpp/support/status.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <string_view>

#include "instance/execution/abort_reason.h"
#include "instance/gateway/answer.h"
#include "runtime/clock.h"

namespace islands::gateway {

enum class Method : uint8_t {
  kExecute,
  kExecuteMany,
  kTransact,
  kAskOutcome,
  kListTables,
  kCreateTable,
  kDropTable,
  kCall,
  kListProcedures,
};
inline constexpr std::array kMethodNames = {"Execute",    "ExecuteMany", "Transact",
                                            "AskOutcome", "ListTables",  "CreateTable",
                                            "DropTable",  "Call",        "ListProcedures"};
inline constexpr size_t kMethods = kMethodNames.size();

enum class Outcome : uint8_t { kCommitted, kAborted, kUnknown, kRolledBack };
inline constexpr std::array kOutcomeNames = {"committed", "aborted", "unknown", "rolled_back"};
inline constexpr size_t kOutcomes = kOutcomeNames.size();

inline constexpr std::array kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};
inline constexpr size_t kCodes = kCodeNames.size();

// Words of a Failure: those of islands, and the gateway's own.
inline constexpr size_t kReasons = instance::kAbortReasons + 2;
// `other` is what an island of another version may say.
std::string_view ReasonName(size_t reason);

class SharedCounter {
 public:
  void Add(uint64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Times by powers of two of a microsecond: the bounds that islands' latencies have on their page. Bucket b
// holds what took less than 4 * 2^b us and not less than the bucket before it may; the last holds the rest.
class TimeHistogram {
 public:
  static constexpr uint32_t kBuckets = 23;
  static constexpr uint64_t BoundUs(uint32_t bucket) { return uint64_t{4} << bucket; }

  void Record(int64_t ns) {
    const uint64_t positive_ns = ns < 0 ? 0 : static_cast<uint64_t>(ns);
    buckets_[BucketOf(positive_ns / 1000)].Add();
    sum_ns_.Add(positive_ns);
  }
  uint64_t bucket(uint32_t b) const { return buckets_[b].Get(); }
  uint64_t sum_ns() const { return sum_ns_.Get(); }

  static constexpr uint32_t BucketOf(uint64_t us) {
    const auto bits = static_cast<uint32_t>(std::bit_width(us));
    return bits < 3 ? 0 : bits - 2 < kBuckets ? bits - 2 : kBuckets - 1;
  }

 private:
  std::array<SharedCounter, kBuckets> buckets_;
  SharedCounter sum_ns_;
};

struct MethodCounters {
  std::array<SharedCounter, kCodes> calls;  // that have ended
  TimeHistogram latency;                    // of calls; of Transact, of each request
  TimeHistogram island_wait;                // what islands had of it
};

class Counters {
 public:
  void TransactionEnded(const Answer& answer, uint64_t transactions = 1);
  // At its client's word, or because the client said nothing more.
  void RolledBack() { outcomes_[static_cast<size_t>(Outcome::kRolledBack)].Add(); }
  // Besides TransactionEnded: as many as may be were open.
  void Full(uint64_t transactions) { full_.Add(transactions); }

  MethodCounters& of(Method method) { return methods_[static_cast<size_t>(method)]; }
  const MethodCounters& of(Method method) const { return methods_[static_cast<size_t>(method)]; }
  uint64_t ended(Outcome outcome) const { return outcomes_[static_cast<size_t>(outcome)].Get(); }
  uint64_t failed(size_t reason) const { return reasons_[reason].Get(); }
  uint64_t full() const { return full_.Get(); }

 private:
  std::array<MethodCounters, kMethods> methods_;
  std::array<SharedCounter, kOutcomes> outcomes_;
  std::array<SharedCounter, kReasons> reasons_;
  SharedCounter full_;
};

// Follows one call. For one with one answer: made when it begins, and told its end.
class CallMeter {
 public:
  CallMeter(Counters& counters, Method method) : counters_(counters.of(method)) { Begin(); }

  // A request is there; its time begins.
  void Begin() { begun_ns_ = NowNs(); }
  // Its answer is on its way: once for each Begin, `waited_ns` of it at islands.
  void Answered(int64_t waited_ns) {
    if (begun_ns_ == 0) return;
    counters_.latency.Record(NowNs() - begun_ns_);
    counters_.island_wait.Record(waited_ns);
    begun_ns_ = 0;
  }
  void Ended(grpc::StatusCode code) {
    const auto index = static_cast<size_t>(code);
    counters_.calls[index < kCodes ? index : size_t{grpc::StatusCode::UNKNOWN}].Add();
  }
  void End(grpc::StatusCode code, int64_t waited_ns = 0) {
    Answered(waited_ns);
    Ended(code);
  }
  // Nothing is being asked: what comes next has a Begin of its own.
  void Rest() { begun_ns_ = 0; }

 private:
  static int64_t NowNs() { return runtime::MonotonicClock().NowNs(); }

  MethodCounters& counters_;
  int64_t begun_ns_ = 0;  // 0: no request is here
};

}  // namespace islands::gateway
