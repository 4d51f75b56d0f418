// Chance as a seam: every random choice comes from a Random whose seed is known, so that a run can be
// repeated. xoshiro256** (Blackman, Vigna 2018), seeded through splitmix64.
//
// Thread safety: none; each worker owns its own.
#pragma once

#include <cstdint>

namespace islands::runtime {

class Random {
 public:
  using result_type = uint64_t;

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = SplitMix(seed);
  }

  // A stream of its own for each (seed, stream): workers of one run draw from different streams.
  static Random Stream(uint64_t seed, uint64_t stream) {
    uint64_t mixed = seed ^ (0x9e3779b97f4a7c15ull * (stream + 1));
    return Random(SplitMix(mixed));
  }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~0ull; }

  uint64_t operator()() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound); bound > 0. Lemire's multiply-shift with rejection: no bias.
  uint64_t Below(uint64_t bound) {
    unsigned __int128 product = static_cast<unsigned __int128>((*this)()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = -bound % bound;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>((*this)()) * bound;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // Uniform in [0, 1), 53 bits.
  double Unit() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  static uint64_t SplitMix(uint64_t& state) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  uint64_t state_[4];
};

}  // namespace islands::runtime
