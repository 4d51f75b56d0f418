// A log to repeat: of one worker that loads rows, and then puts 8 new bytes into each of ten random ones,
// again and again.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/execution/executor.h"
#include "instance/log/journal.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::recovery {

class RedoLog {
 public:
  static constexpr log::StreamId kStream{1, 0, 0};
  static constexpr uint32_t kRowsPerTransaction = 10;
  struct Options {
    uint64_t rows = 0;  // of 250 bytes each
    uint32_t sites = 1;
    int updates = 0;  // transactions
  };
  // Bodies are in the strings.
  using Records = std::vector<std::pair<log::Record, std::string>>;

  explicit RedoLog(const Options& options) : options_(options) {
    journal_.Listen();
    auto store = storage::Store::Create(catalog_, OfStore(/*alone=*/true), files_);
    ISLANDS_CHECK(store.ok());
    store_ = *std::move(store);
    journal_.AppendDone();
    Executor executor(catalog_, *store_, locks_, {.alone = true, .journal = &journal_});
    for (uint64_t first = 0; first < options_.rows; first += kRowsPerTransaction) {
      Transact(executor, [&](Batch& batch, uint32_t i) {
        batch.Insert(0, partitioner::Uint64Key(first + i), Bytes(std::string(250, 'r')));
        return first + i;
      });
      Take(&load_);
    }
    for (int i = 0; i < options_.updates; ++i) {
      Transact(executor, [&](Batch& batch, uint32_t) {
        const uint64_t key = random_.Below(options_.rows);
        batch.Update(0, partitioner::Uint64Key(key), 0, static_cast<int64_t>(random_()));
        return key;
      });
      Take(&updates_);
    }
    journal_.EndListening();
  }

  std::unique_ptr<storage::Store> EmptyStore(bool alone) const {
    auto store = storage::Store::CreateForRedo(catalog_, OfStore(alone));
    ISLANDS_CHECK(store.ok());
    return *std::move(store);
  }
  static absl::Status Repeat(Recovery& recovery, const Records& records) {
    for (const auto& [record, body] : records) {
      absl::Status redone = recovery.Redo(kStream, {record.lsn, record.kind, std::as_bytes(std::span(body))});
      if (!redone.ok()) return redone;
    }
    return absl::OkStatus();
  }

  const storage::Catalog& catalog() const { return catalog_; }
  // As it is behind the last record.
  storage::Store& store() const { return *store_; }
  const Records& load() const { return load_; }
  const Records& updates() const { return updates_; }

 private:
  using Batch = instance::Batch;
  using Executor = instance::Executor;
  // Adds an operation to the batch, and says of which key.
  using Operation = absl::FunctionRef<uint64_t(Batch&, uint32_t number)>;

  storage::StoreOptions OfStore(bool alone) const {
    return {.sites = {0, options_.sites}, .pool_bytes = (32 << 20) + options_.rows * 1024, .alone = alone};
  }
  static storage::Catalog MakeCatalog(const Options& options) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(options.rows);
    return *storage::Catalog::Create(specs, options.sites);
  }
  void Transact(Executor& executor, Operation operation) {
    instance::Branch branch;
    branch.locks.transaction = {0, 0, 1, ++transactions_};
    Batch batch;
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < kRowsPerTransaction; ++i) {
      const uint64_t key = operation(batch, i);
      const auto site = static_cast<uint32_t>(key / (options_.rows / options_.sites));
      routes.push_back({i, site, site});
    }
    batch.ResetResults();
    size_t cursor = 0;
    instance::Failure failure;
    ISLANDS_CHECK(executor.Run(branch, batch, routes, &cursor, &failure) == instance::Progress::kDone);
    executor.Commit(branch, &wakeups_);
    executor.EndStep();
  }
  void Take(Records* records) {
    const auto take = [&](const log::Record& record) {
      records->emplace_back(record, Text(record.body));
      return absl::OkStatus();
    };
    ISLANDS_CHECK(VisitRecords(*ring_, ring_->head(), ring_->tail(), take).ok());
    ring_->SetHead(ring_->tail());
  }

  const Options options_;
  const storage::Catalog catalog_ = MakeCatalog(options_);
  runtime::MemoryFileSystem files_;
  log::Board board_{std::vector<uint32_t>{1}};
  const std::unique_ptr<log::Ring> ring_ = log::Ring::InMemory(kStream, 4 << 20);
  log::Journal journal_{board_, *ring_, {}};
  std::unique_ptr<storage::Store> store_;
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1 << 12, .latched = false}};
  runtime::Random random_{1};
  uint64_t transactions_ = 0;
  std::vector<locks::Wakeup> wakeups_;
  Records load_, updates_;
};

}  // namespace islands::recovery
