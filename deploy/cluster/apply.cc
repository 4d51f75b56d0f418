// `islands apply`: what of a deployment's file may change while it is up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/restart_islands.h"
#include "deploy/processes/file_lock.h"

namespace islands::deploy {
namespace {

using control::v1::ClusterStatus;

constexpr int64_t kStatusTimeoutMs = 5'000;

// As the file wants them, where it may; `request` says the same.
ClusterStatus WithWhatMayChange(ClusterStatus status, const ResolvedDeployment& resolved,
                                control::v1::ApplyRequest* request) {
  const std::vector<control::v1::IslandConfig> wanted = MakeIslandConfigs(resolved);
  for (int i = 0; i < status.configs_size(); ++i) {
    control::v1::IslandConfig& config = *status.mutable_configs(i);
    if (static_cast<size_t>(i) < wanted.size()) {
      const auto& want = wanted[static_cast<size_t>(i)];
      if (resolved.deployment.buffer_pool_bytes && want.pool_bytes() > config.pool_bytes())
        config.set_pool_bytes(want.pool_bytes());
      config.set_transaction_timeout_ms(want.transaction_timeout_ms());
    }
    request->add_pool_bytes(config.pool_bytes());
    request->set_transaction_timeout_ms(config.transaction_timeout_ms());
  }
  if (resolved.deployment.hung_ms) request->set_hung_ms(*resolved.deployment.hung_ms);
  return status;
}

absl::Status Refuse(const ResolvedDeployment& resolved, const std::vector<std::string>& left) {
  return absl::InvalidArgumentError(fmt::format(
      "{}: this cannot change while it is up, and nothing was changed:\n{}\nUse `islands down` and "
      "`islands up`, with `islands relayout` between them for other islands or sites",
      resolved.deployment.filename, fmt::join(left, "\n")));
}

absl::StatusOr<FileLock> LockRuns(const ControlFiles& files) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(files.RunLock(), "islands apply");
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::FailedPreconditionError(
      fmt::format("a run, a load or another `islands apply` is under way, which islands that restart would "
                  "ruin; wait for its end ({})",
                  std::string(lock.status().message())));
}

void Print(const CommandContext& context, const ClusterStatus& status,
           const std::vector<std::string>& differences, const std::vector<Restarted>& restarted) {
  if (context.json()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Restarted& one : restarted) list.push_back({{"island", one.island}, {"pid", one.pid}});
    PrintJson({{"differences", differences}, {"restarted", list}});
    return;
  }
  for (const std::string& difference : differences) fmt::print("{}\n", difference);
  fmt::print("{}: {}\n", status.deployment(),
             differences.empty() ? "islands run with what the file says"
             : context.dry_run   ? "would be applied, island after island"
                                 : "applied");
}

}  // namespace

int Apply(const CommandContext& context, const ApplyOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const ClusterClient client(*files);
  std::optional<FileLock> lock;  // before it looks: what another one does meanwhile counts
  if (!context.dry_run) {
    absl::StatusOr<FileLock> locked = LockRuns(*files);
    if (!locked.ok()) return Fail(context, locked.status());
    lock = *std::move(locked);
  }
  const absl::StatusOr<ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return Fail(context, status.status());
  const std::vector<std::string> differences = Differences(*status, *resolved);
  control::v1::Request request;
  const ClusterStatus after = WithWhatMayChange(*status, *resolved, request.mutable_apply());
  std::vector<std::string> left = Differences(after, *resolved);
  std::erase_if(left, [](const std::string& one) { return one.starts_with(kHungMsPath); });
  if (!left.empty()) return Fail(context, Refuse(*resolved, left));
  std::vector<uint32_t> islands;  // those that an earlier one has not come to
  for (int i = 0; i < status->configs_size(); ++i) {
    const control::v1::IslandConfig &is = status->configs(i), &will_be = after.configs(i);
    if (is.pool_bytes() != will_be.pool_bytes() ||
        is.transaction_timeout_ms() != will_be.transaction_timeout_ms())
      islands.push_back(static_cast<uint32_t>(i));
  }
  std::vector<Restarted> restarted;
  if (!context.dry_run) {
    // What needs no restart needs no consent either.
    absl::Status done = islands.empty() ? absl::OkStatus() : CheckMayRestart(*status, islands, options.yes);
    if (done.ok()) done = client.CallSupervisor(request, kStatusTimeoutMs).status();
    if (done.ok()) done = RestartEach(client, islands, options.timeout_s, &restarted);
    if (!done.ok()) return Fail(context, done);
  }
  Print(context, *status, differences, restarted);
  return kExitOk;
}

}  // namespace islands::deploy
