#include "instance/log/page_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "fmt/format.h"
#include "instance/log/page_changes_format.h"
#include "instance/log/page_changes_testing.h"
#include "instance/storage/btree/btree_testing.h"
#include "runtime/random.h"

namespace {
uint64_t allocations = 0;
}

// Not inlined: GCC would see free() meet memory from the library's operator new, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace islands::log {
namespace {

using absl::StatusCode;
using runtime::Random;
using storage::Bytes;
using storage::kPageBytes;
using storage::PageHeader;
using storage::PageId;
using storage::TestTree;
using testing::HasSubstr;

std::string RandomText(Random& random, size_t bytes, uint64_t alphabet) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>('a' + random.Below(alphabet));
  return text;
}

// ---- a random life of a tree, and the same from its log ----

struct Mix {
  const char* name;
  std::function<std::string(Random&)> key;
  std::function<size_t(Random&)> row_bytes;
};

const Mix kMixes[] = {
    {"Rows", [](Random& r) { return RandomText(r, 1 + r.Below(6), 5); },
     [](Random& r) { return r.Below(400); }},
    {"LargeRows", [](Random& r) { return RandomText(r, 1 + r.Below(40), 20); },
     [](Random& r) { return r.Below(storage::kMaxRowBytes + 1); }},
    {"LongKeys", [](Random& r) { return std::string(150, 'p') + RandomText(r, 1 + r.Below(100), 3); },
     [](Random& r) { return r.Below(40); }},
    {"SmallRows", [](Random& r) { return RandomText(r, 8, 9); }, [](Random& r) { return r.Below(12); }},
};

class PageChangesLife : public testing::TestWithParam<std::tuple<size_t, uint64_t>> {
 protected:
  PageChangesLife() : mix_(kMixes[std::get<0>(GetParam())]), tree_(4000), random_(std::get<1>(GetParam())) {
    KeepBody();
  }

  void Step(uint64_t insert_percent) {
    const std::string key = mix_.key(random_);
    const uint64_t dice = random_.Below(100);
    if (dice < 5) {
      tree_.tree->Replace(Bytes(key), Bytes(Row()));
    } else if (dice < 15) {
      Modify(key);
    } else if (dice < 20) {
      tree_.tree->SetGhost(Bytes(key), random_.Below(2) == 0);
    } else if (random_.Below(100) < insert_percent) {
      tree_.Insert(key, Row());
    } else {
      // One that is there, or close to it: the tree is to shrink.
      storage::KeyBuffer next;
      tree_.tree->NextKey(Bytes(key), &next);
      tree_.tree->Remove(random_.Below(4) == 0 ? Bytes(key) : next.view());
    }
    if (random_.Below(200) == 0) epoch_ += random_.Below(3);
    if (random_.Below(4) == 0) KeepBody();
  }
  void Modify(const std::string& key) {
    std::vector<std::byte> row;
    if (tree_.tree->Read(Bytes(key), &row) != StatusCode::kOk || row.empty()) return;
    const size_t offset = random_.Below(row.size());
    const size_t bytes = 1 + random_.Below(row.size() - offset);
    tree_.tree->Modify(Bytes(key), {offset, bytes}, [&](std::span<std::byte> value) {
      for (size_t i = 0; i < bytes; ++i) value[offset + i] = static_cast<std::byte>(random_.Below(256));
    });
  }
  std::string Row() { return RandomText(random_, mix_.row_bytes(random_), 26); }

  // The record ends: it is redone at once on pages that know nothing but the log, and kept.
  void KeepBody() {
    if (listening_.body.size() != 0) {
      bodies_.emplace_back(listening_.body.bytes().begin(), listening_.body.bytes().end());
      const absl::Status status = RedoAll(bodies_.back(), &redone_);
      ASSERT_TRUE(status.ok()) << status;
    }
    CheckLsns();
    listening_.Again(epoch_);
  }
  // Of the pages in the body: they are those of its groups, and rise.
  void CheckLsns() {
    PageChangeReader reader(listening_.body.bytes());
    PageChangeGroup group;
    while (reader.Next(&group)) {
      uint64_t& lsn = lsns_[group.page().number()];
      ASSERT_GT(group.lsn().value(), lsn);
      ASSERT_GE(group.lsn().epoch(), 1u);
      ASSERT_EQ(group.page().site(), TestTree::kSite);
      lsn = group.lsn().value();
    }
    ASSERT_TRUE(reader.status().ok()) << reader.status();
  }
  // Byte for byte, LSNs too; without a checksum, which neither side has.
  void CheckSame(const PageCopies& copies, const char* what) {
    for (const auto& [number, copy] : copies) {
      ASSERT_EQ(CopyOf(tree_.space, number).bytes, copy.bytes) << what << ", page " << number;
      ASSERT_EQ(copy.header().lsn, lsns_[number]);
    }
  }
  void Snapshot() {
    PageCopies copies;
    for (const auto& [number, lsn] : lsns_) {
      if (random_.Below(2) == 0) copies[number] = CopyOf(tree_.space, number);
    }
    snapshots_.push_back(std::move(copies));
  }

  const Mix& mix_;
  uint64_t epoch_ = 1;
  Listening listening_;
  TestTree tree_;
  Random random_;
  std::vector<std::vector<std::byte>> bodies_;
  PageCopies redone_;
  std::map<uint64_t, uint64_t> lsns_;
  std::vector<PageCopies> snapshots_;  // pages at several moments, some missing
};

INSTANTIATE_TEST_SUITE_P(All, PageChangesLife,
                         testing::Combine(testing::Range<size_t>(0, std::size(kMixes)),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return fmt::format("{}Seed{}", kMixes[std::get<0>(info.param)].name,
                                              std::get<1>(info.param));
                         });

TEST_P(PageChangesLife, Redo_FromAnyPagesGivesTheSamePages) {
  for (const uint64_t insert_percent : {90, 20, 70, 50, 5}) {
    for (int i = 0; i < 3000; ++i) {
      Step(insert_percent);
      if (HasFatalFailure()) return;
    }
    KeepBody();
    ASSERT_NO_FATAL_FAILURE(CheckSame(redone_, "redone as they came"));
    Snapshot();
    if (insert_percent == 20) {
      tree_.tree->Clear();
      KeepBody();
    }
  }
  tree_.Check();
  ASSERT_EQ(redone_.size(), lsns_.size());
  ASSERT_GE(redone_.size(), 10u);
  // From the beginning, over pages of any age: what is in them is left out, and the rest is the same again.
  snapshots_.push_back(redone_);
  for (PageCopies& copies : snapshots_) {
    for (const std::vector<std::byte>& body : bodies_) {
      const absl::Status status = RedoAll(body, &copies);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_EQ(copies.size(), lsns_.size());
    ASSERT_NO_FATAL_FAILURE(CheckSame(copies, "redone over older pages"));
  }
}

// ---- what it costs ----

// As the microbenchmark's transaction: 8 bytes in each of ten rows anywhere in a table.
struct TenRows {
  TenRows() : tree(4000) {
    for (uint64_t i = 0; i < kRows; ++i) tree.tree->Insert(Key(i), Bytes(std::string(250, 'r')));
  }
  static partitioner::Uint64Key Key(uint64_t i) { return partitioner::Uint64Key(i); }
  void Transaction(uint64_t epoch) {
    listening.Again(epoch);
    for (int i = 0; i < 10; ++i) {
      const partitioner::Uint64Key key(random.Below(kRows));
      tree.tree->Modify(key, {0, 8}, [&](std::span<std::byte> row) { row[0] ^= std::byte{1}; });
    }
    listening.collector.Stamp();
  }
  static constexpr uint64_t kRows = 10'000;
  Listening listening;
  TestTree tree;
  Random random{7};
};

TEST(PageChanges, Collector_TenSmallChangesAreFewBytes) {
  TenRows rows;
  size_t bytes = 0;
  size_t most = 0;
  constexpr uint64_t kTransactions = 1000;
  for (uint64_t i = 0; i < kTransactions; ++i) {
    rows.Transaction((uint64_t{1} << 30) + i);  // an epoch as it is after days
    bytes += rows.listening.body.size();
    most = std::max(most, rows.listening.body.size());
  }
  std::printf("10 changes of 8 bytes: %.1f bytes on average, %zu at most\n",
              static_cast<double>(bytes) / kTransactions, most);
  EXPECT_LE(most, 220u);
}

TEST(PageChanges, Collector_AllocatesNothingAfterWarmUp) {
  TenRows rows;
  for (int i = 0; i < 10; ++i) rows.Transaction(1);
  const uint64_t before = allocations;
  for (int i = 0; i < 1000; ++i) rows.Transaction(1);
  EXPECT_EQ(allocations, before);
}

// ---- borders ----

struct OnePage {
  OnePage() : tree(100) { listening.Again(5); }
  std::vector<PageChangeGroup> Groups() {
    std::vector<PageChangeGroup> groups;
    PageChangeReader reader(listening.body.bytes());
    for (PageChangeGroup group; reader.Next(&group);) groups.push_back(group);
    EXPECT_TRUE(reader.status().ok()) << reader.status();
    return groups;
  }
  storage::GuardX Latch(uint64_t number) { return storage::GuardX(tree.space.At(number)); }
  Listening listening;
  TestTree tree;
};

TEST(PageChanges, Collector_ReleaseWithoutChangesLeavesNothing) {
  OnePage page;
  const Lsn last = page.listening.collector.last();
  page.Latch(1).Release();
  EXPECT_EQ(page.listening.body.size(), 0u);
  EXPECT_EQ(page.listening.collector.last(), last);
}

TEST(PageChanges, Collector_BytesSideBySideAreOne) {
  OnePage page;
  {
    const storage::GuardX guard = page.Latch(0);
    for (const size_t offset : {3000, 3008, 3004, 2999})
      std::memset(guard.Change({.offset = offset, .bytes = 8}) + offset, 7, 8);
  }
  const std::vector<PageChangeGroup> groups = page.Groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_FALSE(groups[0].is_image());
  EXPECT_EQ(groups[0].page(), PageId(TestTree::kSite, 0));
  // Head, site, number, LSN, fold; op, offset, length; bytes.
  EXPECT_EQ(page.listening.body.size(), (1 + 1 + 1 + 4 + 1) + (1 + 2 + 1) + 17u);
}

TEST(PageChanges, Collector_VeryManyChangesAreAnImage) {
  for (const bool many : {false, true}) {
    OnePage page;
    {
      const storage::GuardX guard = page.Latch(0);
      for (size_t i = 0; i < (many ? 40u : 12u); ++i)
        guard.Change({.offset = 3000 + 2 * i, .bytes = 1})[3000 + 2 * i] = std::byte{1};
    }
    const std::vector<PageChangeGroup> groups = page.Groups();
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].is_image(), many);
    PageCopies redone;
    ASSERT_EQ(RedoAll(page.listening.body.bytes(), &redone).ok(), many);  // an image needs no page before it
    EXPECT_EQ(redone[0].bytes == CopyOf(page.tree.space, 0).bytes, many);
  }
}

TEST(PageChanges, Collector_PagesLatchedAtOnceAreOneStep) {
  OnePage page;
  page.tree.Insert("a", "row");
  page.listening.Again(5);
  storage::GuardX header = page.Latch(0);
  storage::GuardX root = page.Latch(1);
  header.Change({.offset = 4000, .bytes = 1})[4000] = std::byte{1};
  root.Change({storage::PageChange::Kind::kValue, 0, 0, 1});
  header.Change({.offset = 3000, .bytes = 1})[3000] = std::byte{1};
  header.Release();
  root.Release();
  const std::vector<PageChangeGroup> groups = page.Groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].page().number(), 0u);
  EXPECT_EQ(groups[1].page().number(), 1u);
  EXPECT_EQ(groups[1].lsn(), groups[0].lsn());  // one step
}

TEST(PageChanges, Lsn_IsAboveThePageTheWorkerAndTheEpoch) {
  OnePage page;
  PageChangeCollector& collector = page.listening.collector;
  const auto change = [&] {
    page.tree.Insert("a", "row");
    page.tree.tree->Remove(Bytes("a"));
    return Lsn::FromValue(CopyOf(page.tree.space, 1).header().lsn);
  };
  EXPECT_EQ(change(), Lsn::Of(5, 2));
  collector.RaiseEpoch(9);
  EXPECT_EQ(change(), Lsn::Of(9, 2));
  collector.RaiseEpoch(8);
  EXPECT_EQ(change(), Lsn::Of(9, 4));
  EXPECT_EQ(collector.Stamp(), Lsn::Of(9, 5));
  // Another worker's, whose page has come from a later epoch.
  PageChangeCollector other;
  RecordBuffer body;
  other.Begin(3, &body);
  storage::page_change_sink = &other;
  EXPECT_EQ(change(), Lsn::Of(9, 6));
  EXPECT_TRUE(other.AheadOfEpoch());
  EXPECT_FALSE(collector.AheadOfEpoch());
  storage::page_change_sink = &collector;
}

TEST(PageChanges, Lsn_AFullCounterCarriesIntoTheEpochAndIsReported) {
  OnePage page;
  PageChangeCollector collector;
  RecordBuffer body;
  collector.Begin(4, &body);
  for (uint32_t i = 1; i < 1u << Lsn::kCounterBits; ++i) collector.Stamp();
  EXPECT_EQ(collector.last(), Lsn::Of(4, 0xffffff));
  EXPECT_FALSE(collector.AheadOfEpoch());
  EXPECT_EQ(collector.Stamp(), Lsn::Of(5, 0));
  EXPECT_TRUE(collector.AheadOfEpoch());
  collector.RaiseEpoch(collector.last().epoch());
  EXPECT_FALSE(collector.AheadOfEpoch());
}

// ---- what a disk may say ----

// The page as it was when the body began, and the body.
struct Damage : OnePage {
  Damage() {
    tree.Insert("b", "row");
    before = CopyOf(tree.space, 1);
    listening.Again(5);
  }
  std::string Apply() {
    PageCopies pages{{1, before}};
    return RedoAll(listening.body.bytes(), &pages).ToString();
  }
  storage::Node* node() { return storage::Node::At(before.bytes.data()); }
  PageCopy before;
};

TEST(PageChangesRedo, APageThatDoesNotFit_IsDataLoss) {
  {
    Damage damage;
    damage.tree.tree->Modify(Bytes("b"), {2, 1}, [](auto) {});
    EXPECT_EQ(damage.Apply(), "OK");
    damage.node()->ReplaceValue(0, Bytes("r"));
    EXPECT_THAT(damage.Apply(), HasSubstr("bytes beyond a value's end"));
    damage.node()->Remove(0);
    EXPECT_THAT(damage.Apply(),
                HasSubstr("page 1 of site 3 at LSN 5.1 does not take the change with LSN 5.2 from the log: "
                          "beyond the last slot"));
  }
  {
    Damage damage;
    damage.tree.Insert("c", "row");
    EXPECT_EQ(damage.Apply(), "OK");
    damage.node()->Insert(1, Bytes("bb"), Bytes("row"));
    EXPECT_THAT(damage.Apply(), HasSubstr("a new key above its place"));
    damage.node()->Remove(0);
    EXPECT_EQ(damage.Apply(), "OK");
  }
  Damage damage;
  damage.tree.tree->SetGhost(Bytes("b"), true);
  EXPECT_EQ(damage.Apply(), "OK");
  damage.before.bytes[offsetof(PageHeader, type)] = std::byte{0};
  EXPECT_THAT(damage.Apply(), HasSubstr("an entry of a page that has none"));
  damage.before.bytes[0] ^= std::byte{1};
  EXPECT_THAT(damage.Apply(), HasSubstr("the page carries another's id"));
  damage.before = {};
  EXPECT_THAT(damage.Apply(), HasSubstr("later state of the page"));
}

TEST(PageChangesRedo, ALostRecord_IsDataLoss) {
  Damage damage;
  damage.tree.Insert("a", "lost");
  damage.listening.Again(5);
  damage.tree.Insert("c", "row");
  EXPECT_THAT(damage.Apply(), HasSubstr("log records in between are missing"));
}

TEST(PageChangesReader, ATruncatedBody_IsDataLossOrEndsWithAGroup) {
  Damage damage;
  for (const char* key : {"c", "d", "e"}) damage.tree.Insert(key, "row");
  const std::span<const std::byte> body = damage.listening.body.bytes();
  size_t ends = 0;
  for (size_t bytes = 0; bytes < body.size(); ++bytes) {
    const std::vector<std::byte> some(body.begin(), body.begin() + static_cast<ptrdiff_t>(bytes));
    PageChangeReader reader(some);
    for (PageChangeGroup group; reader.Next(&group);) {
    }
    ends += reader.status().ok() ? 1 : 0;
    if (reader.status().ok()) continue;
    EXPECT_THAT(reader.status().ToString(), HasSubstr("cut off"));
  }
  EXPECT_EQ(ends, 3u);
}

}  // namespace
}  // namespace islands::log
