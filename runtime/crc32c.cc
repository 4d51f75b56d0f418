#include "runtime/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

namespace islands::runtime {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected: bit i is the factor of x^(31 - i)

// Times x, modulo the polynomial.
constexpr uint32_t TimesX(uint32_t crc) { return crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0); }

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    table[i] = crc;
  }
  return table;
}();

#if defined(__x86_64__)
constexpr size_t kMostWords = 128;  // of a stream
constexpr size_t kFewWords = 12;    // of no more it takes longer to put streams together

// kPowers[n] is x^(64 n - 33): a checksum times that, without carries, and then the checksum of the eight
// bytes of the product, is the checksum with n words of zeros behind it.
constexpr std::array<uint32_t, 2 * kMostWords + 1> kPowers = [] {
  std::array<uint32_t, 2 * kMostWords + 1> powers{};
  powers[1] = 1;
  for (size_t n = 2; n < powers.size(); ++n) {
    powers[n] = powers[n - 1];
    for (int bit = 0; bit < 64; ++bit) powers[n] = TimesX(powers[n]);
  }
  return powers;
}();

uint64_t WordAt(const std::byte* at, size_t index) {
  uint64_t word;
  std::memcpy(&word, at + index * sizeof(word), sizeof(word));
  return word;
}

[[gnu::target("sse4.2,pclmul")]] __m128i Times(uint64_t crc, uint32_t power) {
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)),
                              _mm_cvtsi64_si128(static_cast<int64_t>(power)), 0);
}

// The instruction takes three cycles, and one may begin in each: three streams side by side, put together by
// multiplications (Gopal et al., Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction, 2011).
[[gnu::target("sse4.2,pclmul")]] uint32_t Crc32cByInstruction(std::span<const std::byte> bytes,
                                                              uint32_t before) {
  uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  size_t words = bytes.size() / sizeof(uint64_t);
  while (words > kFewWords) {
    const size_t each = std::min(words / 3, kMostWords);
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < each; ++i) {
      crc = _mm_crc32_u64(crc, WordAt(at, i));
      second = _mm_crc32_u64(second, WordAt(at, each + i));
      third = _mm_crc32_u64(third, WordAt(at, 2 * each + i));
    }
    const __m128i both = _mm_xor_si128(Times(crc, kPowers[2 * each]), Times(second, kPowers[each]));
    crc = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(both))) ^ third;
    at += 3 * each * sizeof(uint64_t);
    words -= 3 * each;
  }
  for (; words != 0; --words, at += sizeof(uint64_t)) crc = _mm_crc32_u64(crc, WordAt(at, 0));
  for (size_t left = bytes.size() % sizeof(uint64_t); left != 0; --left, ++at)
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*at));
  return ~static_cast<uint32_t>(crc);
}
#endif

}  // namespace

uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instructions = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  if (has_instructions) return Crc32cByInstruction(bytes, crc);
#endif
  return Crc32cByTable(bytes, crc);
}

}  // namespace islands::runtime
