#include "deploy/cluster/data_walk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/stopped_data.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_load.h"
#include "deploy/cluster/supervisor_log.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/table_specs.h"
#include "instance/verify/box.h"
#include "instance/verify/island.h"
#include "partitioner/site_map.h"
#include "runtime/descriptor.h"
#include "runtime/file_system_overlay.h"

namespace islands::deploy {
namespace {

enum class Depth { kQuick, kAll };

class DataWalk {
 public:
  DataWalk(const ResolvedDeployment& resolved, runtime::FileSystem& disk, Depth depth)
      : resolved_(resolved), files_(disk), quick_(depth == Depth::kQuick) {}

  absl::Status Run() {
    absl::StatusOr<storage::Manifest> manifest = storage::LoadManifest(resolved_.data_directory, files_);
    if (!manifest.ok()) return report_.Take(manifest.status(), ManifestPath());
    manifest_ = *std::move(manifest);
    if (manifest_.relaid != 0) {
      return absl::FailedPreconditionError(fmt::format(
          "{}: `islands relayout` or `compact` was interrupted when all but the log was made anew; "
          "it ends with the same command again, or with `up`",
          resolved_.data_directory));
    }
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
  absl::Status RunWith(const storage::Manifest& manifest, TakeRows take, GoOn go_on) {
    manifest_ = manifest;
    take_ = &take;
    go_on_ = &go_on;
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
    if (!quick_ && !files_.Exists(resolved_.log_directory)) {
      const absl::Status none = NoLogIn(resolved_.log_directory);
      return report_.Take(absl::DataLossError(none.message()), resolved_.log_directory);
    }
    if (absl::Status fits = quick_ ? absl::OkStatus() : CheckFile(*boot); !fits.ok()) return fits;
    const verify::BoxOptions options{.log_directory = resolved_.log_directory,
                                     .cluster = cluster_,
                                     .workers = manifest_.workers.empty() ? Workers() : manifest_.workers,
                                     .boot_epochs = manifest_.boot_epochs,
                                     .boot = *boot};
    const auto find = [this](const log::BoxId& known) { return FindRings(known); };
    absl::StatusOr<std::optional<verify::Box>> box = quick_
                                                         ? verify::LookAtBox(files_, options, &report_)
                                                         : verify::OpenBox(files_, options, find, &report_);
    if (!box.ok()) return box.status();
    if (!box->has_value()) return absl::OkStatus();
    return WalkIslands(**box);
  }

  std::vector<std::string> RingPathsHere() const {
    return RingPaths(resolved_.ring_directory, resolved_.log_directory, cluster_);
  }

  // What `up` would refuse because of what the file says is no damage of data or log.
  absl::Status CheckFile(const log::BoxId& boot) {
    const auto manifest =
        log::ReadBoxManifest(files_, resolved_.log_directory, cluster_, manifest_.boot_epochs.size());
    if (!manifest.ok()) return absl::OkStatus();  // a finding, of OpenBox
    return CheckNoRingsElsewhere(*manifest, boot, RingPathsHere(), resolved_.log_directory);
  }

  absl::StatusOr<verify::Rings> FindRings(const log::BoxId& known) {
    for (const std::string& path : RingPathsHere()) {
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
    const absl::StatusOr<storage::Catalog::TableSpecs> tables = TablesOf(manifest_);
    if (!tables.ok()) return report_.Take(tables.status(), ManifestPath());
    const auto catalog = storage::Catalog::Create(*tables, manifest_.sites);
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
      return go_on_ == nullptr ? absl::OkStatus() : (*go_on_)();
    };
    for (uint32_t island = 0; island < manifest_.islands; ++island) {
      const std::string directory = fmt::format("{}/island-{}", resolved_.data_directory, island);
      const uint64_t pool_bytes = take_ == nullptr ? resolved_.plan.islands[island].memory_bytes : AllPools();
      const verify::IslandOptions options{.island = island,
                                          .data_directory = directory,
                                          .log_directory = resolved_.log_directory,
                                          .cluster = cluster_,
                                          .generation = manifest_.data_generation,
                                          .next_life = manifest_.boot_epochs[island] + 1,
                                          .workers = take_ == nullptr ? Workers() : manifest_.workers,
                                          .sites = sites->SitesOf(island),
                                          .pool_bytes = pool_bytes,
                                          .paged = MayPage(resolved_) && !Fits(directory, pool_bytes)};
      std::unique_ptr<storage::Store> rows;
      absl::Status walked =
          quick_ ? verify::LookAtIsland(files_, *catalog, options, box, &report_)
                 : verify::VerifyIsland(files_, *catalog, options, box, progress, &report_, &rows);
      if (walked.ok() && take_ != nullptr) {
        if (!report_.sound() || rows == nullptr) return absl::OkStatus();
        walked = (*take_)(island, *rows);
      }
      if (!walked.ok()) return walked;
    }
    return absl::OkStatus();
  }

  // An island of another cut may have more than any of this one.
  uint64_t AllPools() const {
    uint64_t bytes = 0;
    for (const topology::PlannedIsland& island : resolved_.plan.islands) bytes += island.memory_bytes;
    return bytes;
  }
  // With some room for what the log has beyond the files.
  bool Fits(const std::string& directory, uint64_t pool_bytes) {
    const auto bytes = storage::BytesOfSites(files_, directory, manifest_.data_generation);
    return bytes.ok() && *bytes <= pool_bytes / 8 * 7;  // or the walk says why
  }

  const ResolvedDeployment& resolved_;
  runtime::OverlayFileSystem files_;
  const bool quick_;
  storage::Manifest manifest_;
  uint64_t cluster_ = 0;
  std::unique_ptr<log::RingDirectory> rings_;  // locked, as long as it is looked at
  TakeRows* take_ = nullptr;                   // null: the data is cut as the file says
  GoOn* go_on_ = nullptr;                      // null: nobody ends it
  verify::Report report_;
};

absl::StatusOr<verify::Report> Walk(const ResolvedDeployment& resolved, runtime::FileSystem& disk,
                                    Depth depth) {
  runtime::AllowManyFiles();
  DataWalk walk(resolved, disk, depth);
  if (absl::Status walked = walk.Run(); !walked.ok()) return walked;
  return walk.report();
}

}  // namespace

absl::StatusOr<storage::Catalog::TableSpecs> TablesOf(const storage::Manifest& manifest) {
  control::v1::IslandConfig config;
  if (absl::Status described = DescribeLoad(manifest, &config); !described.ok()) return described;
  storage::Catalog::TableSpecs tables = manifest.tables;
  for (const control::v1::LoadSpec& load : config.loads()) storage::ReplaceTables(load.tables(), &tables);
  return tables;
}

absl::StatusOr<verify::Report> WalkRows(const ResolvedDeployment& resolved, const storage::Manifest& manifest,
                                        runtime::FileSystem& disk, TakeRows take, GoOn go_on) {
  runtime::AllowManyFiles();
  DataWalk walk(resolved, disk, Depth::kAll);
  if (absl::Status walked = walk.RunWith(manifest, take, go_on); !walked.ok()) return walked;
  return walk.report();
}

absl::StatusOr<verify::Report> WalkData(const ResolvedDeployment& resolved, runtime::FileSystem& disk) {
  return Walk(resolved, disk, Depth::kAll);
}

absl::Status LookAtData(const ResolvedDeployment& resolved, runtime::FileSystem& disk) {
  // Without a log BoxLog says what may be the reason.
  const std::string manifest = resolved.log_directory + "/" + log::kManifestName;
  if (resolved.deployment.durability == Durability::kNone || !disk.Exists(manifest)) return absl::OkStatus();
  // While another deployment has the log it goes on, and what is found here would be no damage.
  const absl::StatusOr<FileLock> ours = LockLog(resolved.log_directory);
  if (!ours.ok()) return ours.status();
  const absl::StatusOr<verify::Report> report = Walk(resolved, disk, Depth::kQuick);
  // The last writes of who has just been killed are in flight: islands wait for them, and look themselves.
  if (absl::IsUnavailable(report.status())) return absl::OkStatus();
  if (!report.ok()) return report.status();
  std::vector<std::string> stops;
  for (const verify::Finding& finding : report->findings) {
    if (finding.stops) {
      stops.push_back(finding.text);
    } else {
      spdlog::warn("{}", finding.text);
    }
  }
  return stops.empty() ? absl::OkStatus() : absl::DataLossError(fmt::format("{}", fmt::join(stops, "\n")));
}

}  // namespace islands::deploy
