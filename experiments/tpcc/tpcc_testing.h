// For the tests: TPC-C's tables, a store of maps that its procedures run on one after the other, clusters.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "experiments/payment/payment_testing.h"
#include "experiments/tpcc/tpcc.h"
#include "experiments/tpcc/tpcc_keys.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {

// Warehouses [0, end).
inline storage::Catalog::TableSpecs TpccSpecs(int64_t end) {
  storage::Catalog::TableSpecs tables = PaymentSpecs(0, end);
  const std::vector<std::string> order = {"uint32", "uint32", "uint32"};
  *tables.Add() = PaymentTable("orders", order, 0, end, 15);
  *tables.Add() = PaymentTable("new_order", order, 0, end, 1);
  *tables.Add() = PaymentTable("order_line", {"uint32", "uint32", "uint32", "uint8"}, 0, end, 49);
  *tables.Add() = PaymentTable("stock", {"uint32", "uint32"}, 0, end, 310);
  *tables.Add() = PaymentTable("last_order", order, 0, end, 4);
  control::v1::TableSpec item;
  item.set_name("item");
  item.add_key("uint32");
  item.set_replicated(true);
  item.set_row_bytes(86);
  *tables.Add() = item;
  return tables;
}

inline storage::Catalog TpccCatalog(int64_t warehouses, uint32_t sites) {
  auto catalog = storage::Catalog::Create(TpccSpecs(warehouses), sites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return *std::move(catalog);
}

// Small enough for tests, unless told otherwise.
inline instance::Parameters SmallTpcc(instance::Parameters parameters = {}) {
  parameters.emplace("customers", "30");
  parameters.emplace("items", "100");
  return parameters;
}

inline std::string TextOfKey(instance::KeyView key) {
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}
inline instance::KeyView KeyOfText(const std::string& text) { return std::as_bytes(std::span(text)); }

// All tables of all sites, in key order. A transaction that does not end well leaves its changes behind.
class MapStore final : public instance::Loader, public instance::Transaction {
 public:
  using Rows = std::map<std::string, std::vector<std::byte>>;

  explicit MapStore(const storage::Catalog& catalog) : tables(catalog.size()), catalog_(catalog) {}

  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t) const override { return true; }
  absl::Status Insert(instance::TableId table, instance::KeyView key, instance::RowView row) override;

  const coordinator::TransactionId& id() const override { return id_; }
  instance::Batch& batch() override { return batch_; }
  runtime::Random& random() override { return random_; }
  runtime::Task<absl::Status> Execute(instance::Batch& batch) override;

  // Procedures never wait here.
  absl::Status Run(const TpccWorkload& workload, const TpccRequest& request);
  // Of the warehouses [begin, end), as those of one island.
  absl::StatusOr<int64_t> Audit(const TpccWorkload& workload, uint32_t begin, uint32_t end,
                                bool whole = true) const;

  template <typename Row>
  Row Get(instance::TableId table, instance::KeyView key) const {
    const auto found = tables[table].find(TextOfKey(key));
    EXPECT_NE(found, tables[table].end());
    return found == tables[table].end() ? Row{} : RowOf<Row>(found->second);
  }
  template <typename Row>
  void Set(instance::TableId table, instance::KeyView key, const Row& row) {
    const std::span<const std::byte> bytes = BytesOf(row);
    tables[table][TextOfKey(key)].assign(bytes.begin(), bytes.end());
  }

  std::vector<Rows> tables;
  int batches = 0;  // of the latest transaction

 private:
  absl::StatusCode Apply(instance::Batch& batch, size_t number);
  void Scan(instance::Batch& batch, size_t number) const;

  const storage::Catalog& catalog_;
  coordinator::TransactionId id_{.island = 0, .worker = 0, .boot_epoch = 1, .sequence = 0};
  instance::Batch batch_;
  runtime::Random random_{1};
};

inline instance::ClusterOptions TpccCluster(const TestLayout& layout) {
  instance::ClusterOptions cluster;
  cluster.islands = layout.islands;
  cluster.workers = layout.workers;
  cluster.sites = layout.sites;
  cluster.config.set_pool_bytes(96u << 20);
  *cluster.config.mutable_tables() = TpccSpecs(layout.warehouses);
  cluster.open = [parameters = layout.parameters](const storage::Catalog& catalog) {
    return TpccWorkload::Create(catalog, parameters);
  };
  return cluster;
}

}  // namespace islands::experiments
