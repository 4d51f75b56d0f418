// What the workers of an island are made with and what they share.
//
// Thread safety: as said at each member; constant while workers run, where nothing is said.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <vector>

#include "coordinator/transaction_id.h"
#include "instance/locks/lock_table.h"
#include "instance/log/board.h"
#include "instance/log/journal.h"
#include "instance/storage/catalog.h"
#include "instance/storage/store.h"
#include "instance/worker/stuck_branches.h"
#include "instance/workload/procedures.h"
#include "partitioner/site_map.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"
#include "runtime/planted_bug.h"
#include "runtime/pulse_board.h"
#include "topology/binding.h"

namespace islands::instance {

class Branches;
class Mailbox;
class Probes;

// Whether the life of an island that had this boot epoch is proven to be over. Never by a clock: its kernel
// lock is free, or held by a later life. False also when nobody can tell.
using ProofOfDeath = std::function<bool(uint32_t island, uint64_t boot_epoch)>;

// What a worker may want of another of its island: to be posted to its mailbox, never called directly.
struct Colleague {
  Mailbox* mailbox = nullptr;
  Branches* branches = nullptr;
  Probes* probes = nullptr;
};

struct WorkerShared {
  const runtime::Clock* clock = nullptr;
  const storage::Catalog* catalog = nullptr;
  const partitioner::SiteMap* sites = nullptr;
  storage::Store* store = nullptr;
  locks::LockTable* locks = nullptr;
  std::vector<Colleague> colleagues;  // by index; every worker adds itself
  bool alone = false;                 // the island has one worker (executor.h)
  bool look_ahead = true;             // executor.h
  // Islands keep what they have forced: a life answers for those before it. Else (durability `none`) a life
  // that has ended has left nothing.
  bool keeps = false;
  // How far EPOCH has come; set if anything waits for it.
  log::Board* board = nullptr;
  bool answers_wait = false;  // durability `sync` (answers.h)
  bool votes_wait = false;    // `votes: forced` (held_messages.h)
  bool commands = false;      // durability `command`: what can be repeated is logged so
  uint64_t layout_generation = 0;
  uint64_t tables = 0;                    // fingerprint of the catalog
  ProcedureTable procedures;              // that programs outside may call
  ProofOfDeath proven_dead;               // any thread; empty: nobody ever is
  runtime::PulseBoard* pulses = nullptr;  // null: everybody is taken to move
  StuckBranches stuck;
  // Told whenever a worker's run has ended.
  runtime::Mutex run_mutex;
  std::condition_variable_any run_ended;
};

struct WorkerOptions {
  uint32_t island = 0;
  uint32_t index = 0;
  uint64_t boot_epoch = 0;
  log::Journal* journal = nullptr;  // null: nothing is kept
  int32_t cpu = -1;                 // -1 = not pinned to one
  std::vector<uint32_t> cpus;       // where it may run then; empty = anywhere
  std::vector<uint32_t> numa_nodes;
  topology::MemoryPolicy memory_policy = topology::MemoryPolicy::kDefault;  // of its thread's allocations
  int64_t transaction_timeout_ns = 2 * runtime::kNsPerSecond;
  int64_t lock_timeout_ns = 300 * runtime::kNsPerMs;
  uint64_t seed = 1;
  // Transactions of a slot before it is another's turn: what they use stays in the core's first cache, even
  // where there are hundreds of slots.
  uint32_t begun_in_a_row = 16;
  // Answers that wait for EPOCH. No transaction begins while there are so many: a disk that is stuck stops
  // the work, instead of filling the memory.
  uint32_t most_answers_waiting = 8192;

  // Whether a transaction was begun by this worker, in this life.
  bool Began(const coordinator::TransactionId& id) const {
    return id.island == island && id.worker == index && id.boot_epoch == boot_epoch;
  }
};

// Planted: nobody looks at boot epochs, or nobody does when both islands have restarted before.
inline bool OverlooksEpochs(uint64_t a, uint64_t b) {
  using runtime::Planted;
  using runtime::PlantedBug;
  return Planted(PlantedBug::kIgnoreBootEpoch) || (Planted(PlantedBug::kIgnoreLaterEpochs) && a > 1 && b > 1);
}

}  // namespace islands::instance
