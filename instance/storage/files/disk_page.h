// A page as it lies on disk: its checksum (page.h, offset 16) is the CRC-32C of its bytes with that field
// zero, and so covers the page id: neither a torn page nor one from another place passes for it.
//
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "instance/storage/pages/page.h"

namespace islands::storage {

using PageBytes = std::span<std::byte, kPageBytes>;
using ConstPageBytes = std::span<const std::byte, kPageBytes>;

// Room for a copy, aligned as direct requests want it.
struct alignas(kPageBytes) DiskPage {
  std::array<std::byte, kPageBytes> bytes;
};
static_assert(sizeof(DiskPage) == kPageBytes);

// Their bytes, one behind the other.
inline std::span<std::byte> AsBytes(std::span<DiskPage> pages) {
  return {reinterpret_cast<std::byte*>(pages.data()), pages.size_bytes()};
}

// Any alignment will do.
PageHeader HeaderOf(ConstPageBytes page);
// Without what is of use in memory only.
void StampChecksum(PageBytes page);
// Whether the bytes are all of this page: what was stamped, and nothing else.
bool IsWhole(ConstPageBytes page, PageId id);

}  // namespace islands::storage
