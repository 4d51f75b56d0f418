#include "runtime/file_system_memory.h"

#include <algorithm>
#include <cstring>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

absl::Status NoSuchFile(const std::string& path) {
  return absl::NotFoundError(fmt::format("cannot open {}: no such file", path));
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

}  // namespace

class MemoryFileSystem::MemoryQueue final : public FileSystem::Queue {
 public:
  explicit MemoryQueue(MemoryFileSystem* files) : files_(files) {}
  void Submit(const IoRequest& request) override { submitted_.push_back(request); }
  size_t Poll(std::vector<IoCompletion>* completions) override {
    const size_t finished = submitted_.size();
    for (const IoRequest& request : submitted_) completions->push_back(files_->CarryOut(request));
    submitted_.clear();
    return finished;
  }

 private:
  MemoryFileSystem* files_;
  std::vector<IoRequest> submitted_;
};

absl::Status MemoryFileSystem::Step() {
  if (steps_left_ == 0) return absl::UnavailableError("the simulated machine has lost power");
  if (steps_left_ != UINT64_MAX) --steps_left_;
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RequireParent(const std::string& path) {
  const std::string parent = ParentOf(path);
  if (parent.empty() || directories_.contains(parent)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("cannot create {}: no directory {}", path, parent));
}

absl::StatusOr<FileHandle> MemoryFileSystem::Open(const std::string& path, bool create, bool direct) {
  (void)direct;
  const runtime::MutexLock lock(mutex_);
  auto found = names_.find(path);
  if (found == names_.end()) {
    if (!create) return NoSuchFile(path);
    if (absl::Status parent = RequireParent(path); !parent.ok()) return parent;
    if (absl::Status step = Step(); !step.ok()) return step;
    found = names_.emplace(path, std::make_shared<File>()).first;
    durable_names_[path] = found->second;
  }
  open_.push_back(found->second);
  return static_cast<FileHandle>(open_.size() - 1);
}

absl::Status MemoryFileSystem::Close(FileHandle file) {
  const runtime::MutexLock lock(mutex_);
  if (file < 0 || static_cast<size_t>(file) >= open_.size() || !open_[file]) {
    return absl::InvalidArgumentError(fmt::format("cannot close file {}: it is not open", file));
  }
  open_[file].reset();
  return absl::OkStatus();
}

std::unique_ptr<FileSystem::Queue> MemoryFileSystem::MakeQueue() {
  return std::make_unique<MemoryQueue>(this);
}

absl::StatusOr<std::string> MemoryFileSystem::ReadFile(const std::string& path) {
  const runtime::MutexLock lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return NoSuchFile(path);
  return found->second->content;
}

absl::Status MemoryFileSystem::ReplaceFile(const std::string& path, std::string_view content) {
  const runtime::MutexLock lock(mutex_);
  if (absl::Status parent = RequireParent(path); !parent.ok()) return parent;
  const std::string temporary = path + ".tmp";
  if (absl::Status step = Step(); !step.ok()) return step;
  FilePtr file = std::make_shared<File>();
  names_[temporary] = file;
  if (absl::Status step = Step(); !step.ok()) return step;
  file->content = content;
  if (absl::Status step = Step(); !step.ok()) return step;
  file->synced = file->content;
  if (absl::Status step = Step(); !step.ok()) return step;
  names_[path] = file;
  names_.erase(temporary);
  if (absl::Status step = Step(); !step.ok()) return step;
  durable_names_[path] = file;
  durable_names_.erase(temporary);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::MakeDirectories(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("cannot make a directory without a name");
  const runtime::MutexLock lock(mutex_);
  if (absl::Status step = Step(); !step.ok()) return step;
  for (std::string name = path; !name.empty(); name = ParentOf(name)) directories_[name] = true;
  return absl::OkStatus();
}

bool MemoryFileSystem::Exists(const std::string& path) {
  const runtime::MutexLock lock(mutex_);
  return names_.contains(path) || directories_.contains(path);
}

absl::Status MemoryFileSystem::Remove(const std::string& path) {
  const runtime::MutexLock lock(mutex_);
  if (!names_.contains(path)) return absl::NotFoundError(fmt::format("cannot remove {}: no such file", path));
  if (absl::Status step = Step(); !step.ok()) return step;
  names_.erase(path);
  durable_names_.erase(path);
  return absl::OkStatus();
}

void MemoryFileSystem::FailAfter(uint64_t steps) {
  const runtime::MutexLock lock(mutex_);
  steps_left_ = steps;
}

void MemoryFileSystem::PowerLoss() {
  const runtime::MutexLock lock(mutex_);
  steps_left_ = UINT64_MAX;
  names_ = durable_names_;
  for (auto& [name, file] : names_) file->content = file->synced;
  for (FilePtr& file : open_) file.reset();
}

IoCompletion MemoryFileSystem::CarryOut(const IoRequest& request) {
  const runtime::MutexLock lock(mutex_);
  IoCompletion done{.token = request.token, .status = absl::OkStatus()};
  if (request.file < 0 || static_cast<size_t>(request.file) >= open_.size() || !open_[request.file]) {
    done.status = absl::InvalidArgumentError(fmt::format("file {} is not open", request.file));
    return done;
  }
  File& file = *open_[request.file];
  if (request.kind == IoKind::kRead) {
    if (request.offset < file.content.size()) {
      done.bytes = std::min<size_t>(request.buffer.size(), file.content.size() - request.offset);
      std::memcpy(request.buffer.data(), file.content.data() + request.offset, done.bytes);
    }
    return done;
  }
  done.status = Step();
  if (!done.status.ok()) return done;
  if (request.kind == IoKind::kSync) {
    file.synced = file.content;
    return done;
  }
  if (request.buffer.empty()) return done;
  if (file.content.size() < request.offset + request.buffer.size()) {
    file.content.resize(request.offset + request.buffer.size());
  }
  std::memcpy(file.content.data() + request.offset, request.buffer.data(), request.buffer.size());
  done.bytes = request.buffer.size();
  return done;
}

std::unique_ptr<FileSystem> MakeMemoryFileSystem() { return std::make_unique<MemoryFileSystem>(); }

}  // namespace islands::runtime
