#include "instance/execution/executor_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using runtime::Planted;
using runtime::PlantedBug;
using storage::KeyState;

static_assert(std::endian::native == std::endian::little, "counters in rows are little endian");

namespace {

// Ghosts looked at per call, so that cleaning never takes long.
constexpr size_t kGhostsPerCall = 256;

Failure FailureOfLock() {
  return {AbortReason::kDeadlock, absl::AbortedError("chosen as victim of a deadlock")};
}

Failure FailureOfStorage(absl::StatusCode code, const storage::TableDefinition& table) {
  if (code == absl::StatusCode::kResourceExhausted) {
    return {AbortReason::kStorage,
            absl::ResourceExhaustedError(
                fmt::format("table '{}': the buffer pool is full; raise storage.buffer_pool", table.name))};
  }
  if (code == absl::StatusCode::kOutOfRange) {
    return {AbortReason::kProcedure, absl::OutOfRangeError(fmt::format(
                                         "table '{}': the batch's results have more than {} MiB; scan with "
                                         "a limit, read in several batches",
                                         table.name, Batch::kMaxBytes >> 20))};
  }
  if (code == absl::StatusCode::kFailedPrecondition) {
    return {AbortReason::kProcedure,
            absl::FailedPreconditionError(fmt::format(
                "table '{}': the transaction has changed too much on one island; commit in smaller pieces",
                table.name))};
  }
  return {AbortReason::kProcedure,
          absl::Status(code, fmt::format("table '{}': the row or the bytes written do not fit", table.name))};
}

bool IsResult(absl::StatusCode code) {
  return code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kAlreadyExists;
}

// For those who read a row: what takes it.
auto CopyInto(std::vector<std::byte>* to) {
  return [to](storage::TornBytes row) {
    to->resize(row.size());
    row.CopyTo(to->data());
  };
}

// Whether an operation mostly finds its row in the leaf of the one in front of it, of the same table and
// site: what was read to be written, and new rows whose keys part with their last byte, as those of an
// order's lines.
bool Follows(const Batch& batch, const Batch::Operation& before, const Batch::Operation& operation) {
  const bool read = before.kind == OperationKind::kReadForUpdate;
  if (!read && (before.kind != OperationKind::kInsert || operation.kind != before.kind)) return false;
  const KeyView a = batch.View(before.key), b = batch.View(operation.key);
  const size_t ahead = read ? 0 : 1;
  return a.size() == b.size() && a.size() > ahead && std::memcmp(a.data(), b.data(), a.size() - ahead) == 0;
}

// Unsigned, so that a counter that overflows wraps instead of being undefined.
int64_t Sum(int64_t counter, int64_t delta) {
  return static_cast<int64_t>(static_cast<uint64_t>(counter) + static_cast<uint64_t>(delta));
}

}  // namespace

Executor::Executor(const storage::Catalog& catalog, storage::Store& store, locks::LockTable& locks,
                   ExecutorOptions options)
    : catalog_(catalog),
      store_(store),
      locks_(locks),
      options_(options),
      lookups_at_once_(options.look_ahead ? kLookups : 1) {
  cleaner_.worker = options_.worker;
  NoteTables();
  if (options_.journal == nullptr) return;
  ISLANDS_CHECK(options_.journal->alone() == options_.alone);
  options_.journal->SetPublisher(this);
  most_to_undo_ = options_.journal->capacity() / 8;
}

void Executor::NoteTables() {
  size_t trees = 0;
  costs_.clear();
  for (TableId id = 0; id < catalog_.size(); ++id) {
    const storage::TableDefinition& table = catalog_.table(id);
    costs_.push_back({1 + table.indexes.size(), table.row_bytes == 0 || !table.indexes.empty()});
    trees = std::max(trees, costs_.back().trees);
  }
  if (options_.journal != nullptr) most_need_ = RoomOfChange(trees, trees * kMostLevels);
}

Executor::~Executor() {
  if (options_.journal != nullptr) options_.journal->SetPublisher(nullptr);
}

// From here to Run: what every operation goes through, in one piece with the loop that calls it. As calls it
// costs a sixth more instructions per row.
[[gnu::always_inline]] inline LockResult Executor::TakeKey(const Target& target, LockMode mode,
                                                           bool measured) {
  const WorkScope locking(Work::kLocking, measured);
  const Batch::Operation& operation = target.batch.operation(target.number);
  const uint64_t known = target.lookup->key_hash();
  const LockName name = known != 0 ? LockName{operation.table, target.site, locks::RecordHash(known)}
                                   : NameOf(operation.table, target.site, target.batch.View(operation.key));
  return Take(target.branch, name, mode);
}

[[gnu::always_inline]] inline absl::StatusCode Executor::Read(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  if (batch.stored_bytes() > Batch::kMaxBytes) return absl::StatusCode::kOutOfRange;
  batch.Reserve(storage::kMaxRowBytes);  // the key must stay where it is
  const Batch::Mark mark = batch.MarkResults();
  const auto take = [&](storage::TornBytes row) {
    batch.Rewind(mark);
    row.CopyTo(batch.StoreReserved(row.size(), &result.row));
  };
  const absl::StatusCode code = target.rows.Read(batch.View(operation.key), target.lookup, take);
  if (code != absl::StatusCode::kOk) [[unlikely]] {  // a ghost's bytes are nobody's business
    batch.Rewind(mark);
    result.row = {};
  }
  return code;
}

[[gnu::always_inline]] inline Executor::Step Executor::Apply(const Target& target, bool measured) {
  const OperationKind kind = target.batch.operation(target.number).kind;
  const bool replicated = target.site == storage::kReplicatedSite;  // read-only after loading: no locks
  if (kind == OperationKind::kScan || kind == OperationKind::kIndexScan) return Scan(target);
  if (target.branch.undo.bytes() > options_.most_undo_bytes && IsWrite(kind))
    return {.code = absl::StatusCode::kFailedPrecondition};
  if (!replicated) {
    const LockMode mode = kind == OperationKind::kRead ? LockMode::kS : LockMode::kX;
    // Entries before rows, as an index scan does: they would wait for each other otherwise.
    if (mode == LockMode::kX &&
        !catalog_.table(target.batch.operation(target.number).table).indexes.empty()) {
      if (const LockResult lock = TakeIndexEntries(target); lock != LockResult::kGranted) return {lock};
    }
    if (const LockResult lock = TakeKey(target, mode, measured); lock != LockResult::kGranted) return {lock};
  }
  switch (kind) {
    case OperationKind::kRead:
    case OperationKind::kReadForUpdate:
      return {.code = Read(target)};
    case OperationKind::kAdd:
      return {.code = Add(target)};
    case OperationKind::kUpdate:
      return {.code = Update(target)};
    case OperationKind::kWrite:
      return {.code = Write(target)};
    case OperationKind::kInsert:
      return Insert(target);
    case OperationKind::kReplace:
      return {.code = Replace(target)};
    case OperationKind::kDelete:
      return {.code = Delete(target)};
    case OperationKind::kPut:
      return Put(target);
    default:
      return {.code = absl::StatusCode::kInvalidArgument};
  }
}

// A batch of no more operations than are looked ahead for, with room in the ring for all of them: what they
// have changed is noted once, at its end.
Progress Executor::Run(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations,
                       size_t* cursor, Failure* failure) {
  ISLANDS_CHECK(*cursor <= operations.size());
  if (!branch.open && !operations.empty()) Open(branch);
  if (options_.alone && branch.open) BeQuiet(branch);
  if (branch.quiet) branch.touched.reserve(branch.touched.size() + operations.size());
  working_ = &branch;
  log::Journal* const journal = options_.journal;
  const bool measured = runtime::work_account != nullptr;
  if (journal == nullptr && !measured)
    return RunOperations(branch, batch, operations, cursor, failure, /*note=*/false);
  if (journal == nullptr) return RunMeasured(branch, batch, operations, cursor, failure, /*note=*/false);
  const size_t left = operations.size() - *cursor;
  if (left > kLookups || !journal->HasRoom(reserved_ + left * most_need_) ||
      Planted(PlantedBug::kPublishAfterLatch)) {
    return measured ? RunMeasured(branch, batch, operations, cursor, failure, /*note=*/true)
                    : RunOperations(branch, batch, operations, cursor, failure, /*note=*/true);
  }
  // What undoes so many is part of one record, whatever else is collected.
  static_assert(2 * log::Journal::kMostCollected + kLookups * log::Journal::kMostUndoEntryBytes +
                    log::kMostStepBytes + log::Journal::kMostHeadBytes <=
                log::kMostRecordBytes - log::kRecordHeaderBytes);
  const Progress progress = measured
                                ? RunMeasured(branch, batch, operations, cursor, failure, /*note=*/false)
                                : RunOperations(branch, batch, operations, cursor, failure, /*note=*/false);
  // Reads that are under way refer to the branch, whether it has failed or not.
  const bool noted = NoteChanges(branch, failure);
  return noted || progress == Progress::kFailed || progress == Progress::kWaitingForPages ? progress
                                                                                          : Progress::kFailed;
}

// The same in a round whose time is measured (runtime/work_account.h): elsewhere the scopes within the loop
// leave nothing behind.
[[gnu::noinline]] Progress Executor::RunMeasured(Branch& branch, Batch& batch,
                                                 std::span<const RoutedOperation> operations, size_t* cursor,
                                                 Failure* failure, bool note) {
  const WorkScope executing(Work::kExecuting);
  return RunOperations(branch, batch, operations, cursor, failure, note, /*measured=*/true);
}

[[gnu::always_inline]] inline Progress Executor::RunOperations(Branch& branch, Batch& batch,
                                                               std::span<const RoutedOperation> operations,
                                                               size_t* cursor, Failure* failure, bool note,
                                                               bool measured) {
  size_t ahead = *cursor;  // where the last lookups end
  for (; *cursor < operations.size(); ++*cursor) {
    const RoutedOperation& routed = operations[*cursor];
    if (*cursor == ahead) {
      const size_t count = std::min(lookups_at_once_, operations.size() - ahead);
      const WorkScope searching(Work::kSearching, measured);
      LookAhead(batch, operations.subspan(ahead, count));
      if (store_.pager() != nullptr) [[unlikely]] {
        const Progress fetched = FetchPages(branch, batch, operations.subspan(ahead, count), failure);
        if (fetched != Progress::kDone) return fetched;
      }
      ahead += count;
    }
    const size_t i = kLookups - (ahead - *cursor);
    if (note && !options_.journal->HasRoom(reserved_ + most_need_)) {
      const Progress room = FindRoom(branch, batch.operation(routed.operation), ahead_.rows[i], failure);
      if (room != Progress::kDone) return room;
    }
    Step step{.code = absl::StatusCode::kInvalidArgument};
    if (storage::SiteTable* rows = ahead_.rows[i]) [[likely]] {
      step =
          Apply({branch, batch, routed.operation, routed.site, routed.last_site, *rows, &ahead_.lookups[i]},
                measured);
    }
    if (note && !NoteChanges(branch, failure)) return Progress::kFailed;
    if (step.lock == LockResult::kWaiting) return Progress::kWaiting;  // started again once it is over
    if (step.lock == LockResult::kDeadlock) {
      *failure = FailureOfLock();
      return Progress::kFailed;
    }
    if (!IsResult(step.code)) {
      if (step.code == absl::StatusCode::kUnavailable) return Progress::kWaitingForPages;
      *failure = FailureOfStorage(step.code, catalog_.table(batch.operation(routed.operation).table));
      return Progress::kFailed;
    }
    batch.result(routed.operation).code = step.code;
  }
  return Progress::kDone;
}

// Fills the last places of the arrays.
void Executor::LookAhead(const Batch& batch, std::span<const RoutedOperation> operations) {
  const auto lookups = std::span(ahead_.lookups).last(operations.size());
  const auto rows = std::span(ahead_.rows).last(operations.size());
  const Batch::Operation* before = nullptr;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Batch::Operation& operation = batch.operation(operations[i].operation);
    const bool as_before =
        before != nullptr && operation.table == before->table && operations[i].site == operations[i - 1].site;
    rows[i] = as_before ? rows[i - 1] : store_.At(operation.table, operations[i].site);
    const OperationKind kind = operation.kind;
    const bool one_row = kind != OperationKind::kScan && kind != OperationKind::kIndexScan;
    if (!one_row || rows[i] == nullptr) {
      lookups[i] = {};
    } else if (as_before && Follows(batch, *before, operation)) {
      rows[i]->FollowLookup(batch.View(operation.key), 0, &lookups[i]);
    } else if (kind == OperationKind::kInsert) {
      rows[i]->StartInsert(batch.View(operation.key), &lookups[i]);
    } else {
      const size_t bytes = kind == OperationKind::kAdd ? operation.offset + sizeof(int64_t) : 0;
      rows[i]->StartLookup(batch.View(operation.key), bytes, &lookups[i]);
    }
    before = &operation;
  }
  storage::SiteTable::FinishLookups(lookups);
}

Progress Executor::FetchPages(Branch& branch, const Batch& batch, std::span<const RoutedOperation> operations,
                              Failure* failure) {
  storage::Pager& pager = *store_.pager();
  const auto fail = [failure](absl::Status status) {
    *failure = {AbortReason::kStorage, std::move(status)};
    return Progress::kFailed;
  };
  ISLANDS_CHECK(branch.pages.left == 0);
  if (!branch.pages.status.ok()) return fail(std::exchange(branch.pages.status, absl::OkStatus()));
  size_t writes = 0, looks = 0;
  for (const RoutedOperation& routed : operations) {
    const OperationKind kind = batch.operation(routed.operation).kind;
    writes += IsWrite(kind);
    looks += kind != OperationKind::kScan && kind != OperationKind::kIndexScan;
  }
  // A page for each that may split, and one above; no more than a small pool can ever have.
  const uint64_t room = std::min<uint64_t>(2 * writes, store_.Usage().capacity_pages / 8);
  if (room != 0 && options_.journal != nullptr && !pager.HasRoom(room)) return Progress::kWaitingForRoom;
  const auto lookups = std::span(ahead_.lookups).last(operations.size());
  // Not after a wait: it is the same look.
  const bool first_look = branch.pages.rounds == 0 && branch.pages.of_scan == 0;
  if (first_look) pager.NoteLooks(options_.worker, looks);
  // Level by level. In a small pool others may take away what has come: in the end the thread waits, and then
  // the operation fetches by itself.
  for (size_t round = 0; round < kMostLevels; ++round) {
    std::array<storage::Pager::Place, kLookups> places;
    size_t missing = 0;
    for (size_t i = 0; i < lookups.size(); ++i) {
      if (const uint64_t page = lookups[i].on_disk(); page != 0)
        places[missing++] = store_.PlaceOf(operations[i].site, page);
    }
    if (missing == 0) break;
    for (size_t i = 0; first_look && round == 0 && i < missing; ++i) pager.NoteMissed(places[i].slot);
    if (options_.fetcher != nullptr && branch.pages.rounds < kMostWaits) {
      options_.fetcher->Start(std::span(places).first(missing), &branch.pages);
      ++branch.pages.rounds;
      if (branch.pages.left != 0) return Progress::kWaitingForPages;
    } else {
      absl::Status fetched = pager.Fetch(std::span(places).first(missing));
      if (!fetched.ok()) return fail(std::move(fetched));
    }
    for (storage::Lookup& lookup : lookups) {
      if (lookup.on_disk() != 0) storage::BTree::Again(&lookup);
    }
    storage::SiteTable::FinishLookups(lookups);
  }
  branch.pages.rounds = 0;
  return Progress::kDone;
}

void Executor::Open(Branch& branch) {
  ISLANDS_CHECK(branch.undo.empty() && branch.touched.empty() && !branch.scanned);
  branch.open = true;
  if (options_.fetcher != nullptr) branch.pages = {};
  if (options_.alone) ++open_;
}

// One of another island waits for what its coordinator says next: beside others it would only look twice.
void Executor::BeQuiet(Branch& branch) {
  ISLANDS_CHECK(quiet_ == nullptr || quiet_ == &branch);
  if (branch.foreign && open_ != 1) return;
  branch.quiet = true;
  if (std::exchange(quiet_, &branch) == nullptr) looked_ = {};
}

// Operations in a row are mostly on one (table, site), where mostly nobody else has anything: one look then.
bool Executor::LooksFree(const LockName& name, LockMode mode) {
  if (Planted(PlantedBug::kOverlookHolders)) return true;
  if (name.key_hash == 0) return locks_.IsFree(name, mode);
  const LockMode all = mode == LockMode::kS ? LockMode::kS : LockMode::kX;
  if (looked_.mode != all || looked_.table != name.table || looked_.site != name.site) {
    const LockName site = NameOf(name.table, name.site);
    looked_ = {name.table, name.site, all, locks_.IsFree(site, all), /*open=*/false};
    looked_.open = looked_.free || locks_.IsFree(site, all == LockMode::kS ? LockMode::kIS : LockMode::kIX);
  }
  return looked_.free || (looked_.open && locks_.IsFree(name, mode));
}

void Executor::Close(Branch& branch, std::vector<locks::Wakeup>* wakeups) {
  if (branch.open && options_.alone) {
    ISLANDS_CHECK(open_ > 0);
    --open_;
    if (branch.scanned) --scanned_;
    ISLANDS_CHECK(scanned_ <= open_);
  }
  if (quiet_ == &branch) quiet_ = nullptr;
  if (changing_ == &branch) changing_ = nullptr;
  branch.open = branch.quiet = branch.scanned = branch.published = branch.decided = false;
  branch.command = {};
  branch.undo_published = branch.undo_published_bytes = 0;
  reserved_ -= branch.log_reserved;
  if (branch.foreign) reserved_for_foreign_ -= branch.log_reserved;
  branch.log_reserved = branch.undo_reserved = 0;
  branch.touched.clear();
  branch.undo.Clear();
  const WorkScope locking(Work::kLocking);
  locks_.ReleaseAll(branch.locks, wakeups);
  ISLANDS_CHECK(branch.locks.held() == 0 && !branch.locks.waiting());
}

void Executor::LockTouched() {
  Branch& branch = *std::exchange(quiet_, nullptr);
  ISLANDS_CHECK(branch.quiet && branch.open);
  branch.quiet = false;
  const WorkScope locking(Work::kLocking);
  for (const Branch::Touched& touched : branch.touched) {
    if (Planted(PlantedBug::kSuspendWithoutLocks)) break;
    // Nobody else has run since: whatever it touched was free, and is.
    ISLANDS_CHECK(Take(branch, touched.name, touched.mode) == LockResult::kGranted);
  }
  branch.touched.clear();
}

void Executor::CheckInvariants() const {
  ISLANDS_CHECK(quiet_ == nullptr && changing_ == nullptr);  // everybody has given control back
  ISLANDS_CHECK(cleaner_.held() == 0 && !cleaner_.waiting());
  ISLANDS_CHECK(scanned_ <= open_ && (options_.alone || open_ == 0));
}

// The order: what ends the branch is in the log, then its ghosts go, then its locks (log.md).
void Executor::Commit(Branch& branch, std::vector<locks::Wakeup>* wakeups) {
  EndEpoch(branch);
  if (Planted(PlantedBug::kBuryBeforeCommit)) BuryGhosts(branch, /*committed=*/true, wakeups);
  if (log::Journal* journal = options_.journal; journal != nullptr && !branch.decided) {
    const WorkScope logging(Work::kLogging);
    const bool command = !branch.published && !branch.command.workload.empty() &&
                         journal->AppendCommand(branch.locks.transaction, branch.command, reserved_);
    if (!command) branch.published ? journal->AppendCommit(branch.locks.transaction) : journal->AppendDone();
  }
  BuryGhosts(branch, /*committed=*/true, wakeups);
  Close(branch, wakeups);
}

void Executor::Prepare(Branch& branch, std::span<const coordinator::Fellow> fellows) {
  EndEpoch(branch);
  if (options_.journal == nullptr) return;
  const WorkScope logging(Work::kLogging);
  undo_.clear();
  branch.undo.Encode(branch.undo_published, branch.undo.size(), &undo_);
  options_.journal->AppendPrepare(branch.locks.transaction, fellows, undo_);
  NotePublished(branch);
}

void Executor::Decide(Branch& branch, std::span<const coordinator::Fellow> participants) {
  EndEpoch(branch);
  if (options_.journal == nullptr) return;
  const WorkScope logging(Work::kLogging);
  options_.journal->AppendDecision(branch.locks.transaction, participants);
  branch.decided = true;
}

void Executor::DecideAlone(Branch& branch) {
  EndEpoch(branch);
  if (options_.journal == nullptr) return;
  const WorkScope logging(Work::kLogging);
  options_.journal->AppendDecided(branch.locks.transaction);
  branch.decided = true;
}

void Executor::Rollback(Branch& branch, std::vector<locks::Wakeup>* wakeups) {
  ISLANDS_CHECK(changing_ == nullptr || changing_ == &branch);
  ISLANDS_CHECK(!branch.decided);
  UndoChanges(branch);
  BuryGhosts(branch, /*committed=*/false, wakeups);
  Close(branch, wakeups);
}

// What it has only read, or means to insert, needs no lock any more: all of the transaction's operations had
// been carried out everywhere when it prepared; or PREPARE was early, and its coordinator does not commit if
// they had not when this life began (Coordinated::LostVoter). Gaps need none either: a scan meets the keys
// that the branch has inserted or deleted, ghosts among them, and locks each; and such a key stays until it
// is a ghost that goes, which takes its gap. An index scan does not meet entries that have gone, so those
// need theirs.
absl::Status Executor::AdoptPrepared(Branch& branch) {
  Adopt(branch);
  bool free = true;
  branch.undo.VisitKeys([&](TableId table, uint32_t site, KeyView key) {
    if (Planted(PlantedBug::kRestoreWithoutLocks)) return;
    if (!Planted(PlantedBug::kRestoreWithoutRows))
      free = free && locks_.TryAcquireKey(branch.locks, NameOf(table, site, key), LockMode::kX);
    if (!catalog_.table(table).indexes.empty() && !Planted(PlantedBug::kRestoreWithoutEntries))
      free = free && locks_.TryAcquireKey(branch.locks, IndexEntries(table, site), LockMode::kIX);
  });
  if (free) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("the log has transaction {} in doubt, and another that has changed the same rows: restore "
                  "data and log from a copy",
                  branch.locks.transaction.ToString()));
}

// A ghost may go when nobody else holds the gap below its key: with it, that gap becomes part of the next
// one. The branch still holds the key itself.
void Executor::BuryGhosts(Branch& branch, bool committed, std::vector<locks::Wakeup>* wakeups) {
  working_ = nullptr;
  if (!options_.buries) return;
  // Taking gaps would wait behind a wait of the branch's own, which is over anyway.
  if (branch.locks.waiting()) locks_.CancelWait(branch.locks, wakeups);
  branch.undo.VisitGhosts(committed, [&](TableId table, uint32_t site, KeyView key) {
    storage::SiteTable& rows = *store_.At(table, site);
    const bool free = HasRoomToBury(rows) &&
                      (NobodyElseHasScanned(branch) || Planted(PlantedBug::kBuryLockedGhost) ||
                       locks_.TryAcquireKey(branch.locks, GapBelow(table, site, key), LockMode::kIX));
    if (free) {
      rows.RemoveGhost(key);
      if (options_.journal != nullptr) options_.journal->AppendRedoOnly();
    } else {
      ghosts_.push_back({table, site, std::vector<std::byte>(key.begin(), key.end())});
    }
  });
}

void Executor::RemoveGhosts(std::vector<locks::Wakeup>* wakeups) {
  ISLANDS_CHECK(changing_ == nullptr);
  working_ = nullptr;
  for (size_t n = std::min(ghosts_.size(), kGhostsPerCall); n > 0; --n) {
    if (!HasRoomToBury(*store_.At(ghosts_.front().table, ghosts_.front().site))) return;
    Ghost ghost = std::move(ghosts_.front());
    ghosts_.pop_front();
    const bool free =
        (options_.alone && open_ == 0) ||
        (locks_.TryAcquireKey(cleaner_, NameOf(ghost.table, ghost.site, ghost.key), LockMode::kX) &&
         locks_.TryAcquireKey(cleaner_, GapBelow(ghost.table, ghost.site, ghost.key), LockMode::kIX));
    if (free) {
      store_.At(ghost.table, ghost.site)->RemoveGhost(ghost.key);
      if (options_.journal != nullptr) options_.journal->AppendRedoOnly();
    } else {
      ghosts_.push_back(std::move(ghost));
    }
    locks_.ReleaseAll(cleaner_, wakeups);
  }
}

// For a write to a table with indexes, unless it leaves their entries as they are.
LockResult Executor::TakeIndexEntries(const Target& target) {
  const WorkScope locking(Work::kLocking);
  if (Planted(PlantedBug::kSkipIndexEntryLock)) return LockResult::kGranted;
  const Batch::Operation& operation = target.batch.operation(target.number);
  const storage::TableDefinition& table = catalog_.table(operation.table);
  switch (operation.kind) {
    case OperationKind::kReadForUpdate:
      return LockResult::kGranted;
    case OperationKind::kAdd:
    case OperationKind::kUpdate:  // the other bytes are written as they were
      if (!table.Indexes(operation.offset, sizeof(int64_t))) return LockResult::kGranted;
      break;
    case OperationKind::kWrite:
      if (!table.Indexes(operation.offset, operation.row.size)) return LockResult::kGranted;
      break;
    default:
      break;
  }
  return Take(target.branch, IndexEntries(operation.table, target.site), LockMode::kIX);
}

// What the last operation has remembered is of no use, unless it is in the log: then it undoes nothing.
void Executor::Forget(Branch& branch, size_t entries) {
  if (branch.undo_published <= entries) branch.undo.DropLast(entries);
}

// As Forget, of an operation that changes bytes of a row and may have remembered that. In the log undo must
// not be said to be left of what it has no entry for.
absl::StatusCode Executor::EndModify(Branch& branch, size_t entries, absl::StatusCode code) {
  if (code != absl::StatusCode::kOk) [[unlikely]]
    Forget(branch, entries);
  return code;
}

// What undoes a change is remembered before anybody else can see the change: under the page's latch, or
// before it is taken. Then, if the change did not come to be, it is forgotten again.
absl::StatusCode Executor::Add(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  int64_t after = 0;
  const size_t entries = target.branch.undo.size();
  const absl::StatusCode code = target.rows.Modify(
      key, {operation.offset, sizeof(after)},
      [&](std::span<std::byte> row) {
        std::byte* const counter = row.data() + operation.offset;
        target.branch.undo.RecordWrite(operation.table, target.site, key, operation.offset,
                                       {counter, sizeof(after)});
        std::memcpy(&after, counter, sizeof(after));
        after = Sum(after, operation.delta);
        std::memcpy(counter, &after, sizeof(after));
      },
      target.lookup);
  if (code != absl::StatusCode::kOk) return EndModify(target.branch, entries, code);
  target.batch.result(target.number).row = target.batch.Store(std::as_bytes(std::span(&after, 1)));
  return code;
}

// As a client that computes for itself would: the row is out of its page while its new bytes are made, and no
// latch is held. What two workers could do to each other then is what locks are for.
absl::StatusCode Executor::Update(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  absl::StatusCode code = target.rows.Read</*kAgain=*/true>(key, target.lookup, CopyInto(&row_));
  if (code != absl::StatusCode::kOk) return code;
  int64_t counter = 0;
  const storage::RowPart part{operation.offset, sizeof(counter)};
  if (!part.Within(row_.size())) return absl::StatusCode::kInvalidArgument;
  std::memcpy(&counter, row_.data() + operation.offset, sizeof(counter));
  counter = Sum(counter, operation.delta);
  runtime::Linger();  // only the row's lock keeps others out here
  const size_t entries = target.branch.undo.size();
  code = target.rows.Modify(
      key, part,
      [&](std::span<std::byte> row) {
        ISLANDS_CHECK(row.size() == row_.size());  // the branch holds the row's lock
        // The counter's bytes are all that changes.
        target.branch.undo.RecordWrite(operation.table, target.site, key, operation.offset,
                                       RowView(row_).subspan(operation.offset, sizeof(counter)));
        std::memcpy(row.data(), row_.data(), row.size());
        std::memcpy(row.data() + operation.offset, &counter, sizeof(counter));
      },
      target.lookup);
  if (code != absl::StatusCode::kOk) return EndModify(target.branch, entries, code);
  target.batch.result(target.number).row = target.batch.Store(std::as_bytes(std::span(&counter, 1)));
  return code;
}

absl::StatusCode Executor::Write(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const RowView bytes = target.batch.View(operation.row);
  const size_t entries = target.branch.undo.size();
  const absl::StatusCode code = target.rows.Modify(
      target.batch.View(operation.key), {operation.offset, bytes.size()},
      [&](std::span<std::byte> row) {
        const auto at = row.subspan(operation.offset, bytes.size());
        target.branch.undo.RecordWrite(operation.table, target.site, target.batch.View(operation.key),
                                       operation.offset, at);
        std::copy(bytes.begin(), bytes.end(), at.begin());
      },
      target.lookup);
  return EndModify(target.branch, entries, code);
}

Executor::Step Executor::Insert(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  const RowView row = target.batch.View(operation.row);
  storage::SiteTable& rows = target.rows;
  UndoLog& undo = target.branch.undo;
  if (!rows.FitsRow(row)) return {.code = absl::StatusCode::kInvalidArgument};
  const bool nobody_has_scanned = NobodyElseHasScanned(target.branch);
  while (true) {
    const uint64_t key_changes = rows.key_changes();
    storage::KeyBuffer next;
    const storage::BTree::Gap found =
        rows.FindGap(key, target.lookup, &row_, nobody_has_scanned ? nullptr : &next);
    switch (found.state) {
      case KeyState::kRow:
        return {.code = absl::StatusCode::kAlreadyExists};
      case KeyState::kGhost: {  // its key has been there for scans to lock: no gap is parted
        const size_t entries = undo.size();
        undo.RecordRevive(operation.table, target.site, key, row_);
        const absl::StatusCode code = rows.Insert(key, row, {}, target.lookup);
        if (code != absl::StatusCode::kOk) Forget(target.branch, entries);
        return {.code = code};
      }
      case KeyState::kAbsent:
        break;
    }
    LockResult lock = LockResult::kGranted;
    {
      const WorkScope locking(Work::kLocking);
      if (!nobody_has_scanned && !Planted(PlantedBug::kSkipInsertIntention)) {
        ISLANDS_CHECK(found.last || storage::CompareKeys(next.view(), key) > 0);
        const LockName gap = found.last ? LastGap(operation.table, target.site)
                                        : GapBelow(operation.table, target.site, next.view());
        lock = Take(target.branch, gap, LockMode::kIX);
      }
      // What the branch scanned before may lie on both sides of the new key.
      if (lock == LockResult::kGranted && target.branch.scanned)
        lock = Take(target.branch, GapBelow(operation.table, target.site, key), LockMode::kS);
    }
    if (lock != LockResult::kGranted) return {lock};
    std::optional<uint64_t> expected = key_changes;
    if (Planted(PlantedBug::kIgnoreKeyChanges)) {
      expected.reset();
      runtime::Linger(20);
    }
    const size_t entries = undo.size();
    undo.RecordInsert(operation.table, target.site, key);
    const absl::StatusCode code = rows.Insert(key, row, expected, target.lookup);
    if (code == absl::StatusCode::kOk) return {.code = code};
    Forget(target.branch, entries);
    if (code == absl::StatusCode::kAborted) continue;  // somebody came between: another gap perhaps
    if (rows.Find(key, &row_) == KeyState::kGhost) undo.RecordGhost(operation.table, target.site, key);
    return {.code = code};
  }
}

absl::StatusCode Executor::Replace(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  const RowView row = target.batch.View(operation.row);
  if (!target.rows.FitsRow(row)) return absl::StatusCode::kInvalidArgument;
  absl::StatusCode code = target.rows.Read</*kAgain=*/true>(key, target.lookup, CopyInto(&row_));
  if (code != absl::StatusCode::kOk) return code;
  const size_t entries = target.branch.undo.size();
  target.branch.undo.RecordReplace(operation.table, target.site, key, row_);
  code = target.rows.Replace(key, row, target.lookup);
  if (code != absl::StatusCode::kOk) Forget(target.branch, entries);
  return code;
}

Executor::Step Executor::Put(const Target& target) {
  const absl::StatusCode code = Replace(target);
  return code == absl::StatusCode::kNotFound ? Insert(target) : Step{.code = code};
}

absl::StatusCode Executor::Delete(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  // What undoes it may be in the log before it is done, where latches are waited for (Journal::BeforeWait).
  if (options_.journal != nullptr && !options_.alone && target.rows.Find(key, &row_) != KeyState::kRow)
    return target.rows.MarkGhost(key);
  const size_t entries = target.branch.undo.size();
  target.branch.undo.RecordDelete(operation.table, target.site, key);
  const absl::StatusCode code = target.rows.MarkGhost(key);
  if (code != absl::StatusCode::kOk) Forget(target.branch, entries);
  return code;
}

}  // namespace islands::instance
