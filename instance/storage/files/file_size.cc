#include "instance/storage/files/file_size.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "fmt/format.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/page_reader.h"
#include "instance/storage/pages/site_usage.h"

namespace islands::storage {
namespace {

constexpr uint64_t kLeastExtent = 256 << 10;
constexpr uint64_t kMostExtent = 8 << 20;
constexpr uint64_t kExtentsPerFile = 8;

absl::StatusOr<uint64_t> UsedBytesOf(runtime::FileSystem& files, runtime::FileHandle file, uint32_t site) {
  const absl::StatusOr<uint64_t> bytes = files.Size(file);
  if (!bytes.ok()) return bytes;
  uint64_t used = *bytes;
  const absl::Status read = ReadPages(files, file, 1, [&](uint64_t /*number*/, ConstPageBytes page) {
    const std::optional<uint64_t> pages = UsedPagesOf(page);
    if (pages && IsWhole(page, PageId(site, 0))) used = std::min(used, *pages * kPageBytes);
  });
  if (!read.ok()) return read;
  return used;
}

}  // namespace

void GrowFor(runtime::FileSystem& files, const DataFiles& data, size_t slot, uint64_t end) {
  const absl::StatusOr<uint64_t> bytes = files.Size(data.site(slot));
  if (!bytes.ok() || end * kPageBytes <= *bytes) return;
  const uint64_t extent = std::clamp(*bytes / kExtentsPerFile, kLeastExtent, kMostExtent);
  const uint64_t wanted = std::max(end * kPageBytes, *bytes + extent) / kPageBytes * kPageBytes;
  files.Allocate(data.site(slot), wanted).IgnoreError();
}

absl::StatusOr<uint64_t> UsedBytesOfSites(runtime::FileSystem& files, const std::string& directory,
                                          uint64_t generation) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  const std::string prefix = fmt::format("generation-{:010}-site-", generation);
  uint64_t all = 0;
  for (const std::string& name : *names) {
    uint32_t site = 0;
    if (!name.starts_with(prefix) || !absl::SimpleAtoi(name.substr(prefix.size()), &site)) continue;
    const auto file = files.Open(directory + "/" + name, /*create=*/false, /*direct=*/false);
    if (!file.ok()) return file.status();
    const absl::StatusOr<uint64_t> used = UsedBytesOf(files, *file, site);
    files.Close(*file).IgnoreError();
    if (!used.ok()) return used;
    all += *used;
  }
  return all;
}

}  // namespace islands::storage
