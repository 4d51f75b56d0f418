// CRC-32C (Castagnoli), the checksum of everything in the log and on data pages: x86 has an instruction for
// it, and no Debian 12 package for C++ does.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace islands::runtime {

// Of `bytes`, going on from `crc` of what is before them; 0 at the beginning. "123456789" gives 0xe3069283.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
// The same by a table, one byte at a time, as on machines without the instructions.
uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace islands::runtime
