#include "instance/storage/pages/key_hints.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/hash_bytes.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

// With memory for so many pages.
class Hints {
 public:
  explicit Hints(uint64_t pages)
      : memory_(std::aligned_alloc(KeyHints::kBucketBytes, KeyHints::BytesFor(pages)), &std::free),
        hints_((std::memset(memory_.get(), 0, KeyHints::BytesFor(pages)), memory_.get()), pages) {}
  KeyHints* operator->() { return &hints_; }

 private:
  const std::unique_ptr<void, decltype(&std::free)> memory_;
  KeyHints hints_;
};

// Where the tests say that a key with this hash is.
KeyHints::Place PlaceOf(uint64_t hash) {
  return {1 + runtime::MixHash(hash) % 1'000'000, static_cast<uint32_t>(runtime::MixHash(hash + 1) % 500)};
}
uint64_t HashOf(uint64_t key) { return runtime::HashBytes(&key, sizeof(key)); }

// How many of the keys below `keys` are found, each where it is; two in 65,536 may share a tag.
uint64_t CountFound(Hints& hints, uint64_t keys) {
  uint64_t found = 0;
  for (uint64_t key = 0; key < keys; ++key) {
    const KeyHints::Place place = hints->Find(HashOf(key)), right = PlaceOf(HashOf(key));
    found += place.page == right.page && place.slot == right.slot;
  }
  return found;
}

TEST(KeyHints, Find_WhatWasNotedLast) {
  Hints hints(100);
  EXPECT_EQ(hints->Find(HashOf(1)).page, 0u);
  hints->Note(HashOf(1), {7, 3}, 100);
  EXPECT_EQ(hints->Find(HashOf(1)).page, 7u);
  EXPECT_EQ(hints->Find(HashOf(1)).slot, 3u);
  EXPECT_EQ(hints->Find(HashOf(2)).page, 0u);
  hints->Note(HashOf(1), {UINT32_MAX, UINT16_MAX}, 100);
  EXPECT_EQ(hints->Find(HashOf(1)).page, UINT32_MAX);
  EXPECT_EQ(hints->Find(HashOf(1)).slot, UINT16_MAX);
  hints->Note(HashOf(1), {uint64_t{UINT32_MAX} + 1, 0}, 100);  // not that far: it stays what it was
  EXPECT_EQ(hints->Find(HashOf(1)).page, UINT32_MAX);
}

TEST(KeyHints, Note_ForgetsWhereThereIsNoRoom) {
  Hints hints(0);
  for (uint64_t key = 0; key < 100'000; ++key) hints->Note(HashOf(key), PlaceOf(HashOf(key)), 0);
  EXPECT_EQ(hints->buckets(), KeyHints::kFewestBuckets);
  const uint64_t found = CountFound(hints, 100'000);
  EXPECT_GT(found, KeyHints::kFewestBuckets * 7);
  EXPECT_LE(found, KeyHints::kFewestBuckets * 8 + 10);
}

TEST(KeyHints, Note_HasRoomForSixteenKeysOfEachPage) {
  constexpr uint64_t kPages = 5'000, kKeys = 16 * kPages;
  Hints hints(kPages);
  for (uint64_t key = 0; key < 1'000'000; ++key)  // as many as there are pages: no more room than for them
    hints->Note(HashOf(key % 20'000), PlaceOf(HashOf(key % 20'000)), 1'250);
  EXPECT_LE(hints->buckets(), 2 * 2'500u);
  EXPECT_GT(CountFound(hints, 20'000), 20'000u * 8 / 10);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 0; key < kKeys; ++key) hints->Note(HashOf(key), PlaceOf(HashOf(key)), kPages);
  }
  EXPECT_EQ(hints->buckets(), 2 * kPages);
  EXPECT_GT(CountFound(hints, kKeys), kKeys * 8 / 10);
}

// What is found was noted, whoever else notes.
TEST(KeyHintsStress, Threads_FindWhatWasNoted) {
  Hints hints(10'000);
  const auto work = [&](uint64_t id) {
    runtime::Random random = runtime::Random::Stream(3, id);
    uint64_t wrong = 0;
    for (int i = 0; i < 200'000; ++i) {
      const uint64_t hash = HashOf(random.Below(50'000));
      const KeyHints::Place place = hints->Find(hash), right = PlaceOf(hash);
      wrong += place.page != 0 && (place.page != right.page || place.slot != right.slot);
      hints->Note(hash, right, 10'000);
    }
    EXPECT_LT(wrong, 200u);  // another key's with the same tag
  };
  std::vector<std::thread> threads;
  for (uint64_t id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(hints->buckets(), 20'000u);
  EXPECT_GT(hints->buckets(), KeyHints::kFewestBuckets);
}

}  // namespace
}  // namespace islands::storage
