#include "instance/execution/branch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "instance/log/journal.h"
#include "instance/log/page_changes_cursor.h"
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
  size_t most = 0;
  for (size_t i = first; i < end; ++i) most += SizeOf(i).bytes;
  const size_t before = out->size();
  out->resize(before + most);
  std::byte* to = out->data() + before;
  for (size_t i = first; i < end; ++i) {
    const Entry& entry = entries_[i];
    *to++ = static_cast<std::byte>(entry.kind);
    for (const uint32_t number : {entry.table, entry.site, entry.offset, entry.key_bytes, entry.row_bytes})
      to = log::PutVarint(to, number);
    // Key and row lie behind each other.
    to = std::copy_n(bytes_.data() + entry.key_at, entry.key_bytes + entry.row_bytes, to);
  }
  out->resize(static_cast<size_t>(to - out->data()));
}

absl::Status UndoLog::Decode(std::span<const std::byte> bytes) {
  for (log::Cursor from(bytes); !from.empty();) {
    uint8_t kind = 0;
    std::array<uint64_t, 5> numbers{};
    bool whole = from.TakeByte(&kind);
    for (uint64_t& number : numbers) whole = whole && from.TakeVarint(&number) && number <= UINT32_MAX;
    const auto [table, site, offset, key_bytes, row_bytes] = numbers;
    std::span<const std::byte> key, row;
    if (!whole || kind > static_cast<uint8_t>(Kind::kDelete) || !from.TakeBytes(key_bytes, &key) ||
        !from.TakeBytes(row_bytes, &row))
      return absl::DataLossError("an undo entry is of no kind, or longer than what holds it");
    if (bytes_.size() + bytes.size() > kMostBytes) return absl::DataLossError("more to undo than can be");
    Record(Kind{kind}, static_cast<TableId>(table), static_cast<uint32_t>(site), key,
           static_cast<uint32_t>(offset), row);
    any_ghosts_ |= Kind{kind} != Kind::kWrite && Kind{kind} != Kind::kReplace;
  }
  return absl::OkStatus();
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
