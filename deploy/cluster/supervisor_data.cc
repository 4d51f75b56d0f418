#include "deploy/cluster/supervisor_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "deploy/cluster/supervisor_load.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/processes/control_files.h"
#include "deploy/processes/interrupts.h"
#include "instance/recovery/relayout.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kOldIslandsTimeoutMs = 10'000;
constexpr std::chrono::milliseconds kPollInterval{10};

std::string MakeClusterId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

absl::Status UpAlready(const ControlFiles& files, pid_t pid) {
  const std::string who = pid > 0 ? fmt::format("process {}", pid) : std::string("another process");
  return absl::AlreadyExistsError(fmt::format(
      "already up: {} supervises {}; see `islands status FILE`, or end it with `islands down FILE`", who,
      files.directory));
}

// By a supervisor whose control directory is another, or has been removed; or by `islands verify`.
absl::Status DataInUse(const std::string& lock_path, const LockState& lock) {
  const std::string who = lock.pid > 0 ? fmt::format("process {}", lock.pid) : std::string("a process");
  const absl::StatusOr<Claim> claim = ClaimIn(lock.note);
  return absl::FailedPreconditionError(
      fmt::format("the data is in use: {} holds {}, for {}; or name another data.directory", who, lock_path,
                  claim.ok() ? fmt::format("the deployment '{}' of {} in {}. End it with {}", claim->name,
                                           claim->file, claim->control_directory, DownCommand(*claim))
                             : fmt::format("{}. Wait for its end", lock.note)));
}

std::string NamesOf(const control::v1::TableSpec& table) {
  std::string names = fmt::format("{}", fmt::join(table.key_names(), ","));
  for (const control::v1::FieldSpec& field : table.fields())
    names += fmt::format(" {}:{}", field.name(), field.type());
  return names;
}

// Tables that clients have made are the load's business, also when the file names them since.
absl::Status LeaveOutMade(const storage::Manifest& have, storage::Catalog::TableSpecs* tables) {
  control::v1::IslandConfig kept;
  // One that makes no sense is found by whoever needs it.
  if (have.data_generation == 0 || !DescribeLoad(have, &kept).ok()) return absl::OkStatus();
  for (int i = tables->size() - 1; i >= 0; --i) {
    const control::v1::TableSpec& table = tables->at(i);
    const control::v1::TableSpec* made = MadeTable(have.tables, kept.loads(), table.name());
    if (made == nullptr) continue;
    std::string difference = storage::TableDifference(*made, table);
    if (difference.empty() && NamesOf(*made) != NamesOf(table))
      difference = "has other names of its key's components or fields than the deployment says";
    if (!difference.empty()) {
      return absl::FailedPreconditionError(fmt::format(
          "table '{}', which clients have made, {}; leave it out of the deployment file, or write it "
          "as it is (`islands table FILE list` while the deployment is up)",
          table.name(), difference));
    }
    tables->DeleteSubrange(i, 1);
  }
  return absl::OkStatus();
}

// Of one that has died behind its switch, whose log is locked while it is made.
absl::Status FinishInterrupted(const ResolvedDeployment& resolved, runtime::FileSystem& disk,
                               storage::Manifest* have) {
  if (have->relaid == 0) return absl::OkStatus();
  if (!disk.Exists(resolved.log_directory))
    return FinishRelayout(resolved, disk, have);  // says what is wrong
  const absl::StatusOr<FileLock> log = LockLog(resolved.log_directory);
  if (!log.ok()) return log.status();
  spdlog::info("`islands relayout` or `compact` was interrupted: it is finished now");
  return FinishRelayout(resolved, disk, have);
}

}  // namespace

storage::Manifest WantedManifest(const ResolvedDeployment& resolved) {
  storage::Manifest want;
  want.cluster_id = MakeClusterId();
  want.deployment = resolved.deployment.name;
  want.sites = resolved.plan.sites;
  want.islands = static_cast<uint32_t>(resolved.plan.islands.size());
  for (const control::v1::TableSpec& table : resolved.deployment.tables) *want.tables.Add() = table;
  want.boot_epochs.assign(want.islands, 0);
  return want;
}

void RemoveEmptyIslandFolders(const ResolvedDeployment& resolved, uint32_t first) {
  for (uint32_t island = first;; ++island) {
    bool any = false;
    for (const std::string& directory : {resolved.data_directory, resolved.log_directory})
      any |= rmdir(fmt::format("{}/island-{}", directory, island).c_str()) == 0;
    if (!any) return;
  }
}

absl::Status FinishRelayout(const ResolvedDeployment& resolved, runtime::FileSystem& disk,
                            storage::Manifest* have) {
  absl::Status finished =
      recovery::FinishRelayout(disk, resolved.data_directory, resolved.log_directory, have);
  if (finished.ok()) {
    RemoveEmptyIslandFolders(resolved, have->islands);
    return finished;
  }
  return absl::Status(
      finished.code(),
      fmt::format("{}\nThe rows are in their new files all the same, {} islands and {} sites; what is left "
                  "to do `up` and the same command begin with",
                  std::string(finished.message()), have->islands, have->sites));
}

absl::Status CheckNotUp(const ControlFiles& files) {
  const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(files.SupervisorLock());
  if (!holder.ok()) return holder.status();
  return *holder ? UpAlready(files, **holder) : absl::OkStatus();
}

absl::Status CheckNoIslands(const ControlFiles& files) {
  for (const std::string& path : files.AllIslandLocks()) {
    const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(path);
    if (!holder.ok()) return holder.status();
    if (*holder) {
      return absl::FailedPreconditionError(
          fmt::format("process {} still holds {}; use `islands down` first", **holder, path));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDataIsFree(const std::string& data_directory) {
  const std::string path = DataLockOf(data_directory);
  const absl::StatusOr<std::optional<LockState>> lock = ReadLock(path);
  if (!lock.ok()) return lock.status();
  return *lock && (*lock)->held ? DataInUse(path, **lock) : absl::OkStatus();
}

std::string DataLockOf(const std::string& data_directory) { return data_directory + "/LOCK"; }

absl::Status WaitForOldIslands(const ControlFiles& files, int64_t timeout_ms) {
  const int64_t until_ms = MonotonicMs() + timeout_ms;
  for (const std::string& path : files.AllIslandLocks()) {
    for (;;) {
      const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(path);
      if (!holder.ok()) return holder.status();
      if (!*holder) break;
      if (MonotonicMs() >= until_ms) {
        return absl::DeadlineExceededError(fmt::format(
            "{} is still held by process {}, an island without its supervisor; end it and try again", path,
            **holder));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<storage::Manifest> AdaptManifest(const storage::Manifest& have, const storage::Manifest& want,
                                                Durability durability) {
  storage::Manifest left = want;
  absl::Status same = LeaveOutMade(have, &left.tables);
  if (same.ok()) same = storage::CheckSameData(have, left);
  const bool keeps = have.data_generation != 0;
  if (keeps && durability == Durability::kNone) {
    return absl::FailedPreconditionError(
        "the data directory has rows that outlive their islands, and with durability 'none' nobody would see "
        "them: set storage.log.durability to 'lazy', name another data.directory, or remove the data with "
        "`islands destroy FILE`");
  }
  if (same.ok() && have.boot_epochs.size() == want.islands) return have;
  if (!same.ok() && keeps) return same;
  storage::Manifest adapted = want;
  adapted.cluster_id = have.cluster_id;
  adapted.layout_generation = have.layout_generation + 1;
  uint64_t highest = 0;
  for (uint64_t epoch : have.boot_epochs) highest = std::max(highest, epoch);
  adapted.boot_epochs.assign(want.islands, highest);
  return adapted;
}

absl::StatusOr<std::unique_ptr<ClusterData>> ClusterData::Open(const ResolvedDeployment& resolved,
                                                               const ControlFiles& files) {
  if (absl::Status made = runtime::MakePrivateDirectory(files.directory); !made.ok()) return made;
  std::unique_ptr<runtime::FileSystem> disk = runtime::MakePosixFileSystem();
  if (absl::Status made = disk->MakeDirectories(resolved.data_directory); !made.ok()) return made;
  const Claim claim = ClaimOf(resolved);
  absl::StatusOr<FileLock> control = FileLock::Acquire(files.SupervisorLock(), NoteOf(claim));
  if (absl::IsAlreadyExists(control.status())) {
    absl::Status up = CheckNotUp(files);
    return up.ok() ? control.status() : up;
  }
  if (!control.ok()) return control.status();
  absl::StatusOr<FileLock> data = FileLock::Acquire(DataLockOf(resolved.data_directory), NoteOf(claim));
  if (absl::IsAlreadyExists(data.status())) {
    const absl::Status used = CheckDataIsFree(resolved.data_directory);
    return used.ok() ? data.status() : used;
  }
  if (!data.ok()) return data.status();
  absl::Status quiet = WaitForOldIslands(files, kOldIslandsTimeoutMs);
  if (!quiet.ok()) return quiet;
  std::unique_ptr<ClusterData> opened(new ClusterData(claim, *std::move(control), *std::move(data)));
  absl::Status loaded = opened->LoadOrCreateManifest(resolved);
  if (!loaded.ok()) return loaded;
  return opened;
}

absl::Status ClusterData::LoadOrCreateManifest(const ResolvedDeployment& resolved) {
  directory_ = resolved.data_directory;
  const storage::Manifest want = WantedManifest(resolved);
  absl::StatusOr<storage::Manifest> have = storage::LoadManifest(directory_, *disk_);
  if (absl::IsNotFound(have.status())) {
    manifest_ = want;
  } else if (!have.ok()) {
    return have.status();
  } else {
    if (absl::Status finished = FinishInterrupted(resolved, *disk_, &*have); !finished.ok()) return finished;
    absl::StatusOr<storage::Manifest> adapted = AdaptManifest(*have, want, resolved.deployment.durability);
    if (!adapted.ok()) return adapted.status();
    if (adapted->layout_generation != have->layout_generation) {
      spdlog::info("other name, layout or tables than before: layout generation {}",
                   adapted->layout_generation);
    }
    manifest_ = *std::move(adapted);
  }
  return storage::SaveManifest(manifest_, directory_, *disk_);
}

absl::StatusOr<std::vector<uint64_t>> ClusterData::NextBootEpochs(const std::vector<uint32_t>& islands) {
  const runtime::MutexLock lock(mutex_);
  storage::Manifest manifest = manifest_;
  std::vector<uint64_t> epochs;
  for (uint32_t island : islands) epochs.push_back(manifest.NextBootEpoch(island));
  if (absl::Status saved = Save(manifest); !saved.ok()) return saved;
  return epochs;
}

absl::Status ClusterData::SwitchTo(uint64_t generation, const std::string& load) {
  const runtime::MutexLock lock(mutex_);
  storage::Manifest manifest = manifest_;
  manifest.data_generation = generation;
  manifest.load = load;
  return Save(manifest);
}

absl::Status ClusterData::NoteWorkers(const std::vector<uint32_t>& workers) {
  const runtime::MutexLock lock(mutex_);
  if (manifest_.workers == workers) return absl::OkStatus();
  storage::Manifest manifest = manifest_;
  manifest.workers = workers;
  return Save(manifest);
}

absl::Status ClusterData::Save(const storage::Manifest& manifest) {
  absl::Status saved = storage::SaveManifest(manifest, directory_, *disk_);
  if (saved.ok()) manifest_ = manifest;
  return saved;
}

}  // namespace islands::deploy
