// Every engine, asked for rows at random, beside a map.
#include "experiments/peers/row_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "experiments/peers/server_store_testing.h"
#include "experiments/peers/temporary_directory.h"
#include "runtime/random.h"

namespace islands::experiments {
namespace {

using Rows = std::map<std::string, std::string>;

RowView View(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string Text(RowView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class RowStoreTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const absl::Status status = PeerIsInstalled(GetParam()); !status.ok())
      GTEST_SKIP() << status.message();
  }
  std::unique_ptr<RowStore> Open(PeerDurability durability = PeerDurability::kNone, uint32_t threads = 1) {
    auto store = OpenTestedStore(GetParam(), {.directory = directory_.path,
                                              .trees = {"one", "two.by_x"},
                                              .cache_bytes = 64 << 20,
                                              .durability = durability,
                                              .threads = threads});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  static Rows All(RowStore& store, uint32_t tree) {
    Rows rows;
    EXPECT_TRUE(store.Begin(false).ok());
    const std::string first(1, '\0'), beyond(100, '\xff');
    EXPECT_TRUE(store
                    .Scan(tree, View(first), View(beyond), false, /*limit=*/0,
                          [&](KeyView key, RowView row) { return rows.emplace(Text(key), Text(row)).second; })
                    .ok());
    EXPECT_TRUE(store.Commit().ok());
    return rows;
  }

  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(All, RowStoreTest, testing::ValuesIn(TestedStoreNames()),
                         [](const auto& engine) { return engine.param; });

// Keys of one byte and of many, empty rows, keys that others begin with.
TEST_P(RowStoreTest, Model_IsWhatAMapIs) {
  const std::unique_ptr<RowStore> opened = Open();
  const std::unique_ptr<RowStore> store = *opened->Session();
  std::array<Rows, 2> rows;
  runtime::Random random(7);
  const auto draw_key = [&] {
    return std::string(1 + random.Below(3) * random.Below(20), static_cast<char>('a' + random.Below(6))) +
           static_cast<char>(random.Below(256));
  };
  int rolled_back = 0;
  for (int round = 0; round < 400; ++round) {
    const bool writes = random.Below(3) != 0;
    std::array<Rows, 2> after = rows;
    ASSERT_TRUE(store->Begin(writes).ok());
    for (uint64_t i = random.Below(12); i > 0; --i) {
      const auto tree = static_cast<uint32_t>(random.Below(2));
      Rows& model = after[tree];
      const std::string key = draw_key(), row(random.Below(300), static_cast<char>(random.Below(256)));
      switch (random.Below(writes ? 6 : 2)) {
        case 0: {
          const auto found = store->Get(tree, View(key), writes && random.Below(2) == 0);
          ASSERT_TRUE(found.ok()) << found.status();
          ASSERT_EQ(found->has_value(), model.contains(key));
          if (*found) {
            EXPECT_TRUE(Text(**found) == model[key]);
          }
          break;
        }
        case 1: {
          const bool reverse = random.Below(2) == 0;
          const std::string end = draw_key();
          uint64_t left = 1 + random.Below(8);
          std::vector<std::pair<std::string, std::string>> found, wanted;
          ASSERT_TRUE(store
                          ->Scan(tree, View(key), View(end), reverse, left,
                                 [&](KeyView k, RowView r) {
                                   found.emplace_back(Text(k), Text(r));
                                   return found.size() != left;
                                 })
                          .ok());
          if (key < end) wanted.assign(model.lower_bound(key), model.lower_bound(end));
          if (reverse) std::reverse(wanted.begin(), wanted.end());
          if (wanted.size() > left) wanted.resize(left);
          EXPECT_TRUE(found == wanted) << found.size() << " rows of " << wanted.size();
          break;
        }
        case 2: {
          const auto inserted = store->Insert(tree, View(key), View(row));
          ASSERT_TRUE(inserted.ok()) << inserted.status();
          EXPECT_EQ(*inserted, model.emplace(key, row).second);
          break;
        }
        case 3:
          if (model.erase(key) != 0) {
            ASSERT_TRUE(store->Delete(tree, View(key)).ok());
          }
          break;
        default:
          ASSERT_TRUE(store->Put(tree, View(key), View(row)).ok());
          model[key] = row;
      }
    }
    if (random.Below(4) == 0) {
      store->Rollback();
      ++rolled_back;
    } else {
      ASSERT_TRUE(store->Commit().ok());
      rows = after;
    }
  }
  EXPECT_GT(rolled_back, 50);
  EXPECT_GT(rows[0].size(), 50u);
  EXPECT_TRUE(All(*store, 0) == rows[0]);  // nobody wants to see them
  EXPECT_TRUE(All(*store, 1) == rows[1]);
  ASSERT_TRUE(store->Settle().ok());
  EXPECT_TRUE(All(*opened, 0) == rows[0]);
}

// What is expected is what is asked for, in its order, and puts and deletes of others may lie between.
TEST_P(RowStoreTest, Expect_ChangesNoAnswer) {
  using Wanted = RowStore::Wanted;
  const std::unique_ptr<RowStore> store = Open();
  ASSERT_TRUE(store->Begin(true).ok());
  for (const char* key : {"a", "b", "c", "d"}) ASSERT_TRUE(store->Load(0, View(key), View(key)).ok());
  ASSERT_TRUE(store->Commit().ok());
  for (const bool keeps : {false, true}) {
    ASSERT_TRUE(store->Begin(true).ok());
    const Wanted wanted[] = {{Wanted::kGet, 0, View("a")},
                             {Wanted::kInsert, 0, View("b"), View("other")},
                             {Wanted::kInsert, 0, View("n"), View("new")},
                             {Wanted::kLock, 0, View("none")},
                             {Wanted::kScan, 0, View("b"), View("d"), /*reverse=*/true, /*limit=*/1}};
    ASSERT_TRUE(store->Expect(wanted).ok());
    EXPECT_EQ(Text(**store->Get(0, View("a"), false)), "a");
    ASSERT_TRUE(store->Put(0, View("a"), View("changed")).ok());
    EXPECT_EQ(*store->Insert(0, View("b"), View("other")), false);
    ASSERT_TRUE(store->Delete(0, View("d")).ok());
    EXPECT_EQ(*store->Insert(0, View("n"), View("new")), true);
    EXPECT_EQ(*store->Get(0, View("none"), true), std::nullopt);
    std::string seen;
    EXPECT_TRUE(store
                    ->Scan(0, View("b"), View("d"), /*reverse=*/true, /*limit=*/1,
                           [&](KeyView key, RowView) {
                             seen += Text(key);
                             return false;
                           })
                    .ok());
    EXPECT_EQ(seen, "c");
    if (keeps) {
      ASSERT_TRUE(store->Commit().ok());
    } else {  // before all that was expected has been taken
      ASSERT_TRUE(store->Expect(wanted).ok());
      EXPECT_EQ(Text(**store->Get(0, View("a"), false)), "changed");
      store->Rollback();
      EXPECT_EQ(All(*store, 0), (Rows{{"a", "a"}, {"b", "b"}, {"c", "c"}, {"d", "d"}}));
    }
  }
  EXPECT_EQ(All(*store, 0), (Rows{{"a", "changed"}, {"b", "b"}, {"c", "c"}, {"n", "new"}}));
}

TEST_P(RowStoreTest, Load_OfARowThatIsThereIsAnErrorAtTheLatestOfTheCommit) {
  const std::unique_ptr<RowStore> store = Open();
  absl::Status status = store->Begin(true);
  for (int i = 0; i < 2; ++i) status.Update(store->Load(0, View("key"), View("row")));
  if (status.ok()) status = store->Commit();
  EXPECT_FALSE(status.ok());
  store->Rollback();
  EXPECT_EQ(All(*store, 0), Rows{});
}

// As a procedure does that finds a row by an index: it is read without a word, and written later.
TEST_P(RowStoreTest, WhatIsReadAndThenWritten_IsNotLost) {
  const int kThreads = GetParam() == "sqlite" ? 1 : 4;  // it has one session
  constexpr int kTransactions = 50;
  const std::unique_ptr<RowStore> opened = Open(PeerDurability::kLazy, static_cast<uint32_t>(kThreads));
  ASSERT_TRUE(opened->Begin(true).ok());
  ASSERT_TRUE(opened->Put(0, View("counter"), View("0")).ok());
  ASSERT_TRUE(opened->Commit().ok());
  const auto count = [](RowStore& store) {
    absl::Status status = store.Begin(true);
    if (!status.ok()) return status;
    const auto found = store.Get(0, View("counter"), /*for_update=*/false);
    if (!found.ok()) return found.status();
    if (!*found) return absl::NotFoundError("the counter");
    const std::string next = std::to_string(std::stoi(Text(**found)) + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (status = store.Put(0, View("counter"), View(next)); !status.ok()) return status;
    return store.Commit();
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      const std::unique_ptr<RowStore> session = *opened->Session();
      for (int left = kTransactions; left > 0;) {
        const absl::Status status = count(*session);
        if (!status.ok()) session->Rollback();
        if (status.ok()) --left;
        ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(All(*opened, 0), (Rows{{"counter", std::to_string(kThreads * kTransactions)}}));
}

TEST_P(RowStoreTest, Durabilities_AreSetUp) {
  std::set<std::string> kept;
  for (const PeerDurability durability :
       {PeerDurability::kNone, PeerDurability::kLazy, PeerDurability::kSync}) {
    std::filesystem::remove_all(directory_.path);
    std::filesystem::create_directory(directory_.path);
    const std::unique_ptr<RowStore> store = Open(durability);
    ASSERT_TRUE(store->Begin(true).ok());
    ASSERT_TRUE(store->Put(0, View("key"), View("row")).ok());
    ASSERT_TRUE(store->Commit().ok());
    ASSERT_TRUE(store->Sync().ok());
    ASSERT_TRUE(store->Settle().ok());
    EXPECT_EQ(All(*store, 0), (Rows{{"key", "row"}}));
    EXPECT_TRUE(kept.insert(store->Facts().keeps).second);
  }
}

}  // namespace
}  // namespace islands::experiments
