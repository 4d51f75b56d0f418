#include "instance/worker/clients.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::instance {

using coordinator::Outcome;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

// After so many aborts in a row that trying again at once would only repeat (a peer is gone): do not spin.
// But not for long, and not after the first: the next transaction may be a local one.
constexpr uint32_t kFailuresInARow = 4;
constexpr int64_t kFailurePauseNs = 500 * runtime::kNsPerUs;
constexpr int64_t kFirstBackoffNs = 100 * runtime::kNsPerUs;
constexpr int64_t kLongestBackoffNs = 20 * runtime::kNsPerMs;
constexpr int64_t kLongestNapNs = 20 * runtime::kNsPerMs;  // so much longer a run may take to end
constexpr uint64_t kMostTold = 10;                         // contradictions of a worker's life

}  // namespace

void Clients::BeginRun(const Workload& workload, std::unique_ptr<Generator> generator, uint32_t mpl,
                       uint64_t seed, const ArrivalPlan& arrivals, std::vector<std::byte> commands_of) {
  ISLANDS_CHECK(active_ == 0 && answers_.empty() && resting_.empty());
  slots_.clear();
  spare_requests_.clear();
  workload_ = &workload;
  generator_ = std::move(generator);
  random_ = runtime::Random::Stream(seed, (uint64_t{options_.island} << 16) | options_.index);
  arrivals_.Begin(arrivals, *generator_, mpl, seed);
  ending_ = false;
  commands_ = shared_.commands && workload.MakeRequest() != nullptr;
  commands_of_ = std::move(commands_of);
  active_ = mpl;
  running_.store(mpl != 0, std::memory_order_relaxed);
  counters_.in_flight.Set(mpl);
  for (uint32_t i = 0; i < mpl; ++i) {
    slots_.push_back(std::make_unique<Slot>(parts_));
    Slot& slot = *slots_.back();
    slot.request = generator_->MakeRequest();
    slot.loop = SlotLoop(slot);
  }
  for (const std::unique_ptr<Slot>& slot : slots_) slot->loop.Start();
}

void Clients::EndRun() {
  ending_ = true;
  arrivals_.End();
  while (!resting_.empty()) WakeOne();
}

void Clients::WakeOne() {
  turns_.QueueToBegin(resting_.back());
  resting_.pop_back();
}

size_t Clients::Arrive() {
  if (!arrivals_.active()) return 0;
  arrivals_.Arrive();
  size_t woken = 0;
  for (; woken < arrivals_.waiting() && !resting_.empty(); ++woken) WakeOne();
  return woken;
}

runtime::Task<void> Clients::SlotLoop(Slot& slot) {
  Turns::Yield yield = turns_.LetOthersBegin();
  co_await yield;
  uint32_t in_a_row = 0;
  uint32_t failed_in_a_row = 0;
  while (!ending_) {
    if (answers_.size() >= options_.most_answers_waiting) {
      Turns::Pause pause = turns_.PauseUntil(turns_.now_ns() + kLookAtEpochNs);
      co_await pause;
      co_await yield;
      continue;
    }
    if (arrivals_.active()) {
      if (arrivals_.waiting() == 0) {
        Rest rest{*this};
        co_await rest;
        continue;
      }
      slot.due_ns = arrivals_.Take();
    }
    generator_->Next(random_, *slot.request);
    if (slot.request->pause_ns > 0 && !arrivals_.active()) {
      runtime::Task<void> thinking = Think(slot.request->pause_ns);
      co_await thinking;
      co_await yield;
      if (ending_) break;
    }
    runtime::Task<bool> transaction = RunOne(slot);
    const bool ended_well = co_await transaction;
    slot.begun_ns = 0;
    failed_in_a_row = ended_well ? 0 : failed_in_a_row + 1;
    if (ended_well && ++in_a_row < options_.begun_in_a_row && turns_.MayBegin()) continue;
    if (ended_well) {
      in_a_row = 0;
    } else if (failed_in_a_row % kFailuresInARow == 0) {
      Turns::Pause pause = turns_.PauseUntil(turns_.now_ns() + kFailurePauseNs);
      co_await pause;
    }
    co_await yield;
  }
  ISLANDS_CHECK(active_ > 0);
  counters_.in_flight.Set(--active_);
  EndRunIfOver();
}

// In short naps: a run that ends does not wait for those who think.
runtime::Task<void> Clients::Think(int64_t pause_ns) {
  const int64_t until_ns = turns_.NowNs() + pause_ns;
  ++thinking_;
  while (!ending_ && turns_.now_ns() < until_ns) {
    Turns::Pause nap = turns_.PauseUntil(std::min(until_ns, turns_.now_ns() + kLongestNapNs));
    co_await nap;
  }
  --thinking_;
}

void Clients::EndRunIfOver() {
  if (active_ != 0 || waits()) return;
  const runtime::MutexLock lock(shared_.run_mutex, ISLANDS_LATCH("worker.run_end"));
  running_.store(false, std::memory_order_release);
  shared_.run_ended.notify_all();
}

// From the request to its outcome, victims run again with a random, growing pause. False when it failed for a
// reason that will probably last.
runtime::Task<bool> Clients::RunOne(Slot& slot) {
  RunningTransaction& transaction = slot.transaction;
  slot.begun_ns = turns_.NoteBegin();
  transaction.stays.Forget();
  if (--until_watched_ == 0) Watch(slot);
  const int64_t deadline_ns = slot.begun_ns + options_.transaction_timeout_ns;
  int64_t backoff_ns = kFirstBackoffNs;
  while (true) {
    transaction.Begin(Planted(PlantedBug::kRetryKeepsId) && backoff_ns != kFirstBackoffNs
                          ? transaction.id()
                          : coordinated_.NextId(),
                      deadline_ns);
    runtime::Task<absl::Status> procedure = workload_->Run(transaction, *slot.request);
    absl::Status status = co_await procedure;
    Outcome outcome = Outcome::kAborted;
    if (status.ok() && !transaction.failure.set()) {
      if (commands_) NoteCommand(slot);
      runtime::Task<Outcome> commit = transaction.Commit();
      outcome = co_await commit;
    } else {
      Blame(transaction, std::move(status));
      runtime::Task<Outcome> abort = transaction.Abort();
      outcome = co_await abort;
    }
    const bool given = End(slot, outcome);
    const bool again = outcome == Outcome::kAborted && RetryAtOnce(transaction.failure.reason) && !ending_ &&
                       turns_.now_ns() < deadline_ns;
    if (!again && given) arrivals_.Answered();
    if (!again) co_return outcome == Outcome::kCommitted;
    turns_.Note(transaction, Stay::kRetry);
    const auto wait_ns = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(backoff_ns))) + 1;
    Turns::Pause pause = turns_.PauseUntil(turns_.now_ns() + wait_ns);
    co_await pause;
    turns_.Note(transaction, Stay::kRunning);
    backoff_ns = std::min(2 * backoff_ns, kLongestBackoffNs);
  }
}

void Clients::Watch(Slot& slot) {
  until_watched_ = kWatchEvery;
  Stays& stays = slot.transaction.stays;
  // When it was due another island may have said, and may be wrong.
  stays.Begin(Stay::kQueue, slot.due_ns == 0 ? slot.begun_ns : std::min(slot.due_ns, slot.begun_ns));
  stays.Move(Stay::kRunning, slot.begun_ns);
}

// Whether it is worth a command only its commit knows: one that has published changes is none.
void Clients::NoteCommand(Slot& slot) {
  RunningTransaction& transaction = slot.transaction;
  if (!transaction.repeatable() || !transaction.branch.wrote() || transaction.branch.published) return;
  slot.input.clear();
  InputCoder coder(&slot.input);
  slot.request->CodeInput(coder);
  transaction.branch.command = {.workload = commands_of_, .input = slot.input};
}

// If nobody is to blame yet it is the procedure.
void Clients::Blame(RunningTransaction& transaction, absl::Status status) {
  const bool contradicts = !transaction.failure.set() && absl::IsDataLoss(status);
  if (contradicts && counters_.aborts[static_cast<uint8_t>(AbortReason::kContradiction)].Get() < kMostTold) {
    spdlog::error("transaction {} has read what cannot be: {}", transaction.id().ToString(),
                  std::string(status.message()));
  }
  transaction.Fail(contradicts ? AbortReason::kContradiction : AbortReason::kProcedure, std::move(status));
}

void Clients::NoteWait(int64_t waited_ns) {
  const auto waited = static_cast<uint64_t>(waited_ns);
  if (waited > counters_.longest_wait_ns.Get()) counters_.longest_wait_ns.Set(waited);
}

// An abort tells nothing but that it happened, unless its procedure says why. It has seen what was committed
// by now at most; what it has committed is among that.
bool Clients::MustWait(const RunningTransaction& transaction, Outcome outcome, uint64_t* epoch) const {
  const AbortReason reason = transaction.failure.reason;
  const bool explains = reason == AbortReason::kProcedure || reason == AbortReason::kContradiction;
  const bool tells = outcome == Outcome::kCommitted || (outcome == Outcome::kAborted && explains);
  if (!tells || Planted(PlantedBug::kAnswerEarly)) return false;
  *epoch = std::max(parts_.engine.commit_epoch(), transaction.others_epoch);
  return *epoch > shared_.board->durable();
}

bool Clients::End(Slot& slot, Outcome outcome) {
  RunningTransaction& transaction = slot.transaction;
  const Answer answer{.id = transaction.id(),
                      .outcome = outcome,
                      .scope = transaction.scope(),
                      .reason = transaction.failure.reason,
                      .begun_ns = slot.begun_ns,
                      .due_ns = slot.due_ns == 0 ? slot.begun_ns : slot.due_ns};
  uint64_t epoch = 0;
  if (!shared_.answers_wait || !MustWait(transaction, outcome, &epoch)) {
    Give(answer, *slot.request, &transaction.stays);
    return true;
  }
  turns_.Note(transaction, Stay::kDisk);
  answers_.Add({answer, epoch, transaction.deadline_ns, std::move(slot.request), transaction.stays});
  transaction.SetDoing(Stay::kRunning);  // the next one, in its place
  transaction.stays.Forget();
  if (spare_requests_.empty()) {
    slot.request = generator_->MakeRequest();
  } else {
    slot.request = std::move(spare_requests_.back());
    spare_requests_.pop_back();
  }
  return false;
}

void Clients::Give(const Answer& answer, const Request& request, Stays* stays) {
  const int64_t now_ns = turns_.NowNs();
  NoteWait(now_ns - answer.begun_ns);
  ScopeCounters& scope = counters_.scopes[static_cast<uint8_t>(answer.scope)];
  const int64_t delta = request.audit_delta;
  switch (answer.outcome) {
    case Outcome::kCommitted:
      scope.committed.Add(1);
      scope.latency.Record(now_ns - answer.due_ns);
      if (stays->on()) counters_.stays[static_cast<uint8_t>(answer.scope)].Add(stays->End(now_ns));
      counters_.audit_committed.Add(static_cast<uint64_t>(delta));
      break;
    case Outcome::kUnknown:
    case Outcome::kPending:
      scope.unknown.Add(1);
      counters_.audit_unknown.Add(static_cast<uint64_t>(delta < 0 ? -delta : delta));
      break;
    case Outcome::kAborted:
      scope.aborted.Add(1);
      counters_.aborts[static_cast<uint8_t>(answer.reason)].Add(1);
      break;
  }
  generator_->OnEnd(answer.id, request, answer.outcome);
}

size_t Clients::GiveUpTo(uint64_t durable) {
  size_t given = 0;
  for (; answers_.Ready(durable); ++given) {
    WaitingAnswer waited = answers_.TakeFirst();
    Give(waited.answer, *waited.request, &waited.stays);
    arrivals_.Answered();
    spare_requests_.push_back(std::move(waited.request));
  }
  counters_.answers_waiting.Set(answers_.size());
  EndRunIfOver();
  return given;
}

void Clients::GiveUnknown(WaitingAnswer waited) {
  waited.answer.outcome = Outcome::kUnknown;
  Give(waited.answer, *waited.request, &waited.stays);
  arrivals_.Answered();
  spare_requests_.push_back(std::move(waited.request));
}

// Its client waits no longer.
void Clients::GiveOverdue() {
  for (WaitingAnswer& waited : answers_.TakeOverdue(turns_.now_ns())) {
    counters_.answers_overdue.Add(1);
    GiveUnknown(std::move(waited));
  }
  counters_.answers_waiting.Set(answers_.size());
  EndRunIfOver();
}

void Clients::GiveUp() {
  while (waits()) GiveUnknown(answers_.TakeFirst());
  counters_.answers_waiting.Set(0);
}

void Clients::Sweep() {
  if (waits()) GiveOverdue();
  arrivals_.Sweep();
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->begun_ns == 0) continue;
    NoteWait(turns_.now_ns() - slot->begun_ns);  // one that hangs is seen as well
    RunningTransaction& transaction = slot->transaction;
    if (turns_.now_ns() < transaction.deadline_ns || !transaction.branch.locks.waiting()) continue;
    transaction.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("still waits for a lock"));
    turns_.Resume(transaction);
  }
}

uint64_t Clients::OldestBegun() const {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->begun_ns != 0) oldest = std::min(oldest, slot->transaction.own_id.sequence);
  }
  return oldest;
}

void Clients::VisitBegun(absl::FunctionRef<void(const RunningTransaction&, int64_t)> visit) const {
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->begun_ns != 0) visit(slot->transaction, slot->begun_ns);
  }
}

void Clients::CheckInvariants() const {
  ISLANDS_CHECK(active_ <= slots_.size() && resting_.size() + thinking_ <= active_ &&
                (!active() || running()));
  answers_.CheckInvariants();
  for (const std::unique_ptr<Slot>& slot : slots_) {
    const RunningTransaction& transaction = slot->transaction;
    if (slot->begun_ns != 0) {
      ISLANDS_CHECK(options_.Began(transaction.own_id));
      continue;
    }
    ISLANDS_CHECK(transaction.entry == nullptr && transaction.executing == nullptr);
    ISLANDS_CHECK(transaction.branch.locks.held() == 0 && transaction.branch.undo.empty());
  }
}

CoordinatedTransaction* Clients::FindExecuting(const coordinator::TransactionId& id) {
  if (!options_.Began(id)) return nullptr;
  CoordinatedTransaction* transaction = nullptr;
  if (const CoordinatorEntry* entry = coordinated_.Find(id)) {
    transaction = entry->transaction;
  } else {
    for (const std::unique_ptr<Slot>& slot : slots_) {
      if (slot->transaction.own_id == id) transaction = &slot->transaction;
    }
  }
  return transaction != nullptr && transaction->Executes() ? transaction : nullptr;
}

}  // namespace islands::instance
