#include "instance/gateway/view.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "google/protobuf/util/message_differencer.h"

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
  std::map<std::string, const control::v1::ProcedureSpec*> procedures;
  bool all_answered = status.islands_size() == config.peers_size();
  for (const control::v1::IslandStatus& island : status.islands()) {
    all_answered &=
        island.has_placement();  // its own word, which the supervisor adds to what it knows itself
    for (const control::v1::ProcedureSpec& procedure : island.procedures())
      procedures.emplace(procedure.name(), &procedure);
  }
  Procedures specs_of_procedures;
  for (const auto& [name, procedure] : procedures) *specs_of_procedures.Add() = *procedure;
  const uint64_t tables = recovery::TablesFingerprint(*catalog);
  return std::make_shared<const View>(View{.cluster_id = config.cluster_id(),
                                           .transport = config.transport(),
                                           .workers = std::move(workers),
                                           .specs = std::move(specs),
                                           .procedures = std::move(specs_of_procedures),
                                           .all_answered = all_answered,
                                           .catalog = *std::move(catalog),
                                           .sites = *sites,
                                           .tables = tables});
}

bool View::SaysTheSame(const View& other) const {
  return tables == other.tables && all_answered == other.all_answered &&
         std::ranges::equal(procedures, other.procedures, [](const auto& a, const auto& b) {
           return google::protobuf::util::MessageDifferencer::Equals(a, b);
         });
}

const control::v1::ProcedureSpec* View::FindProcedure(const std::string& name) const {
  const auto found = std::ranges::find_if(procedures, [&](const auto& spec) { return spec.name() == name; });
  return found == procedures.end() ? nullptr : &*found;
}

}  // namespace islands::gateway
