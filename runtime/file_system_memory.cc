#include "runtime/file_system_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

absl::Status NoSuch(std::string_view action, std::string_view path) {
  return absl::NotFoundError(fmt::format("cannot {} {}: no such file or directory", action, path));
}

// "." and "/" as SimulatedNames calls them.
std::string DirectoryName(const std::string& path) { return path == "." || path == "/" ? "" : path; }

}  // namespace

class MemoryFileSystem::MemoryQueue final : public FileSystem::Queue {
 public:
  MemoryQueue(MemoryFileSystem* files, uint64_t number) : files_(files), number_(number) {}
  ~MemoryQueue() override { files_->DestroyQueue(number_); }
  void Submit(const IoRequest& request) override { files_->Submit(number_, request); }
  size_t Poll(std::vector<IoCompletion>* completions) override { return files_->Poll(number_, completions); }
  void Wait(int64_t /*timeout_ns*/) override {}

 private:
  MemoryFileSystem* files_;
  const uint64_t number_;
};

MemoryFileSystem::MemoryFileSystem(const SimulatedDisk& disk)
    : disk_(disk), disk_bytes_(disk.disk_bytes), random_(disk.seed) {}

void MemoryFileSystem::FailAfter(uint64_t steps) {
  const MutexLock lock(mutex_);
  steps_.FailAfter(steps);
}

void MemoryFileSystem::Inject(uint64_t steps, DiskFault fault) {
  const MutexLock lock(mutex_);
  steps_.Inject(steps, fault);
}

void MemoryFileSystem::ForgetFaults() {
  const MutexLock lock(mutex_);
  steps_.Clear();
}

void MemoryFileSystem::SetRoom(uint64_t bytes) {
  const MutexLock lock(mutex_);
  disk_bytes_ = bytes == UINT64_MAX ? bytes : UsedBytes() + bytes;
}

void MemoryFileSystem::LeaveInFlight(bool leave) {
  const MutexLock lock(mutex_);
  leaves_ = leave;
}

uint64_t MemoryFileSystem::steps() const {
  const MutexLock lock(mutex_);
  return steps_.count();
}

// ---- Open files ----

absl::StatusOr<FileHandle> MemoryFileSystem::Open(const std::string& path, bool create, bool direct) {
  (void)direct;
  const MutexLock lock(mutex_);
  if (!names_.Find(path)) {
    if (!create) return NoSuch("open", path);
    const SimulatedFilePtr file = std::make_shared<SimulatedFile>(disk_.sector_bytes);
    if (absl::Status made = ChangeNames("create", path, {{path, file}}); !made.ok()) return made;
  }
  open_.push_back(std::make_shared<OpenFile>(OpenFile{.file = names_.Find(path), .path = path}));
  return static_cast<FileHandle>(open_.size() - 1);
}

absl::Status MemoryFileSystem::Close(FileHandle handle) {
  const MutexLock lock(mutex_);
  if (absl::Status open = Find("close", handle).status(); !open.ok()) return open;
  open_[handle].reset();
  return absl::OkStatus();
}

absl::StatusOr<MemoryFileSystem::OpenFilePtr> MemoryFileSystem::Find(std::string_view action,
                                                                     FileHandle file) const {
  if (file < 0 || static_cast<size_t>(file) >= open_.size() || !open_[file]) {
    return absl::InvalidArgumentError(fmt::format("cannot {} file {}: it is not open", action, file));
  }
  return open_[file];
}

absl::Status MemoryFileSystem::Allocate(FileHandle handle, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const absl::StatusOr<OpenFilePtr> file = Find("allocate", handle);
  if (!file.ok()) return file.status();
  return Resize(**file, std::max<uint64_t>((*file)->file->content().size(), bytes), "allocate");
}

absl::Status MemoryFileSystem::Truncate(FileHandle handle, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const absl::StatusOr<OpenFilePtr> file = Find("truncate", handle);
  if (!file.ok()) return file.status();
  return Resize(**file, bytes, "truncate");
}

absl::Status MemoryFileSystem::Resize(const OpenFile& file, uint64_t bytes, std::string_view action) {
  const DiskSteps::Step step = steps_.Next(action, file.path);
  if (!step.status.ok()) return step.status;
  if (absl::Status room = CheckRoom(*file.file, bytes, file.path); !room.ok()) return room;
  if (bytes != file.file->content().size()) file.file->Resize(bytes, step.lost);
  return absl::OkStatus();
}

uint64_t MemoryFileSystem::UsedBytes() const {
  std::set<const SimulatedFile*> files;  // also those that are removed and still open
  for (const auto& [name, named] : names_.files()) files.insert(named.get());
  for (const OpenFilePtr& open : open_) {
    if (open) files.insert(open->file.get());
  }
  uint64_t used = 0;
  for (const SimulatedFile* each : files) used += each->content().size();
  return used;
}

absl::Status MemoryFileSystem::CheckRoom(const SimulatedFile& file, uint64_t end,
                                         std::string_view path) const {
  if (end <= file.content().size() || disk_bytes_ == UINT64_MAX) return absl::OkStatus();
  if (UsedBytes() + end - file.content().size() <= disk_bytes_) return absl::OkStatus();
  return absl::ErrnoToStatus(ENOSPC, fmt::format("cannot make {} {} bytes long", path, end));
}

absl::StatusOr<uint64_t> MemoryFileSystem::Size(FileHandle handle) {
  const MutexLock lock(mutex_);
  const absl::StatusOr<OpenFilePtr> file = Find("ask for the size of", handle);
  if (!file.ok()) return file.status();
  return (*file)->file->content().size();
}

absl::Status MemoryFileSystem::Lock(FileHandle handle) {
  const MutexLock lock(mutex_);
  const absl::StatusOr<OpenFilePtr> file = Find("lock", handle);
  if (!file.ok()) return file.status();
  std::weak_ptr<OpenFile>& holder = locks_[(*file)->file.get()];
  if (const OpenFilePtr other = holder.lock(); other && other != *file) {
    return absl::UnavailableError(fmt::format("cannot lock {}: somebody else holds it", (*file)->path));
  }
  holder = *file;
  return absl::OkStatus();
}

// ---- Names ----

absl::Status MemoryFileSystem::RequireDirectory(std::string_view action, const std::string& path,
                                                const std::string& directory) const {
  if (names_.HasDirectory(directory)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("cannot {} {}: no directory {}", action, path, directory));
}

absl::Status MemoryFileSystem::ChangeNames(std::string_view action, const std::string& path,
                                           SimulatedNames::Change change) {
  const std::string directory = SimulatedNames::DirectoryOf(path);
  if (absl::Status there = RequireDirectory(action, path, directory); !there.ok()) return there;
  const DiskSteps::Step step = steps_.Next(action, path);
  if (step.status.ok()) names_.Apply(std::move(change), step.lost);
  return step.status;
}

absl::Status MemoryFileSystem::SyncNames(const std::string& directory) {
  const DiskSteps::Step step = steps_.Next("sync directory", directory);
  if (!step.status.ok() && !steps_.without_power()) names_.DropUnsynced(directory);  // invariant 4
  if (step.status.ok() && !step.lost) names_.Sync(directory);
  return step.status;
}

absl::Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::string directory = DirectoryName(path);
  if (!names_.HasDirectory(directory)) return NoSuch("sync directory", path);
  return SyncNames(directory);
}

absl::StatusOr<std::vector<std::string>> MemoryFileSystem::List(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::string directory = DirectoryName(path);
  if (!names_.HasDirectory(directory)) return NoSuch("list directory", path);
  return names_.List(directory);
}

absl::Status MemoryFileSystem::MakeDirectories(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("cannot make a directory without a name");
  const MutexLock lock(mutex_);
  // As the operating system's files do it: from the first that is missing on, each made and its parent
  // synced; what is there was made by somebody who may have died before he synced.
  std::vector<std::string> missing;
  std::string above = DirectoryName(path);
  for (; !names_.HasDirectory(above); above = SimulatedNames::DirectoryOf(above)) missing.push_back(above);
  if (!above.empty()) {
    if (absl::Status synced = SyncNames(SimulatedNames::DirectoryOf(above)); !synced.ok()) return synced;
  }
  for (auto name = missing.rbegin(); name != missing.rend(); ++name) {
    const DiskSteps::Step step = steps_.Next("make directory", *name);
    if (!step.status.ok()) return step.status;
    names_.MakeDirectory(*name, step.lost);
    if (absl::Status synced = SyncNames(SimulatedNames::DirectoryOf(*name)); !synced.ok()) return synced;
  }
  return absl::OkStatus();
}

void MemoryFileSystem::LeaveDirectory(const std::string& path) {
  const MutexLock lock(mutex_);
  names_.MakeDirectory(path, /*lost=*/false);
}

bool MemoryFileSystem::Exists(const std::string& path) {
  const MutexLock lock(mutex_);
  return names_.Find(path) != nullptr || (!path.empty() && names_.HasDirectory(path));
}

absl::Status MemoryFileSystem::Remove(const std::string& path) {
  const MutexLock lock(mutex_);
  if (!names_.Find(path)) return NoSuch("remove", path);
  return ChangeNames("remove", path, {{path, nullptr}});
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  const MutexLock lock(mutex_);
  if (SimulatedNames::DirectoryOf(from) != SimulatedNames::DirectoryOf(to)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot rename {} to {}: it would change its directory", from, to));
  }
  const SimulatedFilePtr file = names_.Find(from);
  if (!file) return NoSuch("rename", from);
  if (from == to) return absl::OkStatus();
  return ChangeNames("rename", from, {{from, nullptr}, {to, file}});
}

absl::StatusOr<std::string> MemoryFileSystem::ReadFile(const std::string& path) {
  const MutexLock lock(mutex_);
  const SimulatedFilePtr file = names_.Find(path);
  if (!file) return NoSuch("open", path);
  return file->content();
}

absl::Status MemoryFileSystem::ReplaceFile(const std::string& path, std::string_view content) {
  const MutexLock lock(mutex_);
  const std::string temporary = path + ".tmp";
  const OpenFile file{.file = std::make_shared<SimulatedFile>(disk_.sector_bytes), .path = temporary};
  if (absl::Status made = ChangeNames("create", temporary, {{temporary, file.file}}); !made.ok()) return made;
  size_t moved = 0;
  const auto bytes = std::as_bytes(std::span(content.data(), content.size()));
  if (absl::Status written = Write(file, 0, bytes, &moved); !written.ok()) return written;
  if (absl::Status synced = Sync(file, file.file->changes()); !synced.ok()) return synced;
  absl::Status renamed = ChangeNames("rename", temporary, {{temporary, nullptr}, {path, file.file}});
  if (!renamed.ok()) return renamed;
  return SyncNames(SimulatedNames::DirectoryOf(path));
}

// ---- Requests ----

std::unique_ptr<FileSystem::Queue> MemoryFileSystem::MakeQueue() {
  const MutexLock lock(mutex_);
  queues_[queues_made_];
  return std::make_unique<MemoryQueue>(this, queues_made_++);
}

void MemoryFileSystem::Submit(uint64_t queue, const IoRequest& request) {
  const MutexLock lock(mutex_);
  InFlight transfer{.number = submitted_++, .request = request};
  transfer.power_lost = request.kind != IoKind::kRead && steps_.without_power();
  if (absl::StatusOr<OpenFilePtr> file = Find("use", request.file); file.ok()) {
    transfer.file = *std::move(file);
    transfer.covered_changes = transfer.file->file->changes();  // invariant 2
  }
  int64_t due_ns = 0;
  if (disk_.clock != nullptr) {
    const uint64_t spread = static_cast<uint64_t>(disk_.max_delay_ns - disk_.min_delay_ns);
    due_ns = disk_.clock->NowNs() + disk_.min_delay_ns + static_cast<int64_t>(random_.Below(spread + 1));
  }
  queues_[queue].emplace(Due{due_ns, transfer.number}, std::move(transfer));
}

size_t MemoryFileSystem::Poll(uint64_t queue, std::vector<IoCompletion>* completions) {
  const MutexLock lock(mutex_);
  const int64_t now_ns = disk_.clock == nullptr ? 0 : disk_.clock->NowNs();
  std::map<Due, InFlight>& transfers = queues_[queue];
  size_t count = 0;
  for (auto first = transfers.begin(); first != transfers.end() && first->first.first <= now_ns; ++count) {
    completions->push_back(CarryOut(first->second));
    first = transfers.erase(first);
  }
  return count;
}

// What is in flight happens before anybody may free its buffers: invariant 1 of file_system.h.
void MemoryFileSystem::DestroyQueue(uint64_t queue) {
  const MutexLock lock(mutex_);
  for (auto& [due, transfer] : queues_[queue]) {
    const bool stays = leaves_ && transfer.file && !transfer.power_lost;
    stays ? Leave(std::move(transfer)) : static_cast<void>(CarryOut(transfer));
  }
  queues_.erase(queue);
}

void MemoryFileSystem::Leave(InFlight transfer) {
  if (transfer.request.kind == IoKind::kRead) return;
  const std::span<std::byte> buffer = transfer.request.buffer;
  transfer.copy = std::make_shared<std::vector<std::byte>>(buffer.begin(), buffer.end());
  transfer.request.buffer = *transfer.copy;
  const uint64_t number = transfer.number;
  queues_[kLeft].emplace(Due{0, number}, std::move(transfer));
}

void MemoryFileSystem::FinishLeft() {
  const MutexLock lock(mutex_);
  for (const auto& [due, transfer] : queues_[kLeft]) CarryOut(transfer);
  queues_.erase(kLeft);
}

int64_t MemoryFileSystem::NextCompletionNs() const {
  const MutexLock lock(mutex_);
  int64_t next_ns = INT64_MAX;
  for (const auto& [number, transfers] : queues_) {
    if (!transfers.empty()) next_ns = std::min(next_ns, transfers.begin()->first.first);
  }
  return next_ns;
}

IoCompletion MemoryFileSystem::CarryOut(const InFlight& transfer) {
  const IoRequest& request = transfer.request;
  IoCompletion done{.token = request.token, .status = absl::OkStatus()};
  if (transfer.power_lost) {
    done.status = absl::UnavailableError(fmt::format("lost power while file {} was used", request.file));
  } else if (!transfer.file) {
    done.status = absl::InvalidArgumentError(fmt::format("cannot use file {}: it is not open", request.file));
  } else if (request.kind == IoKind::kSync) {
    done.status = Sync(*transfer.file, transfer.covered_changes);
  } else if (request.kind == IoKind::kWrite) {
    done.status = Write(*transfer.file, request.offset, request.buffer, &done.bytes);
  } else if (const std::string& content = transfer.file->file->content(); request.offset < content.size()) {
    done.bytes = std::min<size_t>(request.buffer.size(), content.size() - request.offset);
    std::memcpy(request.buffer.data(), content.data() + request.offset, done.bytes);
  }
  return done;
}

absl::Status MemoryFileSystem::Write(const OpenFile& file, uint64_t offset, std::span<const std::byte> bytes,
                                     size_t* moved) {
  while (*moved < bytes.size()) {
    const DiskSteps::Step step =
        steps_.Next("write", fmt::format("{} at offset {}", file.path, offset + *moved));
    if (!step.status.ok()) return step.status;
    std::span<const std::byte> piece = bytes.subspan(*moved);
    if (step.short_write && piece.size() > 1) piece = piece.first(1 + random_.Below(piece.size() - 1));
    const uint64_t end = offset + *moved + piece.size();
    if (absl::Status room = CheckRoom(*file.file, end, file.path); !room.ok()) return room;
    file.file->Write(offset + *moved, piece, step.lost);
    *moved += piece.size();
  }
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::Sync(const OpenFile& file, uint64_t changes) {
  const DiskSteps::Step step = steps_.Next("sync", file.path);
  if (!step.status.ok() && !steps_.without_power()) file.file->DropUnsynced();  // invariant 4
  if (step.status.ok() && !step.lost) file.file->Sync(changes);
  return step.status;
}

// ---- Power ----

void MemoryFileSystem::PowerLoss() {
  const MutexLock lock(mutex_);
  LosePower(nullptr);
}

void MemoryFileSystem::PowerLoss(uint64_t seed) {
  const MutexLock lock(mutex_);
  Random random(seed);
  LosePower(&random);
}

void MemoryFileSystem::LosePower(Random* random) {
  InterruptInFlight(random);
  queues_.erase(kLeft);
  names_.LosePower(random);
  for (const auto& [name, file] : names_.files()) file->LosePower(random);
  for (OpenFilePtr& file : open_) file.reset();
  locks_.clear();
  steps_.Clear();
}

// Some writes have begun: they are as unsynced as those that have completed.
void MemoryFileSystem::InterruptInFlight(Random* random) {
  std::map<uint64_t, const InFlight*> writes;
  for (auto& [number, transfers] : queues_) {
    std::map<Due, InFlight> interrupted;
    for (auto& [due, transfer] : transfers) {
      interrupted.emplace(Due{0, transfer.number}, std::move(transfer));
    }
    transfers = std::move(interrupted);
    for (auto& [due, transfer] : transfers) {
      const bool write = transfer.file && transfer.request.kind == IoKind::kWrite && !transfer.power_lost;
      if (write) writes.emplace(transfer.number, &transfer);
      transfer.power_lost = true;
    }
  }
  if (random == nullptr) return;
  for (const auto& [number, transfer] : writes) {
    if (random->Below(2) == 0) continue;
    transfer->file->file->Write(transfer->request.offset, transfer->request.buffer, /*lost=*/false);
  }
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::AfterPowerLoss(uint64_t seed) const {
  auto after = std::make_unique<MemoryFileSystem>(disk_);
  const MutexLock lock(mutex_);
  const MutexLock after_lock(after->mutex_);
  CopyTo(after.get());
  Random random(seed);
  after->LosePower(&random);
  after->queues_.clear();
  return after;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::AfterKill() const {
  auto after = std::make_unique<MemoryFileSystem>(disk_);
  const MutexLock lock(mutex_);
  const MutexLock after_lock(after->mutex_);
  CopyTo(after.get());
  for (const auto& [number, transfers] : after->queues_) {
    for (const auto& [due, transfer] : transfers) {
      if (transfer.request.kind != IoKind::kRead) after->CarryOut(transfer);
    }
  }
  after->queues_.clear();
  return after;
}

void MemoryFileSystem::CopyTo(MemoryFileSystem* copy) const {
  std::map<const SimulatedFile*, SimulatedFilePtr> copies;
  const auto copy_of = [&](const SimulatedFilePtr& file) {
    SimulatedFilePtr& made = copies[file.get()];
    if (made == nullptr && file != nullptr) made = std::make_shared<SimulatedFile>(*file);
    return made;
  };
  copy->disk_bytes_ = disk_bytes_;
  copy->random_ = random_;
  copy->names_ = names_;
  copy->names_.ReplaceFiles(copy_of);
  for (const auto& [number, transfers] : queues_) {
    for (const auto& [due, transfer] : transfers) {
      InFlight its = transfer;
      if (its.file != nullptr)
        its.file = std::make_shared<OpenFile>(OpenFile{copy_of(its.file->file), its.file->path});
      copy->queues_[number].emplace(due, std::move(its));
    }
  }
}

std::unique_ptr<FileSystem> MakeMemoryFileSystem() { return std::make_unique<MemoryFileSystem>(); }

}  // namespace islands::runtime
