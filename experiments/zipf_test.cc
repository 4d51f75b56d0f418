#include "experiments/zipf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

namespace islands::experiments {
namespace {

constexpr double kSkews[] = {0, 0.25, 0.5, 0.99, 1, 1.01, 1.5, 2, 3};

// Sum of r^-s over [first, last]: term by term at first, then Euler-Maclaurin, good to about 1e-13.
long double PowerSum(uint64_t first, uint64_t last, long double s) {
  constexpr uint64_t kTermwise = 2000;
  long double sum = 0;
  uint64_t r = first;
  for (; r <= last && r < kTermwise; ++r) sum += std::pow(static_cast<long double>(r), -s);
  if (r > last) return sum;
  const long double a = r;
  const long double b = last;
  const long double integral =
      std::abs(s - 1) < 1e-12L ? std::log(b / a) : (std::pow(b, 1 - s) - std::pow(a, 1 - s)) / (1 - s);
  const long double height_a = std::pow(a, -s);
  const long double height_b = std::pow(b, -s);
  return sum + integral + (height_a + height_b) / 2 + s / 12 * (height_a / a - height_b / b);
}

// The value that chi-square with `degrees` of freedom exceeds once in a million (Wilson and Hilferty 1931).
double ChiSquareLimit(int degrees) {
  const double k = degrees;
  return k * std::pow(1 - 2 / (9 * k) + 4.7534 * std::sqrt(2 / (9 * k)), 3);
}

struct Bin {
  uint64_t last;
  double expected;
  uint64_t seen = 0;
};

// Bins of [first, last]: one rank each while that is enough, then ranges that grow by half; each expects >=
// 10 draws.
std::vector<Bin> MakeBins(uint64_t first, uint64_t last, double s, int draws) {
  const long double total = PowerSum(first, last, s);
  std::vector<Bin> bins;
  for (uint64_t begin = first; begin <= last;) {
    const uint64_t width = bins.size() < 200 ? 1 : std::max<uint64_t>(1, (begin - first) / 2);
    uint64_t end = std::min(last, begin + width - 1);
    double expected = static_cast<double>(PowerSum(begin, end, s) / total) * draws;
    while (expected < 10 && end < last) {
      end = std::min(last, end + std::max<uint64_t>(1, end - begin));
      expected = static_cast<double>(PowerSum(begin, end, s) / total) * draws;
    }
    bins.push_back({end, expected});
    begin = end + 1;
  }
  if (bins.size() > 1 && bins.back().expected < 10) {
    bins[bins.size() - 2].last = bins.back().last;
    bins[bins.size() - 2].expected += bins.back().expected;
    bins.pop_back();
  }
  return bins;
}

void ExpectZipf(uint64_t first, uint64_t last, double s) {
  constexpr int kDraws = 400'000;
  SCOPED_TRACE(testing::Message() << "ranks " << first << ".." << last << ", s " << s);
  std::vector<Bin> bins = MakeBins(first, last, s, kDraws);
  const Zipf zipf(first, last, s);
  runtime::Random random = runtime::Random::Stream(20120827, last + static_cast<uint64_t>(s * 100));
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t rank = zipf.Draw(random);
    ASSERT_GE(rank, first);
    ASSERT_LE(rank, last);
    auto bin = std::lower_bound(bins.begin(), bins.end(), rank,
                                [](const Bin& at, uint64_t value) { return at.last < value; });
    ++bin->seen;
  }
  if (bins.size() == 1) return;
  double chi_square = 0;
  for (const Bin& bin : bins) {
    chi_square += (bin.seen - bin.expected) * (bin.seen - bin.expected) / bin.expected;
  }
  EXPECT_LT(chi_square, ChiSquareLimit(static_cast<int>(bins.size()) - 1)) << bins.size() << " bins";
}

TEST(Zipf, Draw_FewItems) {
  for (double s : kSkews) {
    for (uint64_t n : {2, 3, 10, 100}) ExpectZipf(1, n, s);
  }
}

TEST(Zipf, Draw_ManyItems) {
  for (double s : kSkews) {
    for (uint64_t n : {10'000, 240'000, 120'000'000}) ExpectZipf(1, n, s);
  }
}

TEST(Zipf, Draw_FirstRanksLeftOut) {
  for (double s : kSkews) {
    for (auto [first, last] :
         {std::pair<uint64_t, uint64_t>{2, 10}, {7, 240'000}, {100'000'000, 120'000'000}}) {
      ExpectZipf(first, last, s);
    }
  }
}

TEST(Zipf, Draw_OneItem) {
  runtime::Random random(1);
  for (double s : {0.0, 1.0, 3.0, 1000.0}) {
    for (uint64_t only : {1, 17, 120'000'000}) {
      const Zipf zipf(only, only, s);
      for (int i = 0; i < 1000; ++i) ASSERT_EQ(zipf.Draw(random), only);
    }
  }
}

// So steep that the second item is beyond what 53 random bits can hit: no overflow, no endless loop.
TEST(Zipf, Draw_ExtremeSkew) {
  runtime::Random random(1);
  const Zipf zipf(1, 120'000'000, 400);
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(zipf.Draw(random), 1u);
}

TEST(Zipf, Draw_SameSeedSameRanks) {
  const Zipf zipf(1, 1'000'000, 0.99);
  runtime::Random one(7);
  runtime::Random two(7);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(zipf.Draw(one), zipf.Draw(two));
}

// The paper's largest table has 120 million rows; a sampler with tables would take minutes and gigabytes.
TEST(Zipf, Construction_IndependentOfSize) {
  const auto begin = std::chrono::steady_clock::now();
  runtime::Random random(3);
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) sum += Zipf(1, 120'000'000, 1).Draw(random);
  EXPECT_GT(sum, 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace islands::experiments
