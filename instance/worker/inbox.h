// Where the messages between workers are read; outbox.h is where they are made.
//
// A message is parsed, checked and handed to whom it is for, its fields as our own types. One that makes no
// sense - bytes that are none, a coordinator that speaks of another's transaction, fields that contradict
// each other - is dropped with a warning: peers are other processes.
//
// Thread safety: owned by a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/transaction_id.h"
#include "instance/messaging/links.h"
#include "instance/worker/outbox.h"
#include "instance/worker/probe.h"

namespace islands::data::v1 {
class ExecuteRequest;
class ExecuteReply;
}  // namespace islands::data::v1

namespace islands::instance {

// What a coordinator hears.
class CoordinatorInbox {
 public:
  using Id = coordinator::TransactionId;
  virtual ~CoordinatorInbox() = default;
  virtual void OnExecuteReply(uint32_t from, const data::v1::ExecuteReply& reply) = 0;
  virtual void OnVote(uint32_t from, const Id& id, coordinator::VoteKind vote) = 0;
  // `gone`: instead of an acknowledgement.
  virtual void OnAcknowledge(uint32_t from, const Id& id, bool gone) = 0;
  // `epoch`, and that of an ExecuteReply: what an answer depends on that says it (answers.h).
  virtual void OnOnePhaseReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) = 0;
  virtual void OnInquiry(uint32_t from, const Id& id) = 0;
  virtual void OnDecidersReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) = 0;
};

// What a participant hears. `epoch`: the life of this island that the message is meant for.
class ParticipantInbox {
 public:
  using Id = coordinator::TransactionId;
  virtual ~ParticipantInbox() = default;
  virtual void OnExecute(const messaging::Origin& origin, const data::v1::ExecuteRequest& request) = 0;
  // `early`: coordinator/participant.h.
  virtual void OnPrepare(const Id& id, uint64_t epoch, bool early, std::span<const Fellow> fellows) = 0;
  virtual void OnDecision(const Id& id, uint64_t epoch, bool commit) = 0;
  virtual void OnCommitOnePhase(const Id& id, uint64_t epoch) = 0;
  virtual void OnConfirm(const Id& id) = 0;
  virtual void OnInquiryToDecider(const Id& id, uint64_t epoch) = 0;
  virtual void OnInquiryReply(const Id& id, coordinator::Outcome outcome) = 0;
  virtual void OnDecisionRequest(const messaging::Origin& origin, const Id& id, uint64_t epoch) = 0;
  virtual void OnDecisionReply(uint32_t from, const Id& id, coordinator::Outcome outcome,
                               std::span<const uint32_t> gone) = 0;
};

class ProbeInbox {
 public:
  virtual ~ProbeInbox() = default;
  virtual void OnProbe(const Probe& probe) = 0;
};

class RunInbox {
 public:
  virtual ~RunInbox() = default;
  virtual void OnClients(uint64_t run_id, std::span<const int64_t> due_ns) = 0;
};

class Inbox {
 public:
  struct Options {
    uint32_t island = 0;   // this one
    uint32_t islands = 0;  // of the deployment
    uint32_t workers = 0;  // of this island
    uint64_t boot_epoch = 0;
    bool keeps = false;  // as worker_shared.h has it
  };

  Inbox(Options options, CoordinatorInbox& coordinator, ParticipantInbox& participant, ProbeInbox& probes,
        RunInbox& run);
  ~Inbox();

  void Take(const messaging::Origin& origin, messaging::FrameType type, std::span<const std::byte> payload);

 private:
  using Payload = std::span<const std::byte>;
  // False when the message makes no sense.
  using Reader = bool (Inbox::*)(const messaging::Origin& origin, Payload payload);

  static Reader ReaderOf(messaging::FrameType type);

  bool ReadExecute(const messaging::Origin& origin, Payload payload);
  bool ReadPrepare(const messaging::Origin& origin, Payload payload);
  bool ReadDecision(const messaging::Origin& origin, Payload payload);
  bool ReadCommitOnePhase(const messaging::Origin& origin, Payload payload);
  bool ReadConfirm(const messaging::Origin& origin, Payload payload);
  bool ReadExecuteReply(const messaging::Origin& origin, Payload payload);
  bool ReadVote(const messaging::Origin& origin, Payload payload);
  bool ReadAcknowledge(const messaging::Origin& origin, Payload payload);
  bool ReadOnePhaseReply(const messaging::Origin& origin, Payload payload);
  bool ReadInquiry(const messaging::Origin& origin, Payload payload);
  bool ReadInquiryReply(const messaging::Origin& origin, Payload payload);
  bool ReadDecisionRequest(const messaging::Origin& origin, Payload payload);
  bool ReadDecisionReply(const messaging::Origin& origin, Payload payload);
  bool ReadProbe(const messaging::Origin& origin, Payload payload);
  bool ReadClients(const messaging::Origin& origin, Payload payload);
  bool MakesSense(const Probe& probe) const;

  template <typename Message>
  bool SpeaksForEarlier(const messaging::Origin& origin, const Message& id) const;

  const Options options_;
  CoordinatorInbox& coordinator_;
  ParticipantInbox& participant_;
  ProbeInbox& probes_;
  RunInbox& run_;
  // Whoever is handed one is finished with it before another of its type is read.
  const std::unique_ptr<Messages> messages_;
  std::vector<Fellow> fellows_;  // scratch, as the next
  std::vector<int64_t> due_ns_;
};

}  // namespace islands::instance
