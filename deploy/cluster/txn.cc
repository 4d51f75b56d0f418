#include <fmt/format.h>

#include <cstdio>

#include "deploy/cluster/client.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/transactions_report.h"
#include "deploy/file/deployment.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kListTimeoutMs = 1'500;  // above what an island waits for its workers
constexpr uint32_t kMostOfAnIsland = 1000;

// In the order of the islands; who has no process is not asked.
std::vector<IslandTransactions> Ask(const ClusterClient& client, const control::v1::ClusterStatus& status,
                                    bool in_doubt) {
  std::vector<uint32_t> alive;
  for (const control::v1::IslandStatus& island : status.islands()) {
    if (island.pid() > 0) alive.push_back(island.island());
  }
  control::v1::Request request;
  request.mutable_transactions()->set_in_doubt(in_doubt);
  request.mutable_transactions()->set_most(kMostOfAnIsland);
  std::vector<ClusterClient::Reply> replies = client.CallIslands(alive, request, kListTimeoutMs);
  std::vector<IslandTransactions> islands;
  for (const control::v1::IslandStatus& island : status.islands())
    islands.push_back({island.island(), absl::UnavailableError("it has no process")});
  for (size_t i = 0; i < alive.size(); ++i) {
    absl::StatusOr<control::v1::Transactions>& answer = islands[alive[i]].answer;
    if (!replies[i].ok()) {
      answer = replies[i].status();
    } else if (replies[i]->has_transactions()) {
      answer = std::move(*replies[i]->mutable_transactions());
    } else {
      answer = absl::InternalError("it answered without a list; is it another version?");
    }
  }
  return islands;
}

}  // namespace

int ListTransactions(const CommandContext& context, const TxnOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  const ClusterClient client(*files);
  const absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return Fail(context, status.status());
  const std::vector<IslandTransactions> islands = Ask(client, *status, options.in_doubt);
  fmt::print("{}", context.json() ? TransactionsJson(*status, islands, options.in_doubt)
                                  : TransactionsText(*status, islands, options.in_doubt));
  return kExitOk;
}

}  // namespace islands::deploy
