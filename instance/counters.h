// What a worker counts. Written by the worker alone, without read-modify-write, on cache lines nobody else
// writes; read by the metrics and control threads whenever they like. Everything only grows, so readers take
// differences.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "instance/abort_reason.h"
#include "instance/latency_histogram.h"

namespace islands::instance {

// By what the transaction touched: one site, several sites of one island, several islands.
enum class Scope : uint8_t { kLocal = 0, kMultisite = 1, kDistributed = 2 };
inline constexpr uint32_t kScopes = 3;
inline constexpr std::array<const char*, kScopes> kScopeNames = {"local", "multisite", "distributed"};

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

struct ScopeCounters {
  Counter committed;
  Counter aborted;  // attempts; a transaction that is retried counts once per attempt
  Counter unknown;
  LatencyHistogram latency;  // of committed ones, from the first attempt to the answer
};

struct alignas(64) WorkerCounters {
  std::array<ScopeCounters, kScopes> scopes;
  std::array<Counter, kAbortReasons> aborts;
  Counter busy_ns;
  Counter idle_ns;
  Counter audit_committed;  // two's complement sum of audit deltas
  Counter audit_unknown;
  Counter probes_sent;    // deadlock probes handed to another island or worker
  Counter probe_victims;  // transactions of this worker that a probe found in a cycle
  Gauge in_flight;
  Gauge longest_wait_ns;  // that a transaction begun here waited for its answer, or has been waiting by now
  Gauge branches_open;    // as participant
};

}  // namespace islands::instance
