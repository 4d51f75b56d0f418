#include "instance/storage/files/disk_page.h"

#include <algorithm>
#include <cstring>

#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"

namespace islands::storage {
namespace {

constexpr size_t kChecksumAt = offsetof(PageHeader, checksum);
constexpr size_t kChecksumEnd = kChecksumAt + sizeof(PageHeader::checksum);

uint32_t Checksum(ConstPageBytes page) {
  constexpr std::array<std::byte, sizeof(PageHeader::checksum)> kZero = {};
  const uint32_t before = runtime::Crc32c(kZero, runtime::Crc32c(page.first(kChecksumAt)));
  return runtime::Crc32c(page.subspan(kChecksumEnd), before);
}

}  // namespace

PageHeader HeaderOf(ConstPageBytes page) {
  PageHeader header;
  std::memcpy(&header, page.data(), sizeof(header));
  return header;
}

void StampChecksum(PageBytes page) {
  std::fill(page.begin() + offsetof(PageHeader, stamper), page.begin() + offsetof(PageHeader, zero),
            std::byte{0});
  const uint32_t checksum = Checksum(page);
  std::memcpy(page.data() + kChecksumAt, &checksum, sizeof(checksum));
}

bool IsWhole(ConstPageBytes page, PageId id) {
  const PageHeader header = HeaderOf(page);
  if (header.page_id != id.value() || header.lsn == 0) return false;
  return runtime::Planted(runtime::PlantedBug::kTrustTornPage) || header.checksum == Checksum(page);
}

}  // namespace islands::storage
