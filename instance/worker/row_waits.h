// The rows that transactions of a worker have waited for longest: by table and key, with how often, how long,
// and what those who held the lock were doing when the wait began: whose critical section it is, if a
// transaction is one (Horikawa, ICPE 2011, section 3). Locks on gaps and on whole sites are named as such.
//
// Space-saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over seconds waited: with kMost places, a row that
// has more than 1/kMost of all waiting is always there; what came into a place that others had before
// is ranked with their waiting, too, `over_ns`, which is not its own.
//
// Thread safety: Add by one thread, List by any.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instance/locks/lock_table.h"
#include "instance/storage/catalog.h"
#include "instance/worker/stays.h"
#include "runtime/latch_site.h"
#include "runtime/mutex.h"

namespace islands::instance {

class RowWaits {
 public:
  static constexpr size_t kMost = 64;

  enum class Lock : uint8_t { kRow, kGap, kLastGap, kIndexes, kSite };

  struct Row {
    std::string table;
    std::string key;  // of the operation that waited, encoded; a scan's first one; empty: all of the site
    uint32_t site = 0;
    Lock lock = Lock::kRow;
    std::string shown_key;
    uint64_t waits = 0;
    uint64_t waited_ns = 0;                    // with over_ns
    uint64_t over_ns = 0;                      // others' before it
    std::array<uint64_t, kStays> holder_ns{};  // of its own, by what the holder was doing
  };

  // `key`: of the operation that waited for what `blocked` says.
  void Add(const storage::TableDefinition& table, storage::KeyView key_bytes, const locks::BlockedBy& blocked,
           uint64_t waited_ns) {
    const Lock wanted = LockOf(blocked.name);
    if (wanted != Lock::kRow && wanted != Lock::kGap) key_bytes = {};
    const std::string_view key(reinterpret_cast<const char*>(key_bytes.data()), key_bytes.size());
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.row_waits"));
    auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
      return row.key == key && row.lock == wanted && row.site == blocked.name.site && row.table == table.name;
    });
    if (found == rows_.end()) {
      Row row{.table = table.name, .key = std::string(key), .site = blocked.name.site, .lock = wanted};
      row.shown_key = Shown(wanted, blocked.name.site, partitioner::KeyToString(table.key, key_bytes));
      if (rows_.size() < kMost) {
        found = rows_.insert(rows_.end(), std::move(row));
      } else {
        found = std::min_element(rows_.begin(), rows_.end(),
                                 [](const Row& a, const Row& b) { return a.waited_ns < b.waited_ns; });
        row.waited_ns = row.over_ns = found->waited_ns;
        *found = std::move(row);
      }
    }
    ++found->waits;
    found->waited_ns += waited_ns;
    if (blocked.doing < kStays) found->holder_ns[blocked.doing] += waited_ns;
  }
  std::vector<Row> List() const {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.row_waits"));
    return rows_;
  }

 private:
  static Lock LockOf(const locks::LockName& name) {
    if (name.key_hash == 0) return Lock::kSite;
    if (name.key_hash == locks::kIndexEntries) return Lock::kIndexes;
    if (name.key_hash == locks::kSupremumGap) return Lock::kLastGap;
    return (name.key_hash & locks::kGapBit) != 0 ? Lock::kGap : Lock::kRow;
  }
  static std::string Shown(Lock lock, uint32_t site, std::string key) {
    switch (lock) {
      case Lock::kRow:
        return key;
      case Lock::kGap:
        return fmt::format("{}, a gap", key);
      case Lock::kLastGap:
        return fmt::format("site {}, behind its last key", site);
      case Lock::kIndexes:
        return fmt::format("site {}, entries of indexes", site);
      case Lock::kSite:
        return fmt::format("site {}, all of it", site);
    }
    return key;
  }

  mutable runtime::Mutex mutex_;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace islands::instance
