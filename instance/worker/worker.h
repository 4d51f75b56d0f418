// A worker: one run loop on one core, with its links, its running transactions and the branches it serves
// for others.
//
// RunOnce: take what other threads posted, poll the links, resume what is ready, send what was queued. A
// transaction is a coroutine and suspends for a lock or a remote answer; the worker itself never blocks
// (design: "run loop").
//
// This is the loop and the wiring; what happens in it is done by its parts, each of which uses those before
// it:
//
//   Turns         whose turn it is                       TimeAccount  what the time goes into, and
//                                                        WorkSampler  in some rounds, exactly
//   LockWaits     who waits for a lock                   Engine       operations on this island's rows
//   Peers         who is silent, dead, worth talking to  Outbox       messages are made
//   Coordinated   distributed transactions begun here    Branches     those begun elsewhere
//   Clients       slots and their transactions           Sessions     transactions of clients outside
//   Probes        deadlocks over several islands         Inbox        messages are read
//
// Thread safety: everything belongs to the thread that calls RunOnce, except what is listed under "any
// thread".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "instance/messaging/links.h"
#include "instance/recovery/cleaner.h"
#include "instance/worker/branches.h"
#include "instance/worker/clients.h"
#include "instance/worker/coordinated.h"
#include "instance/worker/counters.h"
#include "instance/worker/engine.h"
#include "instance/worker/inbox.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/mailbox.h"
#include "instance/worker/outbox.h"
#include "instance/worker/peers.h"
#include "instance/worker/probes.h"
#include "instance/worker/sessions.h"
#include "instance/worker/time_account.h"
#include "instance/worker/turns.h"
#include "instance/worker/work_sampler.h"
#include "instance/worker/worker_shared.h"
#include "proto/control.pb.h"
#include "runtime/hardware_counters.h"
#include "runtime/mutex.h"
#include "runtime/scheduler.h"

namespace islands::instance {

class Worker final : public runtime::Runnable, private messaging::LinksHandler {
 public:
  // Adds itself to shared.colleagues: workers are made in the order of their indexes.
  Worker(WorkerOptions options, WorkerShared& shared, std::unique_ptr<messaging::Transport> transport,
         messaging::LinksOptions links);
  ~Worker() override;

  absl::Status Start() { return links_.Start(); }

  // Runnable.
  void OnThreadStart() override;
  bool RunOnce() override;
  void Sleep(int64_t timeout_ns) override;
  void Wake() override { transport_->Wake(); }
  int64_t NextDeadlineNs() const override;

  // Any thread.
  void Post(std::function<void()> function) { mailbox_.Post(std::move(function)); }
  const WorkerOptions& options() const { return options_; }
  const WorkerCounters& counters() const { return counters_; }
  const messaging::Links& links() const { return links_; }
  const Peers& peers() const { return peers_; }
  const runtime::LatchWaits& latch_waits() const { return latch_waits_; }
  runtime::HardwareCounters& hardware() const { return hardware_; }
  int32_t tid() const { return tid_.load(std::memory_order_acquire); }
  bool running() const { return clients_.running(); }
  // Of the transactions that the log is needed for here (log/open_transactions.h): the cleaner asks all of an
  // island's workers. UINT64_MAX: there is none, or no log.
  uint64_t OldestOpen() const {
    return options_.journal == nullptr ? log::OpenTransactions::kNone : options_.journal->open().oldest();
  }
  std::string binding_error();
  // Why its cleaner has ended; empty: it has not, or there is none.
  std::string cleaner_failure();
  // A run is about to be posted: running() holds from now on.
  void MarkRunning() { clients_.MarkRunning(); }

  // On the worker's thread (through Post), or while no scheduler runs it.
  Clients& clients() { return clients_; }
  const LockWaits& lock_waits() const { return lock_waits_; }
  const Coordinated& coordinated() const { return coordinated_; }
  const Branches& branches() const { return branches_; }
  // Between two rounds. For who steps it: simulation does after each, sanitized builds do so by themselves.
  void CheckInvariants() const;
  control::v1::Transactions ListTransactions(const control::v1::TransactionsRequest& request);
  // What an earlier life has left, each to the worker that serves it; before Start. FAILED_PRECONDITION: the
  // deployment has fewer islands or workers than the log speaks of. DATA_LOSS: the log is damaged.
  absl::Status Restore(const recovery::Unsettled& unsettled);
  // After the island's catalog or store was replaced.
  void Rebind() { engine_.Rebind(); }
  void NoteTables() { engine_.NoteTables(); }  // after tables were added to them, likewise
  // Writes changed pages home between the worker's steps; null: nobody does. While no scheduler runs it.
  void SetCleaner(std::unique_ptr<recovery::Cleaner> cleaner);
  // Once it runs no more, where the log has commands: until a checkpoint has all that was done, for so long
  // at most.
  void CleanUp(int64_t most_ns);
  // Whether two-phase commit has anything left here, besides: likewise.
  bool HasUnsettled() const { return HasOpenBranches() || !coordinated_.empty(); }
  // Whether any transaction has work here; only meaningful while no scheduler runs the worker.
  bool HasOpenBranches() const { return clients_.active() || sessions_.active() || !branches_.empty(); }
  // At the island's end, while no scheduler runs the worker: nobody will be answered any more.
  void GiveUp() { clients_.GiveUp(); }

 private:
  size_t Poll();
  size_t Send();
  void SendAtOnce();
  void Flush();
  void Sweep();
  void LookAtPeers();
  bool CleanerRests();
  void Clean();
  void CountCleaner();
  absl::Status BindThread() const;

  // LinksHandler.
  void OnPeerUp(uint32_t island, uint64_t boot_epoch) override;
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) override;
  void OnOriginUp(const messaging::Origin& origin) override { branches_.OnCoordinatorUp(origin); }
  void OnOriginLost(const messaging::Origin& origin, const absl::Status&) override {
    branches_.OnCoordinatorLost(origin);
  }
  void OnMessage(const messaging::Origin& origin, messaging::FrameType type,
                 std::span<const std::byte> payload) override {
    inbox_.Take(origin, type, payload);
  }
  void OnClientRequest(messaging::ConnectionId gateway, std::span<const std::byte> payload) override {
    sessions_.OnRequest(gateway, payload);
  }
  void OnGatewayLost(messaging::ConnectionId gateway) override { sessions_.OnGatewayLost(gateway); }

  const WorkerOptions options_;
  WorkerShared& shared_;
  WorkerCounters counters_;
  std::unique_ptr<messaging::Transport> transport_;
  messaging::Links links_;
  Mailbox mailbox_;
  Turns turns_;
  TimeAccount time_;
  WorkSampler sampler_;
  runtime::LatchWaits latch_waits_;             // of its thread
  mutable runtime::HardwareCounters hardware_;  // of its thread, for who asks
  LockWaits lock_waits_;
  Engine engine_;
  Peers peers_;
  Outbox outbox_;
  Coordinated coordinated_;
  Branches branches_;
  Clients clients_;
  Sessions sessions_;
  Probes probes_;
  Inbox inbox_;

  std::unique_ptr<recovery::Cleaner> cleaner_;
  bool data_full_ = false;           // as the cleaner has said last
  uint64_t counted_pages_ = 0;       // of what it has written
  uint64_t counted_checkpoint_ = 0;  // its number
  int64_t next_clean_ns_ = INT64_MAX;
  int64_t next_pass_ns_ = 0;   // of the cleaner begins then, or
  uint64_t next_pass_at_ = 0;  // when so many bytes of log are there
  int64_t next_sweep_ns_ = 0;
  Activity between_rounds_ = Activity::kIdle;  // what the time since the last round counts as
  std::atomic<int32_t> tid_{0};
  runtime::Mutex trouble_mutex_;
  std::string binding_error_ ABSL_GUARDED_BY(trouble_mutex_);
  std::string cleaner_failure_ ABSL_GUARDED_BY(trouble_mutex_);
};

}  // namespace islands::instance
