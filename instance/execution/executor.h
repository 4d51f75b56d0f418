// Carries out operations on this island's rows for a branch: lock, then change, then remember how to undo.
//
// It never waits: when a lock has to be waited for, Run returns kWaiting and is called again, with the same
// cursor, once the wait is over. Acquiring what is already held costs a look-up, so an operation is simply
// started again.
//
// What is locked (next-key locking; names in lock_table.h):
//
//   read               S key, whether it exists or not
//   update, replace    X key
//   insert             X key, IX gap below the next key, unless nobody else who is open on a one-worker
//                      island has scanned (and S gap below itself, if the branch has)
//   delete             X key; the row becomes a ghost, removed after commit when nobody holds its gap
//   scan               S key and S gap of every key in the range, ghosts too; S gap of the first key beyond
//   index scan         S entries of the site's indexes (lock_table.h), S key of every row found
//   and who adds or removes such entries, in every operation above: IX entries
//
// A scan of an island with several workers may read rows that change between being read and being locked: it
// repeats until a pass meets exactly the keys that the pass before has locked. An insert's next key is
// checked when the row goes into the tree (BTree::key_changes).
//
// One-worker islands ("alone"): a branch runs without taking locks. It looks whether others have, or wait
// for, what is in its way, and only remembers what it would have locked; where something is, it asks for that
// lock as all do. Before it waits, and whenever its coroutine suspends (EndQuiet), it takes what it
// remembers: nobody else has run meanwhile, so all of that is still free.
//
// Rows whose keys are known are looked for together, before the first of them is locked, so that their cache
// misses overlap. What is found so is a hint: it is looked at again under the lock.
//
// Thread safety: one per worker; Store and LockTable below it are shared by the island's workers.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/fellow.h"
#include "instance/execution/abort_reason.h"
#include "instance/execution/branch.h"
#include "instance/execution/router.h"
#include "instance/locks/lock_table.h"
#include "instance/log/journal.h"
#include "instance/storage/catalog.h"
#include "instance/storage/store.h"
#include "instance/workload/operation.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

// kWaitingForRoom: in the worker's log ring, or in a paged pool. Nothing was latched or changed for the
// operation at the cursor; once the logger has drained something, or the cleaner written pages home, Run may
// be called again, before the transaction's deadline.
// kWaitingForPages: the branch's PagesWanted has some left. Once it has none, Run may be called again; if
// *failure is set it has failed by then, and must be rolled back.
enum class Progress : uint8_t { kDone, kWaiting, kFailed, kWaitingForRoom, kWaitingForPages };

struct ExecutorOptions {
  uint32_t worker = 0;
  bool alone = false;                  // the island has one worker
  size_t most_undo_bytes = 256 << 20;  // of a branch; one that would change more rows fails
  log::Journal* journal = nullptr;     // null: nothing is kept. `alone` as this
  // What a rollback does between two looks at a ring that is full; empty: the thread yields. Hardly ever:
  // what it takes is reserved before (Executor::Reserve).
  std::function<void()> wait_for_room;
  bool buries = true;      // ghosts; who repeats commands does not: the log has that
  bool look_ahead = true;  // for several operations' rows at once; else for each alone
  // Of a paged store: reads what operations look ahead for. Null: the thread waits for the disk.
  storage::PageFetcher* fetcher = nullptr;
};

class Executor : private log::Journal::Publisher {
 public:
  Executor(const storage::Catalog& catalog, storage::Store& store, locks::LockTable& locks,
           ExecutorOptions options = {});
  ~Executor();

  // The catalog has more tables than before.
  void NoteTables();

  // Goes on with operations[*cursor]. Results go into `batch`. kFailed: *failure says why, the branch must be
  // rolled back.
  Progress Run(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations, size_t* cursor,
               Failure* failure);

  // The branch that takes no locks, if any, takes what it remembers. Called whenever a coroutine gives
  // control back, before anything else runs: there are more ways to suspend than a transaction's waits for
  // locks.
  void EndQuiet() {
    if (quiet_ != nullptr) LockTouched();
    if (changing_ != nullptr) Publish(*std::exchange(changing_, nullptr));
  }
  const Branch* quiet() const { return quiet_; }

  // As if the run loop's step ended here: what was changed is shown (Journal::EndStep).
  void EndStep();

  // Recovery: the branch has changed what its undo log says, in an earlier life, and has not ended.
  void Adopt(Branch& branch);
  // The same of one that has prepared: it has the locks of what it has changed again. DATA_LOSS: another like
  // it has changed the same; nobody else has locks.
  absl::Status AdoptPrepared(Branch& branch);

  // Two-phase commit, where there is a log: what the branch has changed is kept whatever dies, until it is
  // committed or rolled back.
  void Prepare(Branch& branch, std::span<const coordinator::Fellow> fellows);
  // It is committed, in the log, and Commit will follow: as coordinator, with the participants that wrote; as
  // the one participant that wrote.
  void Decide(Branch& branch, std::span<const coordinator::Fellow> participants);
  void DecideAlone(Branch& branch);
  // The same once more, of whoever waits long for its end, so that it pins little of the log
  // (Journal::RepeatPrepare). While no branch is being worked on. False: not now.
  bool RepeatPrepare(const Branch& branch, std::span<const coordinator::Fellow> fellows);
  bool RepeatDecision(const coordinator::TransactionId& id,
                      std::span<const coordinator::Fellow> participants);
  bool RepeatDecided(const coordinator::TransactionId& id);
  // Before it says anything of the kind: room in the ring for all that two-phase commit may append for a
  // branch with so many fellows. False: there is none now, and the transaction has to abort.
  bool ReserveTwoPhases(Branch& branch, size_t fellows);

  // Ends the branch: keeps or undoes its changes, then releases its locks. Whose wait ended is appended to
  // `wakeups`.
  void Commit(Branch& branch, std::vector<locks::Wakeup>* wakeups);
  void Rollback(Branch& branch, std::vector<locks::Wakeup>* wakeups);
  // Removes ghosts that could not be removed when their branch ended; now and then, by the run loop.
  void RemoveGhosts(std::vector<locks::Wakeup>* wakeups);
  size_t ghosts() const { return ghosts_.size(); }
  void CheckInvariants() const;  // while no branch is being worked on

 private:
  struct Target {  // of the operation being carried out
    Branch& branch;
    Batch& batch;
    uint32_t number;
    uint32_t site;
    uint32_t last_site;
    storage::SiteTable& rows;  // of `site`
    storage::Lookup* lookup;
  };
  // How far an operation came. `code` counts when every lock was granted. UNAVAILABLE: the branch waits for
  // pages.
  struct Step {
    locks::LockResult lock = locks::LockResult::kGranted;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  struct Ghost {
    TableId table;
    uint32_t site;
    std::vector<std::byte> key;
  };
  struct ScanPass;
  struct TableCosts {  // what the log asks about a table, for every operation
    size_t trees;      // with those of its indexes
    bool may_grow;     // an older state of a row may need a page more
  };

  // So many operations look for their rows together: enough to hide a cache miss behind the others' work, and
  // few enough for what was fetched to be still there.
  static constexpr size_t kLookups = 16;
  struct Ahead {  // of the operations that were looked ahead for
    std::array<storage::SiteTable*, kLookups> rows;
    std::array<storage::Lookup, kLookups> lookups;
  };
  void LookAhead(const Batch& batch, std::span<const RoutedOperation> operations);
  // Of a paged store, after LookAhead: the pages that were missed come to memory, and there is room for those
  // that changes may take. kWaitingForRoom: there is none before the cleaner has been there.
  Progress FetchPages(Branch& branch, const Batch& batch, std::span<const RoutedOperation> operations,
                      Failure* failure);
  void Open(Branch& branch);
  void NoteScan(Branch& branch) {
    if (!std::exchange(branch.scanned, true) && options_.alone) ++scanned_;
  }
  // Gaps are locked by those who scan only. Who scans later meets the keys that the branch has inserted, or
  // left as ghosts, which it has locked: its word to those who have scanned is good for an instant
  // (ARIES/KVL).
  bool NobodyElseHasScanned(const Branch& branch) const {
    return options_.alone && scanned_ == (branch.scanned ? 1 : 0);
  }
  void BeQuiet(Branch& branch);
  void LockTouched();
  // For the quiet branch: nobody is in its way.
  bool IsFree(const locks::LockName& name, locks::LockMode mode) {
    if (open_ == 1) return true;
    const bool known = looked_.free && looked_.table == name.table && looked_.site == name.site;
    return (known && (looked_.mode == mode || looked_.mode == locks::LockMode::kX)) || LooksFree(name, mode);
  }
  bool LooksFree(const locks::LockName& name, locks::LockMode mode);
  void Close(Branch& branch, std::vector<locks::Wakeup>* wakeups);
  locks::LockResult Take(Branch& branch, const locks::LockName& name, locks::LockMode mode);
  locks::LockResult TakeKey(const Target& target, locks::LockMode mode, bool measured);
  // What the branch has changed since goes to the log, with what it takes to undo it.
  void Publish(Branch& branch);
  static void NotePublished(Branch& branch);
  void PublishUndone(Branch& branch);
  void Publish() override;
  void Forget(Branch& branch, size_t entries);
  absl::StatusCode EndModify(Branch& branch, size_t entries, absl::StatusCode code);
  // Room in the ring. Before its first latch an operation makes sure of what it takes at most; what its undo
  // takes stays reserved until its branch ends.
  static constexpr size_t kMostLevels = 8;  // that most trees have not; a guess that saves a look at them
  static constexpr size_t kSmallRecordBytes = 256;
  static constexpr size_t kMostWaits = 2 * kMostLevels;  // for pages, before the thread waits
  static size_t RoomOfChange(size_t trees, size_t levels);
  Progress FindRoom(const Branch& branch, const Batch::Operation& operation, const storage::SiteTable* rows,
                    Failure* failure);
  bool HasRoomToBury(const storage::SiteTable& rows) const;
  void Reserve(Branch& branch);
  Failure FailureOfUndo(const Branch& branch) const;
  void WaitForRoom(Branch& branch);
  // The journal may have collected some. False: to undo the branch takes too much of its ring.
  bool NoteChanges(Branch& branch, Failure* failure);
  void EndEpoch(Branch& branch);
  void UndoChanges(Branch& branch);
  void BuryGhosts(Branch& branch, bool committed, std::vector<locks::Wakeup>* wakeups);

  // `note`: after each operation its changes are noted, and room for the next one is looked for.
  Progress RunOperations(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations,
                         size_t* cursor, Failure* failure, bool note, bool measured = false);
  Progress RunMeasured(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations,
                       size_t* cursor, Failure* failure, bool note);
  Step Apply(const Target& target, bool measured);
  absl::StatusCode Read(const Target& target);
  absl::StatusCode Add(const Target& target);
  absl::StatusCode Update(const Target& target);
  absl::StatusCode Write(const Target& target);
  Step Insert(const Target& target);
  Step Put(const Target& target);
  absl::StatusCode Replace(const Target& target);
  absl::StatusCode Delete(const Target& target);
  // A scan goes as far as its pages are in memory, waits for more, and begins again; a long one waits with
  // its thread in the end, since it would begin again too often.
  Step Scan(const Target& target);
  Step RowScan(const Target& target);
  Step ScanSite(const Target& target, uint32_t site, KeyView first, KeyView end);
  void RunPass(const Target& target, uint32_t site, const storage::SiteTable& rows, KeyView first,
               KeyView end, ScanPass* pass);
  locks::LockResult TakeEntry(const Target& target, uint32_t site, uint64_t record, bool boundary, bool free);
  Step IndexScan(const Target& target);
  std::span<storage::Lookup> LookForFound(const Target& target, size_t* at);
  void FindMissingRows(const Target& target);
  void ReadFound(const Target& target, storage::Lookup* lookup);
  locks::LockResult TakeIndexEntries(const Target& target);
  locks::LockResult TakeFound(const Target& target, uint32_t found);
  KeyView NextFound(size_t* at) const;

  const storage::Catalog& catalog_;
  storage::Store& store_;
  locks::LockTable& locks_;
  const ExecutorOptions options_;
  const size_t lookups_at_once_;
  size_t open_ = 0;          // branches; counted when alone
  size_t scanned_ = 0;       // of these
  Branch* quiet_ = nullptr;  // the branch that takes no locks
  // What it has seen last of a (table, site): nobody else runs, so it stays so.
  struct Looked {
    uint32_t table = 0;
    uint32_t site = 0;
    locks::LockMode mode = locks::LockMode::kIS;  // S, or X for all that is more; IS: it has seen nothing
    bool free = false;                            // all of it
    bool open = false;                            // to those who lock something below it
  };
  Looked looked_;
  Branch* changing_ = nullptr;  // whose changes the journal has collected; null: nobody's
  // With a journal: whose operation is being carried out, or undone; null: a ghost goes.
  Branch* working_ = nullptr;
  bool undoing_ = false;
  size_t undo_left_ = 0;           // of its entries, with the one that is being undone
  std::vector<TableCosts> costs_;  // by table
  size_t most_need_ = 0;           // of room in the ring, of any operation on trees of kMostLevels
  size_t reserved_ = 0;            // in it, for the undo of all branches
  size_t reserved_for_foreign_ = 0;
  size_t most_to_undo_ = 0;      // reserved for one branch
  std::vector<std::byte> undo_;  // scratch
  locks::LockOwner cleaner_;     // of RemoveGhosts
  std::deque<Ghost> ghosts_;
  Ahead ahead_;
  std::vector<std::byte> row_;                   // scratch, warm
  std::vector<std::byte> keys_;                  // scratch for index scans: primary keys, length-prefixed
  std::array<storage::Lookup, kLookups> found_;  // likewise: some of these
  std::vector<uint64_t> locked_;                 // scratch for scans: hashes of the keys the last pass met
  // Of the scan under way: pages of one site that it will wait for, or it takes them where it needs them.
  struct Missing {
    bool suspends = false;
    uint32_t site = 0;
    std::vector<uint64_t> numbers;

    std::vector<uint64_t>* Of(uint32_t of_site) {
      site = of_site;
      return suspends ? &numbers : nullptr;
    }
    bool any() const { return !numbers.empty(); }
  };
  Missing missing_;
};

}  // namespace islands::instance
