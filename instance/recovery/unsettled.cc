#include "instance/recovery/unsettled.h"

#include <fmt/format.h>

namespace islands::recovery {
namespace {

using coordinator::Fellow;
using coordinator::TransactionId;

absl::Status CheckNamed(const TransactionId& id, std::span<const Fellow> fellows,
                        std::span<const uint32_t> workers_per_island) {
  const auto missing = [&](uint32_t island, uint32_t worker) {
    return absl::FailedPreconditionError(fmt::format(
        "the log has transaction {}, which worker {} of island {} has to hear of before it ends, and this "
        "deployment has no such worker: start it with as many islands and workers as before, stop it once no "
        "transaction is in doubt, and change it then",
        id.ToString(), worker, island));
  };
  if (id.island >= workers_per_island.size() || id.worker >= workers_per_island[id.island])
    return missing(id.island, id.worker);
  for (const Fellow& fellow : fellows) {
    if (fellow.island >= workers_per_island.size()) return missing(fellow.island, 0);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDeployment(const Unsettled& unsettled, uint64_t life,
                             std::span<const uint32_t> workers_per_island) {
  absl::Status status;
  for (const auto& [id, prepared] : unsettled.prepared)
    status.Update(CheckNamed(id, prepared.fellows, workers_per_island));
  for (const auto& [id, decided] : unsettled.decided) status.Update(CheckNamed(id, {}, workers_per_island));
  for (const auto& [id, decision] : unsettled.decisions) {
    status.Update(CheckNamed(id, decision.participants, workers_per_island));
    if (id.boot_epoch < life) continue;
    status.Update(absl::DataLossError(fmt::format(
        "the log has a decision on transaction {}, and life {} begins only now: it is of other data",
        id.ToString(), life)));
  }
  return status;
}

}  // namespace islands::recovery
