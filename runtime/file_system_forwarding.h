// A file system that is another one, for tests that watch or fail some of its calls: they override those.
//
// Thread safety: as the one below, which outlives it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/file_system.h"

namespace islands::runtime {

class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& below) : below_(below) {}

  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override {
    return below_.Open(path, create, direct);
  }
  absl::Status Close(FileHandle file) override { return below_.Close(file); }
  std::unique_ptr<Queue> MakeQueue() override { return below_.MakeQueue(); }
  absl::Status Allocate(FileHandle file, uint64_t bytes) override { return below_.Allocate(file, bytes); }
  absl::Status Truncate(FileHandle file, uint64_t bytes) override { return below_.Truncate(file, bytes); }
  absl::StatusOr<uint64_t> Size(FileHandle file) override { return below_.Size(file); }
  absl::Status Lock(FileHandle file) override { return below_.Lock(file); }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override { return below_.ReadFile(path); }
  absl::Status ReplaceFile(const std::string& path, std::string_view content) override {
    return below_.ReplaceFile(path, content);
  }
  absl::Status MakeDirectories(const std::string& path) override { return below_.MakeDirectories(path); }
  bool Exists(const std::string& path) override { return below_.Exists(path); }
  absl::Status Remove(const std::string& path) override { return below_.Remove(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return below_.Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override { return below_.SyncDirectory(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return below_.List(directory);
  }

 private:
  FileSystem& below_;
};

}  // namespace islands::runtime
