// `islands restart`: one island after the other ends when it is asked to, as all do at `down`, and the
// supervisor starts it again, as it does with each that ends.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/report.h"
#include "deploy/cluster/restart_islands.h"
#include "deploy/processes/interrupts.h"

namespace islands::deploy {
namespace {

using control::v1::ClusterStatus;
using control::v1::IslandStatus;

constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kCallTimeoutMs = 2'000;
constexpr int64_t kLookMs = 50;

absl::StatusOr<std::vector<uint32_t>> Wanted(const ClusterStatus& status, std::vector<uint32_t> islands) {
  const auto count = static_cast<uint32_t>(status.islands_size());
  if (islands.empty()) {
    for (uint32_t island = 0; island < count; ++island) islands.push_back(island);
  }
  std::sort(islands.begin(), islands.end());
  islands.erase(std::unique(islands.begin(), islands.end()), islands.end());
  if (islands.back() < count) return islands;
  return absl::InvalidArgumentError(
      fmt::format("found island {}, expected 0 to {}", islands.back(), count - 1));
}

// Whoever is restarted while another is not there takes the last one who knew something with it; and one that
// has been given up, or does not answer, cannot be asked.
absl::Status CheckAllWell(const ClusterStatus& status) {
  if (status.stopping()) return absl::UnavailableError("the deployment is being taken down");
  for (const IslandStatus& island : status.islands()) {
    if (StateName(island) == StateName(control::v1::READY)) continue;
    return absl::FailedPreconditionError(fmt::format(
        "island {} is {}, and islands are restarted only while all are ready; see `islands status`{}",
        island.island(), StateName(island), island.detail().empty() ? "" : ": " + island.detail()));
  }
  return absl::OkStatus();
}

// With all others again.
bool IsBack(const IslandStatus& island, uint64_t epoch_before) {
  return island.boot_epoch() > epoch_before && StateName(island) == StateName(control::v1::READY) &&
         island.placement().worker_cpus_size() > 0 && island.peers_connected() == island.peers_total();
}

absl::StatusOr<IslandStatus> WaitUntilBack(const ClusterClient& client, const IslandStatus& before,
                                           double timeout_s, Interrupts& interrupts) {
  const int64_t until_ms = MonotonicMs() + static_cast<int64_t>(timeout_s * 1000);
  for (;;) {
    if (interrupts.Sleep(kLookMs) == Interrupts::Wake::kInterrupted) {
      return absl::CancelledError(
          fmt::format("interrupted; island {} comes back by itself", before.island()));
    }
    const absl::StatusOr<ClusterStatus> status = client.Status(kStatusTimeoutMs);
    if (!status.ok()) return status.status();
    const IslandStatus& now = status->islands(static_cast<int>(before.island()));
    if (IsBack(now, before.boot_epoch())) return now;
    if (status->stopping()) return absl::UnavailableError("the deployment is being taken down");
    if (now.state() == control::v1::GIVEN_UP)
      return absl::InternalError(fmt::format("island {}: {}", now.island(), now.detail()));
    if (MonotonicMs() < until_ms) continue;
    return absl::DeadlineExceededError(fmt::format(
        "island {} is {} after {:g} s{}; see `islands logs FILE {}`", now.island(), StateName(now), timeout_s,
        now.detail().empty() ? "" : ": " + now.detail(), now.island()));
  }
}

absl::StatusOr<Restarted> Restart(const ClusterClient& client, uint32_t island, double timeout_s,
                                  Interrupts& interrupts) {
  const absl::StatusOr<ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return status.status();
  if (absl::Status well = CheckAllWell(*status); !well.ok()) return well;
  if (interrupts.interrupted()) return absl::CancelledError("interrupted");
  const IslandStatus& before = status->islands(static_cast<int>(island));
  fmt::print(stderr, "island {}: process {} ends\n", island, before.pid());
  const int64_t begin_ms = MonotonicMs();
  control::v1::Request request;
  request.mutable_shutdown();
  const ClusterClient::Reply asked = client.CallIsland(island, request, kCallTimeoutMs);
  if (!asked.ok()) return asked.status();
  const absl::StatusOr<IslandStatus> back = WaitUntilBack(client, before, timeout_s, interrupts);
  if (!back.ok()) return back.status();
  const Restarted done{island, before.pid(), back->pid(),
                       static_cast<double>(MonotonicMs() - begin_ms) / 1000};
  fmt::print(stderr, "island {}: process {} is ready after {:.1f} s\n", island, done.pid, done.seconds);
  return done;
}

void Print(const CommandContext& context, const ClusterStatus& status, const std::vector<uint32_t>& islands,
           const std::vector<Restarted>& restarted) {
  if (!context.json()) {
    fmt::print("{}: {} {} {}\n", status.deployment(), context.dry_run ? "would restart" : "restarted",
               islands.size() == 1 ? "island" : "islands", fmt::join(islands, ", "));
    return;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Restarted& one : restarted) {
    list.push_back(
        {{"island", one.island}, {"pid_before", one.pid_before}, {"pid", one.pid}, {"seconds", one.seconds}});
  }
  PrintJson({{"islands", islands}, {"restarted", list}});
}

absl::Status CheckKept(const ClusterStatus& status, const std::vector<uint32_t>& islands, bool yes) {
  if (status.has_log() || yes) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "durability is none: an island that restarts begins with its initial rows, and what was changed "
      "since, on {} {}, is lost; --yes restarts all the same",
      islands.size() == 1 ? "island" : "islands", fmt::join(islands, ", ")));
}

}  // namespace

absl::Status CheckMayRestart(const ClusterStatus& status, const std::vector<uint32_t>& islands, bool yes) {
  absl::Status allowed = CheckAllWell(status);
  return allowed.ok() ? CheckKept(status, islands, yes) : allowed;
}

absl::Status RestartEach(const ClusterClient& client, const std::vector<uint32_t>& islands, double timeout_s,
                         std::vector<Restarted>* restarted) {
  Interrupts interrupts;
  while (restarted->size() < islands.size()) {
    const absl::StatusOr<Restarted> done = Restart(client, islands[restarted->size()], timeout_s, interrupts);
    if (!done.ok()) {
      fmt::print(stderr, "{} of {} islands have been restarted\n", restarted->size(), islands.size());
      return done.status();
    }
    restarted->push_back(*done);
  }
  return absl::OkStatus();
}

int RestartIslands(const CommandContext& context, const RestartOptions& options) {
  const absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  const ClusterClient client(*files);
  const absl::StatusOr<ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return Fail(context, status.status());
  const absl::StatusOr<std::vector<uint32_t>> islands = Wanted(*status, options.islands);
  if (!islands.ok()) return Fail(context, islands.status());
  absl::Status allowed = CheckMayRestart(*status, *islands, options.yes || context.dry_run);
  if (!allowed.ok()) return Fail(context, allowed);
  std::vector<Restarted> restarted;
  if (!context.dry_run) {
    absl::Status done = RestartEach(client, *islands, options.timeout_s, &restarted);
    if (!done.ok()) return Fail(context, done);
  }
  Print(context, *status, *islands, restarted);
  return kExitOk;
}

}  // namespace islands::deploy
