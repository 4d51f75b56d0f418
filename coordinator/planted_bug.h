// Bugs that can be switched on, one at a time, to prove that the tests would find them.
//
// They exist only in the separate build of instance/simulation/planted (ISLANDS_PLANTED_BUGS); in the product
// Planted() is a constant and costs nothing. It lives here because the coordinator is the lowest folder that
// plants one.
//
// Thread safety: `planted_bug` is set before the threads of a test start.
#pragma once

#include <cstdint>
#ifdef ISLANDS_PLANTED_BUGS
#include <thread>
#endif

namespace islands::coordinator {

enum class PlantedBug : uint8_t {
  kNone,
  kReleaseReadLocksEarly,  // a participant that only read releases its locks with its step, before the vote
  kReleaseAtYes,           // a participant releases its write locks when it votes YES
  kSkipNextKeyLock,        // a scan locks the keys it returns, not the gaps between them
  kSkipInsertIntention,    // an insert does not look whether a scan has locked its gap
  kForgetVictimBranch,     // an abort is not told to the first participant
  kVoteYesWithoutBranch,   // PREPARE for a branch that is gone is answered YES
  kIgnoreBootEpoch,        // a restarted island serves transactions that knew its earlier life
  kForgetBeforeAcks,       // the coordinator forgets a commit before it was acknowledged
  kPresumeOnePhaseCommit,  // a coordinator whose one-phase answer was lost takes it for a commit
  kLoseWakeup,             // a granted waiter is not told
  kConvertOverHolders,     // a conversion is granted although others hold the lock
  kSkipValidation,         // a descent does not look whether the parent changed under it
  kSuspendWithoutLocks,    // a transaction that ran without locks suspends without taking them
  kDropProbes,             // deadlock probes are not forwarded
  kGrantEveryLock,         // every lock is granted at once, whoever holds it
};
inline constexpr uint32_t kPlantedBugs = 15;

#ifdef ISLANDS_PLANTED_BUGS
inline PlantedBug planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
// Lets another thread in where a bug would show: tests that rely on luck find it only on most days.
inline void Linger() { std::this_thread::yield(); }
#else
constexpr bool Planted(PlantedBug) { return false; }
constexpr void Linger() {}
#endif

}  // namespace islands::coordinator
