// Pages that change under their reader, or hold whatever they like: a search may find nonsense, but must stay
// near the page.
#include "instance/storage/pages/torn.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "instance/storage/btree/btree_node_view.h"
#include "instance/storage/pages/buffer_pool.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using runtime::Random;

// ---- a page that answers differently every time it is asked ----

// What was asked of the page: how often for its count, and the furthest byte.
struct Asked {
  Random random{1};
  int counts = 0;
  size_t furthest = 0;

  template <typename T>
  T Answer(size_t offset) {
    furthest = std::max(furthest, offset + sizeof(T));
    const uint64_t any = random();
    T answer;
    std::memcpy(&answer, &any, sizeof(answer));
    return answer;
  }
};

template <typename T>
struct MadArray {
  T operator[](size_t i) const {
    T answer = asked->Answer<T>(offset + i * sizeof(T));
    // Few heads, so that searches find many equal ones, and keys of all lengths.
    answer.head = asked->random.Below(2) == 0 ? 0x05050505 : asked->random.Below(2) * ~uint32_t{0};
    if (asked->random.Below(2) == 0) answer.key_bytes = asked->random.Below(12);
    return answer;
  }
  MadArray operator+(size_t i) const { return {asked, offset + i * sizeof(T)}; }
  size_t operator-(MadArray begin) const { return (offset - begin.offset) / sizeof(T); }
  Asked* asked;
  size_t offset;
};

struct MadBytes {
  size_t size() const { return bytes; }
  Asked* asked;
  size_t end;
  size_t bytes;
};

int CompareBytes(MadBytes bytes, KeyView) {
  bytes.asked->furthest = std::max({bytes.asked->furthest, bytes.end, bytes.bytes});  // a wrapped length too
  return static_cast<int>(bytes.asked->random.Below(3)) - 1;
}

class MadPage {
 public:
  explicit MadPage(Asked* asked) : asked_(asked) {}
  template <typename Header, typename T>
  T Load(T Header::*field) const {
    if (sizeof(T) == sizeof(uint16_t)) asked_->counts += OffsetOf(field) == kCountOffset;
    // Often few slots, so that a count is often one that a search is past already.
    const T answer = asked_->Answer<T>(OffsetOf(field));
    return asked_->random.Below(2) == 0 ? answer : static_cast<T>(answer % 9);
  }
  template <typename T>
  MadArray<T> Array(size_t offset) const {
    return {asked_, offset};
  }
  template <typename T>
  T CopyAt(size_t offset) const {
    return asked_->Answer<T>(offset);
  }
  MadBytes Bytes(size_t offset, size_t bytes) const { return {asked_, offset + bytes, bytes}; }
  void Prefetch(size_t) const {}

 private:
  static constexpr size_t kCountOffset = 40;  // btree_node_view.h
  template <typename Header, typename T>
  static size_t OffsetOf(T Header::*field) {
    alignas(Header) static const std::byte page[sizeof(Header)]{};
    return static_cast<size_t>(
        reinterpret_cast<const std::byte*>(&(reinterpret_cast<const Header*>(page)->*field)) - page);
  }
  Asked* asked_;
};

std::vector<std::byte> KeyOf(size_t bytes) { return std::vector<std::byte>(bytes, std::byte{5}); }

// A count that shrinks between two loads would make a length wrap, and a search go far beyond the page.
TEST(TornNode, Search_WhateverItReads_StaysWithinReach) {
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    Asked asked{.random = Random(seed)};
    const NodeView<MadPage> node{MadPage(&asked)};
    const std::vector<std::byte> key = KeyOf(seed % 20);
    bool equal = false;
    const uint32_t slot = node.LowerBound(key, &equal);
    ASSERT_EQ(asked.counts, 1) << "seed " << seed << ": the bound of a search is loaded once";
    ASSERT_LE(slot, kMost16) << "seed " << seed;
    const uint32_t child = node.ChildIndex(key);
    const uint32_t below = node.ChildIndexBelow(key);
    const uint32_t last = node.ChildIndexBelow({});
    for (const uint32_t i : {child, below, last}) (void)node.child(i);
    ASSERT_LE(node.entry(std::min<uint32_t>(slot, kMost16 - 1)).value.size(), kMost16 / 2);
    ASSERT_LE(asked.furthest, kTornReach) << "seed " << seed;
  }
}

// ---- real memory, which ends where the pool's slack ends ----

class Memory {
 public:
  Memory() {
    EXPECT_NE(bytes_, MAP_FAILED);
    EXPECT_EQ(mprotect(begin() + kSlackBytes, kPageBytes, PROT_NONE), 0);
  }
  ~Memory() { munmap(bytes_, kSlackBytes + kPageBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* begin() { return static_cast<std::byte*>(bytes_); }
  TornNode node() { return TornNode(TornPage(begin())); }

 private:
  void* const bytes_ =
      mmap(nullptr, kSlackBytes + kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST(TornNode, AllOnes_NothingBeyondTheSlackIsTouched) {
  Memory memory;
  std::memset(memory.begin(), 0xff, kSlackBytes);
  const TornNode node = memory.node();
  const std::vector<std::byte> keys[] = {
      {}, KeyOf(3), KeyOf(300), std::vector<std::byte>(512, std::byte{0xff})};
  std::vector<std::byte> copy(kMost16);
  for (const std::vector<std::byte>& key : keys) {
    bool equal = false;
    const uint32_t slot = node.LowerBound(key, &equal);
    ASSERT_LE(slot, kMost16);
    (void)node.child(node.ChildIndex(key));
    (void)node.child(node.ChildIndexBelow(key));
  }
  const TornNode::Entry entry = node.entry(kMost16 - 1);
  entry.value.CopyTo(copy.data());
  EXPECT_TRUE(entry.ghost);
  node.PrefetchEntry(kMost16 - 1, 0);
}

// Eight slots with one head, or none: who loads the count twice may look for slots 5 to 0. Compiled without
// optimization, the code before this test did within a second.
TEST(TornNode, LowerBound_CountFlipsBesideIt) {
  Memory memory;
  constexpr uint16_t kSlots = 8;
  constexpr uint32_t kEntry = 4000;
  for (size_t i = 0; i < kSlots; ++i) {
    const Slot slot{.head = 0x05050505, .offset = kEntry, .key_bytes = 4};
    std::memcpy(memory.begin() + NodeFields::kHeaderBytes + i * sizeof(slot), &slot, sizeof(slot));
  }
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::atomic_ref<uint16_t> count(*reinterpret_cast<uint16_t*>(memory.begin() + 40));
    while (!stop.load(std::memory_order_relaxed)) {
      count.store(kSlots, std::memory_order_relaxed);
      count.store(0, std::memory_order_relaxed);
    }
  });
  const std::vector<std::byte> key = KeyOf(4);
  uint64_t found = 0;
  constexpr uint64_t kRounds = 3'000'000;
  for (uint64_t round = 0; round < kRounds || found == 0 || found == round; ++round) {
    bool equal = false;
    ASSERT_LE(memory.node().LowerBound(key, &equal), kSlots);
    found += equal ? 1 : 0;
  }
  stop = true;
  writer.join();
}

TEST(TornBytes, Compare_AsKeysDo) {
  Random random(7);
  const auto sign = [](int order) { return (order > 0) - (order < 0); };
  for (int round = 0; round < 100'000; ++round) {
    std::byte bytes[2][40];
    for (std::byte& byte : bytes[0]) byte = static_cast<std::byte>(random.Below(2) * 255);
    std::memcpy(bytes[1], bytes[0], sizeof(bytes[0]));
    bytes[1][random.Below(40)] = static_cast<std::byte>(random.Below(256));
    const size_t torn = random.Below(41), key = random.Below(4) == 0 ? torn : random.Below(41);
    ASSERT_EQ(sign(CompareBytes(TornPage(bytes[0]).Bytes(0, torn), KeyView(bytes[1], key))),
              sign(CompareKeys(KeyView(bytes[0], torn), KeyView(bytes[1], key))))
        << "round " << round;
  }
}

TEST(CopyTorn, EveryAlignmentAndLength) {
  alignas(8) std::byte from[64];
  for (size_t i = 0; i < sizeof(from); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t begin = 0; begin < 16; ++begin) {
    for (size_t bytes = 0; bytes < 48; ++bytes) {
      std::byte to[64]{};
      CopyTorn(to + 1, from + begin, bytes);
      ASSERT_EQ(std::memcmp(to + 1, from + begin, bytes), 0);
      ASSERT_EQ(to[0], std::byte{0});
      ASSERT_EQ(to[1 + bytes], std::byte{0});
    }
    uint64_t expected;
    std::memcpy(&expected, from + begin, sizeof(expected));
    ASSERT_EQ(CopyTorn<uint64_t>(from + begin), expected);
  }
}

}  // namespace
}  // namespace islands::storage
