// Runs a fuzz target on the inputs of its corpus and on pseudo-random ones, so that every build and sanitizer
// exercises it, and not only the `fuzz` preset. The seed is fixed: a failure here repeats by running the same
// test again.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

#ifdef ISLANDS_FUZZ_CORPUS
// Two digits a byte; a line of a corpus.
std::vector<uint8_t> FromHex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t at = 0; at + 2 <= text.size(); at += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

TEST(FuzzReplay, Corpus) {
  std::ifstream corpus(ISLANDS_FUZZ_CORPUS);
  ASSERT_TRUE(corpus) << "there is no " << ISLANDS_FUZZ_CORPUS;
  int inputs = 0;
  for (std::string line; std::getline(corpus, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<uint8_t> input = FromHex(line);
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0) << "input " << inputs;
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}
#endif

TEST(FuzzReplay, RandomInputs) {
  std::mt19937_64 random(20120827);
  for (int round = 0; round < ISLANDS_FUZZ_ROUNDS; ++round) {
    std::vector<uint8_t> input(random() % 256);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random() % 4 == 0 ? random() % 8 : random());
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

}  // namespace
