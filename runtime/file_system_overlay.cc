#include "runtime/file_system_overlay.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

constexpr int64_t kLongWaitNs = 1'000'000'000;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status Missing(std::string_view action, const std::string& path) {
  return absl::NotFoundError(fmt::format("cannot {} {}: there is no such file or directory", action, path));
}

}  // namespace

// A read goes below, unless nothing there shows; the rest happens when it is submitted.
class OverlayFileSystem::OverlayQueue final : public FileSystem::Queue {
 public:
  explicit OverlayQueue(OverlayFileSystem& files) : files_(files), below_(files.below_.MakeQueue()) {}

  void Submit(const IoRequest& request) override {
    absl::StatusOr<OpenFile> file = files_.Find("use", request.file);
    if (!file.ok()) return Done(request, file.status(), 0);
    if (request.kind == IoKind::kSync) return Done(request, absl::OkStatus(), 0);
    if (request.kind == IoKind::kWrite) {
      const absl::Status written = files_.Write(*file, request.offset, request.buffer);
      return Done(request, written, written.ok() ? request.buffer.size() : 0);
    }
    if (request.offset >= file->layer->shown || request.buffer.empty())
      return Done(request, absl::OkStatus(),
                  OverlayFileSystem::Complete(*file->layer, request.offset, 0, request.buffer));
    const uint64_t token = next_++;
    IoRequest read = request;
    read.file = file->below;
    read.token = token;
    reads_.emplace(token, Read{request, *std::move(file)});
    below_->Submit(read);
  }
  size_t Poll(std::vector<IoCompletion>* completions) override {
    std::vector<IoCompletion> from_below;
    below_->Poll(&from_below);
    for (const IoCompletion& completion : from_below) {
      const auto read = reads_.extract(completion.token);
      const IoRequest& request = read.mapped().request;
      const Layer& layer = *read.mapped().file.layer;
      const bool ok = completion.status.ok();
      Done(request, completion.status,
           ok ? OverlayFileSystem::Complete(layer, request.offset, completion.bytes, request.buffer) : 0);
    }
    completions->insert(completions->end(), done_.begin(), done_.end());
    return std::exchange(done_, {}).size();
  }
  void Wait(int64_t timeout_ns) override {
    if (done_.empty()) below_->Wait(timeout_ns);
  }

 private:
  struct Read {
    IoRequest request;
    OpenFile file;
  };
  void Done(const IoRequest& request, absl::Status status, size_t bytes) {
    done_.push_back({.token = request.token, .status = std::move(status), .bytes = bytes});
  }

  OverlayFileSystem& files_;
  uint64_t next_ = 0;
  std::map<uint64_t, Read> reads_;  // that are under way, by token below
  std::vector<IoCompletion> done_;
  std::unique_ptr<Queue> below_;  // last: it ends before what it reads for
};

std::unique_ptr<FileSystem::Queue> OverlayFileSystem::MakeQueue() {
  return std::make_unique<OverlayQueue>(*this);
}

absl::StatusOr<OverlayFileSystem::OpenFile> OverlayFileSystem::Find(std::string_view action,
                                                                    FileHandle file) const {
  const auto found = open_.find(file);
  if (found != open_.end()) return found->second;
  return absl::InvalidArgumentError(fmt::format("cannot {} file {}: it is not open", action, file));
}

absl::StatusOr<OverlayFileSystem::LayerPtr> OverlayFileSystem::FindLayer(std::string_view action,
                                                                         const std::string& path) {
  const auto known = layers_.find(path);
  if (known != layers_.end())
    return known->second ? absl::StatusOr<LayerPtr>(known->second) : Missing(action, path);
  const absl::StatusOr<FileHandle> file = below_.Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> bytes = below_.Size(*file);
  below_.Close(*file).IgnoreError();
  if (!bytes.ok()) return bytes.status();
  const auto layer =
      std::make_shared<Layer>(Layer{.path = path, .source = path, .bytes = *bytes, .shown = *bytes});
  layers_[path] = layer;
  return layer;
}

absl::Status OverlayFileSystem::RequireParent(std::string_view action, const std::string& path) {
  return Exists(ParentOf(path)) ? absl::OkStatus() : Missing(action, path);
}

absl::StatusOr<FileHandle> OverlayFileSystem::Open(const std::string& path, bool create, bool /*direct*/) {
  absl::StatusOr<LayerPtr> layer = FindLayer("open", path);
  if (absl::IsNotFound(layer.status()) && create) {
    if (absl::Status parent = RequireParent("create", path); !parent.ok()) return parent;
    layer = layers_[path] = std::make_shared<Layer>(Layer{.path = path});
  }
  if (!layer.ok()) return layer.status();
  OpenFile file{*layer};
  if (!file.layer->source.empty()) {
    const absl::StatusOr<FileHandle> below =
        below_.Open(file.layer->source, /*create=*/false, /*direct=*/false);
    if (!below.ok()) return below.status();
    file.below = *below;
  }
  open_.emplace(next_, std::move(file));
  return next_++;
}

absl::Status OverlayFileSystem::Close(FileHandle handle) {
  const auto file = open_.extract(handle);
  if (!file) return Find("close", handle).status();
  Layer& layer = *file.mapped().layer;
  if (layer.locked == handle) layer.locked = -1;
  return file.mapped().below < 0 ? absl::OkStatus() : below_.Close(file.mapped().below);
}

absl::Status OverlayFileSystem::Allocate(FileHandle handle, uint64_t bytes) {
  const absl::StatusOr<OpenFile> file = Find("allocate", handle);
  if (file.ok()) file->layer->bytes = std::max(file->layer->bytes, bytes);
  return file.status();
}

absl::Status OverlayFileSystem::Truncate(FileHandle handle, uint64_t bytes) {
  const absl::StatusOr<OpenFile> file = Find("truncate", handle);
  if (!file.ok()) return file.status();
  Layer& layer = *file->layer;
  layer.blocks.erase(layer.blocks.lower_bound((bytes + kBlockBytes - 1) / kBlockBytes), layer.blocks.end());
  const auto last = layer.blocks.find(bytes / kBlockBytes);
  if (last != layer.blocks.end())
    std::fill(last->second.begin() + static_cast<ptrdiff_t>(bytes % kBlockBytes), last->second.end(),
              std::byte{0});
  layer.bytes = bytes;
  layer.shown = std::min(layer.shown, bytes);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> OverlayFileSystem::Size(FileHandle handle) {
  const absl::StatusOr<OpenFile> file = Find("ask for the size of", handle);
  if (!file.ok()) return file.status();
  return file->layer->bytes;
}

absl::Status OverlayFileSystem::Lock(FileHandle handle) {
  const absl::StatusOr<OpenFile> file = Find("lock", handle);
  if (!file.ok()) return file.status();
  if (file->below >= 0) return below_.Lock(file->below);
  if (file->layer->locked >= 0 && file->layer->locked != handle)
    return absl::UnavailableError(fmt::format("cannot lock {}: somebody else holds it", file->layer->path));
  file->layer->locked = handle;
  return absl::OkStatus();
}

absl::Status OverlayFileSystem::ReadBelow(const OpenFile& file, uint64_t offset, std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  if (offset >= file.layer->shown) return absl::OkStatus();
  const size_t shown = std::min<uint64_t>(bytes.size(), file.layer->shown - offset);
  queue_->Submit({.kind = IoKind::kRead, .file = file.below, .offset = offset, .buffer = bytes.first(shown)});
  std::vector<IoCompletion> done;
  while (queue_->Poll(&done) == 0) queue_->Wait(kLongWaitNs);
  return done.front().status;
}

absl::Status OverlayFileSystem::Write(const OpenFile& file, uint64_t offset,
                                      std::span<const std::byte> bytes) {
  Layer& layer = *file.layer;
  while (!bytes.empty()) {
    const uint64_t number = offset / kBlockBytes;
    const size_t at = offset % kBlockBytes, count = std::min(bytes.size(), kBlockBytes - at);
    auto block = layer.blocks.find(number);
    if (block == layer.blocks.end()) {
      Block before{};
      if (count < kBlockBytes) {
        if (absl::Status read = ReadBelow(file, number * kBlockBytes, before); !read.ok()) return read;
      }
      block = layer.blocks.emplace(number, before).first;
    }
    std::copy_n(bytes.begin(), count, block->second.begin() + static_cast<ptrdiff_t>(at));
    bytes = bytes.subspan(count);
    offset += count;
    layer.bytes = std::max(layer.bytes, offset);
  }
  return absl::OkStatus();
}

size_t OverlayFileSystem::Complete(const Layer& layer, uint64_t offset, size_t got,
                                   std::span<std::byte> bytes) {
  if (offset >= layer.bytes) return 0;
  bytes = bytes.first(std::min<uint64_t>(bytes.size(), layer.bytes - offset));
  const uint64_t end = offset + bytes.size();
  const size_t shown =
      offset >= layer.shown ? 0 : std::min<uint64_t>({got, layer.shown - offset, bytes.size()});
  std::fill(bytes.begin() + static_cast<ptrdiff_t>(shown), bytes.end(), std::byte{0});
  for (auto block = layer.blocks.lower_bound(offset / kBlockBytes);
       block != layer.blocks.end() && block->first * kBlockBytes < end; ++block) {
    const uint64_t first = std::max(offset, block->first * kBlockBytes);
    const uint64_t last = std::min(end, (block->first + 1) * kBlockBytes);
    std::copy_n(block->second.begin() + static_cast<ptrdiff_t>(first % kBlockBytes), last - first,
                bytes.begin() + static_cast<ptrdiff_t>(first - offset));
  }
  return bytes.size();
}

absl::StatusOr<std::string> OverlayFileSystem::ReadFile(const std::string& path) {
  const auto known = layers_.find(path);
  if (known == layers_.end()) return below_.ReadFile(path);
  if (!known->second) return Missing("open", path);
  const Layer& layer = *known->second;
  absl::StatusOr<std::string> content = layer.shown == 0 ? std::string() : below_.ReadFile(layer.source);
  if (!content.ok()) return content;
  const size_t got = content->size();
  content->resize(layer.bytes);
  (void)Complete(layer, 0, got, std::as_writable_bytes(std::span(*content)));
  return content;
}

absl::Status OverlayFileSystem::ReplaceFile(const std::string& path, std::string_view content) {
  if (absl::Status parent = RequireParent("create", path); !parent.ok()) return parent;
  OpenFile file{std::make_shared<Layer>(Layer{.path = path})};
  if (absl::Status written = Write(file, 0, std::as_bytes(std::span(content))); !written.ok()) return written;
  layers_[path] = std::move(file.layer);
  return absl::OkStatus();
}

absl::Status OverlayFileSystem::MakeDirectories(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("cannot make a directory without a name");
  if (Exists(path)) return absl::OkStatus();
  directories_.insert(path);
  const std::string parent = ParentOf(path);
  return parent == path ? absl::OkStatus() : MakeDirectories(parent);
}

bool OverlayFileSystem::Exists(const std::string& path) {
  const auto known = layers_.find(path);
  if (known != layers_.end()) return known->second != nullptr;
  return directories_.contains(path) || below_.Exists(path);
}

absl::Status OverlayFileSystem::Remove(const std::string& path) {
  if (!Exists(path)) return Missing("remove", path);
  layers_[path] = nullptr;
  return absl::OkStatus();
}

absl::Status OverlayFileSystem::Rename(const std::string& from, const std::string& to) {
  if (ParentOf(from) != ParentOf(to))
    return absl::InvalidArgumentError(
        fmt::format("cannot rename {} to {}: it would change its directory", from, to));
  const absl::StatusOr<LayerPtr> layer = FindLayer("rename", from);
  if (!layer.ok()) return layer.status();
  layers_[from] = nullptr;
  layers_[to] = *layer;
  return absl::OkStatus();
}

absl::Status OverlayFileSystem::SyncDirectory(const std::string& path) {
  return Exists(path) ? absl::OkStatus() : Missing("sync directory", path);
}

absl::StatusOr<std::vector<std::string>> OverlayFileSystem::List(const std::string& directory) {
  std::set<std::string> names;
  if (below_.Exists(directory)) {
    const absl::StatusOr<std::vector<std::string>> below = below_.List(directory);
    if (!below.ok()) return below.status();
    names.insert(below->begin(), below->end());
  } else if (!directories_.contains(directory)) {
    return Missing("list directory", directory);
  }
  const auto name_of = [](const std::string& path) { return path.substr(path.find_last_of('/') + 1); };
  for (const std::string& made : directories_) {
    if (ParentOf(made) == directory) names.insert(name_of(made));
  }
  for (const auto& [path, layer] : layers_) {
    if (ParentOf(path) != directory) continue;
    layer ? void(names.insert(name_of(path))) : void(names.erase(name_of(path)));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace islands::runtime
