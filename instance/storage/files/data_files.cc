#include "instance/storage/files/data_files.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace islands::storage {
namespace {

constexpr char kGeneration[] = "generation-";

std::string Prefix(uint64_t generation) { return fmt::format("{}{:010}-", kGeneration, generation); }

}  // namespace

std::string CheckpointPath(const std::string& directory, uint64_t generation) {
  return directory + "/" + Prefix(generation) + "checkpoint";
}

absl::StatusOr<uint64_t> BytesOfSites(runtime::FileSystem& files, const std::string& directory,
                                      uint64_t generation) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  uint64_t bytes = 0;
  for (const std::string& name : *names) {
    if (!name.starts_with(Prefix(generation) + "site-")) continue;
    const auto file = files.Open(directory + "/" + name, /*create=*/false, /*direct=*/false);
    if (!file.ok()) return file.status();
    const absl::StatusOr<uint64_t> size = files.Size(*file);
    files.Close(*file).IgnoreError();
    if (!size.ok()) return size;
    bytes += *size;
  }
  return bytes;
}

std::string DataFiles::PathOf(size_t slot) const {
  const std::string prefix = options_.directory + "/" + Prefix(options_.generation);
  if (slot < slots()) return prefix + fmt::format("site-{:05}", options_.sites[slot]);
  return slot == slots() ? prefix + "double-write" : prefix + "checkpoint";
}

std::optional<size_t> DataFiles::SlotOf(uint32_t site) const {
  const auto found = std::find(options_.sites.begin(), options_.sites.end(), site);
  if (found == options_.sites.end()) return std::nullopt;
  return static_cast<size_t>(found - options_.sites.begin());
}

absl::Status DataFiles::OpenAll(bool create) {
  for (size_t slot = 0; slot < slots() + 2; ++slot) {
    const bool direct = options_.direct && slot <= slots();
    absl::StatusOr<runtime::FileHandle> file = files_->Open(PathOf(slot), create, direct);
    // Some file systems have nothing but a cache.
    if (direct && absl::IsInvalidArgument(file.status()))
      file = files_->Open(PathOf(slot), create, /*direct=*/false);
    if (!file.ok()) return file.status();
    handles_.push_back(*file);
    absl::Status ready = files_->Lock(*file);
    if (ready.ok() && create) ready = files_->Truncate(*file, 0);
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

absl::StatusOr<DataFiles> DataFiles::Open(runtime::FileSystem& files, const DataFilesOptions& options) {
  DataFiles data(files, options);
  if (absl::Status opened = data.OpenAll(/*create=*/false); !opened.ok()) return opened;
  return data;
}

absl::StatusOr<DataFiles> DataFiles::Create(runtime::FileSystem& files, const DataFilesOptions& options) {
  DataFiles data(files, options);
  absl::Status made = files.MakeDirectories(options.directory);
  if (made.ok()) made = data.OpenAll(/*create=*/true);
  if (made.ok()) made = files.SyncDirectory(options.directory);
  if (!made.ok()) return made;
  return data;
}

DataFiles::DataFiles(DataFiles&& other) noexcept
    : files_(other.files_),
      options_(std::move(other.options_)),
      handles_(std::exchange(other.handles_, {})) {}

DataFiles& DataFiles::operator=(DataFiles&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(options_, other.options_);
  std::swap(handles_, other.handles_);
  return *this;
}

DataFiles::~DataFiles() {
  for (const runtime::FileHandle file : handles_) files_->Close(file).IgnoreError();
}

absl::Status RemoveOtherGenerations(runtime::FileSystem& files, const std::string& directory,
                                    uint64_t generation) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.starts_with(kGeneration) || name.starts_with(Prefix(generation))) continue;
    if (absl::Status removed = files.Remove(directory + "/" + name); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

}  // namespace islands::storage
