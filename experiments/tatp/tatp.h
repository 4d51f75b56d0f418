// TATP, the telecom benchmark (tatpbenchmark.sourceforge.net): all seven transactions of a home
// location register.
//
// The number of subscribers is the range of the tables, which is the same for all four. The parameter `mix`
// (TatpWorkload::Describe has all of them), in percent:
//
//                          standard   read   update   in_place
//   GetSubscriberData            35  43.75               36.46
//   GetNewDestination            10  12.5                10.42
//   GetAccessData                35  43.75               36.46
//   UpdateSubscriberData          2             10        2.08
//   UpdateLocation               14             70       14.58
//   InsertCallForwarding          2             10
//   DeleteCallForwarding          2             10
//
// `read` and `in_place`, which inserts and deletes nothing, are what "A Scalable Lock Manager for Multicores"
// (section 5.3.4) runs, at scale factor 64: 6.4 million subscribers (tatp64.yaml).
//
// A transaction deals with one subscriber, and all of its rows are in one site: TATP has no multisite
// transactions. By default the subscriber is one of the generator's own island. A remote one may be
// anybody's, this island's included: with two islands, `remote` 100 makes half of them distributed.
//
// Its site is drawn first, each as likely as the next, and the subscriber within it by TATP's rule, (a | b)
// mod N with a up to A and b up to N. TATP means the whole table, with A by its size; here A is divided among
// the sites. So every site has hot subscribers of its own, and how hot each is depends on the number of
// sites, never on the layout. Clients of the deployment begin at any site.
//
// UpdateLocation, InsertCallForwarding and DeleteCallForwarding know the subscriber by number and look it up
// in the index by_number. An index is local to its site; which site to ask is known because a number is s_id
// with leading zeros, as TATP wants it. The s_id that they go on with is the one that the index gave.
//
// By its specification many transactions find nothing (there is no such access info, a forwarding is there
// already). They change nothing and are completed like the others: procedures return OK, the island commits.
// TatpRequest::successful says which it was. By the rules as they are published, applied to freshly loaded
// rows, GetNewDestination succeeds in 15 %, GetAccessData and UpdateSubscriberData in 62.5 %, inserts and
// deletes in 31.25 %, the others always.
//
// The audited sum. How many rows a transaction inserts or deletes is not known when it is made up, so the sum
// is chosen such that only UpdateLocation changes it: the sum of all `changes`, of subscribers and special
// facilities, plus the number of call forwardings.
//
//   UpdateLocation         subscriber.changes + 1, as it was read; audit_delta 1
//   UpdateSubscriberData   special_facility.changes + 1, subscriber.changes - 1
//   InsertCallForwarding   a row more, special_facility.changes - 1
//   DeleteCallForwarding   a row less, special_facility.changes + 1
//
// A lost update, a transaction half done or done twice, a row that came or went by itself: each shows.
//
// Thread safety: a TatpWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. Every subscriber has 1 to 4 access infos and 1 to 4 special facilities, each facility at most one
//     forwarding that begins at 0, at 8 and at 16.
//  2. Generator and procedures allocate nothing after warm-up (the engine below them still does for scans and
//     for writes to a table with indexes).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/tatp/tatp_rows.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

enum class TatpTransaction : uint8_t {
  kGetSubscriberData,
  kGetNewDestination,
  kGetAccessData,
  kUpdateSubscriberData,
  kUpdateLocation,
  kInsertCallForwarding,
  kDeleteCallForwarding,
};
inline constexpr size_t kTatpTransactions = 7;

enum class TatpMix : uint8_t { kStandard, kRead, kUpdate, kInPlace };

struct TatpOptions {
  TatpMix mix = TatpMix::kStandard;
  bool uniform = false;
  double remote_percent = 0;
};

// The inputs of whichever transaction it is; the others' are left over.
struct TatpRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(transaction);
    coder.Code(s_id);
    coder.CodeBytes(sub_nbr);
    for (uint8_t* field : {&type, &start_time, &end_time, &bit_1, &data_a}) coder.Code(*field);
    coder.Code(vlr_location);
    coder.CodeBytes(numberx);
  }

  TatpTransaction transaction = TatpTransaction::kGetSubscriberData;
  uint64_t s_id = 0;     // of the first four
  TatpNumber sub_nbr{};  // of the others
  uint8_t type = 1;      // ai_type or sf_type, 1..4
  uint8_t start_time = 0;
  uint8_t end_time = 0;
  uint8_t bit_1 = 0;
  uint8_t data_a = 0;
  uint32_t vlr_location = 0;
  TatpNumber numberx{};
  // Set by the procedure: whether its latest attempt found what it wanted, as TATP counts success.
  mutable bool successful = false;
};

// Their ids in the catalog.
struct TatpTables {
  instance::TableId subscriber = 0;
  instance::TableId access_info = 0;
  instance::TableId special_facility = 0;
  instance::TableId call_forwarding = 0;
  instance::IndexId by_number = 0;
};

class TatpWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong or a table is absent or of another shape; it shows the lines to add.
  static absl::StatusOr<std::unique_ptr<TatpWorkload>> Create(const storage::Catalog& catalog,
                                                              const instance::Parameters& parameters);

  const char* name() const override { return "tatp"; }
  std::vector<std::string> tables() const override;
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<TatpRequest>(); }
  absl::Status Load(instance::Loader& loader) const override;
  // Error when the island has no subscriber.
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

  const TatpTables& table_ids() const { return tables_; }

 private:
  using Result = runtime::Task<absl::Status>;

  TatpWorkload(const TatpTables& tables, const TatpOptions& options) : tables_(tables), options_(options) {}
  Result GetSubscriberData(instance::Transaction& transaction, const TatpRequest& request) const;
  Result GetNewDestination(instance::Transaction& transaction, const TatpRequest& request) const;
  Result GetAccessData(instance::Transaction& transaction, const TatpRequest& request) const;
  Result UpdateSubscriberData(instance::Transaction& transaction, const TatpRequest& request) const;
  Result UpdateLocation(instance::Transaction& transaction, const TatpRequest& request) const;
  Result InsertCallForwarding(instance::Transaction& transaction, const TatpRequest& request) const;
  Result DeleteCallForwarding(instance::Transaction& transaction, const TatpRequest& request) const;
  void AddLookUp(const TatpNumber& number, instance::Batch& batch) const;

  const TatpTables tables_;
  const TatpOptions options_;
};

}  // namespace islands::experiments
