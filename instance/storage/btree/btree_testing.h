// What tests of the tree share: a tree with its pool, and keys and rows as strings.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/storage/btree/btree.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/site_space.h"

namespace islands::storage {

inline KeyView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string Text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

inline std::string Text(TornBytes bytes) {
  std::vector<std::byte> copy(bytes.size());
  bytes.CopyTo(copy.data());
  return Text(copy);
}

struct TestTree {
  static constexpr uint32_t kSite = 3;
  static constexpr uint32_t kTreeId = 1;

  explicit TestTree(uint64_t pool_pages, const std::string& lower = "", const std::string& upper = "",
                    bool alone = false)
      : pool(*BufferPool::Create({.capacity_bytes = pool_pages * kPageBytes, .alone = alone})),
        space(pool.get(), 0, kSite) {
    EXPECT_TRUE(space.Format(2));
    const uint64_t root = BTree::MakeRoot(&space, kTreeId, Bytes(lower), Bytes(upper));
    tree = std::make_unique<BTree>(&space, kTreeId, root);
  }

  // Structure of the tree, and that no page is lost.
  BTree::Totals Check() {
    const absl::StatusOr<BTree::Totals> totals = tree->Check();
    EXPECT_TRUE(totals.ok()) << totals.status();
    if (!totals.ok()) return {};
    const absl::Status pages = space.Check(totals->pages);
    EXPECT_TRUE(pages.ok()) << pages;
    return *totals;
  }
  absl::StatusCode Insert(const std::string& key, const std::string& row) {
    return tree->Insert(Bytes(key), Bytes(row));
  }
  std::string Read(const std::string& key) {
    std::vector<std::byte> row;
    const absl::StatusCode code = tree->Read(Bytes(key), &row);
    return code == absl::StatusCode::kOk ? Text(row) : absl::StatusCodeToString(code);
  }
  std::vector<std::pair<std::string, std::string>> Scan(const std::string& first, const std::string& end,
                                                        bool reverse) {
    std::vector<std::pair<std::string, std::string>> rows;
    tree->Scan(Bytes(first), Bytes(end), reverse, [&](KeyView key, RowView row) {
      rows.emplace_back(Text(key), Text(row));
      return true;
    });
    return rows;
  }

  std::unique_ptr<BufferPool> pool;
  SiteSpace space;
  std::unique_ptr<BTree> tree;
};

}  // namespace islands::storage
