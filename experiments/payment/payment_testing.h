// For the tests: Payment's tables, and clusters that run it on real threads inside this process.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "experiments/payment/payment.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {

inline control::v1::TableSpec PaymentTable(const std::string& name, const std::vector<std::string>& key,
                                           int64_t begin, int64_t end, size_t row_bytes) {
  control::v1::TableSpec table;
  table.set_name(name);
  for (const std::string& type : key) table.add_key(type);
  table.set_range_begin(begin);
  table.set_range_end(end);
  table.set_row_bytes(static_cast<uint32_t>(row_bytes));
  return table;
}

// Warehouses [begin, end).
inline storage::Catalog::TableSpecs PaymentSpecs(int64_t begin, int64_t end) {
  storage::Catalog::TableSpecs tables;
  *tables.Add() = PaymentTable("warehouse", {"uint32"}, begin, end, 93);
  *tables.Add() = PaymentTable("district", {"uint32", "uint32"}, begin, end, 97);
  control::v1::TableSpec customer = PaymentTable("customer", {"uint32", "uint32", "uint32"}, begin, end, 667);
  control::v1::IndexSpec& by_name = *customer.add_indexes();
  by_name.set_name("by_name");
  for (const char* component : {"key:0", "key:1", "row:564:string:16", "row:546:string:16"}) {
    by_name.add_key(component);
  }
  *tables.Add() = customer;
  *tables.Add() = PaymentTable("history", {"uint32", "uint32", "uint64"}, begin, end, 64);
  return tables;
}

inline storage::Catalog PaymentCatalog(int64_t begin, int64_t end, uint32_t sites) {
  auto catalog = storage::Catalog::Create(PaymentSpecs(begin, end), sites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return *std::move(catalog);
}

struct TestLayout {
  uint32_t islands = 1;
  uint32_t workers = 1;  // of each
  uint32_t sites = 4;
  uint32_t warehouses = 4;
  instance::Parameters parameters;
};

inline instance::ClusterOptions PaymentCluster(const TestLayout& layout) {
  instance::ClusterOptions cluster;
  cluster.islands = layout.islands;
  cluster.workers = layout.workers;
  cluster.sites = layout.sites;
  cluster.config.set_pool_bytes(64u << 20);
  *cluster.config.mutable_tables() = PaymentSpecs(0, layout.warehouses);
  cluster.open = [parameters = layout.parameters](const storage::Catalog& catalog) {
    return PaymentWorkload::Create(catalog, parameters);
  };
  return cluster;
}

// Until so many payments have ended well.
inline void RunPayments(instance::InProcessCluster& cluster, uint64_t payments, uint32_t mpl) {
  const uint64_t until = cluster.Committed() + payments;
  ASSERT_TRUE(cluster.StartRun(mpl).ok());
  EXPECT_TRUE(cluster.RunUntil([&] { return cluster.Committed() >= until; }, 20 * runtime::kNsPerSecond));
  ASSERT_TRUE(cluster.Drain(30 * runtime::kNsPerSecond));
}

// Calls `visit` with each row of `Row`'s table, of those in PaymentSpecs' order; nothing may run.
template <typename Row>
void VisitRows(const instance::InProcessCluster& cluster, storage::TableId table,
               const std::function<void(instance::KeyView, const Row&)>& visit) {
  cluster.VisitRows(table,
                    [&](instance::KeyView key, instance::RowView row) { visit(key, RowOf<Row>(row)); });
}

}  // namespace islands::experiments
