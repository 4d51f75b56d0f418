#include "deploy/run/counters.h"

#include <algorithm>

namespace islands::deploy {
namespace {

uint64_t Minus(uint64_t later, uint64_t earlier) { return later > earlier ? later - earlier : 0; }

void AddBuckets(std::vector<uint64_t>* to, const std::vector<uint64_t>& from) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t b = 0; b < from.size(); ++b) (*to)[b] += from[b];
}

}  // namespace

uint64_t Sums::committed() const {
  uint64_t sum = 0;
  for (const ScopeSums& scope : scopes) sum += scope.committed;
  return sum;
}

uint64_t Sums::aborted() const {
  uint64_t sum = 0;
  for (const ScopeSums& scope : scopes) sum += scope.aborted;
  return sum;
}

uint64_t Sums::unknown() const {
  uint64_t sum = 0;
  for (const ScopeSums& scope : scopes) sum += scope.unknown;
  return sum;
}

std::vector<uint64_t> Sums::latency() const {
  std::vector<uint64_t> all;
  for (const ScopeSums& scope : scopes) AddBuckets(&all, scope.latency);
  return all;
}

double Sums::busy_fraction() const {
  const double total = busy_seconds + idle_seconds;
  return total > 0 ? busy_seconds / total : 0;
}

double Sums::waiting_fraction() const {
  const double total = busy_seconds + idle_seconds;
  return total > 0 ? waiting_seconds / total : 0;
}

std::optional<double> Sums::hit_fraction() const {
  if (page_looks == 0) return std::nullopt;
  return 1 - static_cast<double>(std::min(page_misses, page_looks)) / static_cast<double>(page_looks);
}

void Sums::Add(const Sums& other) {
  for (size_t s = 0; s < kScopes; ++s) {
    scopes[s].committed += other.scopes[s].committed;
    scopes[s].aborted += other.scopes[s].aborted;
    scopes[s].unknown += other.scopes[s].unknown;
    scopes[s].latency_sum_us += other.scopes[s].latency_sum_us;
    AddBuckets(&scopes[s].latency, other.scopes[s].latency);
  }
  for (const auto& [reason, count] : other.aborts_by_reason) {
    if (count > 0) aborts_by_reason[reason] += count;
  }
  busy_seconds += other.busy_seconds;
  idle_seconds += other.idle_seconds;
  waiting_seconds += other.waiting_seconds;
  messages_sent += other.messages_sent;
  messages_received += other.messages_received;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  clients_moved += other.clients_moved;
  client_messages += other.client_messages;
  arrivals_refused += other.arrivals_refused;
  log_bytes += other.log_bytes;
  page_looks += other.page_looks;
  page_misses += other.page_misses;
  profile.Add(other.profile);
}

Sums SumOf(const control::v1::Snapshot& snapshot) {
  Sums sums;
  sums.page_looks = snapshot.page_looks();
  sums.page_misses = snapshot.page_misses();
  for (const control::v1::WorkerCounters& worker : snapshot.workers()) {
    Sums one;
    for (size_t s = 0; s < std::min<size_t>(kScopes, static_cast<size_t>(worker.scopes_size())); ++s) {
      const control::v1::ScopeCounters& scope = worker.scopes(static_cast<int>(s));
      one.scopes[s] = {scope.committed(),
                       scope.aborted(),
                       scope.unknown(),
                       scope.latency().sum_us(),
                       {scope.latency().buckets().begin(), scope.latency().buckets().end()}};
    }
    one.aborts_by_reason = {worker.aborts_by_reason().begin(), worker.aborts_by_reason().end()};
    one.busy_seconds = worker.busy_seconds();
    one.idle_seconds = worker.idle_seconds();
    one.waiting_seconds = worker.waiting_seconds();
    one.messages_sent = worker.messages_sent();
    one.messages_received = worker.messages_received();
    one.bytes_sent = worker.bytes_sent();
    one.bytes_received = worker.bytes_received();
    one.clients_moved = worker.clients_moved();
    one.client_messages = worker.client_messages();
    one.arrivals_refused = worker.arrivals_refused();
    one.log_bytes = worker.log_bytes();
    one.profile = ProfileOf(worker);
    sums.Add(one);
  }
  return sums;
}

Sums Difference(const Sums& later, const Sums& earlier) {
  Sums out = later;
  for (size_t s = 0; s < kScopes; ++s) {
    const ScopeSums& before = earlier.scopes[s];
    ScopeSums& scope = out.scopes[s];
    scope.committed = Minus(scope.committed, before.committed);
    scope.aborted = Minus(scope.aborted, before.aborted);
    scope.unknown = Minus(scope.unknown, before.unknown);
    scope.latency_sum_us = std::max(0.0, scope.latency_sum_us - before.latency_sum_us);
    for (size_t b = 0; b < std::min(scope.latency.size(), before.latency.size()); ++b) {
      scope.latency[b] = Minus(scope.latency[b], before.latency[b]);
    }
  }
  for (auto& [reason, count] : out.aborts_by_reason) {
    const auto before = earlier.aborts_by_reason.find(reason);
    if (before != earlier.aborts_by_reason.end()) count = Minus(count, before->second);
  }
  std::erase_if(out.aborts_by_reason, [](const auto& entry) { return entry.second == 0; });
  out.busy_seconds = std::max(0.0, later.busy_seconds - earlier.busy_seconds);
  out.idle_seconds = std::max(0.0, later.idle_seconds - earlier.idle_seconds);
  out.waiting_seconds = std::max(0.0, later.waiting_seconds - earlier.waiting_seconds);
  out.messages_sent = Minus(later.messages_sent, earlier.messages_sent);
  out.messages_received = Minus(later.messages_received, earlier.messages_received);
  out.bytes_sent = Minus(later.bytes_sent, earlier.bytes_sent);
  out.bytes_received = Minus(later.bytes_received, earlier.bytes_received);
  out.clients_moved = Minus(later.clients_moved, earlier.clients_moved);
  out.client_messages = Minus(later.client_messages, earlier.client_messages);
  out.profile = Difference(later.profile, earlier.profile);
  out.arrivals_refused = Minus(later.arrivals_refused, earlier.arrivals_refused);
  out.log_bytes = Minus(later.log_bytes, earlier.log_bytes);
  out.page_looks = Minus(later.page_looks, earlier.page_looks);
  out.page_misses = Minus(later.page_misses, earlier.page_misses);
  return out;
}

IslandMeter::Step IslandMeter::Observe(const control::v1::Snapshot& snapshot) {
  Step step;
  Sums sums = SumOf(snapshot);
  if (last_ && snapshot.boot_epoch() == boot_epoch_) {
    step.sums = Difference(sums, *last_);
    step.seconds = static_cast<double>(snapshot.time_us() - time_us_) / 1e6;
  } else if (last_) {
    step.sums = sums;
    step.restarted = true;
  }
  for (const control::v1::WorkerCounters& worker : snapshot.workers())
    step.clients_waiting += worker.clients_waiting();
  last_ = std::move(sums);
  boot_epoch_ = snapshot.boot_epoch();
  time_us_ = snapshot.time_us();
  return step;
}

}  // namespace islands::deploy
