#include "instance/gateway/view.h"

#include <utility>

#include "instance/recovery/checkpoint.h"
#include "instance/storage/table_specs.h"

namespace islands::gateway {

absl::StatusOr<std::shared_ptr<const View>> View::Create(const control::v1::ClusterStatus& status) {
  if (status.configs().empty()) return absl::FailedPreconditionError("the deployment has no islands yet");
  const control::v1::IslandConfig& config = status.configs(0);
  storage::Catalog::TableSpecs specs = config.tables();
  for (const control::v1::LoadSpec& load : config.loads()) storage::ReplaceTables(load.tables(), &specs);
  auto catalog = storage::Catalog::Create(specs, config.site_count());
  if (!catalog.ok()) return catalog.status();
  auto sites = partitioner::SiteMap::Create(config.site_count(), static_cast<uint32_t>(config.peers_size()));
  if (!sites.ok()) return sites.status();
  std::vector<uint32_t> workers;
  for (const control::v1::Peer& peer : config.peers()) workers.push_back(peer.workers());
  const uint64_t tables = recovery::TablesFingerprint(*catalog);
  return std::make_shared<const View>(View{.cluster_id = config.cluster_id(),
                                           .transport = config.transport(),
                                           .workers = std::move(workers),
                                           .specs = std::move(specs),
                                           .catalog = *std::move(catalog),
                                           .sites = *sites,
                                           .tables = tables});
}

}  // namespace islands::gateway
