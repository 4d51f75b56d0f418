// Several threads on one small tree, so that splits, merges and scans meet all the time. Runs plain and under
// TSan.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "instance/storage/btree/btree_testing.h"
#include "runtime/latch_waits.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using absl::StatusCode;
using runtime::Random;

constexpr uint32_t kThreads = 4;
constexpr uint64_t kSeed = 20'120'827;
#ifdef ISLANDS_TSAN
constexpr uint64_t kRounds = 6'000;
#else
constexpr uint64_t kRounds = 60'000;
#endif

// Key = (number, owner): every thread has rows in every leaf.
constexpr uint64_t kNumbers = 400;
constexpr uint32_t kPermanent = 1000;  // owner of rows that stay

std::string Key(uint64_t number, uint32_t owner) {
  std::string key;
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, number, &key);
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, owner, &key);
  return key + std::string(number % 29, 'k');
}

// A row says to whom it belongs and is filled with its version, so that a torn or misplaced one shows.
struct RowHead {
  uint64_t number;
  uint64_t version;
};

std::string Row(uint64_t number, uint64_t version, size_t filling) {
  const RowHead head{number, version};
  std::string row(sizeof(head), '\0');
  std::memcpy(row.data(), &head, sizeof(head));
  return row + std::string(filling, static_cast<char>(version));
}

bool IsWhole(std::span<const std::byte> row) {
  RowHead head;
  if (row.size() < sizeof(head)) return false;
  std::memcpy(&head, row.data(), sizeof(head));
  for (const std::byte b : row.subspan(sizeof(head))) {
    if (b != static_cast<std::byte>(head.version)) return false;
  }
  return head.number < kNumbers;
}

// One thread's rows, which nobody else changes: every answer is known.
class Owner {
 public:
  Owner(BTree* tree, uint32_t id) : tree_(tree), id_(id), random_(Random::Stream(kSeed, id)) {}

  void Run() {
    for (uint64_t round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
      // Filling and draining in turn makes leaves split and merge.
      const uint64_t insert_percent = round / 500 % 2 == 0 ? 80 : 20;
      const uint64_t number = random_.Below(kNumbers);
      const uint64_t dice = random_.Below(100);
      if (dice < 60) {
        random_.Below(100) < insert_percent ? Insert(number) : Remove(number);
      } else if (dice < 70) {
        Replace(number);
      } else if (dice < 80) {
        Modify(number);
      } else if (dice < 90) {
        Read(number);
      } else if (dice < 94) {
        LookUp();
      } else if (dice < 98) {
        ScanFromPermanent();
      } else {
        Scan(random_.Below(2) == 0);
      }
    }
  }
  size_t rows() const { return rows_.size(); }
  void CheckRows(TestTree& tree) {
    for (const auto& [number, row] : rows_) ASSERT_EQ(tree.Read(Key(number, id_)), row);
  }

 private:
  std::string NewRow(uint64_t number) { return Row(number, ++version_, random_.Below(500)); }
  StatusCode Expect(uint64_t number, StatusCode present, StatusCode absent) {
    return rows_.contains(number) ? present : absent;
  }
  void Insert(uint64_t number) {
    const std::string row = NewRow(number);
    ASSERT_EQ(tree_->Insert(Bytes(Key(number, id_)), Bytes(row)),
              Expect(number, StatusCode::kAlreadyExists, StatusCode::kOk));
    rows_.emplace(number, row);
  }
  void Remove(uint64_t number) {
    ASSERT_EQ(tree_->Remove(Bytes(Key(number, id_))), Expect(number, StatusCode::kOk, StatusCode::kNotFound));
    rows_.erase(number);
  }
  void Replace(uint64_t number) {
    const std::string row = NewRow(number);
    ASSERT_EQ(tree_->Replace(Bytes(Key(number, id_)), Bytes(row)),
              Expect(number, StatusCode::kOk, StatusCode::kNotFound));
    if (const auto found = rows_.find(number); found != rows_.end()) found->second = row;
  }
  void Modify(uint64_t number, Lookup* hint = nullptr) {
    const uint64_t version = ++version_;
    const auto found = rows_.find(number);
    const auto change = [&](std::span<std::byte> row) {
      const std::string changed = Row(number, version, row.size() - sizeof(RowHead));
      std::memcpy(row.data(), changed.data(), changed.size());
    };
    const StatusCode code = tree_->Modify(Bytes(Key(number, id_)), {0, sizeof(RowHead)}, change, hint);
    ASSERT_EQ(code, Expect(number, StatusCode::kOk, StatusCode::kNotFound));
    if (found != rows_.end()) found->second = Row(number, version, found->second.size() - sizeof(RowHead));
  }
  void Read(uint64_t number) {
    ASSERT_EQ(tree_->Read(Bytes(Key(number, id_)), &buffer_),
              Expect(number, StatusCode::kOk, StatusCode::kNotFound));
    if (const auto found = rows_.find(number); found != rows_.end()) {
      ASSERT_EQ(Text(buffer_), found->second);
    }
    // Another thread's row: there or not, but whole.
    const std::string other = Key(number, static_cast<uint32_t>(random_.Below(kThreads)));
    if (tree_->Read(Bytes(other), &buffer_) == StatusCode::kOk) {
      ASSERT_TRUE(IsWhole(buffer_));
    }
  }
  // Several rows looked for together, while others split and merge their leaves.
  void LookUp() {
    std::array<uint64_t, 6> numbers;
    std::array<std::string, 6> keys;
    std::array<Lookup, 6> lookups;
    for (size_t i = 0; i < keys.size(); ++i) {
      numbers[i] = i > 0 && random_.Below(4) == 0 ? numbers[i - 1] : random_.Below(kNumbers);
      keys[i] = Key(numbers[i], id_);
      switch (random_.Below(4)) {
        case 0:
          tree_->StartDescent(Bytes(keys[i]), 0, &lookups[i]);
          break;
        case 3:
          tree_->StartInsert(Bytes(keys[i]), &lookups[i]);
          break;
        case 1:
          tree_->FollowLookup(Bytes(keys[i]), 0, &lookups[i]);
          break;
        default:
          tree_->StartLookup(Bytes(keys[i]), 0, &lookups[i]);
      }
    }
    BTree::FinishLookups(lookups);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i % 2 == 0) {
        Modify(numbers[i], &lookups[i]);
        continue;
      }
      std::string row;
      const KeyState state =
          tree_->Find(Bytes(keys[i]), &lookups[i], [&](TornBytes found) { row = Text(found); });
      const auto found = rows_.find(numbers[i]);
      ASSERT_EQ(state, found != rows_.end() ? KeyState::kRow : KeyState::kAbsent);
      if (found != rows_.end()) {
        ASSERT_EQ(row, found->second);
      }
    }
  }
  // Whatever the others do: strict order, whole rows, all permanent rows, and exactly this thread's own.
  void Scan(bool reverse) {
    std::string before;
    uint64_t permanent = 0;
    size_t own = 0;
    tree_->Scan({}, {}, reverse, [&](KeyView key, RowView row) {
      const std::string text = Text(key);
      EXPECT_TRUE(before.empty() || (reverse ? text < before : text > before));
      EXPECT_TRUE(IsWhole(row));
      before = text;
      RowHead head;
      std::memcpy(&head, row.data(), sizeof(head));
      if (text == Key(head.number, kPermanent)) ++permanent;
      if (text == Key(head.number, id_)) {
        ++own;
        EXPECT_TRUE(rows_.contains(head.number));
      }
      return !testing::Test::HasFailure();
    });
    ASSERT_EQ(permanent, kNumbers / 10);
    ASSERT_EQ(own, rows_.size());
  }

  // The first row is that of the key, which stays, wherever scans that began with it have found it.
  void ScanFromPermanent() {
    const std::string first = Key(random_.Below(kNumbers / 10) * 10, kPermanent);
    std::string before;
    size_t rows = 0;
    const auto visit = [&](KeyView key, RowView row) {
      const std::string text = Text(key);
      EXPECT_TRUE(before.empty() ? text == first : text > before);
      EXPECT_TRUE(IsWhole(row));
      before = text;
      return ++rows < 10 && !testing::Test::HasFailure();
    };
    tree_->Scan(Bytes(first), {}, /*reverse=*/false, visit, nullptr, BTree::Reach::kAgain);
    ASSERT_GT(rows, 0u);
  }

  BTree* const tree_;
  const uint32_t id_;
  Random random_;
  std::map<uint64_t, std::string> rows_;
  uint64_t version_ = 0;
  std::vector<std::byte> buffer_;
};

void RunOwners(TestTree& tree) {
  for (uint64_t number = 0; number < kNumbers; number += 10) {
    ASSERT_EQ(tree.Insert(Key(number, kPermanent), Row(number, 1, 50)), StatusCode::kOk);
  }
  std::vector<Owner> owners;
  for (uint32_t id = 0; id < kThreads; ++id) owners.emplace_back(tree.tree.get(), id);
  std::vector<std::thread> threads;
  for (Owner& owner : owners) threads.emplace_back([&owner] { owner.Run(); });
  for (std::thread& thread : threads) thread.join();
  size_t rows = kNumbers / 10;
  for (Owner& owner : owners) {
    owner.CheckRows(tree);
    rows += owner.rows();
  }
  EXPECT_EQ(tree.Check().rows, rows);
}

TEST(BTreeStress, AllOperations_EachThreadOwnsItsRows) {
  TestTree tree(5000);
  RunOwners(tree);
}

// The leaf is where scans have found it before, and copied while somebody writes to it.
TEST(BTreeStress, ScanAgain_RowsAreWhole) {
  TestTree tree(100);
  constexpr size_t kRowBytes = 1000;
  const std::vector<std::string> keys = {"a", "b", "c"};
  for (const std::string& key : keys)
    ASSERT_EQ(tree.Insert(key, std::string(kRowBytes, '\0')), StatusCode::kOk);
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (uint64_t round = 0; round < 30 * kRounds; ++round) {
      EXPECT_EQ(tree.tree->Modify(Bytes(keys[round % keys.size()]), {0, kRowBytes},
                                  [&](std::span<std::byte> row) {
                                    std::fill(row.begin(), row.end(), static_cast<std::byte>(round));
                                  }),
                StatusCode::kOk);
    }
    ended = true;
  });
  while (!ended) {
    size_t rows = 0, torn = 0;
    const auto visit = [&](KeyView, RowView row) {
      torn += std::any_of(row.begin(), row.end(), [&](std::byte b) { return b != row[0]; });
      return ++rows < 10;
    };
    tree.tree->Scan(Bytes(keys[0]), {}, /*reverse=*/false, visit, nullptr, BTree::Reach::kAgain);
    EXPECT_EQ(rows, keys.size());
    EXPECT_EQ(torn, 0u);
    if (testing::Test::HasFailure()) break;
  }
  writer.join();
}

// All threads add to the same few rows while others push those rows around: nothing is lost.
TEST(BTreeStress, Modify_SharedCountersLoseNothing) {
  TestTree tree(5000);
  constexpr uint64_t kCounters = 5;
  for (uint64_t i = 0; i < kCounters; ++i) {
    ASSERT_EQ(tree.Insert(Key(i * 10, kPermanent), std::string(8, '\0')), StatusCode::kOk);
  }
  const auto work = [&](uint32_t id) {
    Random random = Random::Stream(kSeed, 100 + id);
    for (uint64_t round = 0; round < kRounds; ++round) {
      const StatusCode code = tree.tree->Modify(Bytes(Key(random.Below(kCounters) * 10, kPermanent)),
                                                {0, sizeof(uint64_t)}, [](std::span<std::byte> row) {
                                                  uint64_t value;
                                                  std::memcpy(&value, row.data(), sizeof(value));
                                                  ++value;
                                                  std::memcpy(row.data(), &value, sizeof(value));
                                                });
      ASSERT_EQ(code, StatusCode::kOk);
      const std::string neighbour = Key(random.Below(50), id);
      round / 50 % 2 == 0 ? tree.Insert(neighbour, std::string(300, 'n'))
                          : tree.tree->Remove(Bytes(neighbour));
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = 0;
  for (uint64_t i = 0; i < kCounters; ++i) {
    uint64_t value;
    std::memcpy(&value, tree.Read(Key(i * 10, kPermanent)).data(), sizeof(value));
    sum += value;
  }
  EXPECT_EQ(sum, kThreads * kRounds);
  tree.Check();
}

// Threads race to insert and remove the same keys: of each race exactly one wins.
TEST(BTreeStress, InsertAndRemove_OneWinner) {
  TestTree tree(5000);
  std::atomic<int64_t> balance{0};
  const auto work = [&](uint32_t id) {
    Random random = Random::Stream(kSeed, 200 + id);
    for (uint64_t round = 0; round < kRounds; ++round) {
      const std::string key = Key(random.Below(kNumbers), 0);
      if (random.Below(2) == 0) {
        if (tree.Insert(key, std::string(random.Below(400), 'r')) == StatusCode::kOk) balance.fetch_add(1);
      } else if (tree.tree->Remove(Bytes(key)) == StatusCode::kOk) {
        balance.fetch_sub(1);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(static_cast<int64_t>(tree.Check().rows), balance.load());
}

// A pool that runs full again and again under concurrent inserts: refused operations change nothing.
TEST(BTreeStress, Insert_PoolFullUnderConcurrency) {
  TestTree tree(60);
  std::atomic<int64_t> balance{0};
  std::atomic<uint64_t> refused{0};
  const auto work = [&](uint32_t id) {
    Random random = Random::Stream(kSeed, 300 + id);
    for (uint64_t round = 0; round < kRounds / 4; ++round) {
      const std::string key = Key(random.Below(kNumbers), id);
      const StatusCode code =
          round / 200 % 2 == 0 ? tree.Insert(key, std::string(700, 'r')) : tree.tree->Remove(Bytes(key));
      if (code == StatusCode::kOk) balance.fetch_add(round / 200 % 2 == 0 ? 1 : -1);
      if (code == StatusCode::kResourceExhausted) refused.fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(refused.load(), 0u);
  EXPECT_EQ(static_cast<int64_t>(tree.Check().rows), balance.load());
}

// The longest wait of a reader while somebody else changes pages.
struct LongestWait {
  std::string wanted_at;
  std::string taken_at;
  PagePlace place;
};

// Reads all over the tree until `change`, of which another thread makes many, has been made.
LongestWait ReadBeside(TestTree& tree, absl::FunctionRef<void()> change) {
  runtime::LatchWaits waits;
  std::atomic<bool> over = false;
  std::thread reader([&] {
    runtime::latch_waits = &waits;
    std::vector<std::byte> row;
    for (uint64_t number = 0; !over.load(); number = (number + 1) % kNumbers)
      EXPECT_EQ(tree.tree->Read(Bytes(Key(number, 0)), &row), StatusCode::kOk);
    runtime::latch_waits = nullptr;
  });
  change();
  over.store(true);
  reader.join();
  LongestWait longest;
  uint64_t most_ns = 0;
  waits.ForEach([&](const char* site, const char* holder, uint64_t place, uint64_t, uint64_t waited_ns) {
    if (waited_ns <= most_ns) return;
    most_ns = waited_ns;
    longest = {site, holder == nullptr ? "" : holder, PagePlace(place)};
  });
  return longest;
}

void FillForReaders(TestTree& tree) {
  for (uint64_t number = 0; number < kNumbers; ++number)
    ASSERT_EQ(tree.Insert(Key(number, 0), std::string(200, 'r')), StatusCode::kOk);
  ASSERT_GE(tree.tree->levels(), 2);
}

// A slow change of a row, planted beside quick ones of all others: who waits longest waits for its leaf, and
// the wait says so, and where that had been latched.
TEST(BTreeStress, Waits_NameTheLeafWithTheSlowSection) {
  TestTree tree(5000);
  FillForReaders(tree);
  const LongestWait longest = ReadBeside(tree, [&] {
    const auto slow = [](std::span<std::byte>) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(tree.tree->Modify(Bytes(Key(7, 0)), {0, 1}, slow), StatusCode::kOk);
      for (uint64_t number = 0; number < kNumbers; number += 10)
        EXPECT_EQ(tree.tree->Modify(Bytes(Key(number, 0)), {0, 1}, [](std::span<std::byte>) {}),
                  StatusCode::kOk);
    }
  });
  EXPECT_EQ(longest.wanted_at, "btree.descend");
  EXPECT_EQ(longest.taken_at, "btree.leaf");
  EXPECT_EQ(longest.place.type(), PageType::kTree);
  EXPECT_EQ(longest.place.level(), 0);
  EXPECT_EQ(longest.place.tree(), TestTree::kTreeId);
  EXPECT_EQ(longest.place.site(), TestTree::kSite);
}

// The same of an inner page, and another section.
TEST(BTreeStress, Waits_NameTheLevel) {
  TestTree tree(5000);
  FillForReaders(tree);
  const uint32_t levels = tree.tree->levels();
  const uint64_t root = tree.space.Root(TestTree::kTreeId);
  const LongestWait longest = ReadBeside(tree, [&] {
    for (int i = 0; i < 100; ++i) {
      const GuardX guard(tree.space.At(root), ISLANDS_PAGE_LATCH("btree.split_root"));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(longest.wanted_at, "btree.root");
  EXPECT_EQ(longest.taken_at, "btree.split_root");
  EXPECT_EQ(longest.place.level(), levels - 1);
}

}  // namespace
}  // namespace islands::storage
