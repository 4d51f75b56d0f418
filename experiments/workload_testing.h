// For tests of workloads: a store that is a map, for one procedure at a time, and small clusters on simulated
// time.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {

inline control::v1::TableSpec TestTable(const std::string& name, const std::vector<std::string>& key,
                                        int64_t begin, int64_t end, size_t row_bytes = 0) {
  control::v1::TableSpec table;
  table.set_name(name);
  for (const std::string& type : key) table.add_key(type);
  table.set_range_begin(begin);
  table.set_range_end(end);
  table.set_replicated(begin == end);
  table.set_row_bytes(static_cast<uint32_t>(row_bytes));
  return table;
}

inline storage::Catalog::TableSpecs TestTables(std::initializer_list<control::v1::TableSpec> specs) {
  storage::Catalog::TableSpecs tables;
  for (const control::v1::TableSpec& spec : specs) *tables.Add() = spec;
  return tables;
}

inline storage::Catalog TestCatalog(const storage::Catalog::TableSpecs& tables, uint32_t sites) {
  auto catalog = storage::Catalog::Create(tables, sites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return *std::move(catalog);
}

inline std::string KeyText(instance::KeyView key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

// By table and encoded key.
using MapRows = std::map<std::pair<instance::TableId, std::string>, std::vector<std::byte>>;

// All rows of all tables, loaded and changed without locks: one transaction at a time.
class MapStore final : public instance::Loader, public instance::Transaction {
 public:
  explicit MapStore(const storage::Catalog& catalog) : catalog_(catalog) {}

  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t) const override { return true; }
  absl::Status Insert(instance::TableId table, instance::KeyView key, instance::RowView row) override {
    EXPECT_TRUE(catalog_.SiteOf(table, key).ok());
    EXPECT_TRUE(rows.emplace(std::pair(table, KeyText(key)), Bytes(row)).second);
    return absl::OkStatus();
  }

  const coordinator::TransactionId& id() const override { return id_; }
  instance::Batch& batch() override { return batch_; }
  runtime::Random& random() override { return random_; }
  runtime::Task<absl::Status> Execute(instance::Batch& batch) override {
    batch.ResetResults();
    batch.scanned().clear();
    ++executed;
    for (size_t i = 0; i < batch.size(); ++i) One(batch, i);
    co_return absl::OkStatus();
  }

  // One transaction. What it changed stays, even if it failed.
  absl::Status Run(const instance::Workload& workload, const instance::Request& request) {
    ++id_.sequence;
    batch_.Clear();
    runtime::Task<absl::Status> task = workload.Run(*this, request);
    task.Start();
    EXPECT_TRUE(task.done());
    return task.Take();
  }
  int64_t AuditedSum(const instance::Workload& workload) const {
    int64_t sum = 0;
    for (const auto& [key, row] : rows)
      sum += workload.AuditRow(key.first, std::as_bytes(std::span(key.second)), row);
    return sum;
  }

  MapRows rows;
  int executed = 0;    // batches
  size_t scanned = 0;  // rows

 private:
  static std::vector<std::byte> Bytes(instance::RowView row) { return {row.begin(), row.end()}; }

  void One(instance::Batch& batch, size_t i) {
    using enum instance::OperationKind;
    const instance::Batch::Operation operation = batch.operation(i);
    instance::Batch::Result& result = batch.result(i);
    const auto key = std::pair(operation.table, KeyText(batch.View(operation.key)));
    if (operation.kind == kScan) return Scan(batch, operation, key, &result);
    const auto found = rows.find(key);
    const bool there = found != rows.end();
    result.code = absl::StatusCode::kOk;
    if (operation.kind == kPut || (operation.kind == kInsert && !there)) {
      rows[key] = Bytes(batch.View(operation.row));
    } else if (operation.kind == kInsert) {
      result.code = absl::StatusCode::kAlreadyExists;
    } else if (!there) {
      result.code = absl::StatusCode::kNotFound;
    } else if (operation.kind == kRead || operation.kind == kReadForUpdate) {
      result.row = batch.Store(found->second);
    } else if (operation.kind == kWrite) {
      const instance::RowView bytes = batch.View(operation.row);
      ASSERT_LE(operation.offset + bytes.size(), found->second.size());
      std::copy(bytes.begin(), bytes.end(), found->second.begin() + operation.offset);
    } else if (operation.kind == kAdd) {
      int64_t value = 0;
      ASSERT_LE(operation.offset + sizeof(value), found->second.size());
      std::memcpy(&value, found->second.data() + operation.offset, sizeof(value));
      value += operation.delta;
      std::memcpy(found->second.data() + operation.offset, &value, sizeof(value));
    } else {
      FAIL() << "no operation of these workloads";
    }
  }

  void Scan(instance::Batch& batch, const instance::Batch::Operation& operation,
            const MapRows::key_type& first, instance::Batch::Result* result) {
    const auto end = rows.lower_bound({operation.table, KeyText(batch.View(operation.end_key))});
    result->code = absl::StatusCode::kOk;
    result->first_scanned = static_cast<uint32_t>(batch.scanned().size());
    for (auto row = rows.lower_bound(first); row != end; ++row) {
      if (operation.limit != 0 && result->scanned == operation.limit) break;
      const auto key = batch.Store(std::as_bytes(std::span(row->first.second)));
      batch.scanned().push_back({key, batch.Store(row->second)});
      ++result->scanned, ++scanned;
    }
  }

  const storage::Catalog& catalog_;
  coordinator::TransactionId id_{.island = 0, .worker = 0, .boot_epoch = 1, .sequence = 0};
  instance::Batch batch_;
  runtime::Random random_{1};
};

struct TestLayout {
  uint32_t islands = 1;
  uint32_t workers = 1;  // of each
  uint32_t sites = 4;
  instance::Parameters parameters;
};

template <typename Workload>
instance::ClusterOptions TestCluster(const storage::Catalog::TableSpecs& tables, const TestLayout& layout) {
  instance::ClusterOptions cluster;
  cluster.pace = instance::Pace::kSimulated;
  cluster.islands = layout.islands;
  cluster.workers = layout.workers;
  cluster.sites = layout.sites;
  cluster.config.set_pool_bytes(32u << 20);
  *cluster.config.mutable_tables() = tables;
  cluster.open = [parameters = layout.parameters](const storage::Catalog& catalog) {
    return Workload::Create(catalog, parameters);
  };
  return cluster;
}

// Until so many more have committed, and all is quiet.
inline void RunSome(instance::InProcessCluster& cluster, uint64_t transactions, uint32_t mpl = 4) {
  const uint64_t until = cluster.Committed() + transactions;
  ASSERT_TRUE(cluster.StartRun(mpl).ok());
  ASSERT_TRUE(cluster.RunUntil([&] { return cluster.Committed() >= until; }, 600 * runtime::kNsPerSecond));
  ASSERT_TRUE(cluster.Drain(60 * runtime::kNsPerSecond));
}

// As if what made it had been lost: the first row of a table in this site, which is of island 0.
inline void LoseRow(const instance::InProcessCluster& cluster, instance::TableId table, uint32_t site = 0) {
  std::string key;
  storage::SiteTable& rows = *cluster.island(0).store().At(table, site);
  rows.Scan({}, {}, false, [&](instance::KeyView first, instance::RowView) {
    key = KeyText(first);
    return false;
  });
  ASSERT_EQ(rows.MarkGhost(std::as_bytes(std::span(key))), absl::StatusCode::kOk);
}

}  // namespace islands::experiments
