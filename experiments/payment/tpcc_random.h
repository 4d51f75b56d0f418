// TPC-C's chance: non-uniform numbers (clause 2.1.6), last names (4.3.2.3) and random text (4.3.2.2).
//
// The run constants C of clause 2.1.6 are fixed here, so that all generators and the loader of a cluster draw
// the same customers often.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/random.h"

namespace islands::experiments {

inline constexpr uint32_t kTpccLastNames = 1000;
inline constexpr uint32_t kLastNameLoadC = 123;
inline constexpr uint32_t kLastNameRunC = 208;  // 2.1.6.1: 65 to 119 away from the former, not 96 or 112
inline constexpr uint32_t kCustomerC = 259;
inline constexpr uint32_t kItemC = 7911;

// NURand(A, first, last) over the whole range of numbers. A is the standard's: 255 for 1000 names, 1023 for
// 3000 customers, 8191 for 100,000 items, of which it is not a quarter but a twelfth; for other counts the
// power of two that lies to them as those do, less one.
class NonUniform {
 public:
  static constexpr uint32_t kQuarter = 4;
  static constexpr uint32_t kSixteenth = 16;  // to the next power of two: a twelfth

  NonUniform(uint32_t c, uint32_t first, uint32_t last, uint32_t part = kQuarter);

  uint32_t Draw(runtime::Random& random) const {
    const uint64_t either = random.Below(a_ + 1) | (first_ + random.Below(last_ - first_ + 1));
    return static_cast<uint32_t>((either + c_) % (last_ - first_ + 1)) + first_;
  }
  uint32_t a() const { return static_cast<uint32_t>(a_); }

 private:
  uint64_t a_;
  uint64_t c_;
  uint64_t first_;
  uint64_t last_;
};

// How many different last names a district of so many customers has: as many as TPC-C, or one each.
uint32_t LastNames(uint32_t customers);

// The last name of a number below 1000: a syllable for each of its three digits.
struct LastName {
  explicit LastName(uint32_t number);
  std::string_view view() const { return {text, size}; }
  char text[16];
  size_t size = 0;
};

// Letters or digits over the whole field, or over `least` to all of it, padded with zeros.
void FillLetters(runtime::Random& random, std::span<char> field);
void FillLetters(runtime::Random& random, size_t least, std::span<char> field);
void FillDigits(runtime::Random& random, std::span<char> field);
// Data of items and stock (4.3.3.1): letters, over 26 to all 50; a tenth say ORIGINAL somewhere in them.
void FillData(runtime::Random& random, std::span<char, 50> field);

}  // namespace islands::experiments
