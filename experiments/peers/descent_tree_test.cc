#include "experiments/peers/descent_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "runtime/random.h"

namespace islands::experiments {
namespace {

std::unique_ptr<DescentTree> Make(uint64_t rows, uint32_t row_bytes, uint64_t stride = 1) {
  auto tree = DescentTree::Create(rows, row_bytes, stride);
  EXPECT_TRUE(tree.ok()) << tree.status();
  return *std::move(tree);
}

// Every row is written full, so that overlapping ones would show.
void FillAndCheck(const DescentTree& tree, uint64_t rows, uint32_t row_bytes, uint64_t stride) {
  for (uint64_t i = 0; i < rows; ++i) {
    std::byte* row = tree.Find(i * stride);
    ASSERT_NE(row, nullptr) << i;
    std::memset(row, static_cast<int>(i % 251), row_bytes);
  }
  for (uint64_t i = 0; i < rows; ++i) {
    const std::byte* row = tree.Find(i * stride);
    const std::vector<std::byte> expected(row_bytes, static_cast<std::byte>(i % 251));
    ASSERT_EQ(std::memcmp(row, expected.data(), row_bytes), 0) << i;
  }
}

TEST(DescentTree, Find_EveryRowApartFromOthers) {
  for (uint32_t row_bytes : {8u, 100u, 250u, 1000u, 4000u}) {
    for (uint64_t rows : {1, 15, 16, 17, 300, 5000}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << row_bytes);
      const auto tree = Make(rows, row_bytes, 3);
      ASSERT_NO_FATAL_FAILURE(FillAndCheck(*tree, rows, row_bytes, 3));
    }
  }
}

TEST(DescentTree, Find_AbsentKeys) {
  const auto tree = Make(5000, 250, 3);
  for (uint64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(tree->Find(3 * i + 1), nullptr);
    ASSERT_EQ(tree->Find(3 * i + 2), nullptr);
  }
  EXPECT_EQ(tree->Find(15'000), nullptr);
  EXPECT_EQ(tree->Find(~0ull - 1), nullptr);
}

// 15 rows of 250 bytes per leaf, 256 children per inner page.
TEST(DescentTree, Create_Height) {
  EXPECT_EQ(Make(15, 250)->height(), 1u);
  EXPECT_EQ(Make(16, 250)->height(), 2u);
  EXPECT_EQ(Make(15 * 256, 250)->height(), 2u);
  EXPECT_EQ(Make(15 * 256 + 1, 250)->height(), 3u);
}

TEST(DescentTree, FindAll_SameAsFind) {
  const auto tree = Make(70'000, 100, 2);
  runtime::Random random(7);
  for (size_t n : {0, 1, 10, 32, 33, 100}) {
    std::vector<uint64_t> keys(n);
    std::vector<std::byte*> found(n);
    for (uint64_t& key : keys) key = random.Below(150'000);  // also odd ones and ones beyond the end
    for (auto fetch : {DescentTree::Fetch::kWholeRow, DescentTree::Fetch::kFirstLine}) {
      tree->FindAll(keys, fetch, found.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(found[i], tree->Find(keys[i])) << keys[i];
    }
  }
}

TEST(DescentTree, Create_NoMemory) {
  const auto tree = DescentTree::Create(1ull << 52, 250);
  ASSERT_FALSE(tree.ok());
  EXPECT_EQ(tree.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace islands::experiments
