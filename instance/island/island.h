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
//     and while Audit reads the rows of a one-worker island, whose pages have no latches. An island with data
//     files stands still from a Load on until Switch; in the beginning too, if there is no data yet.
//  2. Rows, catalog and workers' view of them are replaced, and tables and procedures come and go, only while
//     no worker runs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/island/keeper.h"
#include "instance/island/transaction_gathering.h"
#include "instance/messaging/transport.h"
#include "instance/worker/worker.h"
#include "instance/workload/workload.h"
#include "proto/control.pb.h"
#include "runtime/clock.h"
#include "runtime/file_system.h"
#include "runtime/mutex.h"
#include "runtime/scheduler.h"

namespace islands::instance {

using OpenedWorkload = std::shared_ptr<const Workload>;

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
  std::function<void(std::string)> say;   // how far Create is, in a few words; may be empty
};

// What the configuration asks for; kDefault when it names no nodes.
topology::MemoryPolicy PolicyOf(const control::v1::IslandConfig& config);

// How far a load is, for those who ask meanwhile: control.v1.LoadProgress.
struct LoadedSoFar {
  std::atomic<bool> under_way = false;
  std::atomic<uint64_t> rows = 0;
  std::atomic<double> share = 0;
  std::atomic<double> written = 0;

  void Begin() {
    rows = 0;
    share = 0;
    written = 0;
    under_way = true;
  }
};

class Island {
 public:
  static constexpr uint32_t kMostListed = 1000;

  // Builds catalog, store and workers, and loads what the configuration says; nothing listens yet.
  static absl::StatusOr<std::unique_ptr<Island>> Create(const control::v1::IslandConfig& config,
                                                        const Seams& seams);
  ~Island();

  // Listens, dials the peers, starts the workers.
  absl::Status Start();
  void Stop();

  // Empties the workload's tables and loads its rows; a load without a workload leaves all as it is.
  // FAILED_PRECONDITION while a run is under way, ABORTED while a transaction is. With data files the rows
  // become this generation of them, and the island stands still until Switch.
  absl::Status Load(const control::v1::LoadSpec& load, uint64_t generation = 0);
  // Whether Load would empty tables for good: other tables are made anew, and some have rows that no load
  // brings back. FAILED_PRECONDITION: it would, or a run is under way. ABORTED: a transaction is.
  absl::Status CheckLoad(const control::v1::LoadSpec& load);
  // Tables that are added, empty, or dropped while transactions are under way; those that are so already
  // are passed over. With a log the manifest must name what is added, so that the island's next life makes
  // it if this one cannot. ALREADY_EXISTS: another one has the name. FAILED_PRECONDITION: rows are being
  // loaded. After any other error the island stands still, and must begin another life. `check_only`:
  // nothing is changed, and two things more are errors, FAILED_PRECONDITION: a dropped one has rows,
  // RESOURCE_EXHAUSTED: the pool has no room. What clients write between that and the change goes with the
  // table.
  absl::Status ChangeTables(const control::v1::TablesRequest& request);
  // This generation counts; the island goes on with it. FAILED_PRECONDITION: it has another one's rows, or a
  // load has left none; it must begin another life.
  absl::Status Switch(uint64_t generation);
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
  // Which transactions have work here, as of now; at most kMostListed of them. The workers say it themselves;
  // whose part has not come when Take gives up is named as silent.
  std::shared_ptr<TransactionGathering> AskTransactions(control::v1::TransactionsRequest request) const;
  // Connection and placement state; the kernel's word on placement.
  control::v1::IslandStatus Status() const;

  const control::v1::IslandConfig& config() const { return config_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  storage::Store& store() { return *store_; }
  const locks::LockTable& locks() const { return *shared_locks_; }
  // What it tells metrics; null: nothing is kept.
  const Keeper* keeper() const { return keeper_.get(); }
  storage::PoolUsage PoolUsage() const;
  struct SitePages {
    uint32_t site = 0;
    uint64_t pages = 0;              // in memory or not
    uint64_t written = 0;            // by the cleaner
    storage::Pager::Counters paged;  // zeros: all data are in memory
  };
  struct PagesMoved {
    uint64_t looks = 0;  // for rows, where the pool is paged
    std::vector<SitePages> sites;
  };
  PagesMoved MovedPages() const;
  // Whether some worker here sees that some worker of `peer` stands still.
  bool PeerSilent(uint32_t peer) const;
  // What the active run was started with; nothing when there is none.
  std::optional<control::v1::StartRun> CurrentRun() const;

 private:
  Island(const control::v1::IslandConfig& config, const Seams& seams, partitioner::SiteMap sites);
  absl::Status FillStore();
  absl::Status CreateWorkers();
  bool KeepsFiles() const { return keeper_ != nullptr && keeper_->has_files(); }
  absl::Status ChooseMode(bool from_files);
  void SetMode(bool paged, std::string reason);
  absl::Status StartCleaner();
  bool LogsCommands() const;
  void EndWithoutCommands();
  // Catalog and empty store for these tables. On failure there may be no store, and the catalog is the old
  // one.
  // `for_redo`: its pages come from files.
  absl::Status BuildStore(const storage::Catalog::TableSpecs& tables, bool for_redo);
  absl::Status LoadRows(const control::v1::LoadSpec& load);
  // The workload of this load can be called; it warns if none of it can be.
  void OfferProcedures(const control::v1::LoadSpec& load, const OpenedWorkload& workload);
  void OfferAllProcedures();
  void PublishProcedures();  // what Status says of them
  absl::Status CheckTables(const control::v1::TablesRequest& request,
                           storage::Catalog::TableSpecs* wanted) const;
  absl::Status TakeTables(const storage::Catalog::TableSpecs& wanted);
  absl::Status CheckNothingIsLost(const control::v1::LoadSpec& load) const;
  absl::Status LoadWhileStopped(const control::v1::LoadSpec& load, uint64_t generation);
  absl::Status LoadGeneration(const control::v1::LoadSpec& load, uint64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Swap(storage::Store& store);
  void BindPool(void* address, size_t bytes);
  absl::StatusOr<control::v1::AuditReply> SumRows(const Workload& workload) const;
  std::vector<runtime::Runnable*> Runnables() const;
  // For something that has to have the island to itself.
  void HaltWorkers();
  void LetWorkersGoOn();
  void SetResting(bool resting);

  const Seams seams_;
  const partitioner::SiteMap sites_;
  WorkerShared shared_;
  std::unique_ptr<locks::LockTable> shared_locks_;
  std::unique_ptr<Keeper> keeper_;  // null: nothing is kept
  std::vector<std::unique_ptr<Worker>> workers_;

  // Guarded by mutex_ for changing, catalog_ by store_mutex_ as well, as store_ is; both are replaced only
  // while no worker runs.
  mutable runtime::Mutex mutex_;
  control::v1::IslandConfig config_;
  std::unique_ptr<storage::Catalog> catalog_;
  OpenedWorkload run_workload_ ABSL_GUARDED_BY(mutex_);  // of the last run
  uint64_t run_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  // With data files: of which generation the rows are, and whether workers wait for it to count.
  uint64_t rows_of_ ABSL_GUARDED_BY(mutex_) = 0;
  LoadedSoFar loaded_;
  std::atomic<bool> paged_ = false;     // likewise: the store that is there, or will be
  std::atomic<bool> halted_ = false;    // changed under mutex_
  std::atomic<int64_t> started_ns_{0};  // 0 = not yet

  // Guarded by store_mutex_ for replacing and for readers outside mutex_: status and metrics must not wait
  // for a load.
  mutable runtime::Mutex store_mutex_;
  std::unique_ptr<storage::Store> store_;
  std::string binding_warning_ ABSL_GUARDED_BY(store_mutex_);
  std::string mode_reason_ ABSL_GUARDED_BY(store_mutex_);    // why the pool is paged, or is not, for people
  control::v1::StartRun run_ ABSL_GUARDED_BY(store_mutex_);  // the last one
  google::protobuf::RepeatedPtrField<control::v1::ProcedureSpec> procedures_ ABSL_GUARDED_BY(store_mutex_);
};

}  // namespace islands::instance
