// Where keys were found last: from a key's hash to the number of a leaf and a slot in it. Who looks for the
// key looks there first, which spares a descent and most of its cache misses (an adaptive hash index, as
// InnoDB's, except that nobody keeps it true).
//
// Hints are never believed: the key itself must stand in that slot, or belong between that leaf's fences. So
// they may be lost, old, torn or of another key, and need no latch; whoever moves a key does nothing about
// them.
//
//   memory   buckets of a cache line with eight hints
//   hint     tag, the low bits of the hash (16) | slot (16) | page number (32); zero: none
//
// A hint's first place in its bucket follows from its hash, so that a search mostly ends with one look. A
// bucket that is full forgets the hint that is in the first place of the new one.
//
// Few keys shall lie close together, and many have room: the number of buckets in use doubles while buckets
// are full and there are more pages than it was meant for. What was there before is hardly found any more,
// and comes again.
//
// Thread safety: all functions from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace islands::storage {

class KeyHints {
 public:
  struct Place {
    uint64_t page = 0;  // 0: not known
    uint32_t slot = 0;
  };
  // Room for 16 keys of each page: rows of 250 bytes.
  static constexpr uint64_t kBucketsPerPage = 2;
  static constexpr uint64_t kBucketBytes = 64;
  static constexpr uint64_t kFewestBuckets = 1024;
  static uint64_t BytesFor(uint64_t pages) { return BucketsFor(pages) * kBucketBytes; }

  // `memory`: BytesFor(pages), zeroed, at a multiple of kBucketBytes, longer-lived. `pages`: as many as there
  // may ever be in memory at once.
  KeyHints(void* memory, uint64_t pages)
      : hints_(static_cast<std::atomic<uint64_t>*>(memory)), most_buckets_(BucketsFor(pages)) {}
  KeyHints(const KeyHints&) = delete;
  KeyHints& operator=(const KeyHints&) = delete;

  // By force, as PageArray::Prefetch.
  [[gnu::always_inline]] void Prefetch(uint64_t hash) const { __builtin_prefetch(BucketOf(hash)); }
  Place Find(uint64_t hash) const {
    const std::atomic<uint64_t>* const bucket = BucketOf(hash);
    size_t at = FirstPlace(hash);
    for (size_t i = 0; i < kHints; ++i, at = (at + 1) % kHints) {
      const uint64_t hint = bucket[at].load(std::memory_order_relaxed);
      if (hint == 0) break;
      if (TagOf(hint) == TagOf(hash << kTagShift))
        return {hint & kPageMask, static_cast<uint16_t>(hint >> kSlotShift)};
    }
    return {};
  }
  // `pages`: in memory now.
  void Note(uint64_t hash, Place place, uint64_t pages) {
    if (place.page > kPageMask || place.slot > UINT16_MAX) return;
    const uint64_t hint = hash << kTagShift | uint64_t{place.slot} << kSlotShift | place.page;
    std::atomic<uint64_t>* const bucket = BucketOf(hash);
    const size_t first = FirstPlace(hash);
    size_t at = first;
    for (size_t i = 0; i < kHints; ++i, at = (at + 1) % kHints) {
      const uint64_t old = bucket[at].load(std::memory_order_relaxed);
      if (old == 0 || TagOf(old) == TagOf(hint)) return bucket[at].store(hint, std::memory_order_relaxed);
    }
    bucket[first].store(hint, std::memory_order_relaxed);
    uint64_t buckets = buckets_.load(std::memory_order_relaxed);
    if (buckets < std::min(most_buckets_, kBucketsPerPage * pages))
      buckets_.compare_exchange_strong(buckets, std::min(most_buckets_, 2 * buckets),
                                       std::memory_order_relaxed);
  }
  uint64_t buckets() const { return buckets_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kHints = kBucketBytes / sizeof(uint64_t);
  static constexpr int kTagShift = 48, kSlotShift = 32;
  static constexpr uint64_t kPageMask = (uint64_t{1} << kSlotShift) - 1;

  static uint64_t BucketsFor(uint64_t pages) {
    return std::clamp(kBucketsPerPage * pages, kFewestBuckets, kPageMask);
  }
  static uint64_t TagOf(uint64_t hint) { return hint >> kTagShift; }
  // Tag, first place and bucket are of different bits.
  static size_t FirstPlace(uint64_t hash) { return hash >> 16 & (kHints - 1); }
  std::atomic<uint64_t>* BucketOf(uint64_t hash) const {
    return hints_ + ((hash >> 32) * buckets_.load(std::memory_order_relaxed) >> 32) * kHints;
  }

  std::atomic<uint64_t>* const hints_;
  const uint64_t most_buckets_;
  std::atomic<uint64_t> buckets_{kFewestBuckets};
};

}  // namespace islands::storage
