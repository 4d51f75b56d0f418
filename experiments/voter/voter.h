// Voter, H-Store's benchmark of a talent show on the phone: short transactions, each on the data of one phone
// number ("Performance Bottlenecks in a Main-Memory DBMS", section 3.1; the example of the same name that
// comes with VoltDB).
//
// One transaction, Vote: is there such a contestant, has the phone voted less often than it may, then the
// vote is entered and counted. Tables:
//
//   contestant   [uint8]            replicated: a name
//   phone        [uint64]           how many votes it has given; a row from its first vote on
//   vote         [uint64, uint32]   phone, and which of its votes: for whom
//   total        [uint64, uint8]    votes of a contestant by the phones of a site, under the site's first
//                                   phone; votes that were rejected, too
//
// The range of the last three, one range, is the phones that there are. `total` is what H-Store keeps as a
// view in each partition; the sum over all sites is a contestant's result. One vote in a hundred is for
// nobody. Such a vote, and one too many of a phone, is answered, commits and changes nothing but the count of
// rejected ones, which is ours: with it every transaction with a contestant changes the audited sum by as
// much, whatever its answer is.
//
// Every vote is a row more. Phones are drawn uniformly, from the sites of the generator's island; in `remote`
// % of the transactions from all, so that some are distributed: Voter has none.
//
// Left out: states, by the phone's area code.
//
// Thread safety: a VoterWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. A phone has exactly as many rows in `vote` as its row in `phone` says, `limit` at most.
//  2. All rows in `vote` for a contestant are as many as the votes in that contestant's totals.
//  3. The audited sum is that after loading plus the audit_delta of committed transactions. The rows of
//     `vote` have a part in it, what phones say another and totals a third, each with its own prime weight: a
//     lost or doubled change of any of them shows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/payment/payment_keys.h"
#include "instance/workload/workload.h"
#include "partitioner/site_map.h"

namespace islands::experiments {

inline constexpr uint8_t kMostContestants = 12;  // as in VoltDB's example
inline constexpr uint32_t kNobodyOneIn = 100;    // votes

// Of the audited sum.
inline constexpr int64_t kVoteWeight = 101;
inline constexpr int64_t kPhoneWeight = 103;
inline constexpr int64_t kTotalWeight = 107;
inline constexpr int64_t kCallWeight = kVoteWeight + kPhoneWeight + kTotalWeight;

struct ContestantRow {
  char name[50];
};
struct PhoneRow {
  int64_t votes;
};
struct VoteRow {
  uint64_t contestant;
};
struct TotalRow {
  int64_t votes;
  int64_t rejected;
};

inline auto ContestantKey(uint8_t contestant) { return PackedKey<1>().Byte(contestant); }
inline auto PhoneKey(uint64_t phone) { return PackedKey<8>().Number(phone); }
inline auto VoteKey(uint64_t phone, uint32_t number) { return PackedKey<12>().Number(phone).Number(number); }
inline auto TotalKey(uint64_t first_phone, uint8_t contestant) {
  return PackedKey<9>().Number(first_phone).Byte(contestant);
}

struct VoterOptions {
  uint8_t contestants = 6;
  uint32_t limit = 1000;  // votes of a phone
  double remote_percent = 0;
};

struct VoterRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(phone);
    coder.Code(first_phone);
    coder.Code(contestant);
  }

  uint64_t phone = 0;
  uint64_t first_phone = 0;  // of its site
  uint8_t contestant = 0;    // 1, 2, ...; or one more than there are
};

struct VoterTables {
  instance::TableId contestant = 0;
  instance::TableId phone = 0;
  instance::TableId vote = 0;
  instance::TableId total = 0;
};

class VoterGenerator final : public instance::Generator {
 public:
  // Every site has a phone.
  VoterGenerator(const VoterOptions& options, const partitioner::RangePartition& partition,
                 partitioner::SiteRun sites)
      : options_(options), partition_(partition), own_(sites) {}

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<VoterRequest>(); }
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;

 private:
  // Of these sites.
  uint64_t DrawPhone(runtime::Random& random, partitioner::SiteRun sites) const;

  const VoterOptions options_;
  const partitioner::RangePartition partition_;
  const partitioner::SiteRun own_;
};

class VoterWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong or a table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<VoterWorkload>> Create(const storage::Catalog& catalog,
                                                               const instance::Parameters& parameters);

  const char* name() const override { return "voter"; }
  std::vector<std::string> tables() const override { return Describe().tables; }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<VoterRequest>(); }
  absl::Status Load(instance::Loader& loader) const override;
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  VoterWorkload(const VoterTables& tables, const VoterOptions& options)
      : tables_(tables), options_(options) {}

  const VoterTables tables_;
  const VoterOptions options_;
};

}  // namespace islands::experiments
