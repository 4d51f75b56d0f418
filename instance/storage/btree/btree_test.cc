#include "instance/storage/btree/btree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "fmt/format.h"
#include "instance/storage/btree/btree_testing.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using absl::StatusCode;
using runtime::Random;
using Model = std::map<std::string, std::string>;
using Rows = std::vector<std::pair<std::string, std::string>>;

std::string BigEndian(uint64_t value) { return Text(KeyView(partitioner::Uint64Key(value))); }

std::string RandomBytes(Random& random, size_t bytes, uint64_t alphabet) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random.Below(alphabet));
  return text;
}

// ---- random operations against std::map ----

struct Mix {
  const char* name;
  std::function<std::string(Random&)> key;
  std::function<size_t(Random&)> row_bytes;
  std::string lower = "", upper = "";  // the tree's bounds
  bool alone = false;
};

std::string LongSharedPrefix(Random& random) {
  std::string key(200 + random.Below(3) * 20, static_cast<char>('a' + random.Below(2)));
  return key + RandomBytes(random, random.Below(kMaxTreeKeyBytes - key.size()), 3);
}

std::string DistinctAtTheEnd(Random& random) {
  std::string key(254, static_cast<char>('a' + random.Below(3)));
  return key + RandomBytes(random, 2, 8);
}

const Mix kMixes[] = {
    {"Numbers", [](Random& r) { return BigEndian(r.Below(3000)); },
     [](Random& r) { return 250 + r.Below(2); }},
    {"ShortKeys", [](Random& r) { return RandomBytes(r, 1 + r.Below(7), 4); },
     [](Random& r) { return r.Below(100); }},
    {"BinaryKeys", [](Random& r) { return RandomBytes(r, 1 + r.Below(40), 256); },
     [](Random& r) { return r.Below(kMaxRowBytes + 1); }},
    {"LongKeys", LongSharedPrefix, [](Random& r) { return r.Below(40); }},
    {"LargeEverything", DistinctAtTheEnd,
     [](Random& r) { return r.Below(4) == 0 ? r.Below(kMaxRowBytes + 1) : kMaxRowBytes; }},
    {"EmptyRows", [](Random& r) { return RandomBytes(r, 1 + r.Below(5), 7); },
     [](Random&) { return size_t{0}; }},
    {"BoundedNumbers", [](Random& r) { return BigEndian(r.Below(4000)); },
     [](Random& r) { return 250 + r.Below(2); }, BigEndian(300), BigEndian(3700)},
    {"BoundedAlone", [](Random& r) { return BigEndian(r.Below(0x20000)); },
     [](Random& r) { return r.Below(100); }, BigEndian(0x10000), BigEndian(0x1ffff), true},
    {"BoundedBelow", [](Random& r) { return RandomBytes(r, 1 + r.Below(7), 4); },
     [](Random& r) { return r.Below(100); }, std::string(1, 1), ""},
    // Hints of two keys in five, of which some have moved.
    {"FewNumbers", [](Random& r) { return BigEndian(r.Below(300)); },
     [](Random& r) { return 100 + r.Below(200); }},
    {"FewNumbersAlone", [](Random& r) { return BigEndian(r.Below(300)); },
     [](Random& r) { return 100 + r.Below(200); }, "", "", true},
};

class BTreeModelTest : public testing::TestWithParam<std::tuple<size_t, uint64_t>> {
 protected:
  BTreeModelTest()
      : mix_(kMixes[std::get<0>(GetParam())]),
        tree_(20'000, mix_.lower, mix_.upper, mix_.alone),
        random_(std::get<1>(GetParam())) {}

  std::string AnyKey() {
    if (!model_.empty() && random_.Below(2) == 0) {  // one that is there, or the next one
      const auto at = model_.lower_bound(mix_.key(random_));
      if (at != model_.end()) return at->first;
    }
    return mix_.key(random_);
  }
  std::string AnyRow() { return RandomBytes(random_, mix_.row_bytes(random_), 256); }

  void InsertOne() {
    const std::string key = AnyKey(), row = AnyRow();
    if (key < mix_.lower || (!mix_.upper.empty() && key >= mix_.upper)) {
      ASSERT_EQ(tree_.Insert(key, row), StatusCode::kInvalidArgument);
      return;
    }
    const bool absent = model_.emplace(key, row).second;
    ASSERT_EQ(tree_.Insert(key, row), absent ? StatusCode::kOk : StatusCode::kAlreadyExists);
  }
  void RemoveOne() {
    const std::string key = AnyKey();
    ASSERT_EQ(tree_.tree->Remove(Bytes(key)),
              model_.erase(key) == 1 ? StatusCode::kOk : StatusCode::kNotFound);
  }
  void ReplaceOne() { ReplaceOne(AnyKey(), nullptr); }
  void ModifyOne() { Modify(AnyKey(), nullptr); }
  void Modify(const std::string& key, Lookup* hint) {
    const auto found = model_.find(key);
    RowPart part{0, 1};
    if (found != model_.end()) {
      part.offset = random_.Below(found->second.size() + 1);
      part.bytes = random_.Below(found->second.size() - part.offset + 1);
    }
    const StatusCode code = tree_.tree->Modify(
        Bytes(key), part,
        [&](std::span<std::byte> row) {
          ASSERT_NE(found, model_.end());
          ASSERT_EQ(Text(row), found->second);
          for (std::byte& b : row.subspan(part.offset, part.bytes)) b ^= std::byte{0x5a};
        },
        hint);
    if (found != model_.end()) {
      for (char& c : std::span(found->second).subspan(part.offset, part.bytes))
        c = static_cast<char>(c ^ 0x5a);
    }
    ASSERT_EQ(code, found != model_.end() ? StatusCode::kOk : StatusCode::kNotFound);
  }
  // Makes a row a ghost, and then a row again, another one, or nothing.
  void GhostOne() {
    const std::string key = AnyKey(), row = AnyRow();
    const auto found = model_.find(key);
    const StatusCode expected = found != model_.end() ? StatusCode::kOk : StatusCode::kNotFound;
    ASSERT_EQ(tree_.tree->SetGhost(Bytes(key), true), expected);
    if (found == model_.end()) return;
    ASSERT_EQ(tree_.Read(key), "NOT_FOUND");
    switch (random_.Below(3)) {
      case 0:
        ASSERT_EQ(tree_.tree->SetGhost(Bytes(key), false), StatusCode::kOk);
        break;
      case 1:
        ASSERT_EQ(tree_.Insert(key, row), StatusCode::kOk);
        found->second = row;
        break;
      default:
        ASSERT_EQ(tree_.tree->Remove(Bytes(key), /*only_ghost=*/true), StatusCode::kOk);
        model_.erase(found);
    }
  }
  // As who locks the gap below the next key does, before it inserts.
  void InsertIntoGap(const std::string& key, Lookup* place) {
    KeyBuffer next;
    std::vector<std::byte> ghost;
    const uint64_t key_changes = tree_.tree->key_changes();
    const BTree::Gap gap = tree_.tree->FindGap(Bytes(key), place, &ghost, &next);
    const auto found = model_.find(key);
    ASSERT_EQ(gap.state, found != model_.end() ? KeyState::kRow : KeyState::kAbsent);
    const auto above = model_.upper_bound(key);
    if (found == model_.end()) {
      ASSERT_EQ(gap.last, above == model_.end());
      if (!gap.last) {
        ASSERT_EQ(Text(next.view()), above->first);
      }
    }
    const bool aborted = random_.Below(4) == 0;  // keys come and go in between
    if (aborted) random_.Below(2) == 0 ? InsertOne() : RemoveOne();
    const bool changed = tree_.tree->key_changes() != key_changes;
    const std::string row = AnyRow();
    const StatusCode code = tree_.tree->Insert(Bytes(key), Bytes(row), key_changes, place);
    if (key < mix_.lower || (!mix_.upper.empty() && key >= mix_.upper)) {
      ASSERT_EQ(code, StatusCode::kInvalidArgument);
    } else if (model_.contains(key)) {
      ASSERT_EQ(code, StatusCode::kAlreadyExists);
    } else {
      ASSERT_EQ(code, changed ? StatusCode::kAborted : StatusCode::kOk);
      if (code == StatusCode::kOk) model_.emplace(key, row);
      if (changed) InsertIntoGap(key, place);  // as who was aborted does
    }
  }
  void ReplaceOne(const std::string& key, Lookup* hint) {
    const std::string row = AnyRow();
    const auto found = model_.find(key);
    if (found != model_.end()) found->second = row;
    ASSERT_EQ(tree_.tree->Replace(Bytes(key), Bytes(row), hint),
              found != model_.end() ? StatusCode::kOk : StatusCode::kNotFound);
  }
  // Wherever it is to begin, it finds what is there.
  void StartLookup(const std::string& key, Lookup* lookup) {
    const size_t bytes = random_.Below(2) * 8;
    switch (random_.Below(4)) {
      case 0:
        return tree_.tree->StartDescent(Bytes(key), bytes, lookup);
      case 3:
        return tree_.tree->StartInsert(Bytes(key), lookup);
      case 1:
        return tree_.tree->FollowLookup(Bytes(key), bytes, lookup);
      default:
        return tree_.tree->StartLookup(Bytes(key), bytes, lookup);
    }
  }
  // Looks for several rows together, and then uses what was found while other changes come in between.
  void LookupSome() {
    std::vector<std::string> keys(1 + random_.Below(12));
    std::vector<Lookup> lookups(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = i > 0 && random_.Below(4) == 0 ? keys[i - 1] : AnyKey();
      StartLookup(keys[i], &lookups[i]);
    }
    BTree::FinishLookups(lookups);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (random_.Below(4) == 0) random_.Below(2) == 0 ? InsertOne() : RemoveOne();
      switch (random_.Below(5)) {
        case 0:
          InsertIntoGap(keys[i], &lookups[i]);
          continue;
        case 1:
          ReplaceOne(keys[i], &lookups[i]);
          continue;
        case 2:
          Modify(keys[i], &lookups[i]);
          continue;
        default:
          break;
      }
      std::string row = "absent";
      const auto take = [&](TornBytes r) { row = Text(r); };
      const bool again = random_.Below(2) == 0;
      const KeyState state = again ? tree_.tree->Find</*kAgain=*/true>(Bytes(keys[i]), &lookups[i], take)
                                   : tree_.tree->Find(Bytes(keys[i]), &lookups[i], take);
      const auto found = model_.find(keys[i]);
      ASSERT_EQ(state, found != model_.end() ? KeyState::kRow : KeyState::kAbsent);
      if (found != model_.end()) {
        ASSERT_EQ(row, found->second);
      }
      if (again) InsertIntoGap(keys[i], &lookups[i]);
    }
  }
  void ReadOne() {
    const std::string key = AnyKey();
    const auto found = model_.find(key);
    ASSERT_EQ(tree_.Read(key), found != model_.end() ? found->second : "NOT_FOUND");
  }
  void ScanSome() {
    const std::string first = random_.Below(8) == 0 ? "" : AnyKey();
    const std::string end = random_.Below(8) == 0 ? "" : AnyKey();
    const bool reverse = random_.Below(2) == 0;
    Rows expected;
    for (auto at = model_.lower_bound(first); at != model_.end() && (end.empty() || at->first < end); ++at) {
      expected.push_back(*at);
    }
    if (reverse) std::reverse(expected.begin(), expected.end());
    ASSERT_EQ(tree_.Scan(first, end, reverse), expected);
  }
  // From a key on that may be known of other scans, some rows.
  void ScanAgain() {
    const std::string first = AnyKey();
    const std::string end = random_.Below(2) == 0 ? "" : AnyKey();
    Rows expected, found;
    const size_t most = 1 + random_.Below(8);
    for (auto at = model_.lower_bound(first);
         at != model_.end() && (end.empty() || at->first < end) && expected.size() < most; ++at) {
      expected.push_back(*at);
    }
    const auto visit = [&](KeyView key, RowView row) {
      found.emplace_back(Text(key), Text(row));
      return found.size() < most;
    };
    tree_.tree->Scan(Bytes(first), Bytes(end), /*reverse=*/false, visit, nullptr, BTree::Reach::kAgain);
    ASSERT_EQ(found, expected);
  }
  void Step(uint64_t insert_percent) {
    const uint64_t dice = random_.Below(1000);
    if (dice < 4) return ScanSome();
    if (dice < 24) return LookupSome();
    if (dice < 64) return ScanAgain();
    if (dice < 100) return ReadOne();
    if (dice < 150) return ReplaceOne();
    if (dice < 200) return ModifyOne();
    if (dice < 230) return GhostOne();
    random_.Below(100) < insert_percent ? InsertOne() : RemoveOne();
  }
  void CheckAll() {
    ASSERT_EQ(tree_.Check().rows, model_.size());
    ASSERT_EQ(tree_.tree->Count(), model_.size());
  }

  const Mix& mix_;
  PageShadow shadow_;
  TestTree tree_;
  Random random_;
  Model model_;
};

INSTANTIATE_TEST_SUITE_P(All, BTreeModelTest,
                         testing::Combine(testing::Range<size_t>(0, std::size(kMixes)),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return fmt::format("{}Seed{}", kMixes[std::get<0>(info.param)].name,
                                              std::get<1>(info.param));
                         });

TEST_P(BTreeModelTest, AllOperations_GrowAndShrink) {
  for (const uint64_t insert_percent : {90, 20, 70, 50, 5}) {
    for (int i = 0; i < 3000; ++i) {
      Step(insert_percent);
      if (i % 500 == 0) CheckAll();
      if (HasFatalFailure()) return;
    }
    CheckAll();
  }
  while (!model_.empty()) {
    const auto at = model_.lower_bound(mix_.key(random_));
    const std::string key = at == model_.end() ? model_.begin()->first : at->first;
    ASSERT_EQ(tree_.tree->Remove(Bytes(key)), StatusCode::kOk);
    model_.erase(key);
  }
  const BTree::Totals totals = tree_.Check();
  EXPECT_EQ(totals.rows, 0u);
  EXPECT_EQ(totals.levels, 1u);
  EXPECT_EQ(totals.pages, 1u);
  EXPECT_GT(shadow_.announced(), 1000u);
}

// ---- borders ----

TEST(BTree, Read_EmptyTree) {
  TestTree tree(100);
  EXPECT_EQ(tree.Read("a"), "NOT_FOUND");
  EXPECT_EQ(tree.tree->Remove(Bytes("a")), StatusCode::kNotFound);
  EXPECT_EQ(tree.tree->Replace(Bytes("a"), Bytes("b")), StatusCode::kNotFound);
  EXPECT_EQ(tree.tree->Modify(Bytes("a"), {0, 1}, [](std::span<std::byte>) { FAIL(); }),
            StatusCode::kNotFound);
  EXPECT_TRUE(tree.Scan("", "", false).empty());
  EXPECT_TRUE(tree.Scan("", "", true).empty());
  EXPECT_EQ(tree.tree->Count(), 0u);
  EXPECT_EQ(tree.Check().levels, 1u);
}

TEST(BTree, Bounds_KeysOutsideAreAbsentAndRefused) {
  for (const bool alone : {false, true}) {
    TestTree tree(1000, "b2", "b7", alone);
    for (const char* key : {"b2", "b3", "b6", "b6zzz"}) ASSERT_EQ(tree.Insert(key, key), StatusCode::kOk);
    for (const std::string key : {"a", "b", "b1zz", "b7", "b70", "c", "b"}) {
      EXPECT_EQ(tree.Insert(key, "row"), StatusCode::kInvalidArgument);
      EXPECT_EQ(tree.Read(key), "NOT_FOUND");
      EXPECT_EQ(tree.tree->Remove(Bytes(key)), StatusCode::kNotFound);
      EXPECT_EQ(tree.tree->Replace(Bytes(key), Bytes(key)), StatusCode::kNotFound);
      EXPECT_EQ(tree.tree->SetGhost(Bytes(key), true), StatusCode::kNotFound);
      EXPECT_EQ(tree.tree->Modify(Bytes(key), {0, 1}, [](std::span<std::byte>) { FAIL(); }),
                StatusCode::kNotFound);
      Lookup lookup;
      tree.tree->StartLookup(Bytes(key), 0, &lookup);
      BTree::FinishLookups(std::span(&lookup, 1));
      EXPECT_FALSE(tree.tree->IsOf(&lookup));
      EXPECT_EQ(tree.tree->Find(Bytes(key), &lookup, [](TornBytes) { FAIL(); }), KeyState::kAbsent);
    }
    for (const bool reverse : {false, true}) {
      EXPECT_EQ(tree.Scan("", "", reverse).size(), 4u);
      EXPECT_EQ(tree.Scan("a", "z", reverse).size(), 4u);
      EXPECT_EQ(tree.Scan("b3", "b7", reverse).size(), 3u);
      EXPECT_EQ(tree.Scan("a", "b3", reverse).size(), 1u);
      EXPECT_TRUE(tree.Scan("", "b2", reverse).empty());
      EXPECT_TRUE(tree.Scan("b7", "", reverse).empty());
      EXPECT_TRUE(tree.Scan("x", "z", reverse).empty());
    }
    EXPECT_EQ(tree.Check().rows, 4u);
  }
}

// What a lookup of one key finds.
std::string LookUp(const BTree& tree, const std::string& key) {
  Lookup lookup;
  tree.StartLookup(Bytes(key), 0, &lookup);
  BTree::FinishLookups(std::span(&lookup, 1));
  std::string row;
  const KeyState state = tree.Find(Bytes(key), &lookup, [&](TornBytes found) { row = Text(found); });
  return state == KeyState::kRow ? row : "absent";
}

TEST(BTree, Hints_LeftOut) {
  TestTree tree(1000, "", "", false, /*key_hints=*/false);
  EXPECT_EQ(tree.space.key_hints(), nullptr);
  for (uint64_t i = 0; i < 300; ++i)
    ASSERT_EQ(tree.Insert(BigEndian(i), std::string(200, 'r') + BigEndian(i)), StatusCode::kOk);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 310; ++i)
      ASSERT_EQ(LookUp(*tree.tree, BigEndian(i)), i < 300 ? std::string(200, 'r') + BigEndian(i) : "absent");
  }
}

// Two trees have the same keys, and get each other's pages.
TEST(BTree, Hints_OfPagesThatAreAnotherTreesByNow) {
  constexpr uint64_t kRows = 2'000;
  for (const bool alone : {false, true}) {
    TestTree one(1000, "", "", alone);
    BTree two(&one.space, TestTree::kTreeId + 1, BTree::MakeRoot(&one.space, TestTree::kTreeId + 1));
    const auto fill = [](BTree& tree, const char* of) {
      for (uint64_t i = 0; i < kRows; ++i) {
        ASSERT_EQ(tree.Insert(Bytes(BigEndian(i)), Bytes(fmt::format("{:0200} of {}", i, of))),
                  StatusCode::kOk);
      }
    };
    fill(*one.tree, "one");
    for (uint64_t i = 0; i < kRows; ++i)
      ASSERT_EQ(LookUp(*one.tree, BigEndian(i)), fmt::format("{:0200} of one", i));
    one.tree->Clear();
    fill(two, "two");
    for (uint64_t i = 0; i < kRows; ++i) {
      ASSERT_EQ(LookUp(*one.tree, BigEndian(i)), "absent");
      ASSERT_EQ(LookUp(two, BigEndian(i)), fmt::format("{:0200} of two", i));
    }
    fill(*one.tree, "one");
    for (uint64_t i = 0; i < kRows; ++i)
      ASSERT_EQ(LookUp(*one.tree, BigEndian(i)), fmt::format("{:0200} of one", i));
  }
}

// Nodes of few keys, or one, have prefixes of all lengths.
TEST(BTree, Hints_OfKeysThatShareAllButTheirLength) {
  TestTree tree(2000);
  std::vector<std::string> keys;
  for (size_t n = 1; n <= 60; ++n) {
    for (const char end : {'\0', 'm', '\xff'}) keys.push_back(std::string(n, 'm') + std::string(n % 9, end));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (const std::string& key : keys)
    ASSERT_EQ(tree.Insert(key, key + std::string(900, 'r')), StatusCode::kOk);
  for (int round = 0; round < 2; ++round) {
    for (const std::string& key : keys) ASSERT_EQ(LookUp(*tree.tree, key), key + std::string(900, 'r'));
  }
  EXPECT_EQ(tree.Check().rows, keys.size());
}

TEST(BTree, Insert_KeysThatArePrefixesOfEachOther) {
  TestTree tree(1000);
  std::vector<std::string> keys;
  for (size_t n = 1; n <= kMaxTreeKeyBytes; ++n) {
    keys.push_back(std::string(n, '\0'));
    keys.push_back(std::string(n, '\xff'));
    keys.push_back(std::string(n, 'm') + std::string(n % 3, '\0'));
    if (keys.back().size() > kMaxTreeKeyBytes) keys.pop_back();
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) {  // neither ascending nor descending
    const std::string& key = keys[i * 769 % keys.size()];
    ASSERT_EQ(tree.Insert(key, fmt::format("row {}", key.size())), StatusCode::kOk);
  }
  EXPECT_EQ(tree.Check().rows, keys.size());
  for (const std::string& key : keys) EXPECT_EQ(tree.Read(key), fmt::format("row {}", key.size()));
  const Rows rows = tree.Scan("", "", false);
  ASSERT_EQ(rows.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(rows[i].first, keys[i]);
}

// The case that a split in the middle of the old entries could not solve: the new row fits beside neither
// neighbour.
TEST(BTree, Insert_LargestRowsWithLongFences) {
  TestTree tree(2000);
  const std::string row(kMaxRowBytes, 'r');
  std::vector<std::string> keys;
  for (char group = 'a'; group < 'h'; ++group) {
    for (char last = 'a'; last < 'k'; ++last)
      keys.push_back(std::string(partitioner::kMaxKeyBytes - 1, group) + last);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(tree.Insert(keys[i * 31 % keys.size()], row), StatusCode::kOk) << i;
    tree.Check();
  }
  EXPECT_EQ(tree.tree->Count(), keys.size());
}

TEST(BTree, Replace_FromSmallestToLargestAndBack) {
  TestTree tree(2000);
  for (uint64_t i = 0; i < 500; ++i) ASSERT_EQ(tree.Insert(BigEndian(i), ""), StatusCode::kOk);
  const uint64_t pages_before = tree.Check().pages;
  const std::string large(kMaxRowBytes, 'l');
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(tree.tree->Replace(Bytes(BigEndian(i * 7 % 500)), Bytes(large)), StatusCode::kOk);
  }
  EXPECT_GE(tree.Check().pages, 250u);
  for (uint64_t i = 0; i < 500; ++i) EXPECT_EQ(tree.Read(BigEndian(i)), large);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(tree.tree->Replace(Bytes(BigEndian(i * 11 % 500)), Bytes("")), StatusCode::kOk);
  }
  EXPECT_LE(tree.Check().pages, 4 * pages_before);
}

TEST(BTree, Insert_AscendingFillsItsLeaves) {
  TestTree tree(3000);
  constexpr uint64_t kRows = 20'000;
  const std::string row(250, 'x');
  for (uint64_t i = 0; i < kRows; ++i) ASSERT_EQ(tree.Insert(BigEndian(i), row), StatusCode::kOk);
  const BTree::Totals totals = tree.Check();
  EXPECT_LE(totals.pages, kRows / 14 + 20);  // 14 rows and their fences fit a leaf
  EXPECT_EQ(totals.levels, 3u);
}

TEST(BTree, Insert_AscendingRunsSideBySideFillTheirLeaves) {
  TestTree tree(3000);
  constexpr uint64_t kRuns = 10, kRowsOfRun = 2000;
  const std::string row(250, 'x');
  for (uint64_t i = 0; i < kRowsOfRun; ++i) {
    for (uint64_t run = 0; run < kRuns; ++run)
      ASSERT_EQ(tree.Insert(BigEndian(run << 32 | i), row), StatusCode::kOk);
  }
  EXPECT_LE(tree.Check().pages, kRuns * (kRowsOfRun / 14 + 10));  // of balanced cuts they are twice as many
}

TEST(BTree, Scan_StopsWhenToldAndHoldsNoLatch) {
  TestTree tree(3000);
  for (uint64_t i = 0; i < 2000; i += 2) ASSERT_EQ(tree.Insert(BigEndian(i), "even"), StatusCode::kOk);
  // The callback splits the leaves under the scan; every even row is still seen once, and the odd ones before
  // the scan not.
  uint64_t next = 0;
  tree.tree->Scan({}, {}, false, [&](KeyView key, RowView row) {
    if (Text(row) == "even") {
      EXPECT_EQ(Text(key), BigEndian(next));
      EXPECT_EQ(tree.Insert(BigEndian(next + 1), std::string(200, 'o')), StatusCode::kOk);
      next += 2;
    }
    return true;
  });
  EXPECT_EQ(next, 2000u);
  tree.Check();

  // And a reverse scan while its rows are removed.
  uint64_t left = 2000;
  tree.tree->Scan({}, {}, true, [&](KeyView key, RowView) {
    --left;
    EXPECT_EQ(Text(key), BigEndian(left));
    EXPECT_EQ(tree.tree->Remove(key), StatusCode::kOk);
    return left > 500;
  });
  EXPECT_EQ(left, 500u);
  EXPECT_EQ(tree.Check().rows, 500u);
}

// Where no other thread can, nothing is copied.
TEST(BTreeDeathTest, Scan_AloneDiesIfItsCallbackChangesTheLeaf) {
  TestTree tree(1000, "", "", /*alone=*/true);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(tree.Insert(BigEndian(i), "row"), StatusCode::kOk);
  EXPECT_DEATH(
      tree.tree->Scan({}, {}, false,
                      [&](KeyView key, RowView) { return tree.tree->Remove(key) == StatusCode::kOk; }),
      "in_place");
}

// ---- a full pool ----

TEST(BTree, Insert_PoolFullChangesNothing) {
  TestTree tree(60);
  const std::string row(600, 'x');
  Model model;
  Random random(5);
  int refused = 0;
  while (refused < 50) {
    const std::string key = BigEndian(random());
    const StatusCode code = tree.Insert(key, row);
    if (code == StatusCode::kOk) {
      model.emplace(key, row);
    } else {
      ASSERT_EQ(code, StatusCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_GT(model.size(), 100u);
  EXPECT_EQ(tree.pool->resident_pages(), 60u);
  EXPECT_EQ(tree.Check().rows, model.size());
  EXPECT_EQ(tree.Scan("", "", false), Rows(model.begin(), model.end()));

  // Growing a row may fail too, and then the old one is there.
  const std::string large(kMaxRowBytes, 'L');
  for (auto& [key, value] : model) {
    const StatusCode code = tree.tree->Replace(Bytes(key), Bytes(large));
    if (code == StatusCode::kOk) value = large;
    ASSERT_TRUE(code == StatusCode::kOk || code == StatusCode::kResourceExhausted);
  }
  tree.Check();
  EXPECT_EQ(tree.Scan("", "", true), Rows(model.rbegin(), model.rend()));

  // What is removed makes room.
  while (model.size() > 20) {
    ASSERT_EQ(tree.tree->Remove(Bytes(model.begin()->first)), StatusCode::kOk);
    model.erase(model.begin());
  }
  for (int i = 0; i < 50; ++i) ASSERT_EQ(tree.Insert(BigEndian(random()), row), StatusCode::kOk);
  EXPECT_EQ(tree.Check().rows, 70u);
}

TEST(BTree, Clear_PagesAreUsedAgain) {
  TestTree tree(1000);
  for (int round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 5000; ++i)
      ASSERT_EQ(tree.Insert(BigEndian(i), std::string(300, 'x')), StatusCode::kOk);
    const uint64_t used = tree.space.used_pages();
    EXPECT_LT(used, 600u);
    EXPECT_LE(tree.pool->resident_pages(), used + 1);
    tree.tree->Clear();
    EXPECT_EQ(tree.space.used_pages(), 2u);
    const BTree::Totals totals = tree.Check();
    EXPECT_EQ(totals.rows, 0u);
    EXPECT_EQ(totals.pages, 1u);
  }
}

TEST(BTree, Ghost_IsHiddenButParts) {
  TestTree tree(100);
  for (uint64_t i = 0; i < 300; ++i)
    ASSERT_EQ(tree.Insert(BigEndian(i), std::string(100, 'x')), StatusCode::kOk);
  for (uint64_t i = 0; i < 300; i += 3)
    ASSERT_EQ(tree.tree->SetGhost(Bytes(BigEndian(i)), true), StatusCode::kOk);
  EXPECT_EQ(tree.tree->SetGhost(Bytes(BigEndian(3)), true), StatusCode::kNotFound);
  EXPECT_EQ(tree.tree->SetGhost(Bytes(BigEndian(4)), false), StatusCode::kNotFound);
  EXPECT_EQ(tree.Read(BigEndian(3)), "NOT_FOUND");
  EXPECT_EQ(tree.tree->Modify(Bytes(BigEndian(3)), {0, 0}, [](std::span<std::byte>) {}),
            StatusCode::kNotFound);
  EXPECT_EQ(tree.tree->Replace(Bytes(BigEndian(3)), {}), StatusCode::kNotFound);
  EXPECT_EQ(tree.Scan("", "", false).size(), 200u);
  EXPECT_EQ(tree.Scan("", "", true).size(), 200u);
  EXPECT_EQ(tree.Check().rows, 200u);
  KeyBuffer next;
  ASSERT_TRUE(tree.tree->NextKey(Bytes(BigEndian(2)), &next));
  EXPECT_EQ(Text(next.view()), BigEndian(3));
  EXPECT_FALSE(tree.tree->NextKey(Bytes(BigEndian(299)), &next));
  std::vector<std::byte> row;
  EXPECT_EQ(tree.tree->Find(Bytes(BigEndian(3)), &row), KeyState::kGhost);
  EXPECT_EQ(row.size(), 100u);
  // Splits and merges take ghosts along; they come back as they were, or with another row.
  for (uint64_t i = 300; i < 900; ++i)
    ASSERT_EQ(tree.Insert(BigEndian(i), std::string(100, 'x')), StatusCode::kOk);
  for (uint64_t i = 30; i < 900; ++i) {
    const bool ghost = i < 300 && i % 3 == 0;
    EXPECT_EQ(tree.tree->Remove(Bytes(BigEndian(i)), true), ghost ? StatusCode::kOk : StatusCode::kNotFound);
    if (!ghost) {
      EXPECT_EQ(tree.tree->Remove(Bytes(BigEndian(i))), StatusCode::kOk);
    }
  }
  EXPECT_EQ(tree.tree->SetGhost(Bytes(BigEndian(3)), false), StatusCode::kOk);
  EXPECT_EQ(tree.Read(BigEndian(3)), std::string(100, 'x'));
  EXPECT_EQ(tree.Insert(BigEndian(6), std::string(1200, 'y')), StatusCode::kOk);
  EXPECT_EQ(tree.Read(BigEndian(6)), std::string(1200, 'y'));
  EXPECT_EQ(tree.Check().rows, 22u);
}

TEST(BTree, Insert_ExpectedKeysChangedInBetween) {
  TestTree tree(100);
  const auto insert = [&](const std::string& key, uint64_t expected) {
    return tree.tree->Insert(Bytes(key), Bytes("row"), expected);
  };
  const uint64_t before = tree.tree->key_changes();
  ASSERT_EQ(tree.Insert("n", "next"), StatusCode::kOk);
  EXPECT_EQ(insert("k", before), StatusCode::kAborted);
  EXPECT_EQ(tree.Read("k"), "NOT_FOUND");
  EXPECT_EQ(insert("k", tree.tree->key_changes()), StatusCode::kOk);
  const uint64_t same = tree.tree->key_changes();
  EXPECT_EQ(tree.tree->Replace(Bytes("k"), Bytes("longer row")), StatusCode::kOk);
  EXPECT_EQ(tree.tree->SetGhost(Bytes("k"), true), StatusCode::kOk);
  EXPECT_EQ(tree.tree->key_changes(), same) << "no key came or went";
  EXPECT_EQ(tree.tree->Remove(Bytes("k"), true), StatusCode::kOk);
  EXPECT_EQ(insert("l", same), StatusCode::kAborted);
}

TEST(BTree, Check_FindsWhatIsBroken) {
  TestTree tree(100);
  for (uint64_t i = 0; i < 200; ++i)
    ASSERT_EQ(tree.Insert(BigEndian(i), std::string(100, 'x')), StatusCode::kOk);
  tree.Check();
  GuardX page(tree.space.At(2));
  page.Change({.offset = 70, .bytes = 1})[70] ^= std::byte{1};  // a slot's head or offset
  page.Release();
  const absl::Status status = tree.tree->Check().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("site 3, tree 1, page "));
}

}  // namespace
}  // namespace islands::storage
