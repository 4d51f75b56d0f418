// Which faults hit which states of the two-phase-commit machines: counted at the moment a fault is injected.
//
// Thread safety: none; plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/participant.h"

namespace islands::simulation {

// What happens to a machine. A peer is an island at the other end: of a coordinator its participants, of a
// participant its coordinator.
enum class Fault : uint8_t {
  kCrashSelf,
  kCrashPeer,
  kRestartPeer,
  kBreak,  // of one of the two connections to a peer: one side knows, the other does not
  kCut,
  kStallSelf,
  kStallPeer,
};
inline constexpr size_t kFaults = 7;
std::string_view FaultName(Fault fault);
inline bool IsCrash(Fault fault) { return fault <= Fault::kRestartPeer; }

// The machines' states but kDone, coordinators' first; and as the last one that of a coordinator that
// executes and has votes already, PREPARE having been early.
using StateIndex = uint8_t;
inline constexpr size_t kCoordinatorStates = 6;
inline constexpr size_t kStates = 14;
inline constexpr StateIndex kVotedEarly = kStates - 1;
constexpr bool IsCoordinators(StateIndex state) { return state < kCoordinatorStates || state == kVotedEarly; }
constexpr StateIndex IndexOf(coordinator::Coordinator::State state) { return static_cast<StateIndex>(state); }
constexpr StateIndex IndexOf(coordinator::Participant::State state) {
  return static_cast<StateIndex>(kCoordinatorStates + static_cast<size_t>(state));
}
std::string StateName(StateIndex state);

// Why no fault can meet this state; empty if one can. Without a log what is forced is durable at once: states
// that wait for the disk begin and end within one step of their worker, and faults happen between steps.
std::string_view WhyUnreachable(StateIndex state);
// The others.
std::vector<StateIndex> LastingStates();

class Coverage {
 public:
  void Add(StateIndex state, Fault fault) { ++counts_[state][static_cast<size_t>(fault)]; }
  void Merge(const Coverage& other);
  uint64_t count(StateIndex state, Fault fault) const { return counts_[state][static_cast<size_t>(fault)]; }
  std::string Table() const;
  // "coordinator voting x cut", for every pair that can occur and did not.
  // `keeps`: in a cluster that keeps what it promises, where nobody is orphaned.
  std::vector<std::string> Unreached(bool keeps = false) const;

 private:
  std::array<std::array<uint64_t, kFaults>, kStates> counts_{};
};

}  // namespace islands::simulation
