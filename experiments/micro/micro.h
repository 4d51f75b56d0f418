// The microbenchmark of "OLTP on Hardware Islands": transactions that read or change N distinct rows of one
// table.
//
// Table `micro`: key [uint64], any range; a row starts with a little-endian int64 counter, the rest is
// filler. Its parameters: MicroWorkload::Describe.
//
// An update and an add both add 1 to each row's counter. An update copies the row, lets go of its page and
// writes all of the row back: what applications do that compute for themselves, and what loses changes where
// locks do not do their work. An add changes the eight bytes in place.
//
// Rank r of Zipf's law is the r-th key. With skew `table` it is the law of the whole table, as in section
// 7.3 of the paper: hot rows share a site, and an island. A transaction begins on the island of its first
// row. Its other rows follow the same law: those of a multisite transaction over the whole table, those of
// a local one restricted to the first one's site, or island (section 5.2). So clients of the whole
// deployment, who begin where the law says, make one island hot; those of an island stay there, and draw
// the first row restricted to it.
//
// With skew `per_site` every site is as hot as the others, and has hot rows of its own, the first ones: a
// local transaction draws one site of its island (uniform) and all N rows in it, by the law within the
// site; or, of the island, all rows by the law within its partition. A multisite one draws its first row
// uniformly from one such site and the others by the law over the whole table.
//
// With `sites_touched` N the rows of a multisite transaction lie in exactly N sites: its first one's, and
// N - 1 others, every site as likely as the next. Each gives as many as the others, or one more, drawn by the
// law restricted to the site. On a layout of one site per island that is the number of participants.
//
// With `drift` R the law moves on by R rows a second: what was the r-th key of the law is then the one R rows
// further, and after the last one (of the table, or of the site whose law it is) comes the first. Seconds
// count from the beginning of the run, so clients of the deployment (DrawSite) and all generators agree.
//
// A batch is sorted by key, so that transactions meet in the same order and seldom deadlock.
//
// Thread safety: a MicroWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. The N keys of a request are distinct and ascending; at least one lies in a site of the generator's
//     island.
//  2. The sum of all counters is the sum of the audit_delta of committed transactions: N for an update or
//     add, 0 for a read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

inline constexpr const char* kMicroTable = "micro";
inline constexpr uint32_t kMicroRowBytes = 250;    // where the table does not fix it
inline constexpr uint32_t kMicroMaxRows = 10'000;  // so that a batch of the largest rows fits into one frame
inline constexpr double kMaxDrift = 1e12;  // rows per second: the table within a round, whatever its size
inline constexpr double kMaxZipf = 1'000;  // beyond it the second key is never drawn: the law has degenerated

// What a transaction does with each of its rows.
enum class MicroOp : uint8_t { kRead, kUpdate, kAdd };
inline std::optional<MicroOp> MicroOpOf(std::string_view name) {
  if (name == "read") return MicroOp::kRead;
  if (name == "update") return MicroOp::kUpdate;
  if (name == "add") return MicroOp::kAdd;
  return std::nullopt;
}

struct MicroOptions {
  MicroOp op = MicroOp::kRead;
  bool mix = false;            // some are updates, others reads: `op` says nothing
  double update_percent = 50;  // of a mix
  uint32_t rows = 10;
  double multisite_percent = 0;
  double zipf = 0;
  bool skew_of_table = false;    // else of each site
  bool local_to_island = false;  // else to a site
  uint32_t sites_touched = 0;    // by a multisite transaction; 0: as many as its rows happen to lie in
  double drift_per_s = 0;        // rows that the law moves on by
};

// Parameters of every workload that draws its rows as this one does.
instance::Parameter RowsParameter(const char* preset);
instance::Parameter MultisiteParameter();
instance::Parameter ZipfParameter();

struct MicroRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(op);
    coder.CodeList(keys);
  }

  std::vector<uint64_t> keys;
  MicroOp op = MicroOp::kRead;
  bool multisite = false;
  uint64_t home_key = 0;  // the first row drawn, always of the generator's island
};

class MicroWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong, the table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<MicroWorkload>> Create(const storage::Catalog& catalog,
                                                               const instance::Parameters& parameters);

  const char* name() const override { return "micro"; }
  std::vector<std::string> tables() const override { return {kMicroTable}; }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<MicroRequest>(); }
  absl::Status Load(instance::Loader& loader) const override;
  absl::Status CheckRun(const storage::Catalog& catalog) const override;
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  MicroWorkload(instance::TableId table, const MicroOptions& options) : table_(table), options_(options) {}

  const instance::TableId table_;
  const MicroOptions options_;
};

}  // namespace islands::experiments
