#include "instance/execution/branch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "instance/log/journal.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using runtime::Planted;
using runtime::PlantedBug;

static_assert(UndoLog::kMostEntryBytes <= log::Journal::kMostUndoEntryBytes);

void UndoLog::RecordWrite(TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before) {
  Record(Kind::kWrite, table, site, key, offset, before);
}

void UndoLog::RecordInsert(TableId table, uint32_t site, KeyView key) {
  Record(Kind::kInsert, table, site, key, 0, {});
  any_ghosts_ = true;
}

void UndoLog::RecordGhost(TableId table, uint32_t site, KeyView key) {
  Record(Kind::kGhost, table, site, key, 0, {});
  any_ghosts_ = true;
}

void UndoLog::RecordRevive(TableId table, uint32_t site, KeyView key, RowView before) {
  Record(Kind::kRevive, table, site, key, 0, before);
  any_ghosts_ = true;
}

void UndoLog::RecordReplace(TableId table, uint32_t site, KeyView key, RowView before) {
  Record(Kind::kReplace, table, site, key, 0, before);
}

void UndoLog::RecordDelete(TableId table, uint32_t site, KeyView key) {
  Record(Kind::kDelete, table, site, key, 0, {});
  any_ghosts_ = true;
}

void UndoLog::Record(Kind kind, TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before) {
  ISLANDS_CHECK(bytes_.size() < kMostBytes);
  const auto key_at = static_cast<uint32_t>(bytes_.size());
  bytes_.insert(bytes_.end(), key.begin(), key.end());
  const auto row_at = static_cast<uint32_t>(bytes_.size());
  bytes_.insert(bytes_.end(), before.begin(), before.end());
  entries_.push_back({kind, table, site, offset, key_at, static_cast<uint32_t>(key.size()), row_at,
                      static_cast<uint32_t>(before.size())});
}

void UndoLog::Clear() {
  entries_.clear();
  bytes_.clear();
  any_ghosts_ = false;
}

void UndoLog::Encode(size_t first, size_t end, std::vector<std::byte>* out) const {
  ISLANDS_CHECK(first <= end && end <= entries_.size());
  for (size_t i = first; i < end; ++i) {
    const Entry& entry = entries_[i];
    const Encoded head{entry.kind, entry.table, entry.site, entry.offset, entry.key_bytes, entry.row_bytes};
    const std::span<const std::byte> head_bytes = std::as_bytes(std::span(&head, 1));
    out->insert(out->end(), head_bytes.begin(), head_bytes.end());
    // Key and row lie behind each other.
    const auto key = bytes_.begin() + entry.key_at;
    out->insert(out->end(), key, key + entry.key_bytes + entry.row_bytes);
  }
}

absl::Status UndoLog::Decode(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Encoded head;
    if (bytes.size() < sizeof(head)) return absl::DataLossError("an undo entry ends too early");
    std::memcpy(&head, bytes.data(), sizeof(head));
    bytes = bytes.subspan(sizeof(head));
    if (head.kind > Kind::kDelete || uint64_t{head.key_bytes} + head.row_bytes > bytes.size())
      return absl::DataLossError("an undo entry is of no kind, or longer than what holds it");
    if (bytes_.size() + bytes.size() > kMostBytes) return absl::DataLossError("more to undo than can be");
    Record(head.kind, head.table, head.site, bytes.first(head.key_bytes), head.offset,
           bytes.subspan(head.key_bytes, head.row_bytes));
    any_ghosts_ |= head.kind != Kind::kWrite && head.kind != Kind::kReplace;
    bytes = bytes.subspan(head.key_bytes + head.row_bytes);
  }
  return absl::OkStatus();
}

void UndoLog::VisitSizes(size_t first, size_t end,
                         absl::FunctionRef<void(TableId table, size_t bytes, bool may_grow)> visit) const {
  for (size_t i = first; i < end; ++i) {
    const Entry& entry = entries_[i];
    const bool comes_back = entry.kind != Kind::kInsert && entry.kind != Kind::kGhost;
    visit(entry.table, sizeof(Encoded) + entry.key_bytes + entry.row_bytes, comes_back);
  }
}

bool UndoLog::Fits(const storage::Store& store) const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return store.At(entry.table, entry.site) != nullptr; });
}

// By key, what undo of the newer entries leaves.
bool UndoLog::Suits(const storage::Store& store,
                    absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> complain) const {
  std::map<std::tuple<TableId, uint32_t, std::string>, Found> rows;
  std::vector<std::byte> row;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    const KeyView key(bytes_.data() + entry->key_at, entry->key_bytes);
    const std::string text(reinterpret_cast<const char*>(key.data()), key.size());
    const auto [found, first] = rows.try_emplace({entry->table, entry->site, text});
    if (first) {
      found->second.state = store.At(entry->table, entry->site)->Find(key, &row);
      found->second.bytes = row.size();
    }
    if (Try(*entry, &found->second)) continue;
    complain(entry->table, entry->site, key);
    return false;
  }
  return true;
}

bool UndoLog::Try(const Entry& entry, Found* found) {
  const bool is_row = found->state == storage::KeyState::kRow;
  const bool absent = found->state == storage::KeyState::kAbsent;
  switch (entry.kind) {
    case Kind::kWrite:
      return is_row && size_t{entry.offset} + entry.row_bytes <= found->bytes;
    case Kind::kInsert:  // it may not have come to be
      if (is_row) found->state = storage::KeyState::kGhost;
      return true;
    case Kind::kGhost:
      return true;
    case Kind::kRevive:
      if (is_row) *found = {storage::KeyState::kGhost, entry.row_bytes};
      return !absent;
    case Kind::kReplace:
      found->bytes = entry.row_bytes;
      return is_row;
    case Kind::kDelete:
      found->state = storage::KeyState::kRow;
      return !absent;
  }
  return false;
}

void UndoLog::DropLast(size_t left) {
  ISLANDS_CHECK(left <= entries_.size());
  if (left == 0) return Clear();
  if (left < entries_.size()) bytes_.resize(entries_[left].key_at);
  entries_.resize(left);
}

void UndoLog::Rollback(storage::Store& store, absl::FunctionRef<void(size_t left)> after_each) {
  // Of writes only: nothing else can be undone in another order.
  const auto is_write = [](const Entry& entry) { return entry.kind == Kind::kWrite; };
  if (Planted(PlantedBug::kUndoOldestFirst) && std::all_of(entries_.begin(), entries_.end(), is_write))
    std::reverse(entries_.begin(), entries_.end());
  for (size_t left = entries_.size(); left > 0; --left) {
    Undo(entries_[left - 1], store);
    after_each(left - 1);
  }
}

void UndoLog::VisitKeys(absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> visit) const {
  for (const Entry& entry : entries_)
    visit(entry.table, entry.site, KeyView(bytes_.data() + entry.key_at, entry.key_bytes));
}

void UndoLog::VisitGhosts(bool committed,
                          absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> visit) const {
  if (!any_ghosts_) return;  // most branches
  ISLANDS_CHECK(!entries_.empty());
  for (const Entry& entry : entries_) {
    const bool inserted =
        entry.kind == Kind::kInsert || entry.kind == Kind::kGhost || entry.kind == Kind::kRevive;
    if (committed ? entry.kind == Kind::kDelete : inserted)
      visit(entry.table, entry.site, KeyView(bytes_.data() + entry.key_at, entry.key_bytes));
  }
}

void UndoLog::Undo(const Entry& entry, storage::Store& store) {
  ISLANDS_CHECK(size_t{entry.row_at} + entry.row_bytes <= bytes_.size());
  const KeyView key(bytes_.data() + entry.key_at, entry.key_bytes);
  const RowView before(bytes_.data() + entry.row_at, entry.row_bytes);
  storage::SiteTable* rows = store.At(entry.table, entry.site);
  ISLANDS_CHECK(rows != nullptr);
  // The branch still holds the row's lock, and room is found in any case: nothing but a bug can stand in the
  // way of the row's old state.
  switch (entry.kind) {
    case Kind::kWrite:
      return rows->UndoModify(key, entry.offset, before);
    case Kind::kInsert:
      // Not removed at once: a scan may have locked the gap below the key (VisitGhosts).
      rows->UndoInsert(key);
      if (Planted(PlantedBug::kRemoveUndoneInsert)) (void)rows->RemoveGhost(key);
      return;
    case Kind::kGhost:  // has changed no row
      return;
    case Kind::kRevive:
      return Planted(PlantedBug::kForgetRevivedBytes) ? rows->UndoInsert(key) : rows->UndoRevive(key, before);
    case Kind::kReplace:
      return rows->UndoReplace(key, before);
    case Kind::kDelete:
      return rows->UndoMarkGhost(key);
  }
}

}  // namespace islands::instance
