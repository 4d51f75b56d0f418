// Carries out operations on this island's rows for a branch: lock, then change, then remember how to undo.
//
// It never waits: when a lock has to be waited for, Run returns kWaiting and is called again, with the same
// cursor, once the wait is over. Acquiring what is already held costs a look-up, so an operation is simply
// started again.
//
// Thread safety: one per worker; Store and LockTable below it are shared by the island's workers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "instance/abort_reason.h"
#include "instance/branch.h"
#include "instance/operation.h"
#include "instance/router.h"
#include "instance/storage/catalog.h"
#include "instance/storage/lock_table.h"
#include "instance/storage/store.h"

namespace islands::instance {

enum class Progress : uint8_t { kDone, kWaiting, kFailed };

class Executor {
 public:
  Executor(const storage::Catalog& catalog, storage::Store& store, storage::LockTable& locks)
      : catalog_(catalog), store_(store), locks_(locks) {}

  // Goes on with operations[*cursor]. Results go into `batch`. kFailed: *failure says why, the branch must be
  // rolled back.
  Progress Run(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations, size_t* cursor,
               Failure* failure);

  // Ends the branch: keeps or undoes its changes, then releases its locks. Whose wait ended is appended to
  // `wakeups`.
  void Commit(Branch& branch, std::vector<storage::Wakeup>* wakeups);
  void Rollback(Branch& branch, std::vector<storage::Wakeup>* wakeups);

 private:
  struct Target {  // of the operation being carried out
    Branch& branch;
    Batch& batch;
    uint32_t number;
    uint32_t site;
    uint32_t last_site;
  };
  storage::LockResult Lock(const Target& target);
  storage::LockResult LockKey(const Target& target, storage::LockMode intention, storage::LockMode mode);
  storage::LockResult LockSites(const Target& target);
  absl::StatusCode Apply(const Target& target);
  absl::StatusCode Read(const Target& target);
  absl::StatusCode Add(const Target& target);
  absl::StatusCode Write(const Target& target);
  absl::StatusCode Insert(const Target& target);
  absl::StatusCode Replace(const Target& target);
  absl::StatusCode Delete(const Target& target);
  absl::StatusCode Scan(const Target& target);
  absl::StatusCode IndexScan(const Target& target);

  const storage::Catalog& catalog_;
  storage::Store& store_;
  storage::LockTable& locks_;
  std::vector<std::byte> row_;   // scratch, warm
  std::vector<std::byte> keys_;  // scratch for index scans: primary keys, length-prefixed
};

}  // namespace islands::instance
