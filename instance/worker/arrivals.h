// Where the transactions of a run come from when its slots do not simply draw one after the other: from
// clients of the whole deployment, from a rate, or both.
//
// Clients of the whole deployment are a fixed number. Whoever has its answer draws where its next
// transaction begins, by the law of the whole table, and goes to the island that owns that row: in one
// small message with all others that go there in the same round. Which rows it wants is drawn there, by
// the same law restricted to that island, which together is the law of the whole table again. It waits
// there until it is its turn at a slot: a hot island has a queue, and the others wait for clients (OLTP on
// Hardware Islands, section 7.3).
//
// With a rate transactions become due by the clock, whatever the islands manage to do, and whoever has its
// answer is gone.
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. Until the run ends nobody is made or forgotten: a client waits here, is at a slot, waits for an
//     answer of its own, or is on its way. Who dies with an island, or on a link that is lost, is lost for
//     the run; an island that begins again brings as many new ones as it had at first.
//  2. Nothing is allocated once the queue has been as long as it gets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "instance/worker/counters.h"
#include "instance/worker/outbox.h"
#include "instance/worker/turns.h"
#include "instance/worker/worker_shared.h"
#include "instance/workload/workload.h"
#include "runtime/random.h"

namespace islands::instance {

struct ArrivalPlan {
  uint64_t run_id = 0;
  bool anywhere = false;  // where each transaction begins is drawn; else all begin on this island
  double rate_per_s = 0;  // of this worker; 0: none, there are clients instead
  bool even = false;      // with a rate: one as long after the other as the next; else a Poisson process
  bool active() const { return anywhere || rate_per_s > 0; }
};

class Arrivals {
 public:
  static constexpr size_t kMostWaiting = 1u << 20;  // beyond that they are turned away, and counted
  // Whatever the rate, others have their turn; those that are left are taken in later, due when they were.
  static constexpr uint32_t kMostPerRound = 1024;

  Arrivals(const WorkerOptions& options, const WorkerShared& shared, const Turns& turns, Outbox& outbox,
           WorkerCounters& counters)
      : options_(options), shared_(shared), turns_(turns), outbox_(outbox), counters_(counters) {}
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // `clients` of them are here at first, unless there is a rate. The generator must live until End.
  void Begin(const ArrivalPlan& plan, Generator& generator, uint32_t clients, uint64_t seed);
  void End();

  // Whether slots wait for what comes.
  bool active() const { return active_; }
  size_t waiting() const { return size_; }
  // With those who were taken and have no answer yet, and those who are about to leave.
  size_t here() const;
  // Whoever waits longest: when its transaction was due. Somebody waits.
  int64_t Take();
  // Whoever was taken has its answer.
  void Answered() {
    if (!active_) return;
    --taken_;
    if (plan_.rate_per_s == 0) Place(turns_.NowNs());
  }

  // Takes in what has become due; once in a round.
  void Arrive();
  // Those who go to other islands set out; likewise, before links are flushed.
  void Send();
  // From another island.
  void OnClients(uint64_t run_id, std::span<const int64_t> due_ns);
  // Whose island cannot be reached chooses again; now and then.
  void Sweep();
  int64_t NextDeadlineNs() const { return next_due_ns_; }
  // Some cannot set out: Sweep has to come round.
  bool leaves() const { return leave_; }

 private:
  void Place(int64_t due_ns);
  void Push(int64_t due_ns);
  void DrawNextDue();

  const WorkerOptions& options_;
  const WorkerShared& shared_;
  const Turns& turns_;
  Outbox& outbox_;
  WorkerCounters& counters_;

  ArrivalPlan plan_;
  bool active_ = false;
  Generator* generator_ = nullptr;
  runtime::Random random_{0};
  // Since when each waits; a ring whose size is a power of two.
  std::vector<int64_t> ring_;
  size_t first_ = 0, size_ = 0;
  size_t taken_ = 0;
  std::vector<std::vector<int64_t>> leaving_;  // by island
  bool leave_ = false;                         // some do
  int64_t next_due_ns_ = INT64_MAX;            // with a rate
  double after_due_ns_ = 0;                    // what rounding has left of it
  // Came before this worker had heard of their run.
  uint64_t early_run_ = 0;
  std::vector<int64_t> early_;
};

}  // namespace islands::instance
