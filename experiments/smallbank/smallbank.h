// SmallBank: customers with a savings and a checking account each (Alomari et al., "The Cost of
// Serializability on Platforms That Use Snapshot Isolation", ICDE 2008), with the sixth transaction and the
// shares that H-Store gave it.
//
//                      of 100
//   Balance                15   both balances of a customer
//   DepositChecking        15   an amount into checking
//   TransactSavings        15   an amount into savings or out of it; not below 0
//   Amalgamate             15   all of a customer's money into another one's checking
//   WriteCheck             15   an amount out of checking; with a dollar more if both accounts have less
//   SendPayment            25   an amount from one's checking into another's, if there is enough
//
// Tables account, savings and checking: key [uint64], one range, which is the number of customers. Every
// transaction reads the customer's row of `account` first, as it does there for the customer's name. Amounts
// are drawn, 0.01 to 100.00, where H-Store's code has one for each transaction: so balances do run out.
// A transaction for which there is not enough aborts, as SmallBank says; it counts as aborted, for the reason
// `procedure`.
//
// Customers are of one site, drawn first, each as likely as the next. With a `hotspot` of H the first H
// customers of every site are hot: `hot` % of the draws are of them, the others of the rest of the site. So
// the skew is the same in every layout. The other customer of Amalgamate and SendPayment is drawn from the
// same site; in `remote` % of them from any site.
//
// The audited sum is all money plus what was paid as penalties, and a prime for every change of a row, which
// is counted in the row: transactions that move money change no sum of money, and had none of their changes
// arrived, nothing would show.
//
// Thread safety: a SmallBankWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. The first customer of a request lies in a site of its generator's island; the second is another one.
//  2. The audited sum is that after loading plus the audit_delta of committed transactions.
//  3. Rows are changed by writing back what was read for update, changed: two that read the same show.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/workload/workload.h"
#include "partitioner/site_map.h"

namespace islands::experiments {

enum class SmallBankTransaction : uint8_t {
  kBalance,
  kDepositChecking,
  kTransactSavings,
  kAmalgamate,
  kWriteCheck,
  kSendPayment,
};
// How many of 100.
inline constexpr std::array<uint32_t, 6> kSmallBankShares = {15, 15, 15, 15, 15, 25};

inline constexpr int64_t kPenaltyCents = 100;
inline constexpr int64_t kMostCents = 100'00;        // of an amount
inline constexpr int64_t kChangeWeight = 1'000'003;  // of a change of a row, in the audited sum

// Of `savings` and `checking`.
struct BalanceRow {
  int64_t cents;
  int64_t penalty_cents;  // ever paid
  int64_t changes;
};
// Of `account`.
struct AccountRow {
  std::array<char, 64> name;
};

struct SmallBankOptions {
  uint64_t hotspot = 0;     // customers of each site
  double hot_percent = 90;  // of the draws
  double remote_percent = 0;
};

struct SmallBankRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(transaction);
    coder.Code(customer);
    coder.Code(other);
    coder.Code(cents);
  }

  SmallBankTransaction transaction = SmallBankTransaction::kBalance;
  uint64_t customer = 0;
  uint64_t other = 0;  // of Amalgamate and SendPayment
  int64_t cents = 0;   // below 0 only in TransactSavings
};

// What a transaction reads and may change: rows of the customer, and the other's checking.
struct SmallBankBalances {
  BalanceRow savings{};
  BalanceRow checking{};
  BalanceRow other{};
};

struct SmallBankTables {
  instance::TableId account = 0;
  instance::TableId savings = 0;
  instance::TableId checking = 0;
};

class SmallBankGenerator final : public instance::Generator {
 public:
  // Every site has two customers at least.
  SmallBankGenerator(const SmallBankOptions& options, const partitioner::RangePartition& partition,
                     partitioner::SiteRun sites)
      : options_(options), partition_(partition), own_(sites) {}

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<SmallBankRequest>(); }
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override {
    return static_cast<uint32_t>(random.Below(partition_.sites()));
  }

 private:
  uint64_t DrawCustomer(runtime::Random& random, uint32_t site) const;

  const SmallBankOptions options_;
  const partitioner::RangePartition partition_;
  const partitioner::SiteRun own_;
};

class SmallBankWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong or a table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<SmallBankWorkload>> Create(const storage::Catalog& catalog,
                                                                   const instance::Parameters& parameters);

  const char* name() const override { return "smallbank"; }
  std::vector<std::string> tables() const override { return Describe().tables; }
  std::unique_ptr<instance::Request> MakeRequest() const override {
    return std::make_unique<SmallBankRequest>();
  }
  absl::Status Load(instance::Loader& loader) const override;
  absl::Status CheckRun(const storage::Catalog& catalog) const override;
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;

 private:
  SmallBankWorkload(const SmallBankTables& tables, const SmallBankOptions& options)
      : tables_(tables), options_(options) {}

  void AddReads(const SmallBankRequest& request, instance::Batch& batch) const;
  absl::Status TakeReads(const SmallBankRequest& request, const instance::Batch& batch,
                         SmallBankBalances* balances) const;
  void AddWrites(const SmallBankRequest& request, const SmallBankBalances& balances,
                 instance::Batch& batch) const;

  const SmallBankTables tables_;
  const SmallBankOptions options_;
};

}  // namespace islands::experiments
