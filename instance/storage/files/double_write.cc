#include "instance/storage/files/double_write.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "instance/storage/files/blocking_queue.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"

namespace islands::storage {
namespace {

using runtime::IoKind;

constexpr char kMagic[] = "ISLDWRT1";

struct Layout {
  char magic[8];
  uint64_t number;
  uint32_t pages;
  uint32_t checksum;
};
static_assert(sizeof(Layout) == 24 && sizeof(Layout) + kMostBatchPages * sizeof(uint32_t) <= kPageBytes);

uint32_t Checksum(Layout layout, std::span<const std::byte> checksums) {
  layout.checksum = 0;
  return runtime::Crc32c(checksums, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))));
}

}  // namespace

void EncodeBatchHeader(uint64_t number, std::span<const DiskPage> pages, DiskPage* header) {
  ISLANDS_CHECK(pages.size() <= kMostBatchPages);
  header->bytes.fill(std::byte{0});
  Layout layout{{}, number, static_cast<uint32_t>(pages.size()), 0};
  std::memcpy(layout.magic, kMagic, sizeof(layout.magic));
  std::byte* to = header->bytes.data() + sizeof(layout);
  for (const DiskPage& page : pages) {
    const uint32_t checksum = HeaderOf(page.bytes).checksum;
    std::memcpy(to, &checksum, sizeof(checksum));
    to += sizeof(checksum);
  }
  layout.checksum =
      Checksum(layout, std::span(header->bytes).subspan(sizeof(layout), pages.size() * sizeof(uint32_t)));
  std::memcpy(header->bytes.data(), &layout, sizeof(layout));
}

std::vector<ConstPageBytes> DecodeBatch(std::span<const std::byte> file) {
  Layout layout;
  if (file.size() < kPageBytes) return {};
  std::memcpy(&layout, file.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kMagic, sizeof(layout.magic)) != 0 || layout.pages > kMostBatchPages)
    return {};
  const std::span<const std::byte> listed = file.subspan(sizeof(layout), layout.pages * sizeof(uint32_t));
  if (layout.checksum != Checksum(layout, listed)) return {};
  std::vector<ConstPageBytes> pages;
  for (size_t i = 0; i < layout.pages && file.size() >= (i + 2) * kPageBytes; ++i) {
    const auto page = file.subspan((i + 1) * kPageBytes).first<kPageBytes>();
    const PageHeader header = HeaderOf(page);
    uint32_t checksum;
    std::memcpy(&checksum, listed.data() + i * sizeof(checksum), sizeof(checksum));
    if (header.checksum == checksum && IsWhole(page, PageId::FromValue(header.page_id)))
      pages.push_back(page);
  }
  return pages;
}

absl::Status RestoreFromDoubleWrite(runtime::FileSystem& files, const DataFiles& data) {
  const absl::StatusOr<uint64_t> bytes = files.Size(data.double_write());
  if (!bytes.ok()) return bytes.status();
  std::vector<DiskPage> file(std::min<uint64_t>(*bytes / kPageBytes, 1 + kMostBatchPages));
  if (file.empty()) return absl::OkStatus();
  std::vector<DiskPage> home(1);
  BlockingQueue queue(files);
  const runtime::IoRequest all{
      .kind = IoKind::kRead, .file = data.double_write(), .buffer = AsBytes(std::span(file))};
  if (absl::Status read = queue.Do(all); !read.ok()) return read;
  const std::vector<ConstPageBytes> batch = DecodeBatch(AsBytes(std::span(file)));
  if (batch.empty() || runtime::Planted(runtime::PlantedBug::kForgetHalfHome)) return absl::OkStatus();
  absl::Status status = queue.Do({.kind = IoKind::kWrite, .file = all.file, .buffer = all.buffer});
  if (status.ok()) status = queue.Do({.kind = IoKind::kSync, .file = all.file});
  std::set<runtime::FileHandle> touched;
  for (const ConstPageBytes page : batch) {
    const PageHeader header = HeaderOf(page);
    const PageId id = PageId::FromValue(header.page_id);
    const std::optional<size_t> slot = data.SlotOf(id.site());
    if (!slot) continue;
    const runtime::FileHandle to = data.site(*slot);
    const uint64_t offset = id.number() * kPageBytes;
    home[0].bytes.fill(std::byte{0});
    const std::span<std::byte> buffer = AsBytes(std::span(home));
    if (status.ok())
      status = queue.Do({.kind = IoKind::kRead, .file = to, .offset = offset, .buffer = buffer});
    if (!status.ok()) return status;
    if (IsWhole(home[0].bytes, id) && HeaderOf(home[0].bytes).lsn > header.lsn) continue;
    std::copy(page.begin(), page.end(), home[0].bytes.begin());
    status = queue.Do({.kind = IoKind::kWrite, .file = to, .offset = offset, .buffer = buffer});
    touched.insert(to);
  }
  for (const runtime::FileHandle file_touched : touched)
    queue.Submit({.kind = IoKind::kSync, .file = file_touched});
  status.Update(queue.WaitAll());
  return status;
}

}  // namespace islands::storage
