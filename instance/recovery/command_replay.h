// Repeats commands: transactions of which the log has what their procedure was given, and not what it has
// changed (command logging, Malviya et al. 2014; H-Store, Stonebraker et al. 2007, section 4).
//
// A command has made all its changes in one go, up to its commit, on an island of one worker; whoever gives
// up control with changes, or takes part in something with other islands, is in the log by its changes, as
// ever (journal.h). What it has read before was locked until then. So, run again at its place in the log,
// each command finds the pages byte by byte as they were, whatever kinds of records lie before it, and makes
// the same changes with the same LSNs; the record has their checksum, and another one here is DATA_LOSS: a
// procedure that does not follow from its input, another version of a workload or of Islands.
//
// Thread safety: none; nobody else uses the store.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/execution/executor.h"
#include "instance/execution/router.h"
#include "instance/locks/lock_table.h"
#include "instance/log/entry.h"
#include "instance/log/lsn.h"
#include "instance/log/page_changes.h"
#include "instance/storage/store.h"
#include "instance/workload/transaction.h"
#include "instance/workload/workload.h"
#include "partitioner/site_map.h"
#include "proto/control.pb.h"
#include "runtime/random.h"

namespace islands::recovery {

// As instance::OpenWorkload.
using WorkloadOpener = std::function<absl::StatusOr<std::shared_ptr<const instance::Workload>>(
    const std::string& object, const storage::Catalog& catalog, const instance::Parameters& parameters)>;

// Whose commands they are, as the log has it (log::Command::workload).
std::vector<std::byte> EncodeWorkload(const std::string& name, const std::string& object,
                                      const instance::Parameters& parameters);

class CommandReplay {
 public:
  // The store's trees have been found. `open`: empty: there are no workloads, and every command fails.
  CommandReplay(const storage::Catalog& catalog, storage::Store& store, WorkloadOpener open);
  CommandReplay(const CommandReplay&) = delete;
  CommandReplay& operator=(const CommandReplay&) = delete;

  // The store's trees have been found anew.
  void NoteTables() {
    executor_.NoteTables();
    router_.NoteTables();
  }
  // Runs a command whose record has `lsn`, behind all records up to `last`. DATA_LOSS: it does not do what it
  // has done. FAILED_PRECONDITION: its workload cannot be opened. UNIMPLEMENTED: there are none here.
  absl::Status Run(const log::Entry& entry, log::Lsn last, log::Lsn lsn);

 private:
  // What a procedure sees. Nobody else is there, and nothing ever waits.
  class Replayed final : public instance::Transaction {
   public:
    explicit Replayed(CommandReplay& replay) : replay_(replay), random_(0) {}
    const coordinator::TransactionId& id() const override { return branch.locks.transaction; }
    const storage::Catalog& catalog() const override { return replay_.catalog_; }
    instance::Batch& batch() override { return batch_; }
    runtime::Task<absl::Status> Execute(instance::Batch& batch) override;
    runtime::Random& random() override { return random_; }

    void Begin(const coordinator::TransactionId& id);
    instance::Branch branch;

   private:
    CommandReplay& replay_;
    instance::Batch batch_;
    runtime::Random random_;
  };

  struct Opened {
    std::vector<std::byte> encoded;
    std::string name, object;
    std::shared_ptr<const instance::Workload> workload;
    std::unique_ptr<instance::Request> request;  // null: it repeats no requests
  };

  absl::Status Open(std::span<const std::byte> workload);
  // What the command's procedure was given.
  absl::Status Decode(const log::Entry& entry);
  absl::Status DecodeCall(std::span<const std::byte> input);
  absl::Status Repeat();

  const storage::Catalog& catalog_;
  const WorkloadOpener open_;
  const partitioner::SiteMap sites_;  // all of them here: a command has been nowhere else
  locks::LockTable locks_;
  instance::Executor executor_;
  instance::Router router_;
  instance::RoutePlan plan_;  // scratch
  log::PageChangeCollector collector_;
  log::RecordBuffer body_;
  std::vector<std::unique_ptr<Opened>> opened_;
  Opened* of_ = nullptr;                         // whose command is the last one; null: there was none
  const instance::Procedure* called_ = nullptr;  // by it; null: it was a request
  std::vector<instance::Value> arguments_, results_;
  Replayed transaction_;
};

}  // namespace islands::recovery
