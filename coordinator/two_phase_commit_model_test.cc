// One Coordinator and up to three Participants in a cluster that fits in a page: connections that delay,
// break and come back, duplicated messages, inquiries that overtake others (they travel by mailbox), timeouts
// and restarts at any moment, all drawn from a seed. After a while the weather calms and everything has to
// end, and to have ended the same way everywhere - where restarts forget everything, on all islands that have
// not restarted. The islands here do what participant.h says about transactions without a machine.
//
// One run, with every step: ISLANDS_SEED=123 two_phase_commit_model_test
// (Longer than most files: a harness cut in two is harder to follow than one read from top to bottom.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/participant.h"

namespace islands::coordinator {
namespace {

using CE = CoordinatorEvent;
using CA = CoordinatorAction;
using PE = ParticipantEvent;
using PA = ParticipantAction;

enum class Mode { kQuiet, kBadNetwork, kDurableRestarts, kForgetfulRestarts };

struct Message {
  enum Kind {
    kExecute,
    kExecuteReply,
    kPrepare,
    kVote,
    kDecision,
    kAck,
    kOnePhase,
    kOnePhaseReply,
    kConfirm,
    kInquiry,
    kInquiryReply,
    // Not messages: what the transport tells its island, in order with them.
    kLost,
    kUp
  };
  Kind kind;
  bool commit = false;  // kDecision
  bool first = false;   // kExecute: may begin the branch
  bool wrote = false;   // kExecute, kExecuteReply
  bool ok = true;       // kExecuteReply
  bool early = false;   // kPrepare
  VoteKind vote = VoteKind::kNo;
  Outcome outcome = Outcome::kUnknown;
  uint64_t epoch = 0;       // the participant's that the transaction knew first; kUp: the peer's
  uint64_t connection = 0;  // kUp

  bool notice() const { return kind >= kLost; }
  bool mailbox() const { return kind == kInquiry || kind == kInquiryReply; }
};

const char* const kMessageNames[] = {
    "execute",         "execute-reply", "prepare", "vote",          "decision", "ack", "one-phase",
    "one-phase-reply", "confirm",       "inquiry", "inquiry-reply", "LOST",     "UP"};

enum class Final { kNone, kCommit, kAbort };

// Between participants, when the coordinator is gone. Any may get lost.
struct Word {
  size_t from, to;
  bool question = false;
  uint64_t from_epoch = 0, to_epoch = 0;
  Outcome outcome = Outcome::kUnknown;
  std::vector<uint32_t> gone = {};
};

// What a run must have met now and then; otherwise the model proves nothing.
struct Coverage {
  int committed = 0, aborted = 0, unknown = 0, one_phase = 0, inquiries = 0, restored = 0,
      repeated_decisions = 0, early_votes = 0, orphaned = 0, told_by_fellows = 0, fellows_gone = 0,
      shares_lost = 0;
};

class Model {
 public:
  // `orphans`: aimed at three branches that wrote and whose coordinator dies while it tells them.
  Model(uint64_t seed, bool trace, Coverage* coverage, bool orphans = false)
      : random_(seed),
        mode_(orphans ? Mode::kForgetfulRestarts : static_cast<Mode>(seed % 4)),
        orphans_(orphans),
        trace_(trace),
        coverage_(coverage) {
    branches_.resize(orphans ? 3 : 1 + Below(3));
    if (!orphans && Below(8) == 0) branches_.clear();
    for (Branch& branch : branches_) {
      branch.batches = 1 + static_cast<int>(Below(2));
      branch.writes = Below(3) != 0;
    }
    local_wrote_ = Below(2) == 0;
    wants_commit_ = Below(6) != 0;
    early_ = Below(2) == 0;
    if (orphans) {
      wants_commit_ = true;
      for (Branch& branch : branches_) branch.batches = 1, branch.writes = true;
    }
    if (Below(2) == 0 && branches_.size() > 1) slow_ = Below(branches_.size());
    for (size_t i = 0; i < branches_.size(); ++i) Reconnect(i);
  }

  // Empty, or what went wrong.
  std::string Run() {
    const uint64_t fair = Below(80), steps = orphans_ ? 600 : fair + 20 + Below(120);
    const uint64_t storm_percent = orphans_ ? 0 : 5 + Below(6) * 15;
    for (uint64_t i = 0; i < steps && error_.empty(); ++i) {
      storm_percent_ = i < fair ? 0 : storm_percent;  // late storms find transactions that have come far
      RandomStep();
      if (orphans_ && Quiet()) break;
    }
    Log("-- calm --");
    for (int round = 0; round < 60 && error_.empty() && !Quiet(); ++round) CalmRound();
    if (error_.empty()) CheckEnd();
    return error_;
  }

 private:
  struct Branch {
    // The participant's island.
    std::optional<Participant> machine;
    uint64_t epoch = 1;
    int batches = 0;
    bool writes = false;  // its batches change rows
    bool wrote = false;
    bool began = false;
    bool prepared_durable = false, committed_durable = false, one_phase = false;
    bool voted_yes = false;
    bool committed_in_life = false;   // after YES, in its island's present life, or known from its log
    bool ever_committed = false;      // changes, even if a restart forgot them
    bool may_abort_in_doubt = false;  // the event being stepped is the coordinator's word
    std::optional<PE::Kind> force;
    Final final = Final::kNone;
    // The connection, and which one each side believes to have; 0 = none.
    uint64_t connection = 0, coordinator_side = 0, participant_side = 0;
    std::deque<Message> to_participant, to_coordinator;
    // What the coordinator's island knows about it.
    uint64_t known_epoch = 1;
    uint64_t first_epoch = 0;  // that the transaction knew first; 0 = none
    bool restarted() const { return epoch != first_epoch; }
    int shipped = 0, replied = 0;
    bool unlocked = false;  // it died, and everybody still executed: what it has read is not locked any more
    bool announced = false, told_wrote = false, voted_read = false;
  };

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance(uint64_t percent) { return Below(100) < percent; }
  void Log(const std::string& what) {
    if (trace_) std::cerr << what << "\n";
  }
  void Check(bool ok, const std::string& what) {
    if (!ok && error_.empty()) error_ = what;
  }
  static uint32_t IslandOf(size_t i) { return static_cast<uint32_t>(i) + 10; }
  static std::string Name(size_t i) { return "P" + std::to_string(IslandOf(i)); }
  bool faults() const { return mode_ != Mode::kQuiet; }
  bool forgetful() const { return mode_ == Mode::kForgetfulRestarts; }
  bool restarts() const { return mode_ == Mode::kDurableRestarts || mode_ == Mode::kForgetfulRestarts; }

  // ---- the weather ----

  void RandomStep() {
    const uint64_t dice = Below(100);
    const size_t i = branches_.empty() ? 0 : Below(branches_.size());
    if (branches_.empty() || dice < 15) return DriveTransaction();
    Branch& branch = branches_[i];
    if (dice < 50) return i == slow_ && Chance(85) ? void() : Deliver(i, Below(2) == 0);
    if (dice < 54) return words_.empty() && forgetful() ? KillWhileItDecides() : CarryWord();
    if (dice < (orphans_ ? 65 : 55)) return ProveDeaths(i);
    if (dice < (orphans_ ? 70 : 60)) return CompleteForces(Below(4));
    if (!faults() || !Chance(storm_percent_)) return Deliver(i, Below(2) == 0);
    if (dice < 66) return Duplicate(Below(2) == 0 ? &branch.to_participant : &branch.to_coordinator);
    if (dice < 72) return Overtake(Below(2) == 0 ? &branch.to_participant : &branch.to_coordinator);
    if (dice < 80) return branch.connection == 0 ? Reconnect(i) : Chance(40) ? Break(i) : void();
    if (dice < 82) return StepParticipant(i, {.kind = PE::kTimeout});
    if (dice < 85) return StepParticipant(i, {.kind = PE::kInquiryDue});
    if (dice < 86) return StepParticipant(i, {.kind = PE::kAbortLocally});
    if (dice < 88) return StepCoordinator({.kind = CE::kTimeout});
    if (dice < 89 && Chance(30)) return StepCoordinator({.kind = CE::kAbortRequested});
    if (!restarts() || restart_budget_ == 0) return;
    if (dice < 93) return RestartParticipant(i);
    if (dice < 95) return RestartCoordinator();
  }

  void CalmRound() {
    calm_ = true;
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (branches_[i].connection == 0) Reconnect(i);
    }
    for (int n = 0; n < 50; ++n) {
      DriveTransaction();
      for (size_t i = 0; i < branches_.size(); ++i) {
        Deliver(i, true);
        Deliver(i, false);
        ProveDeaths(i);
      }
      CarryWord();
      CompleteForces(4);
    }
    if (Quiet() || !faults()) return;
    StepCoordinator({.kind = CE::kTimeout});
    for (size_t i = 0; i < branches_.size(); ++i) {
      StepParticipant(i, {.kind = PE::kInquiryDue});
      StepParticipant(i, {.kind = PE::kTimeout});
    }
  }

  bool Quiet() const {
    return !machine_ && std::none_of(branches_.begin(), branches_.end(), [](const Branch& b) {
      return b.machine.has_value() || !b.to_participant.empty() || !b.to_coordinator.empty();
    });
  }

  static size_t BeforeNotice(const std::deque<Message>& queue) {
    return std::find_if(queue.begin(), queue.end(), [](const Message& m) { return m.notice(); }) -
           queue.begin();
  }

  void Duplicate(std::deque<Message>* queue) {
    const size_t count = BeforeNotice(*queue);
    if (count == 0) return;
    const size_t from = Below(count);
    const Message copy = (*queue)[from];
    if (copy.kind == Message::kExecute || copy.kind == Message::kExecuteReply)
      return;  // known by their step number
    queue->insert(queue->begin() + static_cast<long>(from + 1 + Below(count - from)), copy);
  }

  void Overtake(std::deque<Message>* queue) {
    const size_t count = BeforeNotice(*queue);
    for (size_t i = 1; i < count; ++i) {
      if (!(*queue)[i].mailbox()) continue;
      const Message message = (*queue)[i];
      queue->erase(queue->begin() + static_cast<long>(i));
      queue->push_front(message);
      return;
    }
  }

  // What was not yet delivered is lost from some point on.
  void CutQueue(std::deque<Message>* queue) {
    size_t keep = queue->size();
    while (keep > 0 && !(*queue)[keep - 1].notice()) --keep;
    keep += Below(queue->size() - keep + 1);
    queue->resize(keep, Message{Message::kLost});
    queue->push_back({.kind = Message::kLost});
  }

  void Break(size_t i) {
    Branch& branch = branches_[i];
    if (branch.connection == 0) return;
    Log("break " + Name(i));
    branch.connection = 0;
    CutQueue(&branch.to_participant);
    CutQueue(&branch.to_coordinator);
  }

  void Reconnect(size_t i) {
    Branch& branch = branches_[i];
    Log("connect " + Name(i));
    branch.connection = ++connections_;
    branch.to_participant.push_back(
        {.kind = Message::kUp, .epoch = coordinator_epoch_, .connection = branch.connection});
    branch.to_coordinator.push_back(
        {.kind = Message::kUp, .epoch = branch.epoch, .connection = branch.connection});
  }

  void RestartParticipant(size_t i) {
    Branch& branch = branches_[i];
    Log("restart " + Name(i));
    Break(i);
    --restart_budget_;
    ++branch.epoch;
    branch.unlocked |= branch.machine && !commit_requested_;
    branch.to_participant.clear();
    branch.participant_side = 0;
    branch.machine.reset();
    const std::optional<PE::Kind> force = branch.force;
    branch.force.reset();
    branch.committed_in_life = false;
    if (forgetful()) return;
    if (force && Chance(50))
      (*force == PE::kPrepareDurable ? branch.prepared_durable : branch.committed_durable) = true;
    RecoverParticipant(i);
  }

  void RecoverParticipant(size_t i) {
    Branch& branch = branches_[i];
    if (!branch.began) return;
    std::vector<PA> ignored;
    if (branch.committed_durable) {
      branch.final = Final::kCommit;
      branch.committed_in_life = !branch.one_phase;
      if (!branch.one_phase) return;
      branch.machine.emplace();  // the record of its confirmation need not have reached the disk
      branch.machine->Step({.kind = PE::kCommitOnePhase, .wrote = true}, &ignored);
      branch.machine->Step({.kind = PE::kCommitDurable}, &ignored);
      ++coverage_->restored;
    } else if (branch.prepared_durable) {
      branch.final = Final::kNone;  // an abort is not forced: it may have to be learned again
      branch.machine.emplace();
      branch.machine->Step({.kind = PE::kPrepare, .wrote = true}, &ignored);
      branch.machine->Step({.kind = PE::kPrepareDurable}, &ignored);
      branch.voted_yes = true;
      ++coverage_->restored;
    } else if (branch.wrote || branch.final == Final::kNone) {
      branch.final = Final::kAbort;
    }
  }

  void RestartCoordinator() {
    Log("restart coordinator");
    --restart_budget_;
    coordinator_restarted_ = true;
    ++coordinator_epoch_;
    if (coordinator_force_ && Chance(50)) record_durable_ = true;
    coordinator_force_ = false;
    for (size_t i = 0; i < branches_.size(); ++i) {
      Break(i);
      branches_[i].to_coordinator.clear();
      branches_[i].coordinator_side = 0;
    }
    const bool had_ended = !machine_;
    machine_.reset();
    driving_ = false;
    if (forgetful() || !record_durable_) {
      if (local_final_ == Final::kNone) local_final_ = Final::kAbort;
      return;
    }
    local_final_ = Final::kCommit;
    if (!had_ended || Chance(50)) RecoverCoordinator();  // END is not forced either
  }

  // The moment that matters most where nothing is kept: some may have heard its word, others not.
  void KillWhileItDecides() {
    const auto in_doubt = [](const Branch& b) { return b.machine && b.machine->in_doubt(); };
    const auto knows = [](const Branch& b) {
      return b.committed_in_life || (b.machine && b.machine->state() == Participant::State::kCommitting);
    };
    const bool some_know = std::any_of(branches_.begin(), branches_.end(), knows);
    const bool some_doubt = std::any_of(branches_.begin(), branches_.end(), in_doubt);
    if (restart_budget_ > 0 && some_doubt && Chance(some_know ? 80 : orphans_ ? 0 : 10)) RestartCoordinator();
  }

  void RecoverCoordinator() {
    if (record_.empty()) return;
    machine_.emplace();
    ++coverage_->restored;
    std::vector<CA> ignored;
    for (const uint32_t island : record_) {
      machine_->Step({.kind = CE::kParticipant, .island = island}, &ignored);
    }
    machine_->Step({.kind = CE::kCommitRequested, .local_wrote = true}, &ignored);
    for (const uint32_t island : record_) {
      machine_->Step({.kind = CE::kVote, .island = island, .vote = VoteKind::kYes}, &ignored);
    }
    machine_->Step({.kind = CE::kCommitRecordDurable}, &ignored);
    Check(machine_->state() == Coordinator::State::kCommitting, "recovered coordinator is not committing");
  }

  void CompleteForces(uint64_t which) {
    for (size_t i = 0; i < branches_.size(); ++i) {
      Branch& branch = branches_[i];
      if (!branch.force || (which != i && which != 4)) continue;
      const PE::Kind kind = *branch.force;
      branch.force.reset();
      (kind == PE::kPrepareDurable ? branch.prepared_durable : branch.committed_durable) = true;
      StepParticipant(i, {.kind = kind});
    }
    if (coordinator_force_ && which >= 3) {
      coordinator_force_ = false;
      record_durable_ = true;
      StepCoordinator({.kind = CE::kCommitRecordDurable});
    }
  }

  // ---- the coordinator's island ----

  // The procedure: ships its batches, then asks for commit or abort.
  void DriveTransaction() {
    if (!machine_ || !driving_) return;
    bool all = true;
    for (size_t i = 0; i < branches_.size(); ++i) {
      Branch& branch = branches_[i];
      if (branch.replied < branch.batches) all = false;
      if (branch.shipped == branch.batches || branch.replied < branch.shipped) continue;
      if (branch.coordinator_side == 0) {  // not connected
        if (faults() && Chance(20)) StepCoordinator({.kind = CE::kAbortRequested});
        return;
      }
      if (branch.first_epoch == 0) branch.first_epoch = branch.known_epoch;
      if (branch.first_epoch != branch.known_epoch) return StepCoordinator({.kind = CE::kAbortRequested});
      branch.announced = true;
      StepCoordinator({.kind = CE::kParticipant, .island = IslandOf(i)});
      const bool last = ++branch.shipped == branch.batches;
      SendToParticipant(
          i, {.kind = Message::kExecute, .first = branch.shipped == 1, .wrote = last && branch.writes});
      if (early_) PrepareEarly();
      return;
    }
    if (!all || (early_ && !calm_ && Chance(60))) return;  // it works on at home while they vote
    driving_ = false;
    // A later life has nothing locked that was only read, whatever an earlier one has voted.
    const bool lost = early_ && std::any_of(branches_.begin(), branches_.end(),
                                            [](const Branch& branch) { return branch.restarted(); });
    commit_requested_ = wants_commit_ && !lost;
    StepCoordinator({.kind = commit_requested_ ? CE::kCommitRequested : CE::kAbortRequested,
                     .local_wrote = local_wrote_});
  }

  // Once the last operations have left. Some are sent changes, and then make none.
  void PrepareEarly() {
    const auto has_all = [](const Branch& branch) { return branch.shipped == branch.batches; };
    if (!std::all_of(branches_.begin(), branches_.end(), has_all)) return;
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (branches_[i].writes || Below(3) == 0)
        StepCoordinator({.kind = CE::kPrepareEarly, .island = IslandOf(i)});
    }
  }

  void SendToParticipant(size_t i, Message message) {
    Branch& branch = branches_[i];
    message.epoch = branch.first_epoch;
    if (branch.connection == 0 || branch.coordinator_side != branch.connection) return;
    branch.to_participant.push_back(message);
  }

  void StepCoordinator(const CE& event) {
    if (!machine_) return;
    std::vector<CA> actions;
    const std::string before(StateName(machine_->state()));
    machine_->Step(event, &actions);
    machine_->CheckInvariants();
    Log("  C event " + std::to_string(event.kind) + ": " + before + " -> " +
        std::string(StateName(machine_->state())));
    const bool done = machine_->done();
    for (size_t n = 0; n < actions.size(); ++n) {
      Check((actions[n].kind == CA::kForget) == (done && n + 1 == actions.size()),
            "forget is not the last action");
      CarryOut(actions[n]);
    }
    if (done) machine_.reset();
  }

  void CarryOut(const CA& action) {
    const size_t i = action.island >= 10 ? action.island - 10 : 0;
    switch (action.kind) {
      case CA::kSendPrepare:
        Check(commit_requested_ || action.early, "prepare before commit was requested");
        return SendToParticipant(i, {.kind = Message::kPrepare, .early = action.early});
      case CA::kSendCommitOnePhase:
        CheckOnePhase(i);
        return SendToParticipant(i, {.kind = Message::kOnePhase});
      case CA::kSendDecision:
        Check(action.commit || !forced_, "abort decision after the commit record was forced");
        Check(!action.commit || record_durable_, "commit decision before the commit record was durable");
        if (action.commit && ++decisions_ > record_.size()) ++coverage_->repeated_decisions;
        return SendToParticipant(i, {.kind = Message::kDecision, .commit = action.commit});
      case CA::kForceCommitRecord:
        Check(!forced_, "commit record forced twice");
        for (const Branch& branch : branches_)
          Check(!branch.unlocked, "commits though one's locks were gone");
        forced_ = coordinator_force_ = true;
        return;
      case CA::kLoseShare:
        Check(forgetful() && branches_[i].restarted(), "a share is lost, but its island lives");
        ++coverage_->shares_lost;
        return;
      case CA::kWriteEnd:
        return;
      case CA::kCommitLocal:
        return EndLocal(Final::kCommit);
      case CA::kAbortLocal:
        return EndLocal(Final::kAbort);
      case CA::kSendInquiry:
        ++coverage_->inquiries;
        return SendToParticipant(i, {.kind = Message::kInquiry});
      case CA::kSendOnePhaseConfirm:
        return SendToParticipant(i, {.kind = Message::kConfirm});
      case CA::kSendInquiryReply:
        return SendToParticipant(i, {.kind = Message::kInquiryReply, .outcome = action.outcome});
      case CA::kAnswer:
        Check(!answer_, "answered twice");
        answer_ = action.outcome;
        return;
      case CA::kForget:
        Check(answer_ || coordinator_restarted_, "forgotten without an answer");
        return;
    }
  }

  void CheckOnePhase(size_t decider) {
    ++coverage_->one_phase;
    Check(commit_requested_ && !local_wrote_, "one-phase commit of a transaction that wrote here");
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (i == decider || !branches_[i].announced) continue;
      Check(branches_[i].voted_read && !branches_[i].told_wrote, "one-phase before every reader voted READ");
    }
  }

  void EndLocal(Final final) {
    Check(local_final_ == Final::kNone, "local branch ended twice");
    local_final_ = final;
  }

  void CoordinatorReceives(size_t i, const Message& message) {
    Branch& branch = branches_[i];
    const uint32_t island = IslandOf(i);
    switch (message.kind) {
      case Message::kLost:
        branch.coordinator_side = 0;
        return StepCoordinator({.kind = CE::kPeerLost, .island = island});
      case Message::kUp: {
        branch.coordinator_side = message.connection;
        const bool restarted = branch.first_epoch != 0 && message.epoch > branch.first_epoch;
        branch.known_epoch = message.epoch;
        // Or it learns that from the answer to what it sends next.
        if (restarted && forgetful() && Chance(50)) {
          return StepCoordinator({.kind = CE::kPeerGone, .island = island});
        }
        return StepCoordinator({.kind = CE::kPeerUp, .island = island, .restarted = restarted});
      }
      case Message::kExecuteReply:
        ++branch.replied;
        branch.told_wrote |= message.ok && message.wrote;
        if (!message.ok) return StepCoordinator({.kind = CE::kAbortRequested});
        if (message.wrote) StepCoordinator({.kind = CE::kWrote, .island = island});
        return;
      case Message::kVote:
        branch.voted_read |= message.vote == VoteKind::kRead;
        if (machine_ && message.vote == VoteKind::kYes && !forced_) {
          coverage_->early_votes += machine_->state() == Coordinator::State::kExecuting ? 1 : 0;
          if (std::find(record_.begin(), record_.end(), island) == record_.end()) record_.push_back(island);
        }
        return StepCoordinator({.kind = CE::kVote, .island = island, .vote = message.vote});
      case Message::kAck:
        if (!message.ok) return StepCoordinator({.kind = CE::kPeerGone, .island = island});
        return StepCoordinator({.kind = CE::kAcknowledged, .island = island});
      case Message::kOnePhaseReply:
        if (!machine_) return AnswerForGone({.kind = CE::kOnePhaseReply, .island = island});
        return StepCoordinator({.kind = CE::kOnePhaseReply, .island = island, .outcome = message.outcome});
      case Message::kInquiry:
        if (machine_) return StepCoordinator({.kind = CE::kInquiry, .island = island});
        return AnswerForGone({.kind = CE::kInquiry, .island = island});
      case Message::kInquiryReply:
        return StepCoordinator({.kind = CE::kInquiryReply, .island = island, .outcome = message.outcome});
      default:
        return Check(false, "message to the wrong side");
    }
  }

  void AnswerForGone(const CE& event) {
    std::vector<CA> actions;
    const Life later = forgetful() ? Life::kEarlierLost : Life::kEarlierKept;
    AnswerWithoutMachine(event, coordinator_restarted_ ? later : Life::kThis, &actions);
    for (const CA& action : actions) CarryOut(action);
  }

  // ---- a participant's island ----

  void SendToCoordinator(size_t i, const Message& message) {
    Branch& branch = branches_[i];
    if (branch.connection == 0 || branch.participant_side != branch.connection) return;
    branch.to_coordinator.push_back(message);
  }

  void Deliver(size_t i, bool to_participant) {
    std::deque<Message>& queue = to_participant ? branches_[i].to_participant : branches_[i].to_coordinator;
    if (queue.empty()) return;
    const Message message = queue.front();
    queue.pop_front();
    Log((to_participant ? "C -> " : "C <- ") + Name(i) + " " + kMessageNames[message.kind]);
    to_participant ? ParticipantReceives(i, message) : CoordinatorReceives(i, message);
  }

  void ParticipantReceives(size_t i, const Message& message) {
    Branch& branch = branches_[i];
    const bool same_life = message.epoch == branch.epoch;
    switch (message.kind) {
      case Message::kLost:
        branch.participant_side = 0;
        return StepParticipant(i, {.kind = PE::kCoordinatorLost});
      case Message::kUp:
        branch.participant_side = message.connection;
        if (message.epoch == 1) return StepParticipant(i, {.kind = PE::kCoordinatorUp});
        if (forgetful()) return CoordinatorGone(i);
        return StepParticipant(i, {.kind = PE::kCoordinatorRestarted});
      case Message::kExecute:
        return Execute(i, message, same_life);
      case Message::kPrepare:
        if (branch.machine && same_life) {
          const std::vector<uint32_t> fellows = FellowsOf(i);
          return StepParticipant(
              i, {.kind = PE::kPrepare, .wrote = branch.wrote, .early = message.early, .fellows = fellows});
        }
        return AnswerForGone(i, {.kind = PE::kPrepare}, same_life);
      case Message::kOnePhase:
        if (branch.machine && same_life) {
          return StepParticipant(i, {.kind = PE::kCommitOnePhase, .wrote = branch.wrote});
        }
        return AnswerForGone(i, {.kind = PE::kCommitOnePhase}, same_life);
      case Message::kDecision:
        if (!branch.machine) {
          return AnswerForGone(i, {.kind = PE::kDecision, .commit = message.commit}, same_life);
        }
        branch.may_abort_in_doubt = true;
        return StepParticipant(i, {.kind = PE::kDecision, .commit = message.commit});
      case Message::kConfirm:
        return StepParticipant(i, {.kind = PE::kOnePhaseConfirmed});
      case Message::kInquiry:
        if (branch.machine) return StepParticipant(i, {.kind = PE::kCoordinatorInquiry});
        return AnswerForGone(i, {.kind = PE::kCoordinatorInquiry}, same_life);
      case Message::kInquiryReply:
        branch.may_abort_in_doubt = message.outcome == Outcome::kAborted;
        return StepParticipant(i, {.kind = PE::kInquiryReply, .outcome = message.outcome});
      default:
        return Check(false, "message to the wrong side");
    }
  }

  std::vector<uint32_t> FellowsOf(size_t i) const {
    std::vector<uint32_t> fellows;
    for (size_t other = 0; other < branches_.size(); ++other) {
      if (other != i) fellows.push_back(IslandOf(other));
    }
    return fellows;
  }

  void CoordinatorGone(size_t i) {
    branches_[i].may_abort_in_doubt = true;
    StepParticipant(i, {.kind = PE::kCoordinatorGone});
  }

  // What an island may conclude from proof of death, and from having read everything that the dead said.
  void ProveDeaths(size_t i) {
    Branch& branch = branches_[i];
    if (!forgetful() || !branch.machine || !branch.machine->in_doubt()) return;
    const bool all_read = branch.participant_side == 0 && BeforeNotice(branch.to_participant) == 0 &&
                          (branch.to_participant.empty() || branch.to_participant[0].kind == Message::kUp);
    if (!branch.machine->orphaned()) {
      if (coordinator_epoch_ > 1 && all_read) CoordinatorGone(i);
      return;
    }
    for (const uint32_t island : branch.machine->OpenFellows()) {
      if (!branch.machine) return;
      const size_t other = island - 10;
      const bool under_way = std::any_of(words_.begin(), words_.end(), [&](const Word& word) {
        return word.from == other && word.to == i && !word.question &&
               word.from_epoch == branches_[other].first_epoch;
      });
      if (!branches_[other].restarted() || under_way) continue;
      ++coverage_->fellows_gone;
      branch.may_abort_in_doubt = true;
      StepParticipant(i, {.kind = PE::kFellowGone, .island = island});
    }
  }

  void Say(Word word) {
    word.from_epoch = branches_[word.from].epoch;
    words_.push_back(std::move(word));
  }

  void CarryWord() {
    if (words_.empty()) return;
    const size_t n = Below(words_.size());
    const Word word = words_[n];
    // Where nothing is kept: it dies, and what it has said is still under way.
    const bool tells = !word.question && word.outcome == Outcome::kCommitted;
    if (tells && forgetful() && restart_budget_ > 0 && Chance(40)) return RestartParticipant(word.from);
    if (tells && branches_[word.from].restarted() && Chance(80)) return;
    words_.erase(words_.begin() + static_cast<long>(n));
    if (!calm_ && Chance(20)) return;  // its link broke
    Branch& to = branches_[word.to];
    const uint32_t from = IslandOf(word.from);
    Log(Name(word.from) + " -> " + Name(word.to) + (word.question ? " asks" : " answers"));
    if (!word.question) {
      if (word.to_epoch != to.epoch) return;
      to.may_abort_in_doubt = true;
      if (word.outcome == Outcome::kCommitted) ++coverage_->told_by_fellows;
      return StepParticipant(
          word.to, {.kind = PE::kDecisionReply, .island = from, .outcome = word.outcome, .gone = word.gone});
    }
    const PE question{.kind = PE::kDecisionRequest, .island = from};
    if (to.machine && word.to_epoch == to.epoch) return StepParticipant(word.to, question);
    AnswerForGone(word.to, question, word.to_epoch == to.epoch);
  }

  // Its island has no machine for it, or only one that the message does not mean.
  void AnswerForGone(size_t i, const PE& event, bool same_life) {
    std::vector<PA> actions;
    const Trace trace = branches_[i].committed_in_life ? Trace::kCommitted
                        : same_life                    ? Trace::kNothing
                                                       : Trace::kEarlierLife;
    AnswerWithoutMachine(event, trace, &actions);
    for (const PA& action : actions) {
      Check(action.kind != PA::kApplyCommit && action.kind != PA::kApplyAbort, "ended without a machine");
      CarryOut(i, action);
    }
  }

  void Execute(size_t i, const Message& message, bool same_life) {
    Branch& branch = branches_[i];
    if (message.first && same_life && !branch.began) {
      branch.machine.emplace();
      branch.began = true;
    }
    const bool ok = branch.machine && same_life && !(faults() && Chance(5));
    if (ok) branch.wrote |= message.wrote;
    if (!ok) StepParticipant(i, {.kind = PE::kAbortLocally});
    SendToCoordinator(i, {.kind = Message::kExecuteReply, .wrote = branch.wrote, .ok = ok});
  }

  void StepParticipant(size_t i, const PE& event) {
    Branch& branch = branches_[i];
    if (!branch.machine) return;
    std::vector<PA> actions;
    const std::string before(StateName(branch.machine->state()));
    branch.machine->Step(event, &actions);
    branch.machine->CheckInvariants();
    Log("  " + Name(i) + " event " + std::to_string(event.kind) + ": " + before + " -> " +
        std::string(StateName(branch.machine->state())));
    const bool done = branch.machine->done();
    for (size_t n = 0; n < actions.size(); ++n) {
      Check((actions[n].kind == PA::kForget) == (done && n + 1 == actions.size()),
            "forget is not the last action");
      CarryOut(i, actions[n]);
    }
    branch.may_abort_in_doubt = false;
    if (branch.machine->orphaned() && before != "orphaned") ++coverage_->orphaned;
    if (done) {
      branch.machine.reset();
      branch.force.reset();
    }
  }

  void CarryOut(size_t i, const PA& action) {
    Branch& branch = branches_[i];
    switch (action.kind) {
      case PA::kForcePrepare:
        branch.force = PE::kPrepareDurable;
        return;
      case PA::kForceCommit:
        branch.force = PE::kCommitDurable;
        branch.one_phase = branch.machine->state() == Participant::State::kDeciding;
        return;
      case PA::kSendVote:
        if (action.vote == VoteKind::kYes) {
          Check(branch.prepared_durable, "YES before the prepare record was durable");
          branch.voted_yes = true;
        }
        Check(action.vote != VoteKind::kRead || commit_requested_, "READ while others may still execute");
        return SendToCoordinator(i, {.kind = Message::kVote, .vote = action.vote});
      case PA::kSendAcknowledge:
        if (branch.machine) branch.committed_in_life = branch.committed_durable;
        Check(branch.committed_in_life, "acknowledged by a life that has not made the commit durable");
        return SendToCoordinator(i, {.kind = Message::kAck});
      case PA::kSendGone:
        Check(forgetful() && branch.restarted(), "gone, though nothing was lost");
        return SendToCoordinator(i, {.kind = Message::kAck, .ok = false});
      case PA::kAskFellow:
        return Say({.from = i,
                    .to = action.island - 10,
                    .question = true,
                    .to_epoch = branches_[action.island - 10].first_epoch});
      case PA::kAnswerFellow:
        return Say({.from = i,
                    .to = action.island - 10,
                    .to_epoch = branches_[action.island - 10].epoch,
                    .outcome = action.outcome,
                    .gone = branch.machine ? branch.machine->Gone() : std::vector<uint32_t>()});
      case PA::kSendOnePhaseReply:
        Check(action.outcome != Outcome::kCommitted || branch.committed_durable,
              "committed before it was durable");
        return SendToCoordinator(i, {.kind = Message::kOnePhaseReply, .outcome = action.outcome});
      case PA::kSendInquiry:
        ++coverage_->inquiries;
        return SendToCoordinator(i, {.kind = Message::kInquiry});
      case PA::kSendInquiryReply:
        return SendToCoordinator(i, {.kind = Message::kInquiryReply, .outcome = action.outcome});
      case PA::kApplyCommit:
        Check(branch.final == Final::kNone, Name(i) + " ended twice");
        branch.final = Final::kCommit;
        branch.ever_committed |= branch.wrote;
        return;
      case PA::kApplyAbort:
        Check(branch.final == Final::kNone, Name(i) + " ended twice");
        Check(!branch.voted_yes || branch.may_abort_in_doubt,
              Name(i) + " aborted by itself after voting YES");
        Check(branch.force != PE::kCommitDurable,
              Name(i) + " aborted while its commit record was on its way");
        branch.final = Final::kAbort;
        return;
      case PA::kForget:
        Check(branch.final != Final::kNone, Name(i) + " forgotten before it ended");
        return;
    }
  }

  // ---- the verdict ----

  // Of islands that have restarted and forgotten, nothing is expected but the truth that they told before.
  void CheckEnd() {
    Check(Quiet(), "did not come to an end");
    const bool forgot = forgetful() && coordinator_restarted_;
    Check(answer_ || coordinator_restarted_, "no answer");
    bool any_commit = !forgot && local_wrote_ && local_final_ == Final::kCommit;
    bool any_abort = !forgot && local_wrote_ && local_final_ == Final::kAbort;
    for (size_t i = 0; i < branches_.size(); ++i) {
      const Branch& branch = branches_[i];
      Check(answer_ != Outcome::kAborted || !branch.ever_committed,
            "answered aborted after a branch had committed");
      if (!branch.began || (forgetful() && branch.restarted())) continue;
      Check(branch.final != Final::kNone, Name(i) + " never ended");
      if (!branch.wrote) continue;
      any_commit |= branch.final == Final::kCommit;
      any_abort |= branch.final == Final::kAbort;
    }
    Check(!(any_commit && any_abort), "committed here and aborted there");
    if (!forgot) {
      Check(answer_ != Outcome::kCommitted || !any_abort, "answered committed, but a branch aborted");
      Check(answer_ != Outcome::kAborted || !any_commit, "answered aborted, but a branch committed");
    }
    if (!faults()) {
      Check(answer_ == (wants_commit_ ? Outcome::kCommitted : Outcome::kAborted),
            "the wrong answer in calm weather");
    }
    if (answer_ == Outcome::kCommitted) ++coverage_->committed;
    if (answer_ == Outcome::kAborted) ++coverage_->aborted;
    if (answer_ == Outcome::kUnknown) ++coverage_->unknown;
  }

  std::mt19937_64 random_;
  const Mode mode_;
  const bool orphans_;
  const bool trace_;
  Coverage* const coverage_;
  std::string error_;

  std::vector<Branch> branches_;
  uint64_t connections_ = 0;
  uint64_t storm_percent_ = 0;
  int restart_budget_ = 3;
  std::optional<size_t> slow_;  // the branch that hears of everything later than the others
  bool calm_ = false, coordinator_restarted_ = false;
  std::deque<Word> words_;

  std::optional<Coordinator> machine_ = Coordinator();
  uint64_t coordinator_epoch_ = 1;
  bool driving_ = true, local_wrote_ = false, wants_commit_ = true, commit_requested_ = false;
  bool early_ = false;  // PREPARE is sent with the last operations
  bool forced_ = false, coordinator_force_ = false, record_durable_ = false;
  std::vector<uint32_t> record_;  // the participants in the commit record
  size_t decisions_ = 0;
  std::optional<Outcome> answer_;
  Final local_final_ = Final::kNone;
};

TEST(TwoPhaseCommitModel, RandomRuns) {
  const char* const only = std::getenv("ISLANDS_SEED");
  Coverage coverage;
  if (only != nullptr) {
    EXPECT_EQ(Model(std::strtoull(only, nullptr, 10), true, &coverage).Run(), "");
    return;
  }
  for (uint64_t seed = 1; seed <= 300000; ++seed) {
    const std::string error = Model(seed, false, &coverage).Run();
    ASSERT_EQ(error, "") << "repeat with: ISLANDS_SEED=" << seed << " two_phase_commit_model_test";
  }
  std::cout << coverage.committed << " committed, " << coverage.aborted << " aborted, " << coverage.unknown
            << " unknown, " << coverage.one_phase << " in one phase, " << coverage.inquiries << " inquiries, "
            << coverage.restored << " restored, " << coverage.early_votes << " early votes, "
            << coverage.repeated_decisions << " decisions repeated, " << coverage.orphaned << " orphaned, "
            << coverage.told_by_fellows << " told by fellows, " << coverage.fellows_gone << " fellows gone, "
            << coverage.shares_lost << " shares lost\n";
  EXPECT_GT(coverage.committed, 2000);
  EXPECT_GT(coverage.aborted, 2000);
  EXPECT_GT(coverage.unknown, 20);
  EXPECT_GT(coverage.one_phase, 500);
  EXPECT_GT(coverage.inquiries, 500);
  EXPECT_GT(coverage.restored, 500);
  EXPECT_GT(coverage.repeated_decisions, 100);
  EXPECT_GT(coverage.early_votes, 8000);
  EXPECT_GT(coverage.orphaned, 400);
  EXPECT_GT(coverage.told_by_fellows, 10);
  EXPECT_GT(coverage.fellows_gone, 100);
  EXPECT_GT(coverage.shares_lost, 200);
}

// The coordinator, and then fellows, die while the word is out to some of three: the others must agree.
TEST(TwoPhaseCommitModel, Orphans) {
  const char* const only = std::getenv("ISLANDS_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only != nullptr ? first : 40000;
  Coverage coverage;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string error = Model(seed, only != nullptr, &coverage, /*orphans=*/true).Run();
    ASSERT_EQ(error, "") << "repeat with: ISLANDS_SEED=" << seed
                         << " two_phase_commit_model_test --gtest_filter=*Orphans";
  }
  std::cout << coverage.orphaned << " orphaned, " << coverage.told_by_fellows << " told by fellows, "
            << coverage.fellows_gone << " fellows gone\n";
  if (only != nullptr) return;
  EXPECT_GT(coverage.orphaned, 3000);
  EXPECT_GT(coverage.told_by_fellows, 5000);
  EXPECT_GT(coverage.fellows_gone, 100);
}

}  // namespace
}  // namespace islands::coordinator
