// What tests of the tree share: a tree with its pool, keys and rows as strings, and a listener that knows
// whether all that changed was announced.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
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

// Copies of all pages, changed as announced and no other way: what is put into them is taken from the page
// when its latch goes. Listens from its construction on, to this thread.
class PageShadow final : public PageChangeSink {
 public:
  PageShadow() { page_change_sink = this; }
  ~PageShadow() override { page_change_sink = nullptr; }

  void BeforeChange(const std::byte* page, const PageChange& change) override {
    changes_[page].push_back(change);
    ++announced_;
  }
  void BeforeRelease(std::byte* page) override {
    std::vector<std::byte>& shadow = shadows_[page];
    shadow.resize(kPageBytes);
    for (const PageChange& change : changes_[page]) Redo(change, page, shadow.data());
    changes_.erase(page);
    if (std::memcmp(shadow.data(), page, kPageBytes) == 0) return;
    ADD_FAILURE() << "a page is not what the announced changes make of it";
    std::memcpy(shadow.data(), page, kPageBytes);
  }
  uint64_t announced() const { return announced_; }

 private:
  static void Redo(const PageChange& change, const std::byte* page, std::byte* shadow) {
    const Node& from = *Node::At(page);
    Node& node = *Node::At(shadow);
    KeyBuffer key;
    switch (change.kind) {
      case PageChange::Kind::kBytes:
        std::memcpy(shadow + change.offset, page + change.offset, change.bytes);
        break;
      case PageChange::Kind::kValue:
        std::memcpy(node.value(change.slot).data() + change.offset,
                    from.value(change.slot).data() + change.offset, change.bytes);
        break;
      case PageChange::Kind::kInsert:
        from.CopyKey(change.slot, &key);
        node.Insert(change.slot, key.view(), from.value(change.slot));
        break;
      case PageChange::Kind::kRemove:
        node.Remove(change.slot);
        break;
      case PageChange::Kind::kNewValue:
        node.ReplaceValue(change.slot, from.value(change.slot));
        break;
      case PageChange::Kind::kGhost:
        node.SetGhost(change.slot, from.ghost(change.slot));
        break;
    }
  }

  std::map<const std::byte*, std::vector<std::byte>> shadows_;
  std::map<const std::byte*, std::vector<PageChange>> changes_;
  uint64_t announced_ = 0;
};

struct TestTree {
  static constexpr uint32_t kSite = 3;
  static constexpr uint32_t kTreeId = 1;

  explicit TestTree(uint64_t pool_pages, const std::string& lower = "", const std::string& upper = "",
                    bool alone = false, bool key_hints = true)
      : pool(*BufferPool::Create(
            {.capacity_bytes = pool_pages * kPageBytes, .alone = alone, .key_hints = key_hints})),
        space(pool.get(), 0, kSite) {
    EXPECT_TRUE(space.Format());
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
