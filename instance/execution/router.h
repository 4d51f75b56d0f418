// Splits a batch by the island that holds the rows.
//
// Thread safety: none; a RoutePlan belongs to one transaction and keeps its memory between uses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/catalog.h"
#include "instance/workload/operation.h"
#include "partitioner/site_map.h"

namespace islands::instance {

inline constexpr uint32_t kNoSite = 0xffffffff;

struct RoutedOperation {
  uint32_t operation = 0;  // in the batch
  uint32_t site = 0;       // scans: first site of the range on that island
  uint32_t last_site = 0;  // scans; otherwise == site
};

class RoutePlan {
 public:
  struct Share {
    uint32_t island = 0;
    std::vector<RoutedOperation> operations;
  };

  void Clear();
  void Add(uint32_t island, uint32_t own_island, RoutedOperation operation) {
    island == own_island ? local_.push_back(operation) : AddRemote(island, operation);
  }

  const std::vector<RoutedOperation>& local() const { return local_; }
  std::span<const Share> remote() const { return {remote_.data(), remote_used_}; }

 private:
  void AddRemote(uint32_t island, RoutedOperation operation);

  std::vector<RoutedOperation> local_;
  std::vector<Share> remote_;  // the first remote_used_ are in use
  size_t remote_used_ = 0;
};

// The sites a transaction has touched, as far as its scope needs them.
struct TouchedSites {
  uint32_t first = kNoSite;
  bool several = false;
  void Touch(uint32_t site) {
    if (first == kNoSite) first = site;
    several |= site != first;
  }
};

class Router {
 public:
  Router(const storage::Catalog& catalog, const partitioner::SiteMap& sites, uint32_t own_island);
  // After tables were added to the catalog.
  void NoteTables();

  // INVALID_ARGUMENT: no such table or index, a key outside the table's range, a write to a replicated table.
  absl::Status Route(const Batch& batch, RoutePlan* plan, TouchedSites* touched) const;

 private:
  struct Table {
    bool replicated = false;
    // Of one whose rows have sites; else a key that never tells.
    partitioner::IntegerKey key;
    std::optional<partitioner::RangePartition> partition;
    size_t indexes = 0;
  };
  bool IsReplicated(TableId table) const { return table < tables_.size() && tables_[table].replicated; }

  // The site of an operation that has one, with the commonest kind of key. Empty: RouteOne knows what to do.
  std::optional<uint32_t> SiteAtOnce(const Batch& batch, const Batch::Operation& operation) const;
  absl::Status RouteOne(const Batch& batch, uint32_t number, RoutePlan* plan, TouchedSites* touched) const;
  absl::Status RouteScan(const Batch& batch, uint32_t number, RoutePlan* plan, TouchedSites* touched) const;

  const storage::Catalog& catalog_;
  const partitioner::SiteMap& sites_;
  const uint32_t own_island_;
  std::vector<uint32_t> island_of_;  // by site
  std::vector<Table> tables_;
};

// The sites that a key range [first, end) may touch; empty bounds are open. {first, last}, inclusive.
struct SiteSpan {
  uint32_t first = 0;
  uint32_t last = 0;
};
absl::StatusOr<SiteSpan> SitesOfRange(const storage::TableDefinition& table, uint32_t sites, KeyView first,
                                      KeyView end);

}  // namespace islands::instance
