// What a worker knows of the other islands: who stands still and who is dead, which are two different things
// (peer_watch.h, ProofOfDeath), and to whom it is worth talking.
//
// Thread safety: owned by a worker; ShownSilent, up and waits from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/execution/router.h"
#include "instance/messaging/links.h"
#include "instance/worker/counters.h"
#include "instance/worker/peer_watch.h"
#include "instance/worker/worker_shared.h"

namespace islands::instance {

class Peers {
 public:
  Peers(const WorkerOptions& options, WorkerShared& shared, const messaging::Links& links);

  // This worker moves.
  void Beat() { watch_.Beat(); }
  int64_t next_look_ns() const { return watch_.next_look_ns(); }
  // Looks who moves; `on_silent` hears of the workers that stand still from now on.
  void Look(int64_t now_ns, absl::FunctionRef<void(messaging::Address)> on_silent);

  bool Silent(messaging::Address peer) { return watch_.Silent(peer); }
  // Of the worker that serves this one.
  bool Silent(uint32_t island) { return watch_.Silent({island, Serving(island)}); }
  uint32_t Serving(uint32_t island) const { return links_.ServingWorker(island, options_.index); }
  // Whether that very life of the island can be reached at the moment.
  bool Reaches(uint32_t island, uint64_t boot_epoch) const {
    return links_.IsUp(island) && links_.BootEpoch(island) == boot_epoch;
  }
  // The life that was last reached.
  uint64_t LastEpoch(uint32_t island) const { return links_.BootEpoch(island); }
  // Whether messages that will be said again anyhow should be said now: not to one who does not take them.
  bool WorthSaying(uint32_t island);
  // Some island that the plan needs, `congested`, does not keep up with what is sent to it. One that stands
  // still is not waited for.
  bool MustWaitFor(const RoutePlan& plan, uint32_t* congested);
  // Of a transaction, for that.
  void CountWait(uint32_t congested, int64_t waited_ns) { waits_[congested].Add(waited_ns); }
  // Whether no later life of the island has begun: whatever that one has locked, nobody else has touched
  // until now. To be looked at when nothing more is to be locked.
  bool IsLast(uint32_t island, uint64_t boot_epoch) const {
    return shared_.pulses == nullptr || shared_.pulses->Life(island) == boot_epoch;
  }
  // Whether that life of an island is over; asks for proof now and then only.
  bool ProvenDead(uint32_t island, uint64_t boot_epoch, int64_t now_ns);

  void CountUp() { up_.Set(links_.PeersUp()); }
  uint32_t up() const { return static_cast<uint32_t>(up_.Get()); }
  // Some worker of the island stands still, as of the last look.
  bool ShownSilent(uint32_t island) const { return silent_[island].Get() != 0; }
  // For each island, by number.
  const std::vector<WaitCounters>& waits() const { return waits_; }

 private:
  // With so many bytes waiting for a peer nothing new is begun with it. Phase two always queues.
  static constexpr size_t kCongestionBytes = 1u << 20;

  struct Proof {
    int64_t asked_ns = 0;
    uint64_t dead_up_to = 0;  // that epoch and all before it
  };

  const WorkerOptions& options_;
  const WorkerShared& shared_;
  const messaging::Links& links_;
  PeerWatch watch_;
  std::vector<Proof> proofs_;  // by island
  Gauge up_;
  std::vector<Gauge> silent_;        // by island
  std::vector<WaitCounters> waits_;  // by island
};

}  // namespace islands::instance
