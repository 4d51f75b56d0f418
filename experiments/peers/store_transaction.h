// A transaction of islands on another engine: the workload's own procedure runs, and what it asks for is done
// with the engine's rows, one operation after the other, indexes included.
//
// Whether a transaction will write is known to some engines' advantage only before it begins. Procedures do
// not say so; but they are few, and what the first batch asks for tells them apart: of each such shape it is
// remembered. A guess that was wrong ends in a second attempt.
//
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "experiments/peers/row_store.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

// The trees of a catalog's tables and indexes, numbered: a table's, then those of its indexes. An index has
// an entry of storage::IndexEntry for each row, whose value is the row's key.
class Trees {
 public:
  explicit Trees(const storage::Catalog& catalog);
  uint32_t OfTable(instance::TableId table) const { return first_[table]; }
  uint32_t OfIndex(instance::TableId table, instance::IndexId index) const {
    return first_[table] + 1 + index;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<uint32_t> first_;  // of each table
  std::vector<std::string> names_;
};

class StoreTransaction final : public instance::Transaction {
 public:
  StoreTransaction(const storage::Catalog& catalog, const Trees& trees, RowStore& store, uint32_t worker,
                   uint64_t seed)
      : catalog_(catalog), trees_(trees), store_(store), random_(seed) {
    id_.worker = worker;
    id_.boot_epoch = 1;
  }

  // OK: committed. ABORTED: for another session's sake, and may be tried again. INTERNAL: the engine has
  // failed. Anything else is the procedure's own word; nothing is left.
  absl::Status Run(const instance::Workload& workload, const instance::Request& request);
  // One row, outside of Run, in a transaction of the caller's.
  absl::Status Load(instance::TableId table, KeyView key, RowView row);

  const coordinator::TransactionId& id() const override { return id_; }
  const storage::Catalog& catalog() const override { return catalog_; }
  instance::Batch& batch() override { return batch_; }
  runtime::Random& random() override { return random_; }
  runtime::Task<absl::Status> Execute(instance::Batch& batch) override;

 private:
  absl::Status Attempt(const instance::Workload& workload, const instance::Request& request);
  absl::Status Begin(const instance::Batch& first);
  // Tells the store what the batch reads and inserts, if that can be done before what it changes.
  absl::Status Expect(const instance::Batch& batch);
  absl::Status One(instance::Batch& batch, size_t i);
  absl::Status Change(instance::Batch& batch, size_t i);
  // Copies its bounds: storing rows may move the batch's bytes.
  instance::Batch::Result& BeginScan(instance::Batch& batch, size_t i);
  absl::Status Scan(instance::Batch& batch, size_t i);
  absl::Status IndexScan(instance::Batch& batch, size_t i);
  // What the indexes of a table have of a row.
  enum class Entries : uint8_t { kTakeAway, kAdd, kLoad };
  absl::Status ChangeEntries(const storage::TableDefinition& table, KeyView key, RowView row, Entries change);

  const storage::Catalog& catalog_;
  const Trees& trees_;
  RowStore& store_;
  coordinator::TransactionId id_;
  instance::Batch batch_;
  runtime::Random random_;

  absl::flat_hash_set<uint64_t> writers_;  // shapes of first batches whose transactions write
  uint64_t shape_ = 0;                     // of this one
  bool begun_ = false;
  bool writes_ = false;
  bool must_write_ = false;  // it has been begun as one that only reads, and wants more
  // Kept for their memory.
  std::vector<std::byte> key_, end_, row_;
  std::vector<std::string> found_;
  std::vector<RowStore::Wanted> wanted_;
  std::vector<std::pair<uint32_t, std::string_view>> changed_;  // tree and key
};

}  // namespace islands::experiments
