#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_load.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/processes/interrupts.h"
#include "instance/storage/table_specs.h"
#include "instance/verify/box.h"
#include "instance/verify/island.h"
#include "partitioner/site_map.h"
#include "runtime/file_system_overlay.h"

namespace islands::deploy {
namespace {

constexpr int64_t kPatienceMs = 10'000;  // as long as `up` has
constexpr std::chrono::milliseconds kPollInterval{100};

// Of data and log.
struct Locks {
  FileLock data;
  std::optional<FileLock> log;  // none: there is no log, which is a finding
};

// What `up` takes, as long as it is up. Makes nothing where there is no data.
absl::StatusOr<Locks> LockData(const ResolvedDeployment& resolved, const ControlFiles& files,
                               runtime::FileSystem& disk) {
  if (resolved.deployment.durability == Durability::kNone) {
    return absl::FailedPreconditionError(resolved.deployment.Complain(
        "storage.log.durability",
        "found 'none', with which nothing outlives its islands: there is nothing to verify"));
  }
  absl::Status quiet = CheckNotUp(files);
  // Who has just been killed may still be ending.
  if (quiet.ok() && !WaitForOldIslands(files, kPatienceMs).ok()) quiet = CheckNoIslands(files);
  if (!quiet.ok()) return quiet;
  // Data without a manifest is damage; without anything it is somebody else's directory.
  const std::string manifest = resolved.data_directory + "/" + storage::kManifestName;
  const bool any = disk.Exists(manifest) || disk.Exists(resolved.data_directory + "/island-0") ||
                   disk.Exists(resolved.log_directory + "/" + log::kManifestName);
  if (!any) return absl::NotFoundError(fmt::format("there is no {}: nothing has been up here yet", manifest));
  const std::string path = resolved.data_directory + "/" + kDataLockName;
  absl::StatusOr<FileLock> data =
      FileLock::Acquire(path, fmt::format("{}, which `islands verify` looks at", files.directory));
  if (!data.ok()) return data.status();
  Locks locks{.data = *std::move(data), .log = std::nullopt};
  if (!disk.Exists(resolved.log_directory)) return locks;
  absl::StatusOr<FileLock> log = LockLog(resolved.log_directory);
  if (!log.ok()) return log.status();
  locks.log = *std::move(log);
  return locks;
}

class DataWalk {
 public:
  // UNAVAILABLE: somebody has files of it, or what he has written before he died is still in flight.
  DataWalk(const ResolvedDeployment& resolved, runtime::FileSystem& disk)
      : resolved_(resolved), files_(disk) {}

  absl::Status Run() {
    absl::StatusOr<storage::Manifest> manifest = storage::LoadManifest(resolved_.data_directory, files_);
    if (!manifest.ok()) return report_.Take(manifest.status(), ManifestPath());
    manifest_ = *std::move(manifest);
    const storage::Manifest want = WantedManifest(resolved_);
    const auto fits = AdaptManifest(manifest_, want, resolved_.deployment.durability);
    if (!fits.ok()) return fits.status();
    if (manifest_.data_generation == 0) {
      report_.notes.push_back(fmt::format("{}: no rows have been loaded yet that outlive their islands",
                                          resolved_.data_directory));
      return absl::OkStatus();
    }
    return WalkBox();
  }
  const verify::Report& report() const { return report_; }

 private:
  std::string ManifestPath() const { return resolved_.data_directory + "/" + storage::kManifestName; }

  // Of every island, as `up` would begin it. With how many the log was used last the manifest says.
  std::vector<uint32_t> Workers() const {
    std::vector<uint32_t> workers;
    for (const topology::PlannedIsland& island : resolved_.plan.islands) workers.push_back(island.workers);
    return workers;
  }

  absl::Status WalkBox() {
    const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(manifest_.cluster_id);
    const absl::StatusOr<log::BoxId> boot = log::KernelBootId(files_);
    if (!cluster.ok()) return report_.Take(absl::DataLossError(cluster.status().message()), ManifestPath());
    if (!boot.ok()) return boot.status();
    cluster_ = *cluster;
    const verify::BoxOptions options{.log_directory = resolved_.log_directory,
                                     .cluster = cluster_,
                                     .workers = manifest_.workers.empty() ? Workers() : manifest_.workers,
                                     .boot_epochs = manifest_.boot_epochs,
                                     .boot = *boot};
    const auto find = [this](const log::BoxId& known) { return FindRings(known); };
    absl::StatusOr<std::optional<verify::Box>> box = verify::OpenBox(files_, options, find, &report_);
    if (!box.ok()) return box.status();
    if (!box->has_value()) return absl::OkStatus();
    return WalkIslands(**box);
  }

  // Wherever they may be (supervisor_log.h).
  absl::StatusOr<verify::Rings> FindRings(const log::BoxId& known) {
    std::vector<std::string> paths = {resolved_.ring_directory};
    if (resolved_.ring_directory.empty())
      paths = {log::DefaultRingDirectory(cluster_), BoxLog::RingsBeside(resolved_.log_directory)};
    for (const std::string& path : paths) {
      auto directory = log::RingDirectory::Open(path);
      if (!directory.ok() || (*directory)->id() != known) continue;
      // As `up`: while another log has them, they say nothing of this one.
      absl::Status ours = (*directory)->CheckIsOf(resolved_.log_directory);
      if (ours.ok()) ours = (*directory)->Lock();
      if (!ours.ok()) return ours;
      auto found = (*directory)->List();
      if (!found.ok()) return found.status();
      rings_ = *std::move(directory);
      return verify::Rings{known, *std::move(found)};
    }
    return verify::Rings{};
  }

  absl::Status WalkIslands(const verify::Box& box) {
    control::v1::IslandConfig config;
    storage::Catalog::TableSpecs tables = manifest_.tables;
    const absl::Status described = DescribeLoad(manifest_, &config);
    if (!described.ok()) return report_.Take(described, ManifestPath());
    for (const control::v1::LoadSpec& load : config.loads()) storage::ReplaceTables(load.tables(), &tables);
    const auto catalog = storage::Catalog::Create(tables, manifest_.sites);
    const auto sites = partitioner::SiteMap::Create(manifest_.sites, manifest_.islands);
    if (!catalog.ok() || !sites.ok()) {
      const absl::Status& wrong = catalog.ok() ? sites.status() : catalog.status();
      return report_.Take(absl::DataLossError(wrong.message()), ManifestPath());
    }
    TerminalLine line(TerminalLine::End::kGoes);
    const auto progress = [&](const std::string& what, uint64_t done, uint64_t all) {
      const std::string far = all != 0    ? fmt::format(" {} of {}", done, all)
                              : done != 0 ? fmt::format(" {}", done)
                                          : "";
      line.Show(what + far);
    };
    for (uint32_t island = 0; island < manifest_.islands; ++island) {
      const verify::IslandOptions options{
          .island = island,
          .data_directory = fmt::format("{}/island-{}", resolved_.data_directory, island),
          .log_directory = resolved_.log_directory,
          .cluster = cluster_,
          .generation = manifest_.data_generation,
          .next_life = manifest_.boot_epochs[island] + 1,
          .workers = Workers(),
          .sites = sites->SitesOf(island),
          .pool_bytes = resolved_.plan.islands[island].memory_bytes};
      const absl::Status walked = verify::VerifyIsland(files_, *catalog, options, box, progress, &report_);
      if (!walked.ok()) return walked;
    }
    return absl::OkStatus();
  }

  const ResolvedDeployment& resolved_;
  runtime::OverlayFileSystem files_;
  storage::Manifest manifest_;
  uint64_t cluster_ = 0;
  std::unique_ptr<log::RingDirectory> rings_;  // locked, as long as it is looked at
  verify::Report report_;
};

absl::StatusOr<verify::Report> LookPatiently(const ResolvedDeployment& resolved, runtime::FileSystem& disk) {
  const int64_t until_ms = MonotonicMs() + kPatienceMs;
  for (;;) {
    DataWalk walk(resolved, disk);
    const absl::Status walked = walk.Run();
    if (walked.ok()) return walk.report();
    if (!absl::IsUnavailable(walked) || MonotonicMs() >= until_ms) return walked;
    std::this_thread::sleep_for(kPollInterval);
  }
}

nlohmann::ordered_json ToJson(const verify::Report& report) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array(), islands = findings;
  for (const verify::Finding& finding : report.findings)
    findings.push_back({{"path", finding.path}, {"text", finding.text}});
  for (const verify::IslandFigures& island : report.islands) {
    islands.push_back({{"island", island.island},
                       {"pages", island.pages},
                       {"records", island.records},
                       {"dropped", island.dropped},
                       {"undone", island.undone},
                       {"in_doubt", island.in_doubt},
                       {"decisions", island.decisions}});
  }
  return {{"sound", report.sound()}, {"findings", findings}, {"notes", report.notes}, {"islands", islands}};
}

void Print(const verify::Report& report) {
  for (const verify::IslandFigures& island : report.islands) {
    fmt::print(
        "island {}: {} pages, {} records of the log and {} that cuts drop; transactions: {} undone, "
        "{} in doubt, {} decided that not all have heard of\n",
        island.island, island.pages, island.records, island.dropped, island.undone, island.in_doubt,
        island.decisions);
  }
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  for (const verify::Finding& finding : report.findings) fmt::print("finding: {}\n", finding.text);
  if (report.sound()) fmt::print("sound\n");
}

}  // namespace

int Verify(const CommandContext& context, const VerifyOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<Locks> lock = LockData(*resolved, *files, *disk);
  if (!lock.ok()) return Fail(context, lock.status());
  const absl::StatusOr<verify::Report> report = LookPatiently(*resolved, *disk);
  if (!report.ok()) return Fail(context, report.status());
  context.json() ? PrintJson(ToJson(*report)) : Print(*report);
  return report->sound() ? kExitOk : kExitFindings;
}

}  // namespace islands::deploy
