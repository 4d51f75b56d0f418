// Another file system as it is, with changes laid over it that are kept in memory and go with this object:
// who runs code over it that mends files sees what comes of that, and what lies below stays as it was.
//
// Writing means to read what the rest of a block is from below, and to wait for that; reading goes on as
// below. Locks are those of below: who has them keeps others out, and is kept out.
//
// Thread safety: one thread uses it and its queues, of which it outlives all.
//
// Invariant: 1. below nothing is written, allocated, made, renamed, removed or synced.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/file_system.h"

namespace islands::runtime {

class OverlayFileSystem final : public FileSystem {
 public:
  explicit OverlayFileSystem(FileSystem& below) : below_(below), queue_(below.MakeQueue()) {}

  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override;
  absl::Status Close(FileHandle file) override;
  std::unique_ptr<Queue> MakeQueue() override;
  absl::Status Allocate(FileHandle file, uint64_t bytes) override;
  absl::Status Truncate(FileHandle file, uint64_t bytes) override;
  absl::StatusOr<uint64_t> Size(FileHandle file) override;
  absl::Status Lock(FileHandle file) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::Status ReplaceFile(const std::string& path, std::string_view content) override;
  absl::Status MakeDirectories(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;

 private:
  class OverlayQueue;
  static constexpr size_t kBlockBytes = 4096;
  using Block = std::array<std::byte, kBlockBytes>;
  // A file, as it is here.
  struct Layer {
    std::string path;    // for messages
    std::string source;  // of the file below that it lies over; empty: none
    uint64_t bytes = 0;  // how long it is
    uint64_t shown = 0;  // so much of the beginning of what is below shows, where nothing is written
    std::map<uint64_t, Block> blocks;  // by number: that were written
    FileHandle locked = -1;            // by whom, where there is nothing below
  };
  using LayerPtr = std::shared_ptr<Layer>;
  struct OpenFile {
    LayerPtr layer;
    FileHandle below = -1;
  };

  absl::StatusOr<OpenFile> Find(std::string_view action, FileHandle file) const;
  absl::StatusOr<LayerPtr> FindLayer(std::string_view action, const std::string& path);
  absl::Status RequireParent(std::string_view action, const std::string& path);
  // What shows of the file below.
  absl::Status ReadBelow(const OpenFile& file, uint64_t offset, std::span<std::byte> bytes);
  absl::Status Write(const OpenFile& file, uint64_t offset, std::span<const std::byte> bytes);
  // Into `bytes`, of which `got` are from below: everything else. Returns how many there are.
  static size_t Complete(const Layer& layer, uint64_t offset, size_t got, std::span<std::byte> bytes);

  FileSystem& below_;
  std::unique_ptr<Queue> queue_;
  std::map<std::string, LayerPtr> layers_;  // by path; null: it is here no more
  std::set<std::string> directories_;       // that were made here
  std::map<FileHandle, OpenFile> open_;
  FileHandle next_ = 1;
};

}  // namespace islands::runtime
