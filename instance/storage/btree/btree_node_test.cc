// What a node that comes from disk is refused for. That sound ones are not: btree_test.cc and page_fuzz.cc.
#include "instance/storage/btree/btree_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "instance/storage/btree/btree_testing.h"

namespace islands::storage {
namespace {

class NodeOnDisk : public testing::Test {
 protected:
  NodeOnDisk() {
    page_.fill(std::byte{0});
    node().header() = {.page_id = PageId(0, 5).value(), .lsn = 7, .tree = 1, .type = PageType::kTree};
    node().Initialize(Bytes("b"), Bytes("x"));
    for (const std::string key : {"c", "dd", "hhh", "m"}) {
      bool equal = false;
      const uint32_t i = node().LowerBound(Bytes(key), &equal);
      node().Insert(i, Bytes(key), Bytes(std::string(100, 'b')));
    }
  }
  Node& node() { return *Node::At(page_.data()); }
  std::string Fault() {
    const char* fault = node().FindFault();
    return fault == nullptr ? "" : fault;
  }
  void SetField(size_t offset, uint16_t value) { std::memcpy(page_.data() + offset, &value, sizeof(value)); }

  static constexpr size_t kHeapUsed = sizeof(PageHeader) + 12,
                          kLowerOffset = kHeapUsed + 4;  // btree_node_view.h
  alignas(kPageBytes) std::array<std::byte, kPageBytes> page_;
};

TEST_F(NodeOnDisk, IsSound) { EXPECT_EQ(Fault(), ""); }

TEST_F(NodeOnDisk, EveryByteOfTheFreeRoomIsZero) {
  for (size_t at = node().slots_end(); at < node().heap_begin(); ++at) {
    page_[at] = std::byte{1};
    ASSERT_EQ(Fault(), "free room is not zero") << at;
    page_[at] = std::byte{0};
  }
  std::fill(page_.begin() + static_cast<ptrdiff_t>(node().slots_end()),
            page_.begin() + static_cast<ptrdiff_t>(node().heap_begin()), std::byte{1});
  EXPECT_EQ(Fault(), "free room is not zero");
}

// The lower fence is said to be where it lies within a row, whose bytes are as it is: at each of its bytes,
// so in all ways in which it meets a word's border.
TEST_F(NodeOnDisk, NothingInTheHeapIsThereTwice) {
  for (uint32_t i = 0; i < node().count(); ++i) {
    const RowView row = std::as_const(node()).value(i);
    for (size_t at = 0; at < row.size(); ++at) {
      SetField(kLowerOffset, static_cast<uint16_t>(row.data() + at - page_.data()));
      ASSERT_EQ(Fault(), "entries overlap") << "row " << i << ", byte " << at;
    }
  }
}

TEST_F(NodeOnDisk, WhatIsInUseIsCounted) {
  const auto used = static_cast<uint16_t>(node().used_bytes() - node().slots_end());
  SetField(kHeapUsed, used);
  EXPECT_EQ(Fault(), "");
  SetField(kHeapUsed, used - 1);
  EXPECT_EQ(Fault(), "bytes in use miscounted");
}

}  // namespace
}  // namespace islands::storage
