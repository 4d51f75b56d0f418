// A buffer that grows and is used again and again: after warm-up it allocates nothing.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace islands::log {

class RecordBuffer {
 public:
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  size_t size() const { return size_; }
  void Clear() { size_ = 0; }

  // Where to write at most `bytes` more; EndAt says how far that went.
  std::byte* Room(size_t bytes) {
    if (capacity_ - size_ < bytes) [[unlikely]]
      Grow(bytes);
    return bytes_.get() + size_;
  }
  void EndAt(const std::byte* end) { size_ = static_cast<size_t>(end - bytes_.get()); }

 private:
  [[gnu::noinline]] void Grow(size_t bytes) {
    constexpr size_t kLeastBytes = 4 << 10;
    capacity_ = std::max({kLeastBytes, 2 * capacity_, size_ + bytes});
    auto grown = std::make_unique_for_overwrite<std::byte[]>(capacity_);
    if (size_ != 0) std::memcpy(grown.get(), bytes_.get(), size_);
    bytes_ = std::move(grown);
  }

  std::unique_ptr<std::byte[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace islands::log
