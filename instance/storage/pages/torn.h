// Reading a page while somebody may be changing it: the only code that does.
//
// An optimistic reader (GuardO, page_guard.h) takes no latch and asks afterwards whether the page changed.
// Until then whatever it read may be torn: a mixture of several states of the page, of a row even, and two
// reads of one field may differ. All that it can have is
//
//   LoadOnce   a field, loaded once: what was checked is what is used, since no compiler may load it again
//   CopyTorn   a copy of some bytes
//   TornPage   a page that gives nothing but these; TornBytes and TornArray are parts of it
//
// These races are meant. ThreadSanitizer would report them, so it does not look into LoadOnce, of which
// CopyTorn is made under it; it watches all else: writers, readers with a latch, and where the copies go.
//
// Thread safety: any thread, as long as the memory can be read.
//
// Invariants:
//  1. Nothing that was read here counts before GuardO::Valid said so. Until then it may only be used where
//     any value will do: bounded, as an offset within the pool's slack, or as a hint.
//  2. EndTornReads stands between the reads and the load of the state word that validates them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace islands::storage {

// ThreadSanitizer cannot see fences: there every load is ordered before what follows it instead.
#ifdef ISLANDS_TSAN
#define ISLANDS_MEANT_RACE __attribute__((noinline, no_sanitize("thread")))
inline constexpr int kTornOrder = __ATOMIC_ACQUIRE;
inline void EndTornReads() {}
#else
#define ISLANDS_MEANT_RACE inline
inline constexpr int kTornOrder = __ATOMIC_RELAXED;
inline void EndTornReads() { std::atomic_thread_fence(std::memory_order_acquire); }
#endif

template <typename T>
ISLANDS_MEANT_RACE T LoadOnce(const T* field) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t) && sizeof(T) == alignof(T));
  T value;
  __atomic_load(field, &value, kTornOrder);
  return value;
}

inline void CopyTorn(std::byte* to, const std::byte* from, size_t bytes) {
#ifdef ISLANDS_TSAN  // it looks into memcpy
  for (size_t step = 0; bytes > 0; to += step, from += step, bytes -= step) {
    step = bytes >= sizeof(uint64_t) && reinterpret_cast<uintptr_t>(from) % alignof(uint64_t) == 0 ? 8 : 1;
    if (step == 1) {
      *to = LoadOnce(from);
      continue;
    }
    const uint64_t word = LoadOnce(reinterpret_cast<const uint64_t*>(from));
    std::memcpy(to, &word, sizeof(word));
  }
#else
  if (bytes != 0) std::memcpy(to, from, bytes);
#endif
}

// A number that may lie at any address.
template <typename T>
inline T CopyTorn(const std::byte* from) {
  static_assert(std::is_integral_v<T>);
  T value;
  CopyTorn(reinterpret_cast<std::byte*>(&value), from, sizeof(value));
  asm("" : "+r"(value));  // as LoadOnce: the compiler may not take it from the page once more
  return value;
}

class TornBytes {
 public:
  size_t size() const { return bytes_; }
  void CopyTo(std::byte* to) const { CopyTorn(to, begin_, bytes_); }
  template <typename T>
  T CopyAt(size_t offset) const {
    return CopyTorn<T>(begin_ + offset);
  }

 private:
  friend class TornPage;
  TornBytes(const std::byte* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}
  const std::byte* begin_;
  size_t bytes_;
};

template <typename T>
class TornArray {
 public:
  T operator[](size_t i) const { return LoadOnce(begin_ + i); }
  TornArray operator+(size_t i) const { return TornArray(begin_ + i); }
  size_t operator-(TornArray begin) const { return static_cast<size_t>(begin_ - begin.begin_); }

 private:
  friend class TornPage;
  explicit TornArray(const T* begin) : begin_(begin) {}
  const T* begin_;
};

class TornPage {
 public:
  explicit TornPage(const std::byte* begin) : begin_(begin) {}

  // A field of the structure that the page begins with.
  template <typename Header, typename T>
  T Load(T Header::*field) const {
    return LoadOnce(&(reinterpret_cast<const Header*>(begin_)->*field));
  }
  template <typename T>
  TornArray<T> Array(size_t offset) const {
    return TornArray<T>(reinterpret_cast<const T*>(begin_ + offset));
  }
  template <typename T>
  T CopyAt(size_t offset) const {
    return CopyTorn<T>(begin_ + offset);
  }
  TornBytes Bytes(size_t offset, size_t bytes) const { return TornBytes(begin_ + offset, bytes); }
  // By force, as PageArray::Prefetch.
  [[gnu::always_inline]] void Prefetch(size_t offset) const { __builtin_prefetch(begin_ + offset); }

 private:
  const std::byte* begin_;
};

}  // namespace islands::storage
