#include "experiments/payment/tpcc_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace islands::experiments {

NonUniform::NonUniform(uint32_t c, uint32_t first, uint32_t last, uint32_t part)
    : a_(std::bit_ceil((last - first + part) / part) - 1), c_(c), first_(first), last_(last) {
  assert(first <= last);
}

uint32_t LastNames(uint32_t customers) { return std::min(customers, kTpccLastNames); }

LastName::LastName(uint32_t number) {
  static constexpr std::array<std::string_view, 10> kSyllables = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
                                                                  "ESE", "ANTI",  "CALLY", "ATION", "EING"};
  assert(number < kTpccLastNames);
  for (const uint32_t digit : {number / 100, number / 10 % 10, number % 10}) {
    std::memcpy(text + size, kSyllables[digit].data(), kSyllables[digit].size());
    size += kSyllables[digit].size();
  }
}

// Eight characters a draw: a warehouse has twenty million of them.
void FillLetters(runtime::Random& random, std::span<char> field) {
  uint64_t bits = 0;
  for (size_t i = 0; i < field.size(); ++i, bits >>= 8) {
    if (i % 8 == 0) bits = random();
    field[i] = static_cast<char>('a' + (bits & 0xff) * 26 / 256);
  }
}

void FillLetters(runtime::Random& random, size_t least, std::span<char> field) {
  const size_t length = least + random.Below(field.size() - least + 1);
  FillLetters(random, field.first(length));
  std::fill(field.begin() + static_cast<ptrdiff_t>(length), field.end(), '\0');
}

void FillDigits(runtime::Random& random, std::span<char> field) {
  for (char& digit : field) digit = static_cast<char>('0' + random.Below(10));
}

void FillData(runtime::Random& random, std::span<char, 50> field) {
  constexpr std::string_view kOriginal = "ORIGINAL";
  constexpr size_t kLeast = 26;
  const size_t length = kLeast + random.Below(field.size() - kLeast + 1);
  FillLetters(random, field.first(length));
  std::fill(field.begin() + static_cast<ptrdiff_t>(length), field.end(), '\0');
  if (random.Below(10) != 0) return;
  const size_t at = random.Below(length - kOriginal.size() + 1);
  std::copy(kOriginal.begin(), kOriginal.end(), field.begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace islands::experiments
