// YCSB, the cloud serving benchmark (Cooper et al., SoCC 2010): its core workloads A to F, with transactions
// of N operations instead of one.
//
//        reads   updates   inserts   scans   reads for update   rows drawn by
//   A       50        50                                         zipf
//   B       95         5                                         zipf
//   C      100                                                   zipf
//   D       95                   5                               latest
//   E                            5      95                       zipf
//   F       50                                             50    zipf
//
// Table `ycsb`: key [uint64, uint32, uint64], rows of 8 + `fields` x `field_bytes` bytes: a little-endian
// int64 counter, which is ours, and YCSB's fields. A loaded row has the key (place, 0, 0), one for each place
// of the range. An inserted one comes to a place of its transaction's site, uniformly drawn, behind the
// loaded row there: (place, who wrote it, its number). So new rows scatter over all keys, as those that YCSB
// hashes, none needs a counter that all would share, and every key says its site.
//
// A read takes all fields, an update writes one of them, a read for update reads the row and then writes one
// field of it, in a second batch. A scan takes 1 to `scan_rows` rows from its first one on, and ends with its
// site.
//
// Where rows are: a local transaction draws a site of its island, uniformly, and all rows in it; a multisite
// one its first row likewise, and for each other row a site of the whole table. Within a site rows are drawn
// by a law of the site's own, so that the skew is the same in every layout:
//
//   uniform   each place as likely as the next
//   zipf      the r-th place with r^-S. YCSB scrambles the ranks with a hash, so that hot rows are no
//             neighbours. That is not done here: each site has hot rows of its own as it is, and neighbours
//             share pages, not locks
//   latest    by age, the latest first, with the same law: the rows that this worker has inserted into the
//             site, as far as it remembers (the latest kRemembered), then loaded ones from the last place
//             backwards. YCSB's clients know of each other's inserts; workers share nothing
//
// The places of a transaction are distinct: where one is drawn that is taken, the next free one is used.
//
// Keys are numbers, where YCSB's are strings.
//
// Thread safety: a YcsbWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. The operations of a request have distinct places, ascending; at least one lies in a site of the
//     generator's island.
//  2. The number of rows and the sum of their counters grow together by the audit_delta of committed
//     transactions: 1 for every update, insert and read for update. The last writes the counter that it read
//     plus 1, so that two that read the same show.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/payment/payment_keys.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

inline constexpr const char* kYcsbTable = "ycsb";
inline constexpr uint32_t kYcsbMaxRows = 1'000;      // of a transaction
inline constexpr size_t kYcsbMaxScanned = 8u << 20;  // bytes, by all scans of a transaction
inline constexpr size_t kYcsbCounterBytes = sizeof(int64_t);

enum class YcsbKind : uint8_t { kRead, kUpdate, kInsert, kScan, kModify };
inline constexpr size_t kYcsbKinds = 5;

enum class YcsbLaw : uint8_t { kUniform, kZipf, kLatest };

struct YcsbOptions {
  char mix = 'A';
  YcsbLaw law = YcsbLaw::kZipf;
  double zipf = 0.99;
  uint32_t rows = 1;
  double multisite_percent = 0;
  uint32_t fields = 10;
  uint32_t field_bytes = 100;
  uint32_t scan_rows = 100;

  size_t row_bytes() const { return kYcsbCounterBytes + size_t{fields} * field_bytes; }
  size_t offset_of(uint32_t field) const { return kYcsbCounterBytes + size_t{field} * field_bytes; }
};

struct YcsbRow {
  uint64_t place = 0;
  uint32_t writer = 0;  // 0: it was loaded
  uint64_t number = 0;
  friend bool operator==(const YcsbRow&, const YcsbRow&) = default;
};
inline auto YcsbKey(const YcsbRow& row) {
  return PackedKey<20>().Number(row.place).Number(row.writer).Number(row.number);
}

// Behind all rows of a place, and still of its site: the first key of the next place may be another island's.
inline auto YcsbEnd(uint64_t place) { return YcsbKey({place, UINT32_MAX, UINT64_MAX}); }

struct YcsbOperation {
  YcsbKind kind = YcsbKind::kRead;
  YcsbRow row;  // of an insert: its place; the rest is the transaction's name
  uint32_t site = 0;
  uint32_t field = 0;      // that an update, or a read for update, writes
  uint32_t scan_rows = 0;  // at most
};

struct YcsbRequest final : instance::Request {
  std::vector<YcsbOperation> operations;
  std::vector<std::byte> row;  // as it is inserted; updates write fields of it
  bool multisite = false;
  // Scratch of the procedure, by operation.
  mutable std::vector<int64_t> counters;
};

class YcsbWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong, the table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<YcsbWorkload>> Create(const storage::Catalog& catalog,
                                                              const instance::Parameters& parameters);

  const char* name() const override { return "ycsb"; }
  std::vector<std::string> tables() const override { return {kYcsbTable}; }
  absl::Status Load(instance::Loader& loader) const override;
  absl::Status CheckRun(const storage::Catalog& catalog) const override;
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  YcsbWorkload(instance::TableId table, const YcsbOptions& options) : table_(table), options_(options) {}
  void Add(const coordinator::TransactionId& id, const YcsbRequest& request, const YcsbOperation& operation,
           uint64_t last_place, instance::Batch& batch) const;
  // After they were carried out: whether all rows were there; keeps counters that were read for update.
  absl::Status Check(const YcsbRequest& request, const instance::Batch& batch) const;

  const instance::TableId table_;
  const YcsbOptions options_;
};

}  // namespace islands::experiments
