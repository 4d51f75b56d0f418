// Rows are found where an operation before has found them: whatever that one, or others, have changed since,
// each operation does what it says.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/execution/executor_testing.h"
#include "runtime/random.h"

namespace islands::instance {
namespace {

using absl::StatusCode;

struct Kind {
  bool alone;
  bool look_ahead;
};

// Two tables with the same keys, short and long ones.
class Places : public testing::TestWithParam<Kind> {
 protected:
  using Rows = std::map<std::string, std::string>;

  void SetUp() override {
    storage::Catalog::TableSpecs specs;
    for (const char* name : {"one", "two"}) {
      control::v1::TableSpec* table = specs.Add();
      table->set_name(name);
      table->add_key("uint32");
      table->add_key("string");
      table->set_range_end(1);
    }
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    storage::StoreOptions options;
    options.sites = {0, 1};
    options.pool_bytes = 16 << 20;
    options.alone = GetParam().alone;
    store_ = *storage::Store::Create(*catalog_, options, *files_);
    executor_ = std::make_unique<Executor>(
        *catalog_, *store_, locks_,
        ExecutorOptions{.alone = GetParam().alone, .look_ahead = GetParam().look_ahead});
  }

  static std::string Key(uint64_t number) {
    std::string key(4, '\0');
    if (number % 7 == 0) key += "a name that is longer than most";
    key += std::to_string(1000 + number);
    return key + std::string("\0\1", 2);
  }
  // The one before, or one beside it, or any.
  uint64_t AnyNumber() {
    const uint64_t dice = random_.Below(3);
    return last_ = dice == 0 ? last_ : dice == 1 ? (last_ + 1) % kNumbers : random_.Below(kNumbers);
  }
  std::string AnyRow() {
    return std::string(16 + random_.Below(200), static_cast<char>('a' + random_.Below(26)));
  }

  // Adds an operation to the batch, and what it has to say to `expected_`, given the rows before it.
  void AddAny(Batch& batch, std::array<Rows, 2>& tables) {
    const auto table = static_cast<TableId>(random_.Below(10) == 0 ? 1 - last_table_ : last_table_);
    last_table_ = table;
    Rows& rows = tables[table];
    const std::string key = Key(AnyNumber()), row = AnyRow();
    const auto found = rows.find(key);
    const bool is_there = found != rows.end();
    Expected expected{.code = is_there ? StatusCode::kOk : StatusCode::kNotFound, .row = {}};
    switch (random_.Below(8)) {
      case 0:
        batch.Read(table, Bytes(key));
        if (is_there) expected.row = found->second;
        break;
      case 1:
      case 2:
        batch.ReadForUpdate(table, Bytes(key));
        if (is_there) expected.row = found->second;
        break;
      case 3:
      case 4:
        batch.Write(table, Bytes(key), 3, Bytes(row.substr(0, 5)));
        if (is_there) found->second.replace(3, 5, row.substr(0, 5));
        break;
      case 5:
        batch.Insert(table, Bytes(key), Bytes(row));
        expected.code = rows.emplace(key, row).second ? StatusCode::kOk : StatusCode::kAlreadyExists;
        break;
      case 6:
        batch.Put(table, Bytes(key), Bytes(row));
        expected.code = StatusCode::kOk;
        rows[key] = row;
        break;
      default:
        batch.Delete(table, Bytes(key));
        rows.erase(key);
    }
    expected_.push_back(expected);
  }
  void RunAny(Branch& branch, Batch& batch, std::array<Rows, 2>& tables) {
    batch.Clear();
    expected_.clear();
    for (uint64_t n = 1 + random_.Below(24); n > 0; --n) AddAny(batch, tables);
    batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    Failure failure;
    ASSERT_EQ(executor_->Run(branch, batch, routes, &cursor, &failure), Progress::kDone) << failure.status;
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ(batch.code(i), expected_[i].code) << i;
      const RowView row = batch.row(i);
      if (!expected_[i].row.empty()) {
        ASSERT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()), expected_[i].row) << i;
      }
    }
  }
  void ExpectRows(const std::array<Rows, 2>& tables) {
    for (TableId table = 0; table < 2; ++table) {
      auto at = tables[table].begin();
      store_->At(table, 0)->Scan({}, {}, /*reverse=*/false, [&](KeyView key, RowView row) {
        EXPECT_NE(at, tables[table].end());
        if (at == tables[table].end()) return false;
        EXPECT_EQ(storage::CompareKeys(key, Bytes(at->first)), 0);
        EXPECT_EQ(storage::CompareKeys(row, Bytes(at->second)), 0);
        ++at;
        return !testing::Test::HasFailure();
      });
      EXPECT_EQ(at, tables[table].end());
    }
  }

  struct Expected {
    StatusCode code;
    std::string row;
  };
  static constexpr uint64_t kNumbers = 400;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Executor> executor_;
  std::vector<locks::Wakeup> wakeups_;
  runtime::Random random_{7};
  uint64_t last_ = 0;
  TableId last_table_ = 0;
  std::vector<Expected> expected_;
};

TEST_P(Places, Batches_DoWhatTheySay) {
  std::array<Rows, 2> tables;
  Branch branch;
  Batch batch;
  for (int transaction = 0; transaction < 6'000; ++transaction) {
    std::array<Rows, 2> changed = tables;
    for (uint64_t batches = 1 + random_.Below(3); batches > 0; --batches) {
      RunAny(branch, batch, changed);
      if (HasFatalFailure()) return;
    }
    const bool commits = random_.Below(4) != 0;
    if (commits) tables = changed;
    commits ? executor_->Commit(branch, &wakeups_) : executor_->Rollback(branch, &wakeups_);
    if (transaction % 20 == 0) ExpectRows(tables);
    if (HasFailure()) return;
  }
  ExpectRows(tables);
  EXPECT_GT(tables[0].size(), kNumbers / 4);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

INSTANTIATE_TEST_SUITE_P(Executors, Places,
                         testing::Values(Kind{true, true}, Kind{false, true}, Kind{true, false}),
                         [](const auto& tested) {
                           return std::string(tested.param.alone ? "Alone" : "WithOthers") +
                                  (tested.param.look_ahead ? "" : "OneByOne");
                         });

}  // namespace
}  // namespace islands::instance
