#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/data_walk.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/stopped_data.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/processes/interrupts.h"
#include "instance/log/box_manifest.h"
#include "instance/recovery/relayout.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  bool changed = false;
  storage::Manifest have, want;     // of the latter sites and islands
  uint64_t bytes = 0;               // of the files of before
  std::vector<uint64_t> rows = {};  // by island of the new layout; empty: nothing was copied
  double seconds = 0;
};

std::string Plural(uint64_t n, const char* one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); }

std::string CutOf(const storage::Manifest& manifest) {
  return fmt::format("{} over {}", Plural(manifest.islands, "island"), Plural(manifest.sites, "site"));
}

nlohmann::ordered_json ToJson(const Outcome& outcome, bool dry_run) {
  const auto cut = [](const storage::Manifest& manifest) {
    return nlohmann::ordered_json{{"islands", manifest.islands}, {"sites", manifest.sites}};
  };
  nlohmann::ordered_json json{{"changed", outcome.changed}, {"dry_run", dry_run},
                              {"from", cut(outcome.have)},  {"to", cut(outcome.want)},
                              {"bytes", outcome.bytes},     {"rows", outcome.rows},
                              {"seconds", outcome.seconds}};
  return json;
}

void Print(const std::string& name, const Outcome& outcome, bool dry_run) {
  if (!outcome.changed && !dry_run) {
    fmt::print("{}: the data has {} already, nothing to do\n", name, CutOf(outcome.want));
  } else if (dry_run) {
    fmt::print("{}: would cut {} MiB of {} into {}; as much room is needed beside them until it is done\n",
               name, outcome.bytes >> 20, CutOf(outcome.have), CutOf(outcome.want));
  } else {
    fmt::print("{}: {} are now {}, in {:.1f} s\n", name, CutOf(outcome.have), CutOf(outcome.want),
               outcome.seconds);
    for (size_t island = 0; island < outcome.rows.size(); ++island)
      fmt::print("island {}: {} rows\n", island, outcome.rows[island]);
  }
}

// Of the files that count, as long as they are.
uint64_t BytesOf(const std::string& data_directory, const storage::Manifest& manifest) {
  uint64_t bytes = 0;
  const std::string prefix = fmt::format("generation-{:010}-site-", manifest.data_generation);
  for (uint32_t island = 0; island < manifest.islands; ++island) {
    std::error_code error;
    fs::directory_iterator it(fmt::format("{}/island-{}", data_directory, island), error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      if (it->path().filename().string().starts_with(prefix)) bytes += it->file_size(error);
    }
  }
  return bytes;
}

// What is there, when only its cut is another than the file's.
absl::Status CheckOnlyTheCutDiffers(const ResolvedDeployment& resolved, const storage::Manifest& have,
                                    const storage::Manifest& want) {
  storage::Manifest recut = have;
  recut.sites = want.sites;
  recut.islands = want.islands;
  recut.boot_epochs.assign(want.islands, 0);
  return AdaptManifest(recut, want, resolved.deployment.durability).status();
}

class RelayoutRun {
 public:
  RelayoutRun(const ResolvedDeployment& resolved, runtime::FileSystem& disk)
      : resolved_(resolved), disk_(disk) {}

  absl::StatusOr<Outcome> Run(bool dry_run) {
    absl::StatusOr<storage::Manifest> have = storage::LoadManifest(resolved_.data_directory, disk_);
    if (!have.ok()) return have.status();
    Outcome outcome{.have = *have, .want = WantedManifest(resolved_)};
    if (absl::Status fits = CheckOnlyTheCutDiffers(resolved_, *have, outcome.want); !fits.ok()) return fits;
    if (have->relaid != 0 && !dry_run) {
      fmt::print(stderr, "an earlier relayout was interrupted behind its last step; it is finished first\n");
      if (absl::Status finished = FinishRelayout(resolved_, disk_, &*have); !finished.ok()) return finished;
    }
    if (have->data_generation == 0 ||
        (have->sites == outcome.want.sites && have->islands == outcome.want.islands))
      return outcome;
    outcome.bytes = BytesOf(resolved_.data_directory, *have);
    const absl::StatusOr<std::unique_ptr<recovery::Relayout>> relayout = Begin(*have, outcome);
    if (!relayout.ok()) return relayout.status();
    if (dry_run) return outcome;
    const int64_t begin_ms = MonotonicMs();
    absl::Status status = Cut(*have, **relayout, &outcome);
    if (!status.ok()) {
      const absl::StatusOr<storage::Manifest> now = storage::LoadManifest(resolved_.data_directory, disk_);
      // Behind the switch everything that is not done yet is `up`'s.
      if (now.ok() && now->data_generation == have->data_generation) Clean(*have);
      return status;
    }
    outcome.changed = true;
    outcome.seconds = static_cast<double>(MonotonicMs() - begin_ms) / 1000;
    return outcome;
  }

 private:
  void Clean(const storage::Manifest& manifest) {
    const absl::Status cleaned = recovery::RemoveUnfinished(disk_, resolved_.data_directory, manifest);
    if (!cleaned.ok()) fmt::print(stderr, "{}\n", std::string(cleaned.message()));
    RemoveEmptyIslandFolders(resolved_, manifest.islands);
  }

  absl::StatusOr<std::unique_ptr<recovery::Relayout>> Begin(const storage::Manifest& have,
                                                            const Outcome& outcome) {
    if (!disk_.Exists(fmt::format("{}/{}", resolved_.log_directory, log::kManifestName)))
      return NoLogIn(resolved_.log_directory);
    absl::StatusOr<storage::Catalog::TableSpecs> tables = TablesOf(have);
    if (!tables.ok()) return tables.status();
    recovery::RelayoutOptions options{.data_directory = resolved_.data_directory,
                                      .log_directory = resolved_.log_directory,
                                      .have = have,
                                      .tables = *std::move(tables),
                                      .sites = outcome.want.sites,
                                      .workers = {},
                                      .pool_bytes = {}};
    const uint64_t more = BytesBeyondPools(resolved_, disk_, have.data_generation, 0, have.islands);
    for (const topology::PlannedIsland& island : resolved_.plan.islands) {
      options.workers.push_back(island.workers);
      options.pool_bytes.push_back(island.memory_bytes + more);
    }
    return recovery::Relayout::Create(disk_, std::move(options));
  }

  absl::Status Cut(const storage::Manifest& have, recovery::Relayout& relayout, Outcome* outcome) {
    // Of one that was killed.
    absl::Status status = recovery::RemoveUnfinished(disk_, resolved_.data_directory, have);
    if (status.ok()) status = Copy(have, relayout);
    if (status.ok()) status = relayout.Switch();
    storage::Manifest manifest = relayout.manifest();
    if (status.ok()) status = FinishRelayout(resolved_, disk_, &manifest);
    outcome->rows = relayout.rows();
    return status;
  }

  absl::Status Copy(const storage::Manifest& have, recovery::Relayout& relayout) {
    Interrupts interrupts;
    TerminalLine line(TerminalLine::End::kGoes);
    const auto unchanged = [&] {
      return interrupts.interrupted() ? absl::CancelledError("interrupted; the layout is the old one")
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
    const absl::StatusOr<verify::Report> report = WalkRows(resolved_, have, disk_, take);
    if (!report.ok()) return report.status();
    std::vector<std::string> wrong;
    for (const verify::Finding& finding : report->findings) wrong.push_back(finding.text);
    if (!wrong.empty()) {
      return absl::DataLossError(
          fmt::format("what is there is not sound, and stays as it is:\n{}", fmt::join(wrong, "\n")));
    }
    for (const verify::IslandFigures& island : report->islands) {
      if (island.in_doubt + island.decisions == 0) continue;
      return absl::FailedPreconditionError(fmt::format(
          "island {} has transactions that not all islands have ended: `islands up` and `islands down` it "
          "with the file as it was, then cut it anew",
          island.island));
    }
    return unchanged();
  }

  const ResolvedDeployment& resolved_;
  runtime::FileSystem& disk_;
};

}  // namespace

int Relayout(const CommandContext& context, const RelayoutOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<StoppedLocks> locks = LockStopped(*resolved, *files, *disk, "islands relayout");
  if (!locks.ok()) return Fail(context, locks.status());
  const absl::StatusOr<Outcome> outcome = RelayoutRun(*resolved, *disk).Run(context.dry_run);
  if (!outcome.ok()) return Fail(context, outcome.status());
  context.json() ? PrintJson(ToJson(*outcome, context.dry_run))
                 : Print(resolved->deployment.name, *outcome, context.dry_run);
  return kExitOk;
}

}  // namespace islands::deploy
