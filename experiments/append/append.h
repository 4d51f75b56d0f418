// A workload that proves isolation: every row is a list, transactions append their own name to some rows and
// look at others, and what they saw and did is written to files for the judge (append_judge.h).
//
// A sum tells lost changes; a list tells who saw whose change, and in which order.
//
// Table `append`: key [uint64], any range, fixed row_bytes (append_row.h). Its parameters:
// AppendWorkload::Describe. Rows are drawn as the microbenchmark draws them.
//
// An append is what applications do that compute for themselves: the row is read, nothing is held but its
// lock, and in a second batch all of it is written, one element longer. Most read for update at once; some
// find out only later that they want to append, and convert their lock. One transaction in a hundred gives up
// after it has written.
//
// Thread safety: an AppendWorkload is immutable; generators, requests and histories belong to one worker.
//
// Invariants:
//  1. No append is carried out before the attempt stands in the history file.
//  2. The sum of all rows' counts is the sum of the audit_delta of committed transactions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/append/append_history.h"
#include "experiments/micro/micro.h"
#include "instance/workload/workload.h"
#include "runtime/clock.h"

namespace islands::experiments {

inline constexpr const char* kAppendTable = "append";

struct AppendOptions {
  std::string history;
  MicroOptions draw{.rows = 4};  // which rows
  double readers_percent = 20;
  double appends_percent = 50;
};

struct AppendRequest final : instance::Request {
  enum Act : uint8_t {
    kRead,
    kAppend,
    kReadThenAppend,  // reads under a lock that is not enough for the append
  };
  std::unique_ptr<instance::Request> drawn;  // a MicroRequest
  std::vector<Act> acts;                     // by key
  bool gives_up = false;
  HistoryLog* log = nullptr;  // of the generator

  const std::vector<uint64_t>& keys() const { return static_cast<const MicroRequest&>(*drawn).keys; }
};

class AppendWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong, the table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<AppendWorkload>> Create(const storage::Catalog& catalog,
                                                                const instance::Parameters& parameters);

  const char* name() const override { return "append"; }
  std::vector<std::string> tables() const override { return {kAppendTable}; }
  absl::Status Load(instance::Loader& loader) const override;
  absl::Status CheckRun(const storage::Catalog& catalog) const override;
  // Error when the history file cannot be created.
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  AppendWorkload(const storage::TableDefinition& table, AppendOptions options)
      : table_(table.id), row_bytes_(table.row_bytes), options_(std::move(options)) {}
  // What the first batch found; the rows that are appended to follow each other in `rows`, already longer.
  absl::Status Look(const instance::Batch& batch, const AppendRequest& request, RecordedAttempt* attempt,
                    std::vector<std::byte>* rows) const;

  const instance::TableId table_;
  const size_t row_bytes_;
  const AppendOptions options_;
  const runtime::MonotonicClock clock_;
};

}  // namespace islands::experiments
