// Scans: of a table's rows in key order, and of an index. What they meet stays locked, gaps included, so that
// nobody can put in what they have not seen.
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "instance/execution/executor_internal.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using runtime::Planted;
using runtime::PlantedBug;

namespace {

// A quiet scan of more keys remembers the whole site instead.
constexpr uint64_t kKeysRemembered = 1000;
// Pages that an index scan reads together.
constexpr size_t kMostMissing = 64;

}  // namespace

// One walk over a range of one site.
struct Executor::ScanPass {
  size_t met = 0;       // keys so far
  bool stable = false;  // all of them were locked before this pass began
  bool free = false;    // of a quiet branch: nobody has locked anything in the site that is in its way
  Step step;
};

// The key itself counts unless it is the first one beyond the range. `record`: its KeyHash; 0: there is no
// key, only the gap above the last one.
LockResult Executor::TakeEntry(const Target& target, uint32_t site, uint64_t record, bool boundary,
                               bool free) {
  const WorkScope locking(Work::kLocking);
  const TableId table = target.batch.operation(target.number).table;
  const auto take = [&](uint64_t hash) {
    const LockName name{table, site, hash};
    if (!free) return Take(target.branch, name, LockMode::kS);
    target.branch.touched.push_back({name, LockMode::kS});
    return LockResult::kGranted;
  };
  if (!boundary) {
    if (const LockResult lock = take(record); lock != LockResult::kGranted) return lock;
  }
  if (Planted(PlantedBug::kSkipNextKeyLock)) return LockResult::kGranted;
  return take(record == 0 ? locks::kSupremumGap : locks::GapHashOf(record));
}

void Executor::RunPass(const Target& target, uint32_t site, const storage::SiteTable& rows, KeyView first,
                       KeyView end, ScanPass* pass) {
  const Batch::Operation operation = target.batch.operation(target.number);
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  const bool locks = site != storage::kReplicatedSite;
  const bool reverse = operation.reverse;
  // False: stop, because of the lock.
  const auto meet = [&](KeyView key, bool boundary) {
    if (!locks) return true;
    const uint64_t record = key.empty() ? 0 : locks::KeyHash(key.data(), key.size());
    const uint64_t seen = record + (boundary ? 1 : 0);
    const size_t n = pass->met++;
    if (n < locked_.size() && locked_[n] == seen) return true;
    pass->stable = false;
    locked_.resize(n);
    locked_.push_back(seen);
    if (Planted(PlantedBug::kTrustFirstPass)) runtime::Linger();
    pass->step.lock = TakeEntry(target, site, record, boundary, pass->free);
    return pass->step.lock == LockResult::kGranted;
  };
  ISLANDS_CHECK(!locks || target.branch.scanned);  // who has locked gaps is asked for them by inserts
  bool beyond = false;                             // met the first key beyond the range, or has no need to
  if (reverse) {
    if (!end.empty()) {
      rows.ScanAll(
          end, {}, false,
          [&](KeyView key, RowView, bool) {
            beyond = true;
            meet(key, /*boundary=*/true);
            return false;
          },
          missing_.Of(site));
    }
    if (missing_.any()) {
      pass->step.code = absl::StatusCode::kUnavailable;
      return;
    }
    if (!beyond) meet({}, /*boundary=*/true);
    if (pass->step.lock != LockResult::kGranted) return;
  }
  const auto visit = [&](KeyView key, RowView row, bool ghost) {
    if (ghost && Planted(PlantedBug::kScanPassesGhosts)) return true;
    beyond = !reverse && !end.empty() && storage::CompareKeys(key, end) >= 0;
    if (!meet(key, beyond) || beyond) return false;
    if (ghost) return true;
    const Batch::Bytes key_at = batch.Store(key);
    batch.scanned().push_back({key_at, batch.Store(row)});
    ++result.scanned;
    beyond = operation.limit != 0 && result.scanned >= operation.limit;
    return !beyond && batch.stored_bytes() <= Batch::kMaxBytes;
  };
  rows.ScanAll(first, reverse ? end : KeyView(), reverse, visit, missing_.Of(site));
  if (missing_.any()) {
    pass->step.code = absl::StatusCode::kUnavailable;
  } else if (batch.stored_bytes() > Batch::kMaxBytes) {
    pass->step.code = absl::StatusCode::kOutOfRange;
  } else if (!reverse && !beyond && pass->step.lock == LockResult::kGranted) {
    meet({}, /*boundary=*/true);
  }
}

// Rows of one site, appended to the result.
Executor::Step Executor::ScanSite(const Target& target, uint32_t site, KeyView first, KeyView end) {
  const TableId table = target.batch.operation(target.number).table;
  Batch& batch = target.batch;
  Branch& branch = target.branch;
  const storage::SiteTable* rows = store_.At(table, site);
  if (rows == nullptr) return {.code = absl::StatusCode::kInvalidArgument};
  const Batch::Mark mark = batch.MarkResults();
  const uint32_t scanned = batch.result(target.number).scanned;
  const size_t touched = branch.touched.size();
  if (site != storage::kReplicatedSite) NoteScan(branch);  // there nothing is locked
  locked_.clear();
  while (true) {
    // While it is quiet nobody else runs: one look for all of the keys.
    const bool free = branch.quiet && IsFree(NameOf(table, site), LockMode::kS);
    ScanPass pass{.stable = true, .free = free};
    RunPass(target, site, *rows, first, end, &pass);
    if (pass.step.code != absl::StatusCode::kOk) return pass.step;
    if (Planted(PlantedBug::kTrustFirstPass)) pass.stable = true;
    if (pass.step.lock == LockResult::kGranted && (pass.stable || options_.alone)) break;
    batch.Rewind(mark);
    batch.result(target.number).scanned = scanned;
    if (pass.step.lock != LockResult::kGranted) return pass.step;
    locked_.resize(pass.met);
  }
  if (branch.quiet && branch.touched.size() - touched > kKeysRemembered &&
      IsFree(NameOf(table, site), LockMode::kS)) {
    branch.touched.resize(touched);
    if (!Planted(PlantedBug::kForgetQuietScan)) branch.touched.push_back({NameOf(table, site), LockMode::kS});
  }
  return {};
}

// It keeps its locks while it waits for pages, and no results.
Executor::Step Executor::Scan(const Target& target) {
  const bool by_index = target.batch.operation(target.number).kind == OperationKind::kIndexScan;
  storage::PagesWanted& pages = target.branch.pages;
  while (true) {
    missing_.numbers.clear();
    missing_.suspends = options_.fetcher != nullptr && pages.of_scan < kMostWaits;
    const Batch::Mark mark = target.batch.MarkResults();
    const Step step = by_index ? IndexScan(target) : RowScan(target);
    if (!missing_.any()) {
      if (step.lock == LockResult::kGranted) pages.of_scan = 0;
      return step;
    }
    target.batch.Rewind(mark);
    target.batch.result(target.number).scanned = 0;
    std::vector<storage::Pager::Place> places;
    for (const uint64_t number : missing_.numbers) places.push_back(store_.PlaceOf(missing_.site, number));
    options_.fetcher->Start(places, &pages);
    ++pages.of_scan;
    if (pages.left != 0) return {.code = absl::StatusCode::kUnavailable};
  }
}

Executor::Step Executor::RowScan(const Target& target) {
  const Batch::Operation operation = target.batch.operation(target.number);
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  result.scanned = 0;
  const Batch::Mark mark = batch.MarkResults();
  // Bounds are copied: storing rows may move the batch's bytes under them.
  const KeyView first_view = batch.View(operation.key), end_view = batch.View(operation.end_key);
  const std::vector<std::byte> first(first_view.begin(), first_view.end()),
      end(end_view.begin(), end_view.end());
  if (first.size() > storage::kMaxTreeKeyBytes || end.size() > storage::kMaxTreeKeyBytes) {
    return {.code = absl::StatusCode::kInvalidArgument};
  }
  ISLANDS_CHECK(target.last_site >= target.site);  // as routed, or as DecodeOperations let in
  const uint32_t count = target.last_site - target.site + 1;
  for (uint32_t n = 0; n < count; ++n) {
    if (operation.limit != 0 && result.scanned >= operation.limit) break;
    const uint32_t site = operation.reverse ? target.last_site - n : target.site + n;
    const Step step = ScanSite(target, site, first, end);
    if (step.lock != LockResult::kGranted) batch.Rewind(mark);  // it starts again after the wait
    if (step.lock != LockResult::kGranted || step.code != absl::StatusCode::kOk) return step;
  }
  return {};
}

Executor::Step Executor::IndexScan(const Target& target) {
  const Batch::Operation operation = target.batch.operation(target.number);
  const bool locks = target.site != storage::kReplicatedSite;
  if (locks) {
    const WorkScope locking(Work::kLocking);
    const LockResult lock = Take(target.branch, IndexEntries(operation.table, target.site), LockMode::kS);
    if (lock != LockResult::kGranted) return {lock};
  }
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  result.scanned = 0;
  keys_.clear();
  uint32_t found = 0;
  const absl::StatusCode code = target.rows.IndexScan(
      operation.index, batch.View(operation.key), batch.View(operation.end_key), operation.reverse,
      [&](KeyView key) {
        const auto bytes = static_cast<uint16_t>(key.size());
        const auto prefix = std::as_bytes(std::span(&bytes, 1));
        keys_.insert(keys_.end(), prefix.begin(), prefix.end());
        keys_.insert(keys_.end(), key.begin(), key.end());
        ++found;
        if (keys_.size() > Batch::kMaxBytes) return false;
        return operation.limit == 0 || found < operation.limit;
      },
      missing_.Of(target.site));
  if (!missing_.any() && missing_.suspends) FindMissingRows(target);
  if (missing_.any()) return {.code = absl::StatusCode::kUnavailable};
  if (code != absl::StatusCode::kOk) return {.code = code};
  if (keys_.size() > Batch::kMaxBytes) return {.code = absl::StatusCode::kOutOfRange};
  // The entries stay what they are from here on, so the rows may be locked one after the other.
  if (locks) {
    const LockResult lock = TakeFound(target, found);
    if (lock != LockResult::kGranted) return {lock};
  }
  for (size_t at = 0; at < keys_.size();) {
    for (storage::Lookup& lookup : LookForFound(target, &at)) {
      if (batch.stored_bytes() > Batch::kMaxBytes) return {.code = absl::StatusCode::kOutOfRange};
      ReadFound(target, &lookup);
    }
  }
  return {.code = batch.stored_bytes() <= Batch::kMaxBytes ? absl::StatusCode::kOk
                                                           : absl::StatusCode::kOutOfRange};
}

// The next of the rows that an index scan has found, at most kLookups, from `*at` of keys_ on.
std::span<storage::Lookup> Executor::LookForFound(const Target& target, size_t* at) {
  size_t count = 0;
  while (count < lookups_at_once_ && *at < keys_.size())
    target.rows.StartLookup(NextFound(at), 0, &found_[count++]);
  const auto lookups = std::span(found_).first(count);
  storage::SiteTable::FinishLookups(lookups);
  return lookups;
}

void Executor::FindMissingRows(const Target& target) {
  for (size_t at = 0; at < keys_.size() && missing_.numbers.size() < kMostMissing;) {
    for (const storage::Lookup& lookup : LookForFound(target, &at)) {
      if (lookup.on_disk() != 0) missing_.numbers.push_back(lookup.on_disk());
    }
  }
}

void Executor::ReadFound(const Target& target, storage::Lookup* lookup) {
  Batch& batch = target.batch;
  const KeyView key = lookup->key();
  const Batch::Mark before = batch.MarkResults();
  Batch::ScannedRow scanned{.key = batch.Store(key), .row = {}};
  batch.Reserve(storage::kMaxRowBytes);
  const Batch::Mark mark = batch.MarkResults();
  const auto take = [&](storage::TornBytes row) {
    batch.Rewind(mark);
    row.CopyTo(batch.StoreReserved(row.size(), &scanned.row));
  };
  if (target.rows.Read(key, lookup, take) != absl::StatusCode::kOk) return batch.Rewind(before);
  batch.scanned().push_back(scanned);
  ++batch.result(target.number).scanned;
}

// The rows that an index scan has found, `keys_`.
LockResult Executor::TakeFound(const Target& target, uint32_t found) {
  if (Planted(PlantedBug::kSkipFoundRows)) return LockResult::kGranted;
  const WorkScope locking(Work::kLocking);
  const Batch::Operation& operation = target.batch.operation(target.number);
  if (target.branch.quiet && found > kKeysRemembered &&
      IsFree(NameOf(operation.table, target.site), LockMode::kS)) {
    return Take(target.branch, NameOf(operation.table, target.site), LockMode::kS);
  }
  LockResult lock = LockResult::kGranted;
  for (size_t at = 0; at < keys_.size() && lock == LockResult::kGranted;)
    lock = Take(target.branch, NameOf(operation.table, target.site, NextFound(&at)), LockMode::kS);
  return lock;
}

// The key at `*at` of keys_, which moves to the next.
KeyView Executor::NextFound(size_t* at) const {
  uint16_t bytes = 0;
  ISLANDS_CHECK(*at + sizeof(bytes) <= keys_.size());
  std::memcpy(&bytes, keys_.data() + *at, sizeof(bytes));
  ISLANDS_CHECK(bytes != 0 && *at + sizeof(bytes) + bytes <= keys_.size());
  const KeyView key(keys_.data() + *at + sizeof(bytes), bytes);
  *at += sizeof(bytes) + bytes;
  return key;
}

}  // namespace islands::instance
