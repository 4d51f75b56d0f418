#include "experiments/peers/descent_tree.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace islands::experiments {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kLineBytes = 64;
constexpr uint64_t kNoKey = ~0ull;
constexpr size_t kFanOut = 256;
constexpr size_t kGroup = 32;  // keys that FindAll handles together

struct InnerPage {
  uint64_t keys[kFanOut];
  uint64_t children[kFanOut];
};
static_assert(sizeof(InnerPage) == kPageBytes);

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint64_t* KeysOf(std::byte* page) { return reinterpret_cast<uint64_t*>(page); }

// One halving of the search for the last slot with a key <= `key`.
size_t Step(const uint64_t* keys, size_t slot, size_t step, uint64_t key) {
  return slot + (step & -static_cast<size_t>(keys[slot + step] <= key));
}

size_t Search(const uint64_t* keys, size_t slots, uint64_t key) {
  size_t slot = 0;
  for (size_t step = slots / 2; step > 0; step /= 2) slot = Step(keys, slot, step, key);
  return slot;
}

uint32_t LeafRows(uint32_t row_bytes) {
  uint32_t rows = kPageBytes / (row_bytes + sizeof(uint64_t));
  while (std::bit_ceil(rows) * sizeof(uint64_t) + rows * row_bytes > kPageBytes) --rows;
  return rows;
}

uint64_t PagesFor(uint64_t rows, uint32_t leaf_rows) {
  uint64_t level = DivideUp(rows, leaf_rows);
  uint64_t pages = level;
  for (; level > 1; pages += level) level = DivideUp(level, kFanOut);
  return pages;
}

std::byte* AlignUp(std::byte* memory) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
  return memory + (DivideUp(address, kHugePageBytes) * kHugePageBytes - address);
}

}  // namespace

void DescentTree::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

absl::StatusOr<std::unique_ptr<DescentTree>> DescentTree::Create(uint64_t rows, uint32_t row_bytes,
                                                                 uint64_t stride) {
  assert(rows >= 1 && LeafRows(row_bytes) >= 1);
  // One huge page more than needed, so that there is an aligned start.
  const uint64_t pages = PagesFor(rows, LeafRows(row_bytes));
  const size_t bytes = (DivideUp(pages * kPageBytes, kHugePageBytes) + 1) * kHugePageBytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(fmt::format("no memory for {} rows of {} bytes", rows, row_bytes));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // where it is refused the pages stay small
  Memory owned(static_cast<std::byte*>(memory), Unmap{bytes});
  std::unique_ptr<DescentTree> tree(new DescentTree(std::move(owned), row_bytes));
  tree->Load(rows, stride);
  return tree;
}

DescentTree::DescentTree(Memory memory, uint32_t row_bytes)
    : memory_(std::move(memory)),
      pages_(AlignUp(memory_.get())),
      row_bytes_(row_bytes),
      leaf_rows_(LeafRows(row_bytes)),
      leaf_slots_(std::bit_ceil(leaf_rows_)) {}

void DescentTree::Load(uint64_t rows, uint64_t stride) {
  uint64_t first = 0;
  uint64_t level = LoadLeaves(rows, stride);
  uint64_t next = level;
  for (; level > 1; ++height_) {
    const uint64_t above = LoadInner(first, level, next);
    first = next;
    next += above;
    level = above;
  }
  assert(next == PagesFor(rows, leaf_rows_));
  root_ = Page(first);
}

uint64_t DescentTree::LoadLeaves(uint64_t rows, uint64_t stride) {
  const uint64_t leaves = DivideUp(rows, leaf_rows_);
  uint64_t next = 0;
  for (uint64_t leaf = 0; leaf < leaves; ++leaf) {
    uint64_t* keys = KeysOf(Page(leaf));
    std::fill_n(keys, leaf_slots_, kNoKey);
    for (uint32_t slot = 0; slot < leaf_rows_ && next < rows; ++slot) keys[slot] = stride * next++;
  }
  return leaves;
}

// Pages over `children` pages from `first_child`; says how many.
uint64_t DescentTree::LoadInner(uint64_t first_child, uint64_t children, uint64_t next_page) {
  const uint64_t pages = DivideUp(children, kFanOut);
  for (uint64_t child = 0; child < children; ++child) {
    InnerPage& page = reinterpret_cast<InnerPage&>(*Page(next_page + child / kFanOut));
    const size_t slot = child % kFanOut;
    if (slot == 0) std::fill_n(page.keys, kFanOut, kNoKey);
    page.keys[slot] = LowestKey(first_child + child);
    page.children[slot] = first_child + child;
  }
  return pages;
}

// Both kinds of page start with their keys.
uint64_t DescentTree::LowestKey(uint64_t page) const { return *KeysOf(Page(page)); }

std::byte* DescentTree::Page(uint64_t number) const { return pages_ + number * kPageBytes; }

std::byte* DescentTree::Row(std::byte* leaf, size_t slot) const {
  return leaf + leaf_slots_ * sizeof(uint64_t) + slot * row_bytes_;
}

std::byte* DescentTree::Find(uint64_t key) const {
  std::byte* page = root_;
  for (uint32_t level = height_; level > 1; --level) {
    const InnerPage& inner = reinterpret_cast<const InnerPage&>(*page);
    page = Page(inner.children[Search(inner.keys, kFanOut, key)]);
  }
  const size_t slot = Search(KeysOf(page), leaf_slots_, key);
  return KeysOf(page)[slot] == key ? Row(page, slot) : nullptr;
}

void DescentTree::FindAll(std::span<const uint64_t> keys, Fetch fetch, std::byte** found) const {
  for (size_t begin = 0; begin < keys.size(); begin += kGroup) {
    FindGroup(keys.subspan(begin, std::min(kGroup, keys.size() - begin)), fetch, found + begin);
  }
}

void DescentTree::FindGroup(std::span<const uint64_t> keys, Fetch fetch, std::byte** found) const {
  std::byte* pages[kGroup];
  size_t slots[kGroup];
  const size_t n = keys.size();
  std::fill_n(pages, n, root_);
  for (uint32_t level = height_; level > 0; --level) {
    const size_t width = level > 1 ? kFanOut : leaf_slots_;
    std::fill_n(slots, n, 0);
    for (size_t step = width / 2; step > 0; step /= 2) {
      for (size_t i = 0; i < n; ++i) {
        slots[i] = Step(KeysOf(pages[i]), slots[i], step, keys[i]);
        __builtin_prefetch(KeysOf(pages[i]) + slots[i] + step / 2);
      }
    }
    if (level == 1) break;
    const size_t next_step = (level > 2 ? kFanOut : leaf_slots_) / 2;
    for (size_t i = 0; i < n; ++i) {
      pages[i] = Page(reinterpret_cast<const InnerPage*>(pages[i])->children[slots[i]]);
      // Where the first two steps in it will look, or at least may.
      __builtin_prefetch(KeysOf(pages[i]) + next_step);
      __builtin_prefetch(KeysOf(pages[i]) + next_step / 2);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    found[i] = KeysOf(pages[i])[slots[i]] == keys[i] ? Row(pages[i], slots[i]) : nullptr;
    if (found[i] != nullptr) Prefetch(found[i], fetch);
  }
}

void DescentTree::Prefetch(const std::byte* row, Fetch fetch) const {
  const size_t bytes = fetch == Fetch::kWholeRow ? row_bytes_ : sizeof(int64_t);
  for (size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(row + at);
  __builtin_prefetch(row + bytes - 1);
}

}  // namespace islands::experiments
