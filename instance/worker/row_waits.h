// The rows that transactions of a worker have waited for longest: by table and key, with how often and how
// long.
//
// Space-saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over seconds waited: with kMost places, a row that
// has more than 1/kMost of all waiting is always there; what came into a place that others had before
// is ranked with their waiting, too, `over_ns`, which is not its own.
//
// Thread safety: Add by one thread, List by any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instance/storage/catalog.h"
#include "runtime/latch_site.h"
#include "runtime/mutex.h"

namespace islands::instance {

class RowWaits {
 public:
  static constexpr size_t kMost = 64;

  struct Row {
    std::string table;
    std::string key;  // of the operation that waited, encoded; a scan's first one
    std::string shown_key;
    uint64_t waits = 0;
    uint64_t waited_ns = 0;  // with over_ns
    uint64_t over_ns = 0;    // others' before it
  };

  void Add(const storage::TableDefinition& table, storage::KeyView key_bytes, uint64_t waited_ns) {
    const std::string_view key(reinterpret_cast<const char*>(key_bytes.data()), key_bytes.size());
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.row_waits"));
    auto found = std::find_if(rows_.begin(), rows_.end(),
                              [&](const Row& row) { return row.key == key && row.table == table.name; });
    if (found == rows_.end()) {
      Row row{.table = table.name,
              .key = std::string(key),
              .shown_key = partitioner::KeyToString(table.key, key_bytes)};
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
  }
  std::vector<Row> List() const {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("worker.row_waits"));
    return rows_;
  }

 private:
  mutable runtime::Mutex mutex_;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace islands::instance
