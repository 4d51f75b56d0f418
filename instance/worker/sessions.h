// Transactions of clients outside: what gateways ask of this worker, each a session.
//
//   gateway --ClientRequest--> begin, operations, ... commit or roll back --ClientReply--> gateway
//
// A whole transaction is one request; it may begin with a procedure of a loaded workload. One that its client
// goes through step by step stays open in between, with its locks, for as long as its request says: then, or
// when its gateway is gone, it is rolled back. What was told to commit commits, whoever is gone.
//
// With durability `sync` the answer to a commit, and to a failure that says what rows there are, waits
// until EPOCH has reached what it depends on (answers.h), and the session with it, without locks. Results
// of a step do not: what a transaction has read counts when it has committed.
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. Every request gets one reply, unless its gateway is gone, or broke invariant 2.
//  2. A session has one request at a time. Whoever sends a second one has its link's sessions ended.
//  3. A session is here from its first request until its last reply, and its transaction has ended before
//     that.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "coordinator/coordinator.h"
#include "instance/messaging/links.h"
#include "instance/worker/counters.h"
#include "instance/worker/running_transaction.h"
#include "instance/worker/turns.h"
#include "instance/worker/worker_shared.h"
#include "proto/data.pb.h"
#include "runtime/random.h"
#include "runtime/task.h"

namespace islands::instance {

class Sessions {
 public:
  // So many at a time; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMost = 1024;
  static constexpr int64_t kLongestWaitNs = 3600 * runtime::kNsPerSecond;  // that a request can ask for

  Sessions(const WorkerOptions& options, WorkerShared& shared, Turns& turns, LockWaits& lock_waits,
           Engine& engine, Peers& peers, Coordinated& coordinated, messaging::Links& links,
           WorkerCounters& counters)
      : options_(options),
        shared_(shared),
        turns_(turns),
        coordinated_(coordinated),
        links_(links),
        counters_(counters),
        random_(runtime::Random::Stream(options.seed, (uint64_t{0x5e55} << 32) | options.index)),
        parts_{options, turns, lock_waits, engine, peers, coordinated, random_, counters} {}
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  void OnRequest(messaging::ConnectionId gateway, std::span<const std::byte> payload);
  void OnGatewayLost(messaging::ConnectionId gateway);

  bool active() const { return !sessions_.empty(); }
  // Whether answers wait for EPOCH; lets those go on that it has reached, and says how many.
  bool waits() const { return !for_disk_.empty(); }
  size_t GiveDurable();
  // Deadlines: of transactions that wait for a lock, of open ones that hear nothing, of answers.
  void Sweep();

  // As of Clients.
  uint64_t OldestBegun() const;
  void VisitBegun(absl::FunctionRef<void(const RunningTransaction&, int64_t begun_ns)> visit) const;
  CoordinatedTransaction* FindExecuting(const coordinator::TransactionId& id);
  void CheckInvariants() const;  // between two rounds

 private:
  // Who a session is: its gateway's link, and the number there.
  using Name = std::pair<messaging::ConnectionId, uint64_t>;

  struct Session {
    explicit Session(const TransactionParts& parts) : transaction(parts) {}
    RunningTransaction transaction;
    Name name;
    data::v1::ClientRequest request;  // the one being served
    std::vector<Value> arguments;     // of its procedure
    std::vector<Value> values;        // that it has answered
    std::vector<std::byte> input;     // the call, for the log
    bool has_request = false;
    bool gone = false;    // its gateway
    bool open = false;    // between two requests
    uint64_t tables = 0;  // fingerprint of those that the transaction began with; 0: it has not
    int64_t begun_ns = 0;
    int64_t deadline_ns = 0;  // of the request
    uint64_t waits_for = 0;   // epoch; 0: it does not
    runtime::Task<void> task;
  };

  void Begin(const Name& name);
  void GoOn(Session& session);
  void SetRequest(Session& session);
  runtime::Task<void> Serve(Session& session);
  // Returns what became of one attempt at the transaction.
  runtime::Task<coordinator::Outcome> Attempt(Session& session);
  runtime::Task<coordinator::Outcome> Finish(Session& session);
  // The request's operations, and what they need. Sets a failure if the transaction cannot go on.
  runtime::Task<void> Execute(Session& session);
  // The request's procedure, which begins the transaction. Likewise.
  runtime::Task<void> Call(Session& session);
  // A call that can be made again may be in the log as such.
  void NoteCommand(Session& session);
  // Whether the request was made for the tables that there are; sets a failure otherwise.
  bool CheckTables(Session& session);
  void Decode(Session& session);
  // The first write that did not find what it needs; -1: none.
  static int32_t FindMiss(const data::v1::ClientRequest& request, const Batch& batch);
  void Extend(Session& session, int64_t until_ns);
  bool MustWait(const Session& session, coordinator::Outcome outcome, uint64_t* epoch) const;
  void Count(Session& session, coordinator::Outcome outcome);
  void CountLatency(Session& session);
  void Reply(Session& session, coordinator::Outcome outcome);
  void Refuse(const Name& name, const absl::Status& why);
  void End(Session& session);

  const WorkerOptions& options_;
  WorkerShared& shared_;
  Turns& turns_;
  Coordinated& coordinated_;
  messaging::Links& links_;
  WorkerCounters& counters_;
  runtime::Random random_;
  const TransactionParts parts_;

  std::map<Name, std::unique_ptr<Session>> sessions_;  // ordered: a simulation goes through them
  std::vector<std::unique_ptr<Session>> spare_;
  std::vector<Session*> for_disk_;  // their answers wait for EPOCH
  uint32_t until_watched_ = 1;
  data::v1::ClientRequest incoming_;
  data::v1::ClientReply reply_;
};

}  // namespace islands::instance
