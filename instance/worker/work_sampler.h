// In which rounds of its loop a worker measures what it spends its time on: one in about 64, at random
// distances, so that they do not fall in step with what the load does. A round that found nothing to do
// says nothing, and one in which the thread lost its core to others would blame the scope that was open.
//
// What is counted are the measured rounds alone (WorkerCounters::work_ns): shares of a worker's busy time
// are the shares of their sum.
//
// Thread safety: owned by a worker.
#pragma once

#include <algorithm>
#include <cstdint>

#include "instance/worker/counters.h"
#include "runtime/clock.h"
#include "runtime/random.h"
#include "runtime/work_account.h"

namespace islands::instance {

class WorkSampler {
 public:
  static constexpr uint64_t kEvery = 64;
  // Or a sixteenth of the round. Reading the two clocks one after the other takes about a microsecond.
  static constexpr int64_t kMostAwayNs = 5 * runtime::kNsPerUs;

  WorkSampler(const runtime::Clock& clock, WorkerCounters& counters, uint64_t seed)
      : clock_(clock), counters_(counters), random_(seed), account_(runtime::WorkAccount::MeasureChange()) {}

  // Once in a round.
  bool Due() { return --until_ == 0; }
  void Begin(int64_t now_ns) {
    until_ = 1 + random_.Below(2 * kEvery - 1);
    // Where one thread runs several workers (simulation) another may be in the midst of a round.
    measures_ = runtime::work_account == nullptr;
    begun_ns_ = now_ns;
    if (!measures_) return;
    begun_cpu_ns_ = runtime::ThreadCpuNs();
    account_.Begin(runtime::Work::kManaging);
  }
  void End(bool found_work) {
    if (!measures_) return;
    const int64_t whole_ns = clock_.NowNs() - begun_ns_;
    const runtime::WorkAccount::Times shares = account_.End(static_cast<uint64_t>(whole_ns));
    const int64_t away_ns = whole_ns - (runtime::ThreadCpuNs() - begun_cpu_ns_);
    if (!found_work || away_ns > std::max(kMostAwayNs, whole_ns / 16)) return;
    for (size_t i = 0; i < runtime::kWorks; ++i) counters_.work_ns[i].Add(shares[i]);
  }

 private:
  const runtime::Clock& clock_;
  WorkerCounters& counters_;
  runtime::Random random_;
  runtime::WorkAccount account_;
  uint64_t until_ = 1;
  int64_t begun_ns_ = 0;
  int64_t begun_cpu_ns_ = 0;
  bool measures_ = false;
};

}  // namespace islands::instance
