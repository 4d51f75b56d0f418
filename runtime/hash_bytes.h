// A hash of a few bytes, such as a key's, of which every bit tells as much as any other.
//
// Thread safety: functions of their arguments. Of one process only: nothing on disk or between processes
// depends on what they answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace islands::runtime {

// Both halves of a product, folded: every bit of the word moves every bit of the result.
inline uint64_t MixHash(uint64_t word) {
  const auto product = static_cast<unsigned __int128>(word ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

inline uint64_t HashBytes(const void* bytes, size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  uint64_t hash = size;
  uint64_t word = 0;
  for (; size > sizeof(word); size -= sizeof(word), at += sizeof(word)) {
    std::memcpy(&word, at, sizeof(word));
    hash = MixHash(hash ^ word);
  }
  if (size == sizeof(word)) {
    std::memcpy(&word, at, sizeof(word));
  } else {
    word = 0;
    for (size_t i = 0; i < size; ++i) word = word << 8 | at[i];
  }
  // Twice, so that the length, which differs in a few low bits only, gets everywhere as well.
  return MixHash(MixHash(hash) ^ word);
}

}  // namespace islands::runtime
