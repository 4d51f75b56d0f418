#include "instance/execution/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/check.h"

namespace islands::instance {

void RoutePlan::Clear() {
  local_.clear();
  for (size_t i = 0; i < remote_used_; ++i) remote_[i].operations.clear();
  remote_used_ = 0;
}

void RoutePlan::AddRemote(uint32_t island, RoutedOperation operation) {
  for (size_t i = 0; i < remote_used_; ++i) {
    if (remote_[i].island == island) {
      remote_[i].operations.push_back(operation);
      return;
    }
  }
  if (remote_used_ == remote_.size()) remote_.emplace_back();
  Share& share = remote_[remote_used_++];
  share.island = island;
  share.operations.push_back(operation);
}

Router::Router(const storage::Catalog& catalog, const partitioner::SiteMap& sites, uint32_t own_island)
    : catalog_(catalog), sites_(sites), own_island_(own_island) {
  for (uint32_t site = 0; site < sites.sites(); ++site) island_of_.push_back(sites.IslandOf(site));
  NoteTables();
}

void Router::NoteTables() {
  tables_.clear();
  for (TableId id = 0; id < catalog_.size(); ++id) {
    const storage::TableDefinition& table = catalog_.table(id);
    tables_.push_back(table.replicated() ? Table{.replicated = true}
                                         : Table{.key = partitioner::IntegerKey(table.key),
                                                 .partition = table.partition,
                                                 .indexes = table.indexes.size()});
  }
}

inline std::optional<uint32_t> Router::SiteAtOnce(const Batch& batch,
                                                  const Batch::Operation& operation) const {
  if (operation.kind == OperationKind::kScan || operation.table >= tables_.size()) return {};
  const Table& table = tables_[operation.table];
  const bool by_index = operation.kind == OperationKind::kIndexScan;
  if (by_index && operation.index >= table.indexes) return {};
  const std::optional<int64_t> value =
      table.key.First(batch.View(by_index ? operation.site_key : operation.key));
  return value ? table.partition->Find(*value) : std::nullopt;
}

absl::Status Router::Route(const Batch& batch, RoutePlan* plan, TouchedSites* touched) const {
  plan->Clear();
  for (uint32_t number = 0; number < batch.size(); ++number) {
    const Batch::Operation& operation = batch.operation(number);
    if (const std::optional<uint32_t> site = SiteAtOnce(batch, operation)) {
      touched->Touch(*site);
      plan->Add(island_of_[*site], own_island_, {number, *site, *site});
      continue;
    }
    if (operation.kind == OperationKind::kRead && IsReplicated(operation.table)) {
      plan->Add(own_island_, own_island_, {number, storage::kReplicatedSite, storage::kReplicatedSite});
      continue;
    }
    if (absl::Status status = RouteOne(batch, number, plan, touched); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Router::RouteOne(const Batch& batch, uint32_t number, RoutePlan* plan,
                              TouchedSites* touched) const {
  const Batch::Operation& operation = batch.operation(number);
  if (operation.table >= catalog_.size()) {
    return absl::InvalidArgumentError(fmt::format("there is no table number {}", operation.table));
  }
  const storage::TableDefinition& table = catalog_.table(operation.table);
  if (table.replicated()) {
    if (IsWrite(operation.kind)) {
      return absl::InvalidArgumentError(
          fmt::format("table '{}' is replicated: it is read-only after loading", table.name));
    }
    plan->Add(own_island_, own_island_, {number, storage::kReplicatedSite, storage::kReplicatedSite});
    return absl::OkStatus();
  }
  if (operation.kind == OperationKind::kScan) return RouteScan(batch, number, plan, touched);
  const bool by_index = operation.kind == OperationKind::kIndexScan;
  if (by_index && operation.index >= table.indexes.size()) {
    return absl::InvalidArgumentError(
        fmt::format("table '{}' has no index number {}", table.name, operation.index));
  }
  absl::StatusOr<uint32_t> site =
      catalog_.SiteOf(operation.table, batch.View(by_index ? operation.site_key : operation.key));
  if (!site.ok()) return site.status();
  touched->Touch(*site);
  plan->Add(island_of_[*site], own_island_, {number, *site, *site});
  return absl::OkStatus();
}

// One routed operation per island; the islands' results, put in island order, are in key order.
absl::Status Router::RouteScan(const Batch& batch, uint32_t number, RoutePlan* plan,
                               TouchedSites* touched) const {
  const Batch::Operation& operation = batch.operation(number);
  absl::StatusOr<SiteSpan> span = SitesOfRange(catalog_.table(operation.table), catalog_.sites(),
                                               batch.View(operation.key), batch.View(operation.end_key));
  if (!span.ok()) return span.status();
  for (uint32_t site = span->first; site <= span->last;) {
    const uint32_t island = sites_.IslandOf(site);
    const partitioner::SiteRun run = sites_.SitesOf(island);
    const uint32_t last = std::min(span->last, run.first + run.count - 1);
    ISLANDS_CHECK(site >= run.first && site <= last);  // so the next one is further on
    touched->Touch(site);
    touched->Touch(last);
    plan->Add(island, own_island_, {number, site, last});
    site = last + 1;
  }
  return absl::OkStatus();
}

absl::StatusOr<SiteSpan> SitesOfRange(const storage::TableDefinition& table, uint32_t sites, KeyView first,
                                      KeyView end) {
  const partitioner::RangePartition& range = *table.partition;
  const auto site_of_bound = [&](KeyView bound) -> absl::StatusOr<uint32_t> {
    // A bound is any byte string, a prefix of a key or less: what lacks of the first component counts as
    // zeros.
    std::array<std::byte, sizeof(uint64_t)> padded{};
    const size_t width = partitioner::KeyTypeBytes(table.key[0]);
    std::copy_n(bound.begin(), std::min(width, bound.size()), padded.begin());
    const absl::StatusOr<int64_t> value =
        partitioner::FirstComponent({table.key[0]}, KeyView(padded.data(), width));
    // The only integers that have no int64 lie beyond every range.
    const int64_t beyond = std::numeric_limits<int64_t>::max();
    return range.SiteOf(std::clamp(value.value_or(beyond), range.begin(), range.end() - 1));
  };
  SiteSpan span{0, sites - 1};
  if (!first.empty()) {
    absl::StatusOr<uint32_t> site = site_of_bound(first);
    if (!site.ok()) return site.status();
    span.first = *site;
  }
  if (!end.empty()) {
    absl::StatusOr<uint32_t> site = site_of_bound(end);
    if (!site.ok()) return site.status();
    span.last = *site;
  }
  if (span.last < span.first) span.last = span.first;
  return span;
}

}  // namespace islands::instance
