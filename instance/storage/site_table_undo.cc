// Undo of a SiteTable's operations. Entries that are there already stay, those that are gone are not missed:
// while the row is locked only its transaction adds and removes them.
#include <algorithm>
#include <cstring>

#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/site_table.h"

namespace islands::storage {

using absl::StatusCode;

SiteTable::Entries SiteTable::EntriesOf(KeyView key, RowView row) const {
  Entries entries;
  ISLANDS_CHECK(MakeEntries(key, row, &entries) == StatusCode::kOk);  // the row was in the table
  return entries;
}

// Of those that some of `now` and `before` has, the index gets those of `before`. Empty: none.
void SiteTable::UndoEntries(const Entries& now, const Entries& before, size_t key_bytes) {
  for (size_t i = 0; i < indexes_.size(); ++i) {
    if (!now.empty() && !before.empty() && now[i] == before[i]) continue;
    if (!before.empty()) {
      const StatusCode code = InsertEntry(i, before[i], key_bytes);
      ISLANDS_CHECK(code == StatusCode::kOk || code == StatusCode::kAlreadyExists);
    }
    if (!now.empty()) RemoveEntry(i, now[i]);
  }
}

void SiteTable::UndoModify(KeyView key, size_t offset, RowView before) {
  const UndoScope scope;
  const auto put = [&](std::span<std::byte> row) {
    std::copy(before.begin(), before.end(), row.begin() + static_cast<ptrdiff_t>(offset));
  };
  if (indexes_.empty() || !definition_.Indexes(offset, before.size())) {
    ISLANDS_CHECK(rows_.Modify(key, {offset, before.size()}, put) == StatusCode::kOk);
    return;
  }
  std::vector<std::byte> row;
  ISLANDS_CHECK(rows_.Read(key, &row) == StatusCode::kOk && offset + before.size() <= row.size());
  put(row);
  UndoReplace(key, row);
}

void SiteTable::UndoInsert(KeyView key) {
  const UndoScope scope;
  std::vector<std::byte> row;
  const KeyState state = rows_.Find(key, &row);
  if (state == KeyState::kAbsent) return;  // the island died before it was there
  UndoEntries(EntriesOf(key, row), {}, key.size());
  if (state == KeyState::kRow) ISLANDS_CHECK(rows_.SetGhost(key, true) == StatusCode::kOk);
}

void SiteTable::UndoRevive(KeyView key, RowView before) {
  const UndoScope scope;
  std::vector<std::byte> row;
  const KeyState state = rows_.Find(key, &row);
  ISLANDS_CHECK(state != KeyState::kAbsent);  // nobody buries it: the key is locked
  UndoEntries(EntriesOf(key, row), {}, key.size());
  if (state == KeyState::kGhost) return;
  ISLANDS_CHECK(rows_.Replace(key, before) == StatusCode::kOk &&
                rows_.SetGhost(key, true) == StatusCode::kOk);
}

void SiteTable::UndoReplace(KeyView key, RowView before) {
  const UndoScope scope;
  if (!indexes_.empty()) {
    std::vector<std::byte> row;
    ISLANDS_CHECK(rows_.Read(key, &row) == StatusCode::kOk);
    UndoEntries(EntriesOf(key, row), EntriesOf(key, before), key.size());
  }
  ISLANDS_CHECK(rows_.Replace(key, before) == StatusCode::kOk);  // last: what entries there are, it says
}

void SiteTable::UndoMarkGhost(KeyView key) {
  const UndoScope scope;
  std::vector<std::byte> row;
  const KeyState state = rows_.Find(key, &row);
  ISLANDS_CHECK(state != KeyState::kAbsent);
  UndoEntries({}, EntriesOf(key, row), key.size());
  if (state == KeyState::kGhost) ISLANDS_CHECK(rows_.SetGhost(key, false) == StatusCode::kOk);
}

}  // namespace islands::storage
