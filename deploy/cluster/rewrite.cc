#include "deploy/cluster/rewrite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/data_walk.h"
#include "deploy/cluster/stopped_data.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/processes/interrupts.h"
#include "instance/log/box_manifest.h"
#include "instance/storage/files/data_files.h"

namespace islands::deploy {

absl::StatusOr<storage::Manifest> Rewrite::Load(bool finishes) {
  absl::StatusOr<storage::Manifest> have = storage::LoadManifest(resolved_.data_directory, disk_);
  if (!have.ok()) return have;
  const storage::Manifest want = WantedManifest(resolved_);
  storage::Manifest recut = *have;
  recut.sites = want.sites;
  recut.islands = want.islands;
  recut.boot_epochs.assign(want.islands, 0);
  const auto fits = AdaptManifest(recut, want, resolved_.deployment.durability);
  if (!fits.ok()) return fits.status();
  if (have->relaid != 0 && finishes) {
    fmt::print(stderr, "an earlier one was interrupted behind its last step; it is finished first\n");
    if (absl::Status finished = FinishRelayout(resolved_, disk_, &*have); !finished.ok()) return finished;
  }
  return have;
}

std::vector<uint64_t> Rewrite::BytesOf(const storage::Manifest& manifest) {
  std::vector<uint64_t> bytes;
  for (uint32_t island = 0; island < manifest.islands; ++island) {
    const std::string directory = fmt::format("{}/island-{}", resolved_.data_directory, island);
    bytes.push_back(storage::BytesOfSites(disk_, directory, manifest.data_generation).value_or(0));
  }
  return bytes;
}

absl::Status Rewrite::Check(const storage::Manifest& have) { return Begin(have).status(); }

absl::StatusOr<Rewritten> Rewrite::Run(const storage::Manifest& have,
                                       absl::FunctionRef<absl::Status()> may_switch) {
  const absl::StatusOr<std::unique_ptr<recovery::Relayout>> begun = Begin(have);
  if (!begun.ok()) return begun.status();
  recovery::Relayout& relayout = **begun;
  const int64_t begin_ms = MonotonicMs();
  // Of one that was killed.
  absl::Status status = recovery::RemoveUnfinished(disk_, resolved_.data_directory, have);
  if (status.ok()) status = Copy(have, relayout);
  if (status.ok()) status = may_switch();
  if (status.ok()) status = relayout.Switch();
  storage::Manifest manifest = relayout.manifest();
  if (status.ok()) status = FinishRelayout(resolved_, disk_, &manifest);
  if (!status.ok()) {
    const absl::StatusOr<storage::Manifest> now = storage::LoadManifest(resolved_.data_directory, disk_);
    // Behind the switch everything that is not done yet is `up`'s.
    if (now.ok() && now->data_generation == have.data_generation) Clean(have);
    return status;
  }
  return Rewritten{relayout.rows(), static_cast<double>(MonotonicMs() - begin_ms) / 1000};
}

void Rewrite::Clean(const storage::Manifest& manifest) {
  const absl::Status cleaned = recovery::RemoveUnfinished(disk_, resolved_.data_directory, manifest);
  if (!cleaned.ok()) fmt::print(stderr, "{}\n", std::string(cleaned.message()));
  RemoveEmptyIslandFolders(resolved_, manifest.islands);
}

absl::StatusOr<std::unique_ptr<recovery::Relayout>> Rewrite::Begin(const storage::Manifest& have) {
  if (!disk_.Exists(fmt::format("{}/{}", resolved_.log_directory, log::kManifestName)))
    return NoLogIn(resolved_.log_directory);
  absl::StatusOr<storage::Catalog::TableSpecs> tables = TablesOf(have);
  if (!tables.ok()) return tables.status();
  recovery::RelayoutOptions options{.data_directory = resolved_.data_directory,
                                    .log_directory = resolved_.log_directory,
                                    .have = have,
                                    .tables = *std::move(tables),
                                    .sites = resolved_.plan.sites,
                                    .workers = {},
                                    .pool_bytes = {},
                                    .paged = MayPage(resolved_)};
  for (const topology::PlannedIsland& island : resolved_.plan.islands) {
    options.workers.push_back(island.workers);
    options.pool_bytes.push_back(island.memory_bytes);
  }
  return recovery::Relayout::Create(disk_, std::move(options));
}

absl::Status Rewrite::Copy(const storage::Manifest& have, recovery::Relayout& relayout) {
  Interrupts interrupts;
  TerminalLine line(TerminalLine::End::kGoes);
  const auto unchanged = [&] {
    return interrupts.interrupted() ? absl::CancelledError("interrupted; all is as it was")
                                    : absl::OkStatus();
  };
  const auto take = [&](uint32_t island, const storage::Store& rows) {
    absl::Status status = unchanged();
    if (!status.ok()) return status;
    return relayout.Take(island, rows, [&](uint32_t to, uint64_t copied) {
      line.Show(fmt::format("island {} of {}: into island {} of {}, {} rows", island, have.islands, to,
                            relayout.manifest().islands, copied));
      return unchanged();
    });
  };
  const absl::StatusOr<verify::Report> report = WalkRows(resolved_, have, disk_, take, unchanged);
  if (!report.ok()) return report.status();
  std::vector<std::string> wrong;
  for (const verify::Finding& finding : report->findings) wrong.push_back(finding.text);
  if (!wrong.empty()) {
    return absl::DataLossError(
        fmt::format("what is there is not sound, and stays as it is:\n{}", fmt::join(wrong, "\n")));
  }
  for (const verify::IslandFigures& island : report->islands) {
    if (island.in_doubt + island.decisions == 0) continue;
    return absl::FailedPreconditionError(
        fmt::format("island {} has transactions that not all islands have ended: `islands up` and `islands "
                    "down` it with the file as it was, then `islands {}`",
                    island.island, command_));
  }
  return unchanged();
}

}  // namespace islands::deploy
