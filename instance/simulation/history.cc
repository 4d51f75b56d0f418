#include "instance/simulation/history.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace islands::simulation {

std::string_view FateName(Attempt::Fate fate) {
  switch (fate) {
    case Attempt::kOpen:
      return "open";
    case Attempt::kAborted:
      return "aborted";
    case Attempt::kCommitted:
      return "committed";
    case Attempt::kUnknown:
      return "unknown";
  }
  return "invalid";
}

size_t History::Begin(const coordinator::TransactionId& id, int64_t asked_ns) {
  const size_t attempt = attempts_.size();
  if (!by_id_.insert_or_assign(id, attempt).second) Complain(id.ToString() + " is used twice");
  attempts_.push_back({.id = id, .begun = ++position_, .asked_ns = asked_ns});
  return attempt;
}

void History::Learn(size_t attempt, Access access) {
  access.learned = ++position_;
  attempts_[attempt].accesses.push_back(access);
}

void History::End(const coordinator::TransactionId& id, coordinator::Outcome outcome, int64_t now_ns) {
  Attempt* attempt = Find(id);
  ISLANDS_CHECK(attempt != nullptr && attempt->fate == Attempt::kOpen);
  attempt->ended = ++position_;
  attempt->ended_ns = now_ns;
  ++ended_;
  switch (outcome) {
    case coordinator::Outcome::kCommitted:
      attempt->fate = Attempt::kCommitted;
      ++committed_;
      break;
    case coordinator::Outcome::kAborted:
      attempt->fate = Attempt::kAborted;
      break;
    default:
      attempt->fate = Attempt::kUnknown;
      break;
  }
}

void History::NoteEpoch(uint64_t epoch) {
  if (epochs_.empty() || epochs_.back().epoch < epoch) epochs_.push_back({epoch, looked_});
  looked_ = position_;
}

void History::LosePower(uint64_t durable, bool answers_wait) {
  lossy_ = true;
  if (answers_wait) return;
  const auto late = std::find_if(epochs_.begin(), epochs_.end(),
                                 [durable](const Raised& raised) { return raised.epoch > durable; });
  if (late == epochs_.end()) return;
  for (Attempt& attempt : attempts_) {
    if (attempt.fate == Attempt::kCommitted && attempt.ended > late->position) attempt.cut = true;
  }
}

Attempt* History::Find(const coordinator::TransactionId& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &attempts_[found->second];
}

void History::Add(Attempt attempt) {
  ended_ += attempt.fate != Attempt::kOpen ? 1 : 0;
  committed_ += attempt.fate == Attempt::kCommitted ? 1 : 0;
  attempts_.push_back(std::move(attempt));
}

}  // namespace islands::simulation
