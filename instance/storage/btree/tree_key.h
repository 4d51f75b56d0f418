// Keys of trees as byte strings: compared, and put together from parts.
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "instance/storage/pages/limits.h"
#include "runtime/check.h"

namespace islands::storage {

// Index entries are an index key followed by a primary key.
inline constexpr size_t kMaxTreeKeyBytes = 2 * partitioner::kMaxKeyBytes;

inline int CompareKeys(KeyView a, KeyView b) {
  if (a.size() == sizeof(uint64_t) && b.size() == sizeof(uint64_t)) {  // the commonest keys
    uint64_t x, y;
    std::memcpy(&x, a.data(), sizeof(x));
    std::memcpy(&y, b.data(), sizeof(y));
    x = __builtin_bswap64(x);
    y = __builtin_bswap64(y);
    return x < y ? -1 : x > y;
  }
  const size_t common = std::min(a.size(), b.size());
  const int order = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
  if (order != 0) return order;
  return a.size() < b.size() ? -1 : a.size() > b.size();
}

inline size_t CommonPrefix(KeyView a, KeyView b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

// A key put together from a node's prefix and a slot's suffix.
class KeyBuffer {
 public:
  KeyView view() const { return KeyView(bytes_.data(), size_); }
  void Set(KeyView prefix, KeyView suffix) {
    size_ = 0;
    Append(prefix);
    Append(suffix);
  }
  void Set(KeyView key) { Set(key, {}); }

 private:
  void Append(KeyView part) {
    if (part.empty()) return;
    ISLANDS_CHECK(size_ + part.size() <= bytes_.size());
    std::memcpy(bytes_.data() + size_, part.data(), part.size());
    size_ += part.size();
  }
  std::array<std::byte, kMaxTreeKeyBytes> bytes_;
  size_t size_ = 0;
};

}  // namespace islands::storage
