// Bugs that can be switched on, one at a time, to prove that the tests would find them.
//
// They exist only in the separate build of instance/simulation/planted (ISLANDS_PLANTED_BUGS); in the product
// Planted() is a constant and costs nothing.
//
// Thread safety: `planted_bug` is set before the threads of a test start.
#pragma once

#include <cstdint>
#ifdef ISLANDS_PLANTED_BUGS
#include <thread>
#endif

namespace islands::runtime {

enum class PlantedBug : uint8_t {
  kNone,
  kVoteReadEarly,          // a participant that only read answers an early PREPARE, and releases its locks
  kTrustEarlierVotes,      // an early vote counts although its giver has died before all had executed
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
  kOverlookHolders,        // a transaction that runs without locks does not look whether others have them
  kDropProbes,             // deadlock probes are not forwarded
  kGrantEveryLock,         // every lock is granted at once, whoever holds it
  kScanPassesGhosts,       // a scan passes over ghosts without locking them
  kRemoveUndoneInsert,     // an insert that is rolled back takes its key with it, instead of leaving a ghost
  kRemoveRefusedInsert,    // an insert that an index refuses takes its key with it
  kBuryLockedGhost,        // a ghost is removed although somebody has locked its gap
  kIgnoreKeyChanges,       // an insert does not look whether its gap was parted while it locked it
  kTrustFirstPass,         // a scan does not look whether all that it met was locked before
  kForgetQuietScan,        // a scan of very many keys without locks remembers none of them
  kTrustOldLeaf,           // who looks ahead takes the leaf where the row was last time, whatever its fences
  kBelieveHints,           // a key is where it was last time, whatever stands there by now
  kTrustStaleHint,         // a read takes the row where it was found ahead, though its leaf has changed
  kLookAheadBlindly,       // a lookup ahead does not look whether the parent changed under it
  kSkipIndexEntryLock,     // a write does not lock the index entries that it adds and removes
  kSkipFoundRows,          // an index scan does not lock the rows that it finds
  kLeavePastWaiter,        // a lock is left to its worker although another waits for it
  kReclaimAnyMode,         // a worker's next transaction takes an inherited lock for a stronger one
  kEscalateOverHolders,    // key locks become one on the site although others are in the way
  kEscalatedSCoversAll,    // after an escalation of reads, writes need no locks any more
  kUndoOldestFirst,        // writes are undone in the order in which they were made
  kForgetRevivedBytes,     // undo makes a revived ghost a ghost again, but not its bytes
  kRetryKeepsId,           // the second attempt of a transaction has the id of the first
  kIgnoreLaterEpochs,      // as ignore_boot_epoch, but only between islands that have both restarted before
  kGiveUpByClock,          // a branch in doubt ends by itself after 10 s, though its coordinator lives
  kAcknowledgeUnapplied,   // a commit is acknowledged by a life that does not have the branch
  kOrphanAsksNobody,       // a branch whose coordinator died aborts without asking its fellows
  kBelieveAnyDoubt,        // a fellow's doubt counts though it may still hear from one of the dead
  kForgetOpenCommits,      // a coordinator tells that commits have ended that a participant has not heard of
  kIgnoreLastWords,        // who is proven dead counts as gone before what it has said is read
  kAnswerForEarlierLife,   // a later life answers for one that has died: there is nothing here
  kForgetPageChange,       // a page changes without a word to those who listen
  kSkipLogSync,            // EPOCH is written before the logs are synced
  kIgnoreSyncError,        // a sync of the log that failed is taken for one that did not
  kTrustUnsyncedEpoch,     // a new logger believes what the one before it wrote to EPOCH and did not sync
  kFreeRingEarly,          // a ring's room is free before EPOCH covers what was there
  kUndoTwice,              // what was rolled back is undone once more by recovery
  kReuseLsn,               // the next life of an island gives LSNs that an earlier one has given
  kResetLsnOnReuse,        // a page that is used again begins with LSN 0
  kBuryBeforeCommit,       // ghosts are removed before the end of their transaction is in the log
  kCutTooLate,             // a cut lets the first epoch live that was not durable everywhere
  kPublishWithoutUndo,     // a transaction that gives up control leaves nothing to undo it with
  kRestoreWithoutLocks,    // a branch in doubt comes back without its locks
  kForgetDecisions,        // a coordinator that comes back does not know what it has decided
  kVoteUnprepared,         // a YES goes out, and nothing of its branch is in the log
  kDecideUnlogged,         // participants are told to commit, and the decision is not in the log
  kForgetOutcome,          // the one participant that wrote does not log that somebody will ask it
  kReadEpochOnce,          // who reads EPOCH beside a logger takes the first block that is whole
  kTrustUnsyncedManifest,  // who reads the log's manifest does not make sure that its name is durable
  kTrustTornPage,          // a page from disk is taken whatever its checksum says
  kSkipDoubleWrite,        // pages are written home without a copy elsewhere
  kForgetHalfHome,         // what is only in the double-write area is not written home at the start
  kWritePageEarly,         // a page is written before its last change is durable everywhere
  kCheckpointPastCopies,   // a checkpoint does not wait for copies of pages on their way home
  kPassOpenBranches,       // a checkpoint does not look at transactions that are open
  kMoveMasterEarly,        // a checkpoint counts before the ends that it has seen are durable
  kTrustUnsyncedMaster,    // a new life believes a checkpoint that the one before it did not sync
  kMergeByArrival,         // records of several workers are redone as they lie in the log, not by LSN
  kSettleEarly,            // a frame says that epochs lie before it that EPOCH does not cover yet
  kPublishAfterLatch,      // a worker's change is in its ring only after others could see it
  kHeaderOfItsOwn,         // a page that a split takes and the site header that gives it are two steps
  kPassInDoubt,            // a checkpoint does not look at transactions that are in doubt
  kRepeatRestOfUndo,       // a PREPARE that is said again has what it had the first time
  kRepeatUnsaid,           // a checkpoint passes as if a PREPARE or decision had been said again
  kPassDecisions,          // a checkpoint does not look at decisions that somebody has yet to hear of
  kAnswerEarly,            // a client has its answer before what it says is durable
  kForgetReplyEpoch,       // what another island has told does not say what it depends on
  kCommitInOldEpoch,       // a commit is of the epoch in which its transaction began to change
  kMixEpochs,              // changes of two epochs are in one record
  kStampBelow,             // a record's LSN may be below that of one it builds on
  kSplitUnshown,           // a page is logged as an image while another worker's change in it is in no log
  kDropCompensation,       // what a step of an undo changes is not in the log
  kRecoverPreparedTwice,   // a branch that was in doubt and has committed is in doubt again in the next life
  kRestoreWithoutRows,     // a branch in doubt comes back without the locks of its rows
  kRestoreWithoutEntries,  // a branch in doubt comes back without those of the index entries that it changed
  kIgnorePageSyncError,    // a sync of copies or of pages at home that failed is taken for one that did not
  kIgnoreMasterSyncError,  // a checkpoint whose sync failed counts
  kEvictDirtyPage,         // a page is evicted that has changed since it was written home
  kEvictLatchedPage,       // a page is evicted that somebody works on
  kInstallOverOthers,      // a page that was read replaces what is there, though somebody has been faster
  kKeepVersionOfEvicted,   // a page that is evicted, changed or not, looks as it did when a read of it began
  kLoseClockBit,           // the clock hand evicts what it has just marked
  kTrustCommands,          // nobody looks whether a command that is repeated does what it has done
  kCommandTwice,           // commands are repeated that the snapshot has already
  kNameWorkloadOnce,       // only the first command of a life says whose it is
  kSnapshotLateImages,     // a page that changes before a snapshot has come to it is in it as it is then
};
inline constexpr uint32_t kPlantedBugs = 101;

#ifdef ISLANDS_PLANTED_BUGS
inline PlantedBug planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
inline bool AnyPlanted() { return planted_bug != PlantedBug::kNone; }
// Lets other threads in where a bug would show: tests that rely on luck find it only on most days.
inline void Linger(int turns = 1) {
  for (; turns > 0 && planted_bug != PlantedBug::kNone; --turns) std::this_thread::yield();
}
#else
constexpr bool Planted(PlantedBug) { return false; }
constexpr bool AnyPlanted() { return false; }
constexpr void Linger(int = 1) {}
#endif

}  // namespace islands::runtime
