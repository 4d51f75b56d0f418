// Takes numbers and bytes from the front of what a disk had to say.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "instance/log/page_changes_format.h"

namespace islands::log {

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::span<const std::byte> rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

  // False: not enough bytes, or no number of 64 bits.
  [[nodiscard]] bool TakeByte(uint8_t* byte) {
    if (rest_.empty()) return false;
    *byte = std::to_integer<uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    return true;
  }
  [[nodiscard]] bool TakeVarint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < rest_.size() && i < kMaxVarintBytes; ++i) {
      const auto byte = std::to_integer<uint64_t>(rest_[i]);
      if (i + 1 == kMaxVarintBytes && byte > 1) return false;
      *value |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        rest_ = rest_.subspan(i + 1);
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool TakeBytes(uint64_t bytes, std::span<const std::byte>* taken) {
    if (bytes > rest_.size()) return false;
    *taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }

 private:
  std::span<const std::byte> rest_;
};

// One change as it was written. Its numbers may be anything.
struct WrittenChange {
  PageOp op = PageOp::kBytes;
  uint64_t slot = 0;
  uint64_t offset = 0;               // kBytes, kValue
  std::span<const std::byte> first;  // kInsert: the key; kImage: the page's front
  std::span<const std::byte> bytes;  // of the page or the value; kImage: the page's end
};

[[nodiscard]] inline bool TakeChange(Cursor* from, WrittenChange* change) {
  uint8_t head;
  if (!from->TakeByte(&head)) return false;
  change->op = static_cast<PageOp>(head & kOpMask);
  change->slot = head >> kOpSlotShift;
  if (change->slot == kOpFarSlot && !from->TakeVarint(&change->slot)) return false;
  uint64_t first = 0;
  uint64_t bytes = 0;
  switch (change->op) {
    case PageOp::kBytes:
    case PageOp::kValue:
      return from->TakeVarint(&change->offset) && from->TakeVarint(&bytes) &&
             from->TakeBytes(bytes, &change->bytes);
    case PageOp::kInsert:
    case PageOp::kImage:
      return from->TakeVarint(&first) && from->TakeVarint(&bytes) && from->TakeBytes(first, &change->first) &&
             from->TakeBytes(bytes, &change->bytes);
    case PageOp::kNewValue:
      return from->TakeVarint(&bytes) && from->TakeBytes(bytes, &change->bytes);
    case PageOp::kRemove:
    case PageOp::kGhost:
    case PageOp::kNoGhost:
      return true;
  }
  return false;
}

}  // namespace islands::log
