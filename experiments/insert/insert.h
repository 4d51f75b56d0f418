// Record insertion, the first microbenchmark of "Shore-MT" (section 3.2, Figure 4): every client inserts
// records into a table of its own, which is a B-tree, and commits every N of them. Nobody waits for anybody's
// rows: what is measured is room, pages, trees and log.
//
// Table `record`: key [uint64, uint64, uint32, uint32], rows of 24 bytes or more. The first component is the
// client; its range, split among sites, says how many there are. A deployment's tables are fixed before a run
// and named by the workload, and who the clients are is only known in the run: so a client has a range of
// keys that nobody else uses instead of a table. Each site of a table is a tree of its own: with as many
// `sites` as clients in the range that is a private tree, too, with fewer some share one.
//
// The others are who inserts, and numbers: keys ascend within a client. A client is a slot of a worker; with
// more of them (`mpl`) than the range has for the worker, several are one client, which still insert
// different records.
//
// A transaction inserts its records in batches of kInsertBatch, as an island takes operations.
//
// Every record begins with its own key, and in the audited sum counts as one if it does: so the sum grows by
// exactly what was committed if all of it is there, as it was inserted, and nothing else is.
//
// Thread safety: an InsertWorkload is immutable; generators and requests belong to one worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/payment/payment_keys.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

inline constexpr const char* kInsertTable = "record";
inline constexpr size_t kInsertKeyBytes = 24;
inline constexpr size_t kInsertRowBytes = 100;  // where the table does not fix it
inline constexpr uint32_t kInsertBatch = 100;   // records

struct InsertRequest final : instance::Request {
  uint64_t client = 0;
  uint32_t records = 0;
  mutable std::vector<std::byte> row;  // scratch of the procedure
};

// Clients [begin, begin + count), dealt out to requests, in turns.
class InsertGenerator final : public instance::Generator {
 public:
  struct Clients {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  InsertGenerator(Clients clients, uint32_t records, size_t row_bytes)
      : clients_(clients), records_(records), row_bytes_(row_bytes) {}

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;

 private:
  const Clients clients_;
  const uint32_t records_;
  const size_t row_bytes_;
  uint64_t made_ = 0;
};

class InsertWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong, the table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<InsertWorkload>> Create(const storage::Catalog& catalog,
                                                                const instance::Parameters& parameters);

  const char* name() const override { return "insert"; }
  std::vector<std::string> tables() const override { return {kInsertTable}; }
  absl::Status Load(instance::Loader&) const override { return absl::OkStatus(); }  // empty
  // Error when the island has fewer clients than workers.
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  InsertWorkload(instance::TableId table, size_t row_bytes, uint32_t records)
      : table_(table), row_bytes_(row_bytes), records_(records) {}

  const instance::TableId table_;
  const size_t row_bytes_;
  const uint32_t records_;  // of a transaction
};

}  // namespace islands::experiments
