// Where the messages between workers are made and sent; inbox.h is where they are read.
//
// Whatever a coordinator says goes out on the link that its worker has dialled; whatever a participant says
// goes back on the link that the coordinator's worker has dialled, or not at all: so both ends learn of its
// loss. Messages of two-phase commit are counted here.
//
// Thread safety: owned by a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "coordinator/coordinator.h"
#include "coordinator/fellow.h"
#include "coordinator/transaction_id.h"
#include "instance/execution/abort_reason.h"
#include "instance/execution/router.h"
#include "instance/messaging/links.h"
#include "instance/worker/commit_memory.h"
#include "instance/worker/counters.h"
#include "instance/worker/held_messages.h"
#include "instance/worker/probe.h"
#include "instance/worker/worker_shared.h"
#include "instance/workload/operation.h"

namespace islands::instance {

struct Messages;

using coordinator::Fellow;

class Outbox {
 public:
  using Id = coordinator::TransactionId;

  // `journal`: the worker's; null where there is no log.
  Outbox(messaging::Links& links, const WorkerShared& shared, WorkerCounters& counters,
         const log::Journal* journal = nullptr);
  ~Outbox();

  // --- as coordinator
  struct Step {
    uint64_t participant_epoch = 0;
    uint32_t number = 0;  // 1, 2, ... for each participant
    int64_t deadline_us = 0;
    int64_t idle_us = 0;
    uint64_t layout_generation = 0;
  };
  // False: the operations do not fit into one message.
  bool SendExecute(uint32_t island, const Id& id, const Step& step, const Ended& ended, const Batch& batch,
                   std::span<const RoutedOperation> operations);
  // `fellows`: all participants; the one that is asked may be among them.
  void SendPrepare(const Fellow& to, const Id& id, bool early, std::span<const Fellow> participants);
  void SendCommitOnePhase(const Fellow& to, const Id& id);
  void SendDecision(const Fellow& to, const Id& id, bool commit);
  void SendConfirm(uint32_t decider, const Id& id);
  void SendInquiryToDecider(const Fellow& decider, const Id& id);
  void SendInquiryReply(uint32_t island, const Id& id, coordinator::Outcome outcome);

  // --- as participant, to the transaction's coordinator
  void SendResults(const Id& id, uint32_t step, bool wrote, const Batch& batch,
                   std::span<const RoutedOperation> operations, Failure* failure);
  void SendRefusal(const messaging::Origin& to, const Id& id, uint32_t step, const Failure& why);
  void SendVote(const Id& id, coordinator::VoteKind vote);
  void SendAcknowledge(const Id& id);
  void SendGone(const Id& id);
  void SendOnePhaseReply(const Id& id, coordinator::Outcome outcome);
  void SendInquiry(const Id& id);
  void SendDecidersReply(const Id& id, coordinator::Outcome outcome);

  // --- between participants
  void SendDecisionRequest(const Fellow& to, const Id& id);
  void SendDecisionReply(const messaging::Origin& to, const Id& id, coordinator::Outcome outcome,
                         std::span<const uint32_t> gone);

  // `votes: forced`: what need not wait any more.
  size_t SendHeld() { return held_.SendDurable(); }
  bool holds() const { return !held_.empty(); }

  // --- of a run's clients; false: they did not go
  bool SendClients(uint32_t island, uint64_t run_id, std::span<const int64_t> due_ns);

  // False: it did not go out.
  bool SendProbe(uint32_t island, const Probe& probe);

 private:
  void Count(TwoPhaseStep step) { counters_.two_phase[static_cast<uint8_t>(step)].Add(1); }
  void SendAcknowledgement(const Id& id, bool gone);
  // What answers depend on that say what is to be seen on this island now; 0 where they wait for nothing.
  uint64_t CommitEpoch() const { return shared_.answers_wait ? journal_->commit_epoch() : 0; }
  // To the coordinator's present life, if lives keep what they have promised.
  void SendToSettle(const Id& id, messaging::FrameType type, const google::protobuf::MessageLite& message);

  messaging::Links& links_;
  const WorkerShared& shared_;
  WorkerCounters& counters_;
  const log::Journal* const journal_;
  HeldMessages held_;
  const std::unique_ptr<Messages> messages_;
};

}  // namespace islands::instance
