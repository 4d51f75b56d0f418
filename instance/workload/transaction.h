// What a procedure sees of its transaction.
//
// Thread safety: none; a transaction belongs to one worker.
#pragma once

#include "absl/status/status.h"
#include "coordinator/transaction_id.h"
#include "instance/storage/catalog.h"
#include "instance/workload/operation.h"
#include "runtime/random.h"
#include "runtime/task.h"

namespace islands::instance {

class Transaction {
 public:
  virtual ~Transaction() = default;

  virtual const coordinator::TransactionId& id() const = 0;
  virtual const storage::Catalog& catalog() const = 0;
  // The transaction's own batch, empty at its start and kept warm between transactions.
  virtual Batch& batch() = 0;
  // Carries out all operations of `batch`. OK: every operation has a result (which may be NOT_FOUND or
  // ALREADY_EXISTS). An error means that the transaction cannot go on; the procedure returns it and the
  // island aborts the transaction.
  virtual runtime::Task<absl::Status> Execute(Batch& batch) = 0;
  // Virtual, not a template: workloads are shared objects and see only this interface.
  virtual runtime::Random& random() = 0;
};

}  // namespace islands::instance
