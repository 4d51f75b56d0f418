// The encoded keys of Payment's tables (partitioner/key_codec.h has the format) without allocation.
//
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "coordinator/transaction_id.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {

// Components one after the other; at most N bytes.
template <size_t N>
class PackedKey {
 public:
  operator partitioner::KeyView() const { return {bytes_.data(), size_}; }  // NOLINT: a key is its bytes

  PackedKey& Number(uint32_t value) { return Append(__builtin_bswap32(value)); }
  PackedKey& Number(uint64_t value) { return Append(__builtin_bswap64(value)); }
  // Without the end mark of a string. The text holds no zeros.
  PackedKey& Text(std::string_view text) {
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
    return *this;
  }
  PackedKey& Byte(uint8_t value) { return Append(value); }

 private:
  template <typename T>
  PackedKey& Append(T value) {
    std::memcpy(bytes_.data() + size_, &value, sizeof(value));
    size_ += sizeof(value);
    return *this;
  }

  std::array<std::byte, N> bytes_;
  size_t size_ = 0;
};

inline auto WarehouseKey(uint32_t warehouse) { return PackedKey<4>().Number(warehouse); }
inline auto DistrictKey(uint32_t warehouse, uint32_t district) {
  return PackedKey<8>().Number(warehouse).Number(district);
}
inline auto CustomerKey(uint32_t warehouse, uint32_t district, uint32_t customer) {
  return PackedKey<12>().Number(warehouse).Number(district).Number(customer);
}

// History rows are named after who wrote them, so that nobody counts for all: the loader, or a worker of an
// island, which numbers its own.
inline constexpr uint32_t kLoaderWrote = 0;
inline auto HistoryKey(uint32_t warehouse, uint32_t writer, uint64_t number) {
  return PackedKey<16>().Number(warehouse).Number(writer).Number(number);
}
// Unique while the transaction's id is: workers of an island are fewer than 2^16, and a worker that runs a
// million transactions a second takes twelve days to come to 2^40.
inline auto HistoryKey(uint32_t warehouse, const coordinator::TransactionId& id) {
  return HistoryKey(warehouse, (id.island + 1) << 16 | id.worker, id.boot_epoch << 40 | id.sequence);
}

// Bounds of the customers of one last name in the index by_name. A string ends with 0 1, so 0 2 is behind all
// that begin with it.
inline auto NameBound(uint32_t warehouse, uint32_t district, std::string_view last, bool end) {
  return PackedKey<26>().Number(warehouse).Number(district).Text(last).Byte(0).Byte(end ? 2 : 1);
}

}  // namespace islands::experiments
