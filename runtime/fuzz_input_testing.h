// The bytes of a fuzz target as the numbers and choices that it makes of them.
//
// Thread safety: none.
//
// Invariant: 1. behind its end an input has zeros: what it says first decides, however long it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace islands::runtime {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  uint8_t Byte() { return static_cast<uint8_t>(Number(1)); }
  // Little endian, of up to eight bytes.
  uint64_t Number(size_t bytes) {
    uint64_t number = 0;
    const std::span<const std::byte> taken = Take(bytes);
    if (!taken.empty()) std::memcpy(&number, taken.data(), taken.size());
    return number;
  }
  // As many as there are.
  std::span<const std::byte> Take(size_t bytes) {
    const std::span<const uint8_t> taken = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return std::as_bytes(taken);
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace islands::runtime
