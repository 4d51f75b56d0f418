// A B+tree of 4 KiB pages that can only be loaded and searched: what ten lookups cost when there is nothing
// else, one after the other or all together. Keys are uint64, rows have a fixed size and lie in the leaves.
//
//   inner page   256 keys, ascending, ~0 where there are no more | 256 page numbers; keys[i] is the lowest
//                key below children[i]
//   leaf page    L keys, padded with ~0 to a power of two | L rows, 250 bytes: L = 15
//
// Search goes by halves without branches. FindAll takes the same steps for all its keys in turn, so that
// their cache misses overlap, and asks for each page and row before it is needed (design, section 5; the
// technique: Kocberber et al., "Asynchronous Memory Access Chaining", PVLDB 9(4), 2015).
//
// Thread safety: searching is const; rows may be changed by one thread.
//
// Invariants:
//  1. Every path from the root has the same length.
//  2. Find(key) is null exactly when `key` was not loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace islands::experiments {

class DescentTree {
 public:
  // `rows` >= 1 rows of `row_bytes` <= 4000 bytes, all 0, with keys 0, stride, 2 * stride ... below ~0.
  // Uses huge pages where the kernel gives them. Error when there is not enough address space.
  static absl::StatusOr<std::unique_ptr<DescentTree>> Create(uint64_t rows, uint32_t row_bytes,
                                                             uint64_t stride = 1);

  std::byte* Find(uint64_t key) const;
  // found[i] = Find(keys[i]). The rows have been prefetched, whole or their first cache line.
  enum class Fetch { kWholeRow, kFirstLine };
  void FindAll(std::span<const uint64_t> keys, Fetch fetch, std::byte** found) const;

  uint32_t height() const { return height_; }  // 1 = the root is a leaf

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* memory) const;
  };

  using Memory = std::unique_ptr<std::byte, Unmap>;

  DescentTree(Memory memory, uint32_t row_bytes);
  void Load(uint64_t rows, uint64_t stride);
  uint64_t LoadLeaves(uint64_t rows, uint64_t stride);
  uint64_t LoadInner(uint64_t first_child, uint64_t children, uint64_t next_page);
  uint64_t LowestKey(uint64_t page) const;
  std::byte* Page(uint64_t number) const;
  std::byte* Row(std::byte* leaf, size_t slot) const;
  void FindGroup(std::span<const uint64_t> keys, Fetch fetch, std::byte** found) const;
  void Prefetch(const std::byte* row, Fetch fetch) const;

  const Memory memory_;
  std::byte* const pages_;  // in memory_, at the start of a huge page
  const uint32_t row_bytes_;
  const uint32_t leaf_rows_;
  const uint32_t leaf_slots_;  // power of two >= leaf_rows_
  uint32_t height_ = 1;
  std::byte* root_ = nullptr;
};

}  // namespace islands::experiments
