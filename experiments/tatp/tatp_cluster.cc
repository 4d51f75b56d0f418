#include "experiments/tatp/tatp_cluster.h"

#include <algorithm>

namespace islands::experiments {
namespace {

constexpr int64_t kPatienceNs = 20 * runtime::kNsPerSecond;

class Stepped final : public runtime::Scheduler {
 public:
  void Start(std::vector<runtime::Runnable*> workers) override {
    for (runtime::Runnable* worker : workers) worker->OnThreadStart();
  }
  void Stop() override {}
};

// TATP with generators of the test's choosing.
class Wrapped final : public instance::Workload {
 public:
  Wrapped(std::unique_ptr<TatpWorkload> tatp, const TatpClusterOptions& options)
      : tatp_(std::move(tatp)), options_(options) {}
  const char* name() const override { return tatp_->name(); }
  std::vector<std::string> tables() const override { return tatp_->tables(); }
  absl::Status Load(instance::Loader& loader) const override { return tatp_->Load(loader); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    auto generator = tatp_->MakeGenerator(context);
    if (!generator.ok() || !options_.wrap_generator) return generator;
    return options_.wrap_generator(*std::move(generator));
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    return tatp_->Run(transaction, request);
  }
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override {
    return tatp_->AuditRow(table, key, row);
  }

 private:
  const std::unique_ptr<TatpWorkload> tatp_;
  const TatpClusterOptions& options_;
};

}  // namespace

storage::Catalog::TableSpecs TatpTableSpecs(int64_t subscribers) {
  storage::Catalog::TableSpecs tables;
  const auto add = [&](const char* name, int small_components, uint32_t row_bytes) {
    control::v1::TableSpec& table = *tables.Add();
    table.set_name(name);
    table.add_key("uint64");
    for (int i = 0; i < small_components; ++i) table.add_key("uint8");
    table.set_range_begin(1);
    table.set_range_end(subscribers + 1);
    table.set_row_bytes(row_bytes);
  };
  add("subscriber", 0, sizeof(SubscriberRow));
  control::v1::IndexSpec& index = *tables.at(0).add_indexes();
  index.set_name("by_number");
  index.add_key("row:0:string:15");
  add("access_info", 1, sizeof(AccessInfoRow));
  add("special_facility", 1, sizeof(SpecialFacilityRow));
  add("call_forwarding", 2, sizeof(CallForwardingRow));
  return tables;
}

struct TatpCluster::Node {
  Stepped scheduler;
  std::unique_ptr<instance::Island> island;
};

TatpCluster::TatpCluster(TatpClusterOptions options)
    : options_(std::move(options)), files_(runtime::MakeMemoryFileSystem()) {}

TatpCluster::~TatpCluster() = default;

control::v1::IslandConfig TatpCluster::ConfigOf(uint32_t island) const {
  control::v1::IslandConfig config;
  config.set_cluster_id("test");
  config.set_deployment("test");
  config.set_island(island);
  config.set_boot_epoch(1);
  config.set_layout_generation(1);
  config.set_pool_bytes(16u << 20);
  config.set_site_count(kTatpTestSites);
  const auto sites = partitioner::SiteMap::Create(kTatpTestSites, options_.islands);
  for (uint32_t i = 0; i < options_.islands; ++i) {
    control::v1::Peer* peer = config.add_peers();
    peer->set_island(i);
    peer->set_workers(options_.workers);
    peer->mutable_sites()->set_first(sites->SitesOf(i).first);
    peer->mutable_sites()->set_count(sites->SitesOf(i).count);
  }
  for (uint32_t w = 0; w < options_.workers; ++w) config.add_workers()->set_cpu(-1);
  *config.mutable_tables() = TatpTableSpecs(options_.subscribers);
  config.add_loads()->set_workload("tatp");
  return config;
}

absl::Status TatpCluster::Start() {
  for (uint32_t i = 0; i < options_.islands; ++i) {
    nodes_.push_back(std::make_unique<Node>());
    instance::Seams seams;
    seams.clock = &clock_;
    seams.files = files_.get();
    seams.scheduler = &nodes_[i]->scheduler;
    seams.make_transport = [this](messaging::Address self) { return hub_.MakeTransport(self); };
    seams.open_workload = [this](const std::string&, const storage::Catalog& catalog,
                                 const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
      auto tatp = TatpWorkload::Create(catalog, options_.parameters);
      if (!tatp.ok()) return tatp.status();
      tables_ = (*tatp)->table_ids();
      return std::make_shared<Wrapped>(*std::move(tatp), options_);
    };
    auto island = instance::Island::Create(ConfigOf(i), seams);
    if (!island.ok()) return island.status();
    nodes_[i]->island = *std::move(island);
    if (absl::Status status = nodes_[i]->island->Start(); !status.ok()) return status;
  }
  const auto up = [this](const std::unique_ptr<Node>& node) {
    const auto& workers = node->island->workers();
    return std::all_of(workers.begin(), workers.end(), [this](const auto& worker) {
      return worker->links().PeersUp() == options_.islands - 1;
    });
  };
  const int64_t until_ns = clock_.NowNs() + kPatienceNs;
  while (clock_.NowNs() < until_ns) {
    if (std::all_of(nodes_.begin(), nodes_.end(), up)) return absl::OkStatus();
    Step();
  }
  return absl::DeadlineExceededError("links did not come up");
}

absl::Status TatpCluster::BeginRun(uint32_t mpl) {
  control::v1::StartRun request;
  request.set_mpl(mpl);
  request.set_seed(1);
  for (const auto& node : nodes_) {
    if (absl::Status status = node->island->StartRun(request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void TatpCluster::Step() {
  for (const auto& node : nodes_) {
    for (const auto& worker : node->island->workers()) worker->RunOnce();
  }
}

bool TatpCluster::EndRun() {
  for (const auto& node : nodes_) node->island->RequestStop();
  const auto quiet = [](const std::unique_ptr<Node>& node) {
    const auto& workers = node->island->workers();
    return !node->island->Running() && node->island->locks().LocksHeld() == 0 &&
           std::none_of(workers.begin(), workers.end(),
                        [](const auto& worker) { return worker->HasOpenBranches(); });
  };
  const int64_t until_ns = clock_.NowNs() + kPatienceNs;
  while (clock_.NowNs() < until_ns) {
    if (std::all_of(nodes_.begin(), nodes_.end(), quiet)) return true;
    Step();
  }
  return false;
}

TatpCluster::Rows TatpCluster::AllRows() {
  Rows rows;
  const auto sites = partitioner::SiteMap::Create(kTatpTestSites, options_.islands);
  for (uint32_t i = 0; i < options_.islands; ++i) {
    const partitioner::SiteRun own = sites->SitesOf(i);
    for (instance::TableId table = 0; table < 4; ++table) {
      for (uint32_t site = own.first; site < own.first + own.count; ++site) {
        nodes_[i]
            ->island->store()
            .At(table, site)
            ->Scan({}, {}, false, [&](instance::KeyView key, instance::RowView row) {
              rows[{table, TextOf(key)}].assign(row.begin(), row.end());
              return true;
            });
      }
    }
  }
  return rows;
}

uint64_t TatpCluster::Committed() const {
  uint64_t committed = 0;
  for (const auto& node : nodes_) {
    for (const auto& worker : node->island->workers()) {
      for (const auto& scope : worker->counters().scopes) committed += scope.committed.Get();
    }
  }
  return committed;
}

TatpCluster::Totals TatpCluster::Sum() {
  Totals totals;
  for (const auto& node : nodes_) {
    totals.audit_sum += node->island->Audit({})->value();
    totals.audit_committed += node->island->TakeSnapshot().audit_committed();
    for (const auto& worker : node->island->workers()) {
      const auto& scopes = worker->counters().scopes;
      for (size_t scope = 0; scope < std::size(scopes); ++scope) {
        totals.committed += scopes[scope].committed.Get();
        totals.aborted += scopes[scope].aborted.Get();
        totals.unknown += scopes[scope].unknown.Get();
      }
      totals.distributed += scopes[2].committed.Get();
    }
  }
  return totals;
}

}  // namespace islands::experiments
