#include "experiments/micro/zipf_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace islands::experiments {
namespace {

double Sum(uint64_t first, uint64_t last, double s) {
  double sum = 0;
  for (uint64_t rank = last; rank >= first; --rank)
    sum += std::pow(static_cast<double>(rank) / static_cast<double>(first), -s);
  return sum;
}

TEST(ZipfWeight, IsTheSum) {
  for (const double s : {0.0, 0.25, 0.999999, 1.0, 1.5, 3.0, 50.0}) {
    for (const uint64_t first : {1u, 2u, 100u, 5'000u}) {
      for (const uint64_t last : {first, first + 63, first + 64, first + 100'000}) {
        const double sum = Sum(first, last, s);
        EXPECT_NEAR(ZipfWeight(first, last, s), sum, sum * 1e-10) << s << " " << first << " " << last;
      }
    }
  }
}

// Ten keys from 100 on; every place where the law may begin, and how many of the hottest are cut off.
TEST(ZipfRows, Draw_FollowsTheLawWhereverItBegins) {
  constexpr uint64_t kBegin = 100, kRows = 10;
  constexpr int kDraws = 40'000;
  runtime::Random random{7};
  for (const uint64_t ranks : {uint64_t{10}, uint64_t{13}, uint64_t{1'000}}) {
    for (const uint64_t first : {uint64_t{1}, uint64_t{2}, ranks - 9, ranks - 4, ranks}) {
      for (const uint64_t cut : {0u, 3u, 9u}) {
        ZipfRows rows(kBegin, kRows, first, ranks, 0.8);
        std::map<uint64_t, double> weight;  // by key
        const auto rank_of = [&](uint64_t key) { return (first - 1 + key - kBegin) % ranks + 1; };
        for (uint64_t key = kBegin; key < kBegin + kRows; ++key) weight[key] = std::pow(rank_of(key), -0.8);
        for (uint64_t place = 0; place < kRows; ++place) {
          ASSERT_TRUE(weight.contains(rows.KeyAt(place)));
          if (place > 0) {
            ASSERT_LT(rank_of(rows.KeyAt(place - 1)), rank_of(rows.KeyAt(place)));
          }
          if (place < cut) weight[rows.KeyAt(place)] = 0;
        }
        rows.Cut(cut);
        double total = 0;
        for (const auto& [key, of_key] : weight) total += of_key;
        std::map<uint64_t, int> drawn;
        for (int i = 0; i < kDraws; ++i) ++drawn[rows.Draw(random)];
        for (const auto& [key, of_key] : weight) {
          const double expected = kDraws * of_key / total;
          EXPECT_NEAR(drawn[key], expected, 5 * std::sqrt(expected) + 1e-9)
              << "key " << key << " of " << ranks << " ranks from " << first << ", " << cut << " cut off";
        }
        EXPECT_LE(drawn.size(), kRows);
      }
    }
  }
}

TEST(ZipfRows, SteepLaw_HasNoPlaceThatCannotBeDrawn) {
  runtime::Random random{1};
  ZipfRows rows(0, 100, 950, 1'000, 1'000);
  for (uint64_t cut = 0; cut < 49; ++cut) {  // of the head: the ranks that end with 1,000 are nearly alike
    rows.Cut(cut);
    EXPECT_EQ(rows.Draw(random), rows.KeyAt(cut));
  }
}

}  // namespace
}  // namespace islands::experiments
