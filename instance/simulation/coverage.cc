#include "instance/simulation/coverage.h"

#include <fmt/format.h>

namespace islands::simulation {

using CoordinatorState = coordinator::Coordinator::State;
using ParticipantState = coordinator::Participant::State;

static_assert(static_cast<size_t>(CoordinatorState::kDone) == kCoordinatorStates);
static_assert(static_cast<size_t>(ParticipantState::kDone) == kVotedEarly - kCoordinatorStates);

std::string_view FaultName(Fault fault) {
  switch (fault) {
    case Fault::kCrashSelf:
      return "crash self";
    case Fault::kCrashPeer:
      return "crash peer";
    case Fault::kRestartPeer:
      return "restart peer";
    case Fault::kBreak:
      return "break";
    case Fault::kCut:
      return "cut";
    case Fault::kStallSelf:
      return "stall self";
    case Fault::kStallPeer:
      return "stall peer";
  }
  return "invalid";
}

std::string StateName(StateIndex state) {
  if (state == kVotedEarly) return "coordinator voted early";
  if (state < kCoordinatorStates) {
    return fmt::format("coordinator {}", coordinator::StateName(static_cast<CoordinatorState>(state)));
  }
  return fmt::format("participant {}",
                     coordinator::StateName(static_cast<ParticipantState>(state - kCoordinatorStates)));
}

std::string_view WhyUnreachable(StateIndex state) {
  switch (state) {
    case IndexOf(CoordinatorState::kForcing):
      return "waits for the commit record";
    case IndexOf(ParticipantState::kPreparing):
      return "waits for the prepare record";
    case IndexOf(ParticipantState::kCommitting):
    case IndexOf(ParticipantState::kDeciding):
      return "waits for its commit record";
    default:
      return "";
  }
}

std::vector<StateIndex> LastingStates() {
  std::vector<StateIndex> states;
  for (StateIndex state = 0; state < kStates; ++state) {
    if (WhyUnreachable(state).empty()) states.push_back(state);
  }
  return states;
}

void Coverage::Merge(const Coverage& other) {
  for (size_t state = 0; state < kStates; ++state) {
    for (size_t fault = 0; fault < kFaults; ++fault) counts_[state][fault] += other.counts_[state][fault];
  }
}

std::string Coverage::Table() const {
  std::string table = fmt::format("{:<24}", "state when the fault came");
  for (size_t fault = 0; fault < kFaults; ++fault) {
    table += fmt::format("{:>14}", FaultName(static_cast<Fault>(fault)));
  }
  for (StateIndex state = 0; state < kStates; ++state) {
    table += fmt::format("\n{:<24}", StateName(state));
    if (const std::string_view why = WhyUnreachable(state); !why.empty()) {
      table += fmt::format("  cannot occur without a log: {}", why);
      continue;
    }
    for (size_t fault = 0; fault < kFaults; ++fault) table += fmt::format("{:>14}", counts_[state][fault]);
  }
  return table + "\n";
}

std::vector<std::string> Coverage::Unreached(bool keeps) const {
  std::vector<std::string> unreached;
  for (const StateIndex state : LastingStates()) {
    if (keeps && state == IndexOf(ParticipantState::kOrphaned)) continue;
    for (size_t fault = 0; fault < kFaults; ++fault) {
      if (counts_[state][fault] == 0) {
        unreached.push_back(fmt::format("{} x {}", StateName(state), FaultName(static_cast<Fault>(fault))));
      }
    }
  }
  return unreached;
}

}  // namespace islands::simulation
