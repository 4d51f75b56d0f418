// ResolvedDeployment -> what each islandd is started with.
#include <string>

#include "deploy/plan/resolve.h"

namespace islands::deploy {

std::vector<control::v1::IslandConfig> MakeIslandConfigs(const ResolvedDeployment& resolved) {
  const Deployment& deployment = resolved.deployment;
  const std::vector<topology::PlannedIsland>& islands = resolved.plan.islands;
  control::v1::IslandConfig common;
  common.set_deployment(deployment.name);
  common.set_layout(resolved.plan.layout);
  common.set_layout_islands(static_cast<uint32_t>(islands.size()));
  common.set_placement(std::string(topology::PlacementName(deployment.placement)));
  common.set_worker_order(std::string(topology::WorkerOrderName(deployment.workers)));
  common.set_all_hardware_threads(deployment.use_all_pus);
  common.set_site_count(resolved.plan.sites);
  common.set_transport(std::string(TransportName(deployment.transport)));
  common.set_control_directory(resolved.control_directory);
  common.set_data_directory(resolved.data_directory);
  common.set_log_directory(resolved.log_directory);
  common.set_durability(std::string(DurabilityName(deployment.durability)));
  common.set_votes_wait(deployment.forced_votes && deployment.durability != Durability::kNone);
  common.set_storage_mode(std::string(StorageModeName(deployment.storage_mode)));
  common.set_always_latched(deployment.always_latched);
  common.set_without(deployment.without);
  common.set_cores_shared(resolved.cores_shared);
  common.set_transaction_timeout_ms(deployment.transaction_timeout_ms);
  common.set_memory_policy(resolved.bound ? deployment.memory_policy : control::v1::MEMORY_DEFAULT);
  for (const auto& table : deployment.tables) *common.add_tables() = table;
  for (const auto& island : islands) {
    control::v1::Peer* peer = common.add_peers();
    peer->set_island(island.id);
    peer->set_workers(island.workers);
    peer->mutable_sites()->set_first(island.sites.first);
    peer->mutable_sites()->set_count(island.sites.count);
  }
  std::vector<control::v1::IslandConfig> configs;
  for (const auto& island : islands) {
    control::v1::IslandConfig& config = configs.emplace_back(common);
    config.set_island(island.id);
    config.set_pool_bytes(island.memory_bytes);
    config.set_metrics_port(island.metrics_port);
    config.set_service_cpu(resolved.service_cpus[island.id]);
    // `workers: os` binds the island as a whole and leaves its workers to the kernel.
    const bool by_worker = deployment.workers != topology::WorkerOrder::kOs;
    for (uint32_t worker = 0; worker < island.workers; ++worker) {
      const bool pinned = resolved.bound && by_worker && worker < island.cpus.size();
      config.add_workers()->set_cpu(pinned ? static_cast<int32_t>(island.cpus[worker]) : -1);
    }
    if (!resolved.bound) continue;
    if (!by_worker) config.mutable_cpus()->Add(island.cpus.begin(), island.cpus.end());
    for (const uint32_t node : island.numa_nodes) config.add_numa_nodes(node);
  }
  return configs;
}

}  // namespace islands::deploy
