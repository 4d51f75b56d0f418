#include "experiments/tatp/tatp_cluster.h"

namespace islands::experiments {
namespace {

// TATP with generators of the test's choosing.
class Wrapped final : public instance::Workload {
 public:
  using Wrap = decltype(TatpClusterOptions::wrap_generator);
  Wrapped(std::unique_ptr<TatpWorkload> tatp, Wrap wrap) : tatp_(std::move(tatp)), wrap_(std::move(wrap)) {}
  const char* name() const override { return tatp_->name(); }
  std::vector<std::string> tables() const override { return tatp_->tables(); }
  absl::Status Load(instance::Loader& loader) const override { return tatp_->Load(loader); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    auto generator = tatp_->MakeGenerator(context);
    if (!generator.ok() || !wrap_) return generator;
    return wrap_(*std::move(generator));
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
  const Wrap wrap_;
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

instance::ClusterOptions TatpCluster(const TatpClusterOptions& options) {
  instance::ClusterOptions cluster;
  cluster.pace = instance::Pace::kStepped;
  cluster.islands = options.islands;
  cluster.workers = options.workers;
  cluster.sites = kTatpTestSites;
  cluster.config.set_pool_bytes(16u << 20);
  *cluster.config.mutable_tables() = TatpTableSpecs(options.subscribers);
  cluster.open = [options](const storage::Catalog& catalog) -> absl::StatusOr<instance::OpenedWorkload> {
    auto tatp = TatpWorkload::Create(catalog, options.parameters);
    if (!tatp.ok()) return tatp.status();
    return std::make_shared<Wrapped>(*std::move(tatp), options.wrap_generator);
  };
  return cluster;
}

TatpRows AllTatpRows(const instance::InProcessCluster& cluster) {
  TatpRows rows;
  for (instance::TableId table = 0; table < 4; ++table) {
    cluster.VisitRows(table, [&](instance::KeyView key, instance::RowView row) {
      rows[{table, TextOfKey(key)}].assign(row.begin(), row.end());
    });
  }
  return rows;
}

}  // namespace islands::experiments
