#include "instance/worker/branches.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "instance/worker/mailbox.h"
#include "instance/worker/wire.h"
#include "proto/data.pb.h"
#include "runtime/check.h"

namespace islands::instance {

using coordinator::Outcome;
using coordinator::ParticipantAction;
using coordinator::ParticipantEvent;
using messaging::Origin;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

// Of a step, and of what comes after it, whatever its coordinator says.
constexpr int64_t kLongestDeadlineUs = int64_t{24} * 3600 * 1'000'000;
constexpr int64_t kInquiryIntervalNs = 200 * runtime::kNsPerMs;
// Fellows in doubt learn of their coordinator's death at about the same time.
constexpr int64_t kFellowIntervalNs = 20 * runtime::kNsPerMs;

// For a gauge in which 0 says that there is none.
uint64_t ShownTime(int64_t ns) { return static_cast<uint64_t>(std::max<int64_t>(ns, 1)); }

}  // namespace

bool Branches::KnowsThisLife(uint64_t epoch) const {
  return epoch == options_.boot_epoch || OverlooksEpochs(options_.boot_epoch, epoch);
}

ParticipantEntry* Branches::FindFor(const Id& id, uint64_t epoch) {
  return shared_.keeps || KnowsThisLife(epoch) ? table_.Find(id) : nullptr;  // invariant 1
}

ParticipantEntry* Branches::ToVote(ParticipantEntry* entry, uint64_t epoch, size_t fellows) {
  const auto no_room = [&] {
    return entry->branch.wrote() && entry->machine.state() == coordinator::Participant::State::kActive &&
           !engine_.ReserveTwoPhases(entry->branch, fellows);
  };
  if (entry != nullptr && (entry->executing || no_room())) {
    Step(*entry, {.kind = ParticipantEvent::kAbortLocally});
    return nullptr;
  }
  return KnowsThisLife(epoch) ? entry : nullptr;  // invariant 1
}

ParticipantEntry& Branches::Open(const Id& id) {
  ISLANDS_CHECK(id.island != options_.island);  // inbox.cc lets nobody speak for another, or for us
  ParticipantEntry& entry = table_.Add(id);
  entry.branch.locks.transaction = id;
  entry.branch.locks.worker = options_.index;
  entry.branch.locks.wake_token = lock_waits_.NextToken();
  entry.branch.foreign = true;
  entry.begun_ns = turns_.now_ns();
  counters_.branches_open.Set(table_.size());
  return entry;
}

std::optional<Failure> Branches::CheckStep(const data::v1::ExecuteRequest& request,
                                           ParticipantEntry* entry) const {
  const bool overlooks = OverlooksEpochs(options_.boot_epoch, request.boot_epoch());
  if (!KnowsThisLife(request.participant_epoch()))
    return Failure{AbortReason::kPeerRestarted, absl::AbortedError("restarted in mid-transaction")};
  if (request.layout_generation() != shared_.layout_generation)
    return Failure{AbortReason::kRefused, absl::FailedPreconditionError("routed by another layout")};
  if (entry == nullptr && request.step() != 1 && !overlooks)
    return Failure{AbortReason::kRefused, absl::AbortedError("transaction was aborted here before")};
  if (entry == nullptr) return Failure{};
  if (request.step() != entry->step + 1 || entry->executing) return std::nullopt;
  if (entry->machine.state() != coordinator::Participant::State::kActive)
    return Failure{AbortReason::kRefused, absl::FailedPreconditionError("the branch has voted")};
  return Failure{};
}

void Branches::OnExecute(const Origin& origin, const data::v1::ExecuteRequest& request) {
  const Id id = DecodeId(request);
  committed_.EndedBelow(id, request.ended_below(),
                        {request.still_open().data(), static_cast<size_t>(request.still_open_size())});
  ParticipantEntry* entry = table_.Find(id);
  const std::optional<Failure> refused = CheckStep(request, entry);
  if (!refused) return;  // repeated, or overtaken: it has been answered, or will be
  if (refused->set()) return outbox_.SendRefusal(origin, id, request.step(), *refused);
  if (entry == nullptr) entry = &Open(id);
  ISLANDS_CHECK(!entry->executing && !entry->ended && !entry->failure.set());
  const ExecutingScope executing(time_);
  const runtime::WorkScope rows(runtime::Work::kExecuting);
  entry->step = request.step();
  entry->last_heard_ns = turns_.now_ns();
  const partitioner::SiteRun own = shared_.sites->SitesOf(options_.island);
  absl::Status status = DecodeOperations(request, engine_.catalog(), own, &entry->batch, &entry->operations);
  if (!status.ok()) entry->failure = {AbortReason::kRefused, std::move(status)};
  entry->cursor = 0;
  entry->deadline_ns =
      turns_.now_ns() + std::clamp<int64_t>(request.deadline_us(), 0, kLongestDeadlineUs) * runtime::kNsPerUs;
  entry->idle_ns = std::clamp<int64_t>(request.idle_us(), 0, kLongestDeadlineUs) * runtime::kNsPerUs;
  entry->task = ExecuteStep(*entry);
  entry->task.Start();
  engine_.EndQuiet();
}

runtime::Task<void> Branches::ExecuteStep(ParticipantEntry& entry) {
  entry.executing = true;
  entry.SetDoing(Stay::kRunning);
  while (!entry.failure.set() && !entry.ended && entry.cursor < entry.operations.size()) {
    const Progress progress =
        engine_.RunSome(entry.branch, entry.batch, entry.operations, &entry.cursor, &entry.failure);
    if (progress == Progress::kWaiting) {
      runtime::Task<void> lock =
          lock_waits_.Await(entry, entry.batch, entry.operations[entry.cursor].operation);
      co_await lock;
    } else if (progress == Progress::kWaitingForRoom || progress == Progress::kWaitingForPages) {
      const int64_t since_ns = turns_.NowNs();
      turns_.Note(entry, Stay::kDisk);
      if (progress == Progress::kWaitingForRoom) {
        Turns::Pause pause = turns_.PauseUntil(turns_.now_ns() + kRoomPauseNs);
        co_await pause;
      } else {
        Engine::PagesComing pages = engine_.AwaitPages(entry.branch);
        co_await pages;
      }
      turns_.Note(entry, Stay::kRunning);
      (progress == Progress::kWaitingForRoom ? counters_.room : counters_.pages)
          .Add(turns_.NowNs() - since_ns);
      if (turns_.now_ns() > entry.deadline_ns && !entry.ended) {
        entry.Fail(
            AbortReason::kDeadline,
            absl::DeadlineExceededError(progress == Progress::kWaitingForRoom
                                            ? "the log had no room within the transaction's deadline"
                                            : "pages were not read within the transaction's deadline"));
      }
    } else if (progress == Progress::kDone && entry.cursor < entry.operations.size() &&
               turns_.HasLongGoneOn()) {
      turns_.Note(entry, Stay::kTurn);
      Turns::Breath breath = turns_.Breathe();
      co_await breath;
      turns_.Note(entry, Stay::kRunning);
      if (turns_.now_ns() > entry.deadline_ns) {
        entry.Fail(AbortReason::kDeadline,
                   absl::DeadlineExceededError("the transaction's deadline has passed"));
      }
    }
  }
  entry.executing = false;
  if (entry.ended) co_return;  // aborted while it waited
  entry.SetDoing(Stay::kRemote);
  if (Planted(PlantedBug::kReleaseReadLocksEarly) && !entry.branch.wrote()) engine_.Commit(entry.branch);
  outbox_.SendResults(entry.id, entry.step, entry.branch.wrote(), entry.batch, entry.operations,
                      &entry.failure);
  if (entry.failure.set()) {
    Step(entry, {.kind = ParticipantEvent::kAbortLocally});
  } else if (std::exchange(entry.prepares_after, false)) {
    Prepare(entry.id, &entry, options_.boot_epoch, /*early=*/true);
  }
}

void Branches::OnPrepare(const Id& id, uint64_t epoch, bool early, std::span<const Fellow> fellows) {
  ParticipantEntry* entry = table_.Find(id);
  const bool counts = entry != nullptr && KnowsThisLife(epoch) &&  // invariant 1
                      entry->machine.state() == coordinator::Participant::State::kActive;
  if (counts) entry->fellows.assign(fellows.begin(), fellows.end());
  if (early && counts && entry->executing) {
    entry->prepares_after = true;  // it votes behind the answer to what it executes
  } else {
    Prepare(id, entry, epoch, early);
  }
}

void Branches::Prepare(const Id& id, ParticipantEntry* entry, uint64_t epoch, bool early) {
  entry = ToVote(entry, epoch, entry == nullptr ? 0 : entry->fellows.size());
  if (entry == nullptr) return AnswerForGone(id, {.kind = ParticipantEvent::kPrepare}, epoch);
  entry->last_heard_ns = turns_.now_ns();
  islands_.clear();
  for (const Fellow& fellow : entry->fellows) islands_.push_back(fellow.island);
  if (!early || entry->branch.wrote()) entry->SetDoing(Stay::kVotes);
  Step(*entry, {.kind = ParticipantEvent::kPrepare,
                .wrote = entry->branch.wrote(),
                .early = early,
                .fellows = islands_});
}

void Branches::OnCommitOnePhase(const Id& id, uint64_t epoch) {
  ParticipantEntry* entry = ToVote(table_.Find(id), epoch, /*fellows=*/0);
  if (entry == nullptr) return AnswerForGone(id, {.kind = ParticipantEvent::kCommitOnePhase}, epoch);
  entry->last_heard_ns = turns_.now_ns();
  Step(*entry, {.kind = ParticipantEvent::kCommitOnePhase, .wrote = entry->branch.wrote()});
}

void Branches::OnDecision(const Id& id, uint64_t epoch, bool commit) {
  const ParticipantEvent event{.kind = ParticipantEvent::kDecision, .commit = commit};
  ParticipantEntry* entry = FindFor(id, epoch);
  if (entry == nullptr) return AnswerForGone(id, event, epoch);
  entry->last_heard_ns = turns_.now_ns();
  Step(*entry, event);
}

void Branches::OnConfirm(const Id& id) {
  if (ParticipantEntry* entry = table_.Find(id)) Step(*entry, {.kind = ParticipantEvent::kOnePhaseConfirmed});
}

void Branches::OnInquiryToDecider(const Id& id, uint64_t epoch) {
  const ParticipantEvent event{.kind = ParticipantEvent::kCoordinatorInquiry};
  ParticipantEntry* entry = FindFor(id, epoch);
  if (entry == nullptr) return AnswerForGone(id, event, epoch);
  Step(*entry, event);
}

void Branches::OnInquiryReply(const Id& id, Outcome outcome) {
  if (ParticipantEntry* entry = table_.Find(id))
    Step(*entry, {.kind = ParticipantEvent::kInquiryReply, .outcome = outcome});
}

// The branch is on the worker that its coordinator's worker dials; the answer goes back the way the question
// came, so that whoever asked knows from the end of that link that no answer will follow.
void Branches::OnDecisionRequest(const Origin& origin, const Id& id, uint64_t epoch) {
  const Colleague& own = shared_.colleagues[options_.index];
  const Colleague& owner = shared_.colleagues[id.worker % shared_.colleagues.size()];
  const auto answer = [this, origin, id](const std::optional<FellowAnswer>& known) {
    if (known) outbox_.SendDecisionReply(origin, id, known->outcome, known->gone);
  };
  const uint32_t asker = origin.peer.island;
  if (owner.branches == this) return answer(AnswerFellow(asker, id, epoch));
  owner.mailbox->Post([&own, &owner, asker, id, epoch, answer] {
    const std::optional<FellowAnswer> known = owner.branches->AnswerFellow(asker, id, epoch);
    own.mailbox->Post([answer, known] { answer(known); });
  });
}

std::optional<Branches::FellowAnswer> Branches::AnswerFellow(uint32_t island, const Id& id, uint64_t epoch) {
  const ParticipantEvent event{.kind = ParticipantEvent::kDecisionRequest, .island = island};
  if (Planted(PlantedBug::kAnswerForEarlierLife)) epoch = options_.boot_epoch;
  ParticipantEntry* entry = FindFor(id, epoch);
  std::vector<ParticipantAction> actions;
  if (entry != nullptr) {
    entry->machine.Step(event, &actions);
  } else {
    coordinator::AnswerWithoutMachine(event, TraceOf(id, epoch), &actions);
  }
  if (actions.empty()) return std::nullopt;
  ISLANDS_CHECK(actions.front().kind == ParticipantAction::kAnswerFellow);
  FellowAnswer answer{actions.front().outcome, {}};
  if (entry != nullptr) answer.gone = entry->machine.Gone();
  return answer;
}

void Branches::OnDecisionReply(uint32_t from, const Id& id, Outcome outcome, std::span<const uint32_t> gone) {
  if (ParticipantEntry* entry = table_.Find(id)) {
    Step(*entry,
         {.kind = ParticipantEvent::kDecisionReply, .island = from, .outcome = outcome, .gone = gone});
  }
}

void Branches::AnswerForGone(const Id& id, const ParticipantEvent& event, uint64_t epoch) {
  std::vector<ParticipantAction> actions;
  coordinator::AnswerWithoutMachine(event, TraceOf(id, epoch), &actions);
  for (const ParticipantAction& action : actions) {
    if (const Sender send = SenderOf(action.kind)) send(outbox_, id, action);
  }
}

coordinator::Trace Branches::TraceOf(const Id& id, uint64_t epoch) const {
  if (shared_.keeps) return coordinator::Trace::kKept;
  if (!KnowsThisLife(epoch)) return coordinator::Trace::kEarlierLife;  // invariant 1
  return committed_.Knows(id) ? coordinator::Trace::kCommitted : coordinator::Trace::kNothing;
}

void Branches::Step(ParticipantEntry& entry, const ParticipantEvent& event) {
  const runtime::WorkScope committing(runtime::Work::kCommitting);
  std::vector<ParticipantAction> actions = std::move(actions_);
  actions.clear();
  const bool was_in_doubt = entry.machine.in_doubt();
  entry.machine.Step(event, &actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const ParticipantAction action = actions[i];
    // What is forced is in the log before any message leaves, or there is none: it is durable at once.
    if (action.kind == ParticipantAction::kForcePrepare) {
      engine_.Prepare(entry.branch, entry.fellows);
      entry.machine.Step({.kind = ParticipantEvent::kPrepareDurable}, &actions);
    } else if (action.kind == ParticipantAction::kForceCommit) {
      if (entry.machine.state() == coordinator::Participant::State::kDeciding) Decide(entry);
      entry.machine.Step({.kind = ParticipantEvent::kCommitDurable}, &actions);
    } else if (const Performer perform = PerformerOf(action.kind)) {
      (this->*perform)(entry, action);
    } else if (const Sender send = SenderOf(action.kind)) {
      send(outbox_, entry.id, action);
    }
  }
  actions_ = std::move(actions);
  if (was_in_doubt != entry.machine.in_doubt()) {
    was_in_doubt ? NoteDecided() : NoteDoubt(entry);
  }
  if (!entry.ended) return;
  if (entry.stuck) SetStuck(entry, false);
  turns_.Resume(entry);  // if it waits for a lock, its coroutine has to come to its end
  table_.Bury(entry);    // its memory stays until its coroutine has ended (branch_table.h)
  counters_.branches_open.Set(table_.size());
}

Branches::Performer Branches::PerformerOf(Action::Kind kind) {
  static constexpr auto kPerformers = [] {
    std::array<Performer, Action::kForget + 1> performers{};
    performers[Action::kApplyCommit] = &Branches::ApplyCommit;
    performers[Action::kApplyAbort] = &Branches::ApplyAbort;
    performers[Action::kForget] = &Branches::EndEntry;
    performers[Action::kAskFellow] = &Branches::AskFellow;
    performers[Action::kSendVote] = &Branches::Vote;
    performers[Action::kSendAcknowledge] = &Branches::Acknowledge;
    return performers;
  }();
  return kPerformers[kind];
}

Branches::Sender Branches::SenderOf(Action::Kind kind) {
  static constexpr auto kSenders = [] {
    std::array<Sender, Action::kForget + 1> senders{};
    senders[Action::kSendVote] = [](Outbox& out, const Id& id, const Action& action) {
      out.SendVote(id, action.vote);
    };
    senders[Action::kSendAcknowledge] = [](Outbox& out, const Id& id, const Action&) {
      out.SendAcknowledge(id);
    };
    senders[Action::kSendGone] = [](Outbox& out, const Id& id, const Action&) { out.SendGone(id); };
    senders[Action::kSendOnePhaseReply] = [](Outbox& out, const Id& id, const Action& action) {
      out.SendOnePhaseReply(id, action.outcome);
    };
    senders[Action::kSendInquiry] = [](Outbox& out, const Id& id, const Action&) { out.SendInquiry(id); };
    senders[Action::kSendInquiryReply] = [](Outbox& out, const Id& id, const Action& action) {
      out.SendDecidersReply(id, action.outcome);
    };
    return senders;
  }();
  return kSenders[kind];
}

void Branches::ApplyCommit(ParticipantEntry& entry, const Action&) { engine_.Commit(entry.branch); }

void Branches::ApplyAbort(ParticipantEntry& entry, const Action&) { engine_.Rollback(entry.branch); }

void Branches::EndEntry(ParticipantEntry& entry, const Action&) {
  entry.ended = true;
  if (entry.outcome_kept) engine_.NoteEnd(entry.id);
}

void Branches::Decide(ParticipantEntry& entry) {
  engine_.DecideAlone(entry.branch);
  entry.outcome_kept = entry.branch.decided;
  entry.logged_ns = turns_.now_ns();
}

absl::Status Branches::RestorePrepared(const Id& id, recovery::Unsettled::Prepared prepared) {
  ParticipantEntry& entry = Open(id);
  entry.restored = true;
  entry.branch.undo = std::move(prepared.undo);
  entry.fellows = std::move(prepared.fellows);
  if (absl::Status adopted = engine_.AdoptPrepared(entry.branch, prepared.since); !adopted.ok())
    return adopted;
  islands_.clear();
  for (const Fellow& fellow : entry.fellows) islands_.push_back(fellow.island);
  Replay(entry, {.kind = ParticipantEvent::kPrepare, .wrote = true, .fellows = islands_});
  Replay(entry, {.kind = ParticipantEvent::kPrepareDurable});
  ISLANDS_CHECK(entry.machine.in_doubt());
  NoteDoubt(entry);
  return absl::OkStatus();
}

// The oldest branch in doubt is known exactly while there is only one; otherwise Sweep finds it.
void Branches::NoteDoubt(ParticipantEntry& entry) {
  entry.in_doubt_since_ns = entry.logged_ns = turns_.now_ns();
  if (counters_.in_doubt.Get() == 0) counters_.in_doubt_since_ns.Set(ShownTime(entry.in_doubt_since_ns));
  counters_.in_doubt.Set(counters_.in_doubt.Get() + 1);
}

void Branches::NoteDecided() {
  counters_.in_doubt.Set(counters_.in_doubt.Get() - 1);
  if (counters_.in_doubt.Get() == 0) counters_.in_doubt_since_ns.Set(0);
}

void Branches::RestoreDecided(const Id& id, recovery::Unsettled::Decided decided) {
  ParticipantEntry& entry = Open(id);
  entry.restored = true;
  entry.outcome_kept = true;
  entry.logged_ns = turns_.now_ns();
  engine_.NoteEarlier(log::EntryKind::kDecided, id, decided.since);
  Replay(entry, {.kind = ParticipantEvent::kCommitOnePhase, .wrote = true});
  Replay(entry, {.kind = ParticipantEvent::kCommitDurable});
  ISLANDS_CHECK(entry.machine.decided());
}

void Branches::Replay(ParticipantEntry& entry, const ParticipantEvent& event) {
  std::vector<ParticipantAction> carried_out;
  entry.machine.Step(event, &carried_out);
}

void Branches::AskFellow(ParticipantEntry& entry, const Action& action) {
  if (!peers_.WorthSaying(action.island)) return;  // asked again soon
  const auto asked = std::find_if(entry.fellows.begin(), entry.fellows.end(),
                                  [&](const Fellow& fellow) { return fellow.island == action.island; });
  ISLANDS_CHECK(asked != entry.fellows.end());
  outbox_.SendDecisionRequest(*asked, entry.id);
}

void Branches::Vote(ParticipantEntry& entry, const Action& action) {
  outbox_.SendVote(entry.id, action.vote);
  if (Planted(PlantedBug::kReleaseAtYes) && action.vote == coordinator::VoteKind::kYes)
    engine_.ReleaseLocks(entry.branch);
}

// Only a branch that has voted YES acknowledges.
void Branches::Acknowledge(ParticipantEntry& entry, const Action&) {
  if (!shared_.keeps) committed_.Remember(entry.id);  // invariant 2: before anybody hears of it
  outbox_.SendAcknowledge(entry.id);
}

void Branches::CheckInvariants() const {
  table_.CheckInvariants();
  uint64_t in_doubt = 0;
  for (const ParticipantEntry* entry : All()) {
    in_doubt += entry->machine.in_doubt() ? 1 : 0;
    // Asked only where the answer may be yes: the others' latch would order what sanitizers should see race.
    if (entry->stuck || shared_.stuck.any()) ISLANDS_CHECK(entry->stuck == shared_.stuck.Contains(entry->id));
  }
  ISLANDS_CHECK(counters_.in_doubt.Get() == in_doubt && counters_.branches_open.Get() == table_.size());
  ISLANDS_CHECK((in_doubt == 0) == (counters_.in_doubt_since_ns.Get() == 0));
}

void Branches::OnCoordinatorUp(const Origin& origin) {
  for (ParticipantEntry* entry : All()) {
    const Origin coordinator = entry->coordinator();
    if (coordinator == origin) {
      Step(*entry, {.kind = ParticipantEvent::kCoordinatorUp});
    } else if (shared_.keeps && coordinator.peer == origin.peer &&
               coordinator.boot_epoch < origin.boot_epoch && !links_.Hears(coordinator)) {
      Step(*entry, {.kind = ParticipantEvent::kCoordinatorRestarted});
    }
  }
}

void Branches::OnCoordinatorLost(const Origin& origin) {
  for (ParticipantEntry* entry : All()) {
    if (entry->coordinator() == origin) Step(*entry, {.kind = ParticipantEvent::kCoordinatorLost});
  }
}

void Branches::OnCoordinatorSilent(messaging::Address peer) {
  for (ParticipantEntry* entry : All()) {
    if (entry->coordinator().peer == peer) Step(*entry, {.kind = ParticipantEvent::kCoordinatorLost});
  }
}

void Branches::Sweep() {
  const int64_t now_ns = turns_.now_ns();
  int64_t in_doubt_since_ns = INT64_MAX;
  for (ParticipantEntry* entry : All()) {
    const int64_t silent_ns = now_ns - entry->last_heard_ns;
    // Who stands still would find all of them when it goes on.
    const bool say = !peers_.Silent(entry->coordinator().peer);
    if (entry->machine.orphaned()) {
      LookForDeadFellows(*entry);
    } else if (!shared_.keeps) {
      LookForDeadCoordinator(*entry);
    }
    if (entry->ended) continue;
    LookWhetherStuck(*entry);
    Repeat(*entry);
    const int64_t interval_ns = entry->machine.orphaned() ? kFellowIntervalNs : kInquiryIntervalNs;
    if (entry->machine.in_doubt() && silent_ns > interval_ns) {
      entry->last_heard_ns = now_ns;
      if (say || entry->machine.orphaned()) Step(*entry, {.kind = ParticipantEvent::kInquiryDue});
    } else if (silent_ns > 2 * options_.transaction_timeout_ns + entry->idle_ns) {
      entry->last_heard_ns = now_ns;
      if (say || !entry->machine.decided()) Step(*entry, {.kind = ParticipantEvent::kTimeout});
    }
    if (entry->machine.in_doubt()) in_doubt_since_ns = std::min(in_doubt_since_ns, entry->in_doubt_since_ns);
  }
  if (counters_.in_doubt.Get() != 0) counters_.in_doubt_since_ns.Set(ShownTime(in_doubt_since_ns));
}

// So that it keeps no more of the log from being let go of than was appended since.
void Branches::Repeat(ParticipantEntry& entry) {
  const bool in_doubt = entry.machine.in_doubt();
  if (!in_doubt && !entry.outcome_kept) return;
  if (turns_.now_ns() - entry.logged_ns < kRepeatIntervalNs) return;
  const bool repeated =
      in_doubt ? engine_.RepeatPrepare(entry.branch, entry.fellows) : engine_.RepeatDecided(entry.id);
  if (repeated) entry.logged_ns = turns_.now_ns();
}

// For as long as a wait for a lock may take it is not worth a word.
void Branches::LookWhetherStuck(ParticipantEntry& entry) {
  const Origin coordinator = entry.coordinator();
  const bool stuck = entry.machine.in_doubt() &&
                     turns_.now_ns() - entry.in_doubt_since_ns > options_.lock_timeout_ns &&
                     (peers_.Silent(coordinator.peer) || !links_.Hears(coordinator));
  if (stuck != entry.stuck) SetStuck(entry, stuck);
}

void Branches::SetStuck(ParticipantEntry& entry, bool stuck) {
  entry.stuck = stuck;
  shared_.stuck.Set(entry.id, stuck);
}

// Durability `none`: a coordinator's life that is over has kept nothing. A link that it may have dialled
// since the last look at the sockets carries nothing: whoever dials says nothing before it is answered.
//
// Links of the dead are read to their end first. Orphans agree without that, since they take nothing from
// whom they count as gone; but a commit that all of them were told, and a client, too, would be lost.
void Branches::LookForDeadCoordinator(ParticipantEntry& entry) {
  const int64_t now_ns = turns_.now_ns();
  const bool gives_up = Planted(PlantedBug::kGiveUpByClock) && entry.machine.in_doubt() &&
                        now_ns - entry.in_doubt_since_ns > 10 * runtime::kNsPerSecond;
  const bool unread = links_.Hears(entry.coordinator()) && !Planted(PlantedBug::kIgnoreLastWords);
  if (!gives_up && (unread || !peers_.ProvenDead(entry.id.island, entry.id.boot_epoch, now_ns))) return;
  if (entry.machine.in_doubt()) {
    spdlog::info("transaction {} has lost its coordinator; asking {} other participants", entry.id.ToString(),
                 entry.fellows.size());
  }
  Step(entry, {.kind = ParticipantEvent::kCoordinatorGone});
}

void Branches::LookForDeadFellows(ParticipantEntry& entry) {
  for (const uint32_t island : entry.machine.OpenFellows()) {
    for (const Fellow& fellow : entry.fellows) {
      if (fellow.island != island || !peers_.ProvenDead(island, fellow.boot_epoch, turns_.now_ns())) continue;
      // Its answers came, if any, over the link that was dialled to it.
      const bool unread = peers_.Reaches(island, fellow.boot_epoch);
      if (unread && !Planted(PlantedBug::kIgnoreLastWords)) continue;
      Step(entry, {.kind = ParticipantEvent::kFellowGone, .island = island});
    }
    if (entry.ended) return;
  }
}

}  // namespace islands::instance
