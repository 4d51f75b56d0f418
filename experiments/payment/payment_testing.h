// For the tests: Payment's tables, and islands that run it on real threads inside this process.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "experiments/payment/payment.h"
#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"

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

// Calls `visit` with each row of `Row`'s table on this island.
template <typename Row>
void VisitRows(instance::Island& island, storage::TableId table, partitioner::SiteRun sites,
               const std::function<void(instance::KeyView, const Row&)>& visit) {
  for (uint32_t site = sites.first; site < sites.first + sites.count; ++site) {
    island.store().At(table, site)->Scan({}, {}, false, [&](instance::KeyView key, instance::RowView row) {
      visit(key, RowOf<Row>(row));
      return true;
    });
  }
}

struct TestLayout {
  uint32_t islands = 1;
  uint32_t workers = 1;  // of each
  uint32_t sites = 4;
  uint32_t warehouses = 4;
  instance::Parameters parameters;
};

class TestIslands {
 public:
  explicit TestIslands(const TestLayout& layout) : layout_(layout), nodes_(layout.islands) {
    for (uint32_t i = 0; i < layout_.islands; ++i) {
      nodes_[i].scheduler = runtime::MakeThreadScheduler(clock_, {});
      auto island = instance::Island::Create(Configure(i), SeamsOf(nodes_[i]));
      if (!island.ok()) {
        status_ = island.status();
        return;
      }
      nodes_[i].island = *std::move(island);
      if (status_ = nodes_[i].island->Start(); !status_.ok()) return;
    }
  }
  ~TestIslands() {
    for (Node& node : nodes_) {
      if (node.island) node.island->Stop();
    }
  }
  const absl::Status& status() const { return status_; }

  // Until so many payments have ended well.
  void Run(uint64_t payments, uint32_t mpl) {
    control::v1::StartRun request;
    request.set_mpl(mpl);
    request.set_seed(7);
    const uint64_t until = Committed() + payments;
    for (Node& node : nodes_) ASSERT_TRUE(node.island->StartRun(request).ok());
    for (int ms = 0; ms < 20'000 && Committed() < until; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (Node& node : nodes_) node.island->RequestStop();
    for (Node& node : nodes_) ASSERT_TRUE(node.island->StopRun(0, 30 * runtime::kNsPerSecond).ok());
    for (int ms = 0; ms < 10'000 && !Quiet(); ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(Quiet());
    ASSERT_GE(Committed(), until);
  }

  // scope: 0 local, 1 multisite, 2 distributed
  uint64_t Committed(int scope) {
    uint64_t committed = 0;
    VisitScopes(
        [&](int s, const control::v1::ScopeCounters& c) { committed += s == scope ? c.committed() : 0; });
    return committed;
  }
  uint64_t Committed() { return Committed(0) + Committed(1) + Committed(2); }
  uint64_t Aborted() {
    uint64_t aborted = 0;
    VisitScopes([&](int, const control::v1::ScopeCounters& c) { aborted += c.aborted() + c.unknown(); });
    return aborted;
  }
  // What committed payments say they added to the audited sum.
  int64_t AuditCommitted() {
    int64_t sum = 0;
    for (Node& node : nodes_) sum += node.island->TakeSnapshot().audit_committed();
    return sum;
  }
  int64_t Audit() {
    int64_t sum = 0;
    for (Node& node : nodes_) sum += node.island->Audit({})->value();
    return sum;
  }
  uint64_t ResidentPages() {
    uint64_t pages = 0;
    for (Node& node : nodes_) pages += node.island->PoolUsage().resident_pages;
    return pages;
  }

  // Of the tables in PaymentSpecs' order; nothing may run.
  template <typename Row>
  void Visit(storage::TableId table, const std::function<void(instance::KeyView, const Row&)>& visit) {
    const auto sites = partitioner::SiteMap::Create(layout_.sites, layout_.islands);
    for (uint32_t i = 0; i < layout_.islands; ++i) {
      VisitRows<Row>(*nodes_[i].island, table, sites->SitesOf(i), visit);
    }
  }
  absl::Status Check() {
    for (Node& node : nodes_) {
      if (absl::Status status = node.island->store().Check(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  instance::Island& island(uint32_t i) { return *nodes_[i].island; }

 private:
  struct Node {
    std::unique_ptr<runtime::Scheduler> scheduler;
    std::unique_ptr<instance::Island> island;
  };

  template <typename Visit>
  void VisitScopes(Visit visit) {
    for (Node& node : nodes_) {
      const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
      for (const control::v1::WorkerCounters& worker : snapshot.workers()) {
        for (int scope = 0; scope < worker.scopes_size(); ++scope) visit(scope, worker.scopes(scope));
      }
    }
  }
  bool Quiet() {
    for (Node& node : nodes_) {
      const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
      if (snapshot.locks_held() != 0 || snapshot.branches_open() != 0) return false;
    }
    return true;
  }

  control::v1::IslandConfig Configure(uint32_t island) const {
    control::v1::IslandConfig config;
    config.set_cluster_id("test");
    config.set_deployment("test");
    config.set_island(island);
    config.set_boot_epoch(1);
    config.set_layout_generation(1);
    config.set_pool_bytes(64u << 20);
    config.set_site_count(layout_.sites);
    const auto sites = partitioner::SiteMap::Create(layout_.sites, layout_.islands);
    for (uint32_t i = 0; i < layout_.islands; ++i) {
      control::v1::Peer* peer = config.add_peers();
      peer->set_island(i);
      peer->set_workers(layout_.workers);
      peer->mutable_sites()->set_first(sites->SitesOf(i).first);
      peer->mutable_sites()->set_count(sites->SitesOf(i).count);
    }
    for (uint32_t w = 0; w < layout_.workers; ++w) config.add_workers()->set_cpu(-1);
    *config.mutable_tables() = PaymentSpecs(0, layout_.warehouses);
    config.add_loads()->set_workload("payment");
    return config;
  }
  instance::Seams SeamsOf(Node& node) {
    instance::Seams seams;
    seams.clock = &clock_;
    seams.files = files_.get();
    seams.scheduler = node.scheduler.get();
    seams.make_transport =
        [this](messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
      return hub_.MakeTransport(self);
    };
    seams.open_workload = [this](const std::string&, const storage::Catalog& catalog,
                                 const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
      return PaymentWorkload::Create(catalog, layout_.parameters);
    };
    return seams;
  }

  const TestLayout layout_;
  const runtime::MonotonicClock clock_;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  messaging::MemoryHub hub_;
  std::vector<Node> nodes_;
  absl::Status status_;
};

}  // namespace islands::experiments
