// One island: a complete storage manager, its workers, and what the control plane can ask of it.
//
// Everything it needs of the outside comes in as Seams: a real process hands in the operating system's, the
// simulation its own, and the code between is the same.
//
//        control thread(s)                    worker threads
//   Load, StartRun, Audit, TakeSnapshot  -->  Worker::RunOnce ... over Store, LockTable, Catalog
//
// Thread safety: the public functions may be called from any thread; Start, Stop, Load, StartRun and StopRun
// are serialized by a mutex, the others only read what may be read at any time.
//
// Invariants:
//  1. Workers run exactly between Start and Stop, except while Load works, which has the island to itself,
//     and while Audit reads the rows of a one-worker island, whose pages have no latches.
//  2. Rows, catalog and workers' view of them change only while no worker runs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/board.h"
#include "instance/log/journal.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/messaging/transport.h"
#include "instance/recovery/recovery.h"
#include "instance/worker/worker.h"
#include "instance/workload/workload.h"
#include "proto/control.pb.h"
#include "runtime/clock.h"
#include "runtime/file_system.h"
#include "runtime/mutex.h"
#include "runtime/scheduler.h"

namespace islands::instance {

using OpenedWorkload = std::shared_ptr<const Workload>;

// Where an island keeps what it has promised, if it does.
struct LogSeam {
  using TakeRecord = absl::FunctionRef<absl::Status(const log::StreamId&, const log::Record&)>;

  log::Board* board = nullptr;
  // An empty one, of this life; the logger knows it already.
  std::function<absl::StatusOr<std::shared_ptr<log::Ring>>(const log::StreamId&)> make_ring;
  // All that the island's lives before have left, in order.
  std::function<absl::Status(uint32_t island, TakeRecord take)> read;
  std::vector<recovery::Cut> cuts;
};

struct Seams {
  const runtime::Clock* clock = nullptr;
  runtime::FileSystem* files = nullptr;
  runtime::Scheduler* scheduler = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<messaging::Transport>>(messaging::Address self)>
      make_transport;
  std::function<absl::StatusOr<OpenedWorkload>(const std::string& object, const storage::Catalog& catalog,
                                               const Parameters& parameters)>
      open_workload;
  uint64_t seed = 1;
  int64_t uid = -1;                                          // peers must have it; -1 = not checked
  uint32_t begun_in_a_row = WorkerOptions().begun_in_a_row;  // simulations take 1: more that interleaves
  uint32_t escalate_after = locks::LockTableOptions().escalate_after;  // few locks there, few keys
  // Called by every worker.
  ProofOfDeath proven_dead;               // empty: nobody is ever proven dead
  runtime::PulseBoard* pulses = nullptr;  // of the whole deployment; null: everybody is taken to move
  const LogSeam* log = nullptr;           // null: nothing is kept (durability `none`)
};

// What the configuration asks for; kDefault when it names no nodes.
topology::MemoryPolicy PolicyOf(const control::v1::IslandConfig& config);

class Island {
 public:
  // Builds catalog, store and workers, and loads what the configuration says; nothing listens yet.
  static absl::StatusOr<std::unique_ptr<Island>> Create(const control::v1::IslandConfig& config,
                                                        const Seams& seams);
  ~Island();

  // Listens, dials the peers, starts the workers.
  absl::Status Start();
  void Stop();

  // Empties the workload's tables and loads its rows. FAILED_PRECONDITION while a run or a transaction is
  // under way.
  absl::Status Load(const control::v1::LoadSpec& load);
  // FAILED_PRECONDITION when a run is active.
  absl::Status StartRun(const control::v1::StartRun& request);
  // Ends the run and waits until its last transaction has ended. OK also when that run is over; 0 =
  // whichever.
  absl::Status StopRun(uint64_t run_id, int64_t timeout_ns);
  // The two halves of StopRun, for whoever steps the workers itself.
  void RequestStop();
  bool Running() const;

  control::v1::Snapshot TakeSnapshot() const;
  // The audited sum over this island's rows. Exact when no transaction is under way. An island with one
  // worker stands still meanwhile.
  absl::StatusOr<control::v1::AuditReply> Audit(const control::v1::AuditRequest& request);
  // Connection and placement state; the kernel's word on placement.
  control::v1::IslandStatus Status() const;

  const control::v1::IslandConfig& config() const { return config_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  storage::Store& store() { return *store_; }
  const locks::LockTable& locks() const { return *shared_locks_; }
  storage::PoolUsage PoolUsage() const;
  // Whether some worker here sees that some worker of `peer` stands still.
  bool PeerSilent(uint32_t peer) const;
  // What the active run was started with; nothing when there is none.
  std::optional<control::v1::StartRun> CurrentRun() const;

 private:
  Island(const control::v1::IslandConfig& config, const Seams& seams, partitioner::SiteMap sites);
  // Where there is a log: what the lives before have kept goes over the rows that were loaded, which must be
  // page for page what the first one loaded. What they have not ended but promised is for the workers.
  absl::Status Recover(recovery::Recovery* recovery);
  absl::Status MakeJournal(uint32_t worker, log::Lsn last);
  absl::Status CreateWorkers();
  // Catalog and empty store for these tables. On failure there may be no store, and the catalog is the old
  // one.
  absl::Status BuildStore(const storage::Catalog::TableSpecs& tables);
  absl::Status LoadRows(const control::v1::LoadSpec& load);
  absl::Status LoadWhileStopped(const control::v1::LoadSpec& load);
  void BindPool(void* address, size_t bytes);
  control::v1::AuditReply SumRows(const Workload& workload) const;
  std::vector<runtime::Runnable*> Runnables() const;
  // For something that has to have the island to itself.
  void HaltWorkers();
  void LetWorkersGoOn();
  void SetResting(bool resting);

  const Seams seams_;
  const partitioner::SiteMap sites_;
  WorkerShared shared_;
  std::unique_ptr<locks::LockTable> shared_locks_;
  std::vector<std::shared_ptr<log::Ring>> rings_;  // by worker; where there is a log
  std::vector<std::unique_ptr<log::Journal>> journals_;
  std::vector<std::unique_ptr<Worker>> workers_;

  // Guarded by mutex_ for changing; store_ and catalog_ are replaced only while no worker runs.
  mutable runtime::Mutex mutex_;
  control::v1::IslandConfig config_;
  std::unique_ptr<storage::Catalog> catalog_;
  OpenedWorkload run_workload_ ABSL_GUARDED_BY(mutex_);  // of the last run
  uint64_t run_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> started_ns_{0};  // 0 = not yet

  // Guarded by store_mutex_ for replacing and for readers outside mutex_: status and metrics must not wait
  // for a load.
  mutable runtime::Mutex store_mutex_;
  std::unique_ptr<storage::Store> store_;
  std::string binding_warning_ ABSL_GUARDED_BY(store_mutex_);
  control::v1::StartRun run_ ABSL_GUARDED_BY(store_mutex_);  // the last one
};

}  // namespace islands::instance
