#include "deploy/cluster/supervisor_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "deploy/processes/interrupts.h"
#include "deploy/processes/spawn.h"
#include "instance/log/epoch_file.h"

namespace islands::deploy {
namespace {

constexpr int kLastWords = 5;
constexpr int kLockRetryMs = 10;
constexpr int64_t kStopPatienceMs = 15'000;  // the logger waits for holds for 10 s at most

uint64_t BytesOfRings(const BoxLog::Options& options) {
  const uint64_t workers = std::accumulate(options.workers.begin(), options.workers.end(), uint64_t{0});
  // The rings of a life are there before those of the life before it go.
  return 2 * workers * (options.ring_bytes + log::Ring::kHeaderBytes);
}

// A segment has room for all that may be under way when the next one cannot be made (Logger::Reserve).
uint64_t SegmentMib(const BoxLog::Options& options) {
  constexpr uint64_t kLeast = 64, kMost = 1024, kRings = 3, kMib = 1 << 20;
  const uint64_t workers = *std::max_element(options.workers.begin(), options.workers.end());
  return std::clamp(kRings * workers * options.ring_bytes / kMib + 1, kLeast, kMost);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BoxLog>> BoxLog::Open(Options options,
                                                     const std::vector<uint32_t>& workers_before,
                                                     std::unique_ptr<runtime::FileSystem> files) {
  std::unique_ptr<BoxLog> log(new BoxLog(std::move(options), std::move(files)));
  if (absl::Status prepared = log->Prepare(workers_before); !prepared.ok()) return prepared;
  if (absl::Status begun = log->SpawnLogger(); !begun.ok()) return begun;
  return log;
}

BoxLog::~BoxLog() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<FileLock> LockLog(const std::string& log_directory) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(log_directory + "/" + kLogLockName);
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::FailedPreconditionError(
      fmt::format("the log is in use: {}, for another deployment; take that one down, or name another "
                  "storage.log.directory",
                  std::string(lock.status().message())));
}

absl::Status NoLogIn(const std::string& log_directory) {
  return absl::FailedPreconditionError(fmt::format(
      "there are rows that outlive their islands, and {} has no log of theirs: storage.log.directory was "
      "changed, or the log was removed. Change it back; or move all of the log there; or remove the data "
      "with `islands destroy FILE`",
      log_directory));
}

std::vector<std::string> RingPaths(const std::string& ring_directory, const std::string& log_directory,
                                   uint64_t cluster) {
  if (!ring_directory.empty()) return {ring_directory};
  return {log::DefaultRingDirectory(cluster), BoxLog::RingsBeside(log_directory)};
}

// That the file names another place now is no loss of power. Under another boot of the kernel they have
// nothing. A copy of all of a folder has the rings too, at another place than the manifest says.
absl::Status CheckNoRingsElsewhere(const log::BoxManifest& manifest, const log::BoxId& boot,
                                   const std::vector<std::string>& paths, const std::string& log_directory) {
  const std::string& known = manifest.ring_path;
  if (known.empty() || std::find(paths.begin(), paths.end(), known) != paths.end()) return absl::OkStatus();
  const auto has = [&](const std::string& path) {
    const auto there = log::RingDirectory::Open(path);
    return there.ok() && (*there)->id() == manifest.ring_directory;
  };
  if (std::any_of(paths.begin(), paths.end(), has)) return absl::OkStatus();
  const auto there = log::RingDirectory::Open(known);
  const bool gone = there.ok() ? (*there)->id() != manifest.ring_directory : absl::IsNotFound(there.status());
  if (boot != manifest.boot || gone) return absl::OkStatus();
  if (there.ok()) {
    if (absl::Status copy = (*there)->CheckIsOf(log_directory); !copy.ok()) return copy;
  }
  return absl::FailedPreconditionError(fmt::format(
      "the deployment was not taken down since its log's rings were in {}, which have what was acknowledged "
      "last: `up` and `down` it with storage.log.ring_directory as it was, then change that",
      known));
}

absl::Status BoxLog::Prepare(const std::vector<uint32_t>& workers_before) {
  const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(options_.cluster_id);
  if (!cluster.ok()) return cluster.status();
  cluster_ = *cluster;
  islands_.resize(options_.workers.size());
  // A start that is refused makes no directory where another is to be moved to.
  if (options_.keeps_rows && !files_->Exists(options_.log_directory)) return NoLogIn(options_.log_directory);
  if (absl::Status made = files_->MakeDirectories(options_.log_directory); !made.ok()) return made;
  absl::StatusOr<FileLock> lock = LockLog(options_.log_directory);
  if (!lock.ok()) return lock.status();
  lock_ = *std::move(lock);
  absl::Status status = ReadManifest(*cluster);
  if (status.ok()) status = ChooseRings(*cluster);
  if (status.ok()) status = FindOutWhatWasLost(workers_before);
  if (!status.ok()) return status;
  const absl::StatusOr<int> board = log::Board::MakeShared(options_.workers);
  if (!board.ok()) return board.status();
  board_fd_.Reset(*board);
  absl::StatusOr<std::unique_ptr<log::Board>> mapped = log::Board::Map(*board, options_.workers);
  if (!mapped.ok()) return mapped.status();
  board_ = *std::move(mapped);
  return absl::OkStatus();
}

// A log that was never begun is one that was closed, and has nothing in it.
absl::Status BoxLog::ReadManifest(uint64_t cluster) {
  absl::StatusOr<log::BoxManifest> manifest =
      log::ReadBoxManifest(*files_, options_.log_directory, cluster, options_.workers.size());
  if (absl::IsNotFound(manifest.status()) && options_.keeps_rows) return NoLogIn(options_.log_directory);
  if (absl::IsNotFound(manifest.status())) {
    manifest = log::BoxManifest{.cluster = cluster, .lives = std::vector<uint64_t>(options_.workers.size())};
  }
  if (!manifest.ok()) return manifest.status();
  manifest_ = *std::move(manifest);
  return CheckLives();
}

// A life is written down beside the data before it is here.
absl::Status BoxLog::CheckLives() const {
  for (size_t island = 0; island < options_.lives.size(); ++island) {
    if (manifest_.lives[island] <= options_.lives[island]) continue;
    return absl::FailedPreconditionError(
        fmt::format("the log in {} names life {} of island {}, and the data knows {} only: one of both is an "
                    "old copy, or a copy of the data was up with this log meanwhile, and has what was "
                    "acknowledged since. Use that one; or restore data and log from one time",
                    options_.log_directory, manifest_.lives[island], island, options_.lives[island]));
  }
  return absl::OkStatus();
}

absl::Status BoxLog::ChooseRings(uint64_t cluster) {
  const std::vector<std::string> paths = RingPaths(options_.ring_directory, options_.log_directory, cluster);
  const absl::StatusOr<log::BoxId> boot = log::KernelBootId(*files_);
  if (!boot.ok()) return boot.status();
  const absl::Status none = CheckNoRingsElsewhere(manifest_, *boot, paths, options_.log_directory);
  if (!none.ok()) return none;
  const log::RingDirectory::Choice choice{.path = paths.front(),
                                          .fallback = paths.size() > 1 ? paths.back() : "",
                                          .bytes = BytesOfRings(options_),
                                          .known = manifest_.ring_directory,
                                          .log_directory = options_.log_directory};
  std::string warning;
  auto rings = log::RingDirectory::Choose(choice, &warning);
  if (!rings.ok()) return rings.status();
  if (!warning.empty()) spdlog::warn("{}", warning);
  rings_ = *std::move(rings);
  return absl::OkStatus();
}

absl::Status BoxLog::FindOutWhatWasLost(const std::vector<uint32_t>& workers_before) {
  const absl::StatusOr<log::BoxId> boot = log::KernelBootId(*files_);
  if (!boot.ok()) return boot.status();
  const absl::StatusOr<std::vector<log::RingDirectory::Found>> found = rings_->List();
  if (!found.ok()) return found.status();
  const bool closed = manifest_.ring_directory == log::BoxId{};
  if (!closed && !workers_before.empty() && workers_before != options_.workers) {
    return absl::FailedPreconditionError(
        "the deployment was not taken down since it had other workers: `up` and `down` it with the file "
        "as it was, then change cores or layout");
  }
  std::vector<log::StreamId> whole;
  for (const log::RingDirectory::Found& ring : *found) {
    if (ring.ring.ok()) {
      whole.push_back(ring.stream);
    } else {
      spdlog::error("{}", std::string(ring.ring.status().message()));
    }
  }
  const bool same = log::SameBoot(manifest_, *boot, rings_->id(), whole, options_.workers);
  if (closed || !same) {
    if (absl::Status removed = rings_->RemoveRings(); !removed.ok()) return removed;
    whole.clear();
  }
  if (!same) {
    if (absl::Status cut = MakeCut(); !cut.ok()) return cut;
  }
  manifest_.ring_directory = rings_->id();
  manifest_.boot = *boot;
  manifest_.ring_path = rings_->path();
  // Rings of a life that the manifest does not name yet are empty, and go with the others.
  for (const log::StreamId& stream : whole) {
    Island& island = islands_[stream.island];
    island = {State::kDying, std::max(island.life, stream.life)};
  }
  return log::WriteBoxManifest(*files_, options_.log_directory, manifest_);
}

// A logger whose supervisor was killed goes on until its rings are drained, and they need no names for that:
// what it says of epochs beyond the cut would count again.
absl::StatusOr<log::EpochBlock> BoxLog::ReadLastEpoch(const std::string& path) {
  const absl::StatusOr<runtime::FileHandle> file = files_->Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  const int64_t give_up_ms = MonotonicMs() + kStopPatienceMs;
  absl::Status locked = files_->Lock(*file);
  while (absl::IsUnavailable(locked) && MonotonicMs() < give_up_ms) {
    poll(nullptr, 0, kLockRetryMs);
    locked = files_->Lock(*file);
  }
  const auto block = locked.ok() ? log::ReadEpochFile(*files_, path, cluster_, options_.workers.size())
                                 : absl::StatusOr<log::EpochBlock>(locked);
  files_->Close(*file).IgnoreError();
  return block;
}

absl::Status BoxLog::MakeCut() {
  const std::string path = options_.log_directory + "/" + log::kEpochFileName;
  if (!files_->Exists(path)) return absl::OkStatus();  // no logger has ever begun
  const absl::StatusOr<log::EpochBlock> block = ReadLastEpoch(path);
  if (!block.ok()) return block.status();
  log::Cut(&manifest_, *block);
  lost_ = fmt::format(
      "the log's rings are not those of before: power was lost, the machine was started anew, or somebody "
      "has removed them. What was acknowledged and not on disk, of epochs beyond {}, is dropped on all "
      "islands",
      block->epoch);
  spdlog::warn("{}", lost_);
  return absl::OkStatus();
}

absl::Status BoxLog::SpawnLogger() {
  std::array<int, 2> pair;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a socket for the logger");
  socket_.Reset(pair[0]);
  const runtime::UniqueFd theirs(pair[1]);
  heard_.clear();
  SpawnRequest request;
  request.arguments = {options_.program,
                       "--board",
                       std::to_string(kInheritedFd),
                       "--commands",
                       std::to_string(kInheritedFd + 1),
                       "--workers",
                       fmt::format("{}", fmt::join(options_.workers, ",")),
                       "--log-directory",
                       options_.log_directory,
                       "--ring-directory",
                       rings_->path(),
                       "--cluster",
                       std::to_string(cluster_),
                       "--first-epoch",
                       std::to_string(log::FirstEpoch(manifest_)),
                       "--interval-us",
                       std::to_string(options_.interval_us),
                       "--segment-mib",
                       std::to_string(SegmentMib(options_))};
  request.log_path = options_.log_path;
  request.inherit_fds = {board_fd_.get(), theirs.get()};
  std::error_code error;
  const uintmax_t log_bytes = std::filesystem::file_size(request.log_path, error);
  log_begin_ = error ? 0 : log_bytes;
  const absl::StatusOr<pid_t> pid = Spawn(request);
  if (!pid.ok()) return pid.status();
  pid_ = *pid;
  spdlog::info("logger: process {}", *pid);
  // Rings that must be there: of the life that the manifest names, whether it is alive or not drained yet.
  for (uint32_t island = 0; island < islands_.size(); ++island) {
    const State state = islands_[island].state;
    const uint64_t life = manifest_.lives[island];
    if ((state == State::kDying || state == State::kReady) && life != 0)
      Say(fmt::format("life {} {}", island, life));
    if (state == State::kDying) Tell("dead", island);
  }
  Say("start");
  for (uint32_t island = 0; island < islands_.size(); ++island) {
    const State state = islands_[island].state;
    if (state == State::kBeginning || state == State::kAdded) Tell("life", island);
  }
  return absl::OkStatus();
}

// A few hundred bytes at most are under way, so there is room for them; the next logger is told again.
void BoxLog::Say(std::string line) {
  line += '\n';
  (void)send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

void BoxLog::Tell(const char* what, uint32_t island) {
  Say(fmt::format("{} {} {}", what, island, islands_[island].life));
}

std::string BoxLog::full() const {
  if (!board_->full()) return "";
  return fmt::format("the disk with {} is full: make room there, and it goes on by itself",
                     options_.log_directory);
}

bool BoxLog::waits() const {
  const auto settled = [](const Island& i) { return i.state == State::kDrained || i.state == State::kReady; };
  return pid_ == 0 || !std::all_of(islands_.begin(), islands_.end(), settled);
}

void BoxLog::OnDead(uint32_t island) {
  if (islands_[island].state == State::kDrained || islands_[island].state == State::kDying) return;
  islands_[island].state = State::kDying;
  Tell("dead", island);
}

absl::Status BoxLog::Begin(uint32_t island, uint64_t life) {
  // All of them or none: those that are there take room that the next attempt needs.
  if (absl::Status room = rings_->CheckRoomForMore(options_.workers[island] * options_.ring_bytes);
      !room.ok())
    return room;
  for (uint32_t worker = 0; worker < options_.workers[island]; ++worker) {
    const auto ring = rings_->MakeRing({life, island, worker}, options_.ring_bytes);
    if (!ring.ok()) return ring.status();
  }
  islands_[island] = {State::kBeginning, life};
  Tell("life", island);
  return absl::OkStatus();
}

absl::Status BoxLog::Step() {
  if (!failure_.ok()) return failure_;
  absl::Status status = Hear();
  if (status.ok()) status = WriteLives();
  if (status.ok()) status = LookAfterLogger();
  failure_ = status;
  return failure_.ok() ? exposed_ : failure_;
}

absl::Status BoxLog::Hear() {
  std::array<char, 4096> bytes;
  for (ssize_t got; (got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;)
    heard_.append(bytes.data(), static_cast<size_t>(got));
  for (size_t end; (end = heard_.find('\n')) != std::string::npos; heard_.erase(0, end + 1)) {
    if (absl::Status heard = HearLine(heard_.substr(0, end)); !heard.ok()) return heard;
  }
  return absl::OkStatus();
}

absl::Status BoxLog::HearLine(const std::string& line) {
  if (constexpr std::string_view kVanished = "vanished "; line.starts_with(kVanished)) {
    return absl::DataLossError(fmt::format(
        "{} was removed or moved while the deployment is up, and without it nothing that is acknowledged is "
        "safe: move it back, if it is somewhere; `up` starts again from what is there",
        line.substr(kVanished.size())));
  }
  if (constexpr std::string_view kExposed = "exposed "; line.starts_with(kExposed)) {
    exposed_ = absl::DataLossError(
        fmt::format("{} was removed or moved while the deployment is up: a kill would take with it what is "
                    "acknowledged. So the deployment ends while all of it can still be brought to disk; `up` "
                    "starts again",
                    line.substr(kExposed.size())));
    return absl::OkStatus();
  }
  if (line.starts_with("error ")) return absl::InternalError("the logger says: " + line);
  std::array<char, 16> word;
  unsigned number = 0;
  unsigned long life = 0;
  if (std::sscanf(line.c_str(), "%15s %u %lu", word.data(), &number, &life) != 3) return absl::OkStatus();
  if (number >= islands_.size() || islands_[number].life != life) return absl::OkStatus();
  Island& island = islands_[number];
  if (std::string_view(word.data()) == "drained" && island.state == State::kDying)
    island.state = State::kDrained;
  if (std::string_view(word.data()) == "added" && island.state == State::kBeginning)
    island.state = State::kAdded;
  return absl::OkStatus();
}

// One write for all that begin together.
absl::Status BoxLog::WriteLives() {
  const auto added = [](const Island& island) { return island.state == State::kAdded; };
  if (std::none_of(islands_.begin(), islands_.end(), added)) return absl::OkStatus();
  log::BoxManifest manifest = manifest_;
  for (size_t i = 0; i < islands_.size(); ++i) {
    if (added(islands_[i])) manifest.lives[i] = islands_[i].life;
  }
  absl::Status status = log::WriteBoxManifest(*files_, options_.log_directory, manifest);
  if (const bool full = absl::IsResourceExhausted(status); full != full_) {
    full_ = full;
    full ? spdlog::warn("no life begins until there is room: {}", std::string(status.message()))
         : spdlog::info("there is room again");
  }
  if (full_) return absl::OkStatus();  // tried again at the next step
  if (!status.ok()) return status;
  manifest_ = std::move(manifest);
  for (uint32_t i = 0; i < islands_.size() && status.ok(); ++i) {
    if (!added(islands_[i])) continue;
    status = rings_->RemoveEarlier(i, islands_[i].life);
    islands_[i].state = State::kReady;
  }
  return status;
}

// One that was killed is replaced; one that has ended by itself knows why the log cannot go on.
absl::Status BoxLog::LookAfterLogger() {
  if (pid_ == 0) {
    if (MonotonicMs() < restart_at_ms_) return absl::OkStatus();
    ++logger_restarts_;
    return SpawnLogger();
  }
  int wait_status = 0;
  if (waitpid(pid_, &wait_status, WNOHANG) != pid_) return absl::OkStatus();
  const pid_t pid = pid_.exchange(0);
  const std::string words = LastLines(options_.log_path, kLastWords, "  ", log_begin_);
  spdlog::error("logger: process {} lost, {}", pid, DescribeExit(wait_status));
  if (!WIFSIGNALED(wait_status)) {
    return absl::InternalError(
        fmt::format("the log cannot go on: the logger ended with {}\n{} ends with:\n{}",
                    DescribeExit(wait_status), options_.log_path, words));
  }
  const std::optional<int64_t> delay_ms = restarts_.OnLost(MonotonicMs());
  if (!delay_ms) {
    return absl::InternalError(
        fmt::format("the logger was killed again and again; {} ends with:\n{}", options_.log_path, words));
  }
  restart_at_ms_ = MonotonicMs() + *delay_ms;
  return absl::OkStatus();
}

bool BoxLog::Stop() {
  for (uint32_t island = 0; island < islands_.size(); ++island) OnDead(island);
  // What is in rings without names nobody finds again.
  if (kill_at_ms_ == 0) kill_at_ms_ = MonotonicMs() + (exposed_.ok() ? 1 : 8) * kStopPatienceMs;
  if (stopping_) {
    int wait_status = 0;
    if (waitpid(pid_, &wait_status, WNOHANG) == pid_) {
      pid_ = 0;
      if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        Close();
      } else {
        spdlog::error("logger: {}; the log is not closed", DescribeExit(wait_status));
      }
      return true;
    }
  } else {
    (void)Step();
    if (!failure_.ok()) {
      spdlog::error("{}; the log is not closed", std::string(failure_.message()));
      return true;
    }
    const auto drained = [](const Island& island) { return island.state == State::kDrained; };
    if (pid_ > 0 && std::all_of(islands_.begin(), islands_.end(), drained)) {
      stopping_ = true;
      socket_.Reset();  // a signal might come before it has blocked signals, and end it undrained
    }
  }
  if (MonotonicMs() < kill_at_ms_) return false;
  spdlog::error("logger: did not drain the log within {} s; the next `up` goes on with it",
                kStopPatienceMs / 1000);
  return true;
}

// Everything is in EPOCH: the rings are needed no more.
void BoxLog::Close() {
  // Without it a manifest would say that a log which is gone is whole.
  const std::string epoch = options_.log_directory + "/" + log::kEpochFileName;
  if (!files_->Exists(epoch)) {
    spdlog::error("the log is not closed: {} is gone", epoch);
    return;
  }
  log::BoxManifest manifest = manifest_;
  manifest.ring_directory = log::BoxId{};
  manifest.ring_path.clear();
  absl::Status status = log::WriteBoxManifest(*files_, options_.log_directory, manifest);
  if (status.ok()) status = rings_->Remove();
  if (!status.ok()) spdlog::error("the log is not closed: {}", std::string(status.message()));
}

}  // namespace islands::deploy
