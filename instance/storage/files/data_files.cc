#include "instance/storage/files/data_files.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace islands::storage {
namespace {

constexpr char kGeneration[] = "generation-", kSecondSet[] = "-b";

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
    if (!name.starts_with(Prefix(generation) + "site-") || name.ends_with(kSecondSet)) continue;
    const auto file = files.Open(directory + "/" + name, /*create=*/false, /*direct=*/false);
    if (!file.ok()) return file.status();
    const absl::StatusOr<uint64_t> size = files.Size(*file);
    files.Close(*file).IgnoreError();
    if (!size.ok()) return size;
    bytes += *size;
  }
  return bytes;
}

std::string DataFiles::PathOf(uint32_t set, size_t slot) const {
  return fmt::format("{}/{}site-{:05}{}", options_.directory, Prefix(options_.generation),
                     options_.sites[slot], set == 0 ? "" : kSecondSet);
}

std::optional<size_t> DataFiles::SlotOf(uint32_t site) const {
  const auto found = std::find(options_.sites.begin(), options_.sites.end(), site);
  if (found == options_.sites.end()) return std::nullopt;
  return static_cast<size_t>(found - options_.sites.begin());
}

absl::Status DataFiles::OpenOne(const std::string& path, bool create, bool direct,
                                runtime::FileHandle* file) {
  absl::StatusOr<runtime::FileHandle> opened = files_->Open(path, create, direct);
  // Some file systems have nothing but a cache.
  if (direct && absl::IsInvalidArgument(opened.status()))
    opened = files_->Open(path, create, /*direct=*/false);
  if (!opened.ok()) return opened.status();
  if (absl::Status locked = files_->Lock(*opened); !locked.ok()) {
    files_->Close(*opened).IgnoreError();
    return locked;
  }
  *file = *opened;
  return absl::OkStatus();
}

absl::Status DataFiles::OpenSet(uint32_t set, bool create) {
  std::vector<runtime::FileHandle>& files = sites_[set];
  for (size_t slot = files.size(); slot < slots(); ++slot) {
    runtime::FileHandle file = kNone;
    absl::Status ready = OpenOne(PathOf(set, slot), create, options_.direct, &file);
    if (file != kNone) files.push_back(file);
    if (ready.ok() && create) ready = files_->Truncate(file, 0);
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

absl::Status DataFiles::OpenAll(bool create) {
  const std::string prefix = options_.directory + "/" + Prefix(options_.generation);
  absl::Status ready = OpenSet(set_, create);
  if (ready.ok()) ready = OpenOne(prefix + "double-write", create, options_.direct, &double_write_);
  if (ready.ok() && create) ready = files_->Truncate(double_write_, 0);
  if (ready.ok()) ready = OpenOne(prefix + "checkpoint", create, /*direct=*/false, &checkpoint_);
  if (ready.ok() && create) ready = files_->Truncate(checkpoint_, 0);
  return ready;
}

absl::Status DataFiles::UseSet(uint32_t set) {
  if (absl::Status opened = OpenSet(set, /*create=*/false); !opened.ok()) return opened;
  set_ = set;
  return absl::OkStatus();
}

absl::Status DataFiles::OpenOther() {
  if (sites_[other_set()].size() == slots()) return absl::OkStatus();
  absl::Status made = OpenSet(other_set(), /*create=*/true);
  return made.ok() ? files_->SyncDirectory(options_.directory) : made;
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
      sites_(std::exchange(other.sites_, {})),
      double_write_(std::exchange(other.double_write_, kNone)),
      checkpoint_(std::exchange(other.checkpoint_, kNone)),
      set_(other.set_) {}

DataFiles& DataFiles::operator=(DataFiles&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(options_, other.options_);
  std::swap(sites_, other.sites_);
  std::swap(double_write_, other.double_write_);
  std::swap(checkpoint_, other.checkpoint_);
  std::swap(set_, other.set_);
  return *this;
}

DataFiles::~DataFiles() {
  const auto close = [this](runtime::FileHandle file) {
    if (file != kNone) files_->Close(file).IgnoreError();
  };
  for (const std::vector<runtime::FileHandle>& set : sites_) std::ranges::for_each(set, close);
  close(double_write_);
  close(checkpoint_);
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
