// Runs a fuzz target on pseudo-random inputs, so that every build and sanitizer exercises it, and not only
// the `fuzz` preset. The seed is fixed: a failure here repeats by running the same test again.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST(FuzzReplay, RandomInputs) {
  std::mt19937_64 random(20120827);
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> input(random() % 256);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random() % 4 == 0 ? random() % 8 : random());
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}
