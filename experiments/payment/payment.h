// TPC-C's Payment alone: a customer pays at a district of a warehouse (Figures 3 and 7 of "OLTP on Hardware
// Islands"; TPC-C clauses 2.5 and 4.3.3).
//
// Tables warehouse, district, customer (with the index by_name: warehouse, district, last and first name) and
// history, columns at their full widths (payment_rows.h). The first key component, the warehouse, partitions
// them; the tables' `range`, the same for all four, says how many warehouses there are. A warehouse has 10
// districts and takes about 30 MB. Parameters: PaymentWorkload::Describe.
//
// Who pays where: at any warehouse of the island, as in section 6.1 of the paper: with one warehouse per
// core a single worker meets nobody, and those of a larger island wait for each other's warehouse rows.
// With `warehouses: own` they are split among the island's workers instead, so that every worker keeps to
// its own; with fewer warehouses than workers some share one. For "one warehouse per core" let the tables'
// range be as long as the machine has cores, and `sites` as well. An island needs at least one warehouse.
//
// The procedure takes two batches. The first reads warehouse, district and customer, by number or by name,
// and adds the amount to the year-to-date sums of the first two. The second changes the customer and enters
// the payment into the history, which holds both names and so cannot come sooner. Rows are locked in the
// order warehouse, district, customer: payments wait for each other and do not deadlock. Since islands work
// on a batch side by side, a customer of another warehouse is looked for in a batch of its own: no message
// more, and the order holds.
//
// `history: insert` is TPC-C: one row more for every payment, about 100 bytes of the buffer pool (a million
// payments: 100 MB). `overwrite` is for runs of minutes: a payment takes the place of one of the rows that
// were loaded (10 x `customers` a warehouse), the oldest as long as a warehouse has one worker, and the data
// stay as large as they are.
//
// The audited sum has a term for every column that a payment changes, each with its own prime weight. So a
// lost or doubled change of any one of them shows, also when all rows of a kind agree among each other (TPC-C
// clause 3.3.2: W_YTD = sum(D_YTD) = sum(H_AMOUNT) of a warehouse, C_BALANCE + C_YTD_PAYMENT constant).
//
// Left out: the terminal's input and output, and the clock (HistoryRow::date).
//
// Thread safety: a PaymentWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. The home warehouse of a request is one of its generator's island.
//  2. The audited sum is that after loading plus the audit_delta of committed transactions.
//  3. After warm-up neither generator nor procedure takes anything from the heap.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/payment/payment_customer.h"
#include "experiments/payment/payment_rows.h"
#include "experiments/payment/payment_tables.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

struct PaymentOptions {
  uint32_t customers = kTpccCustomers;  // of a district
  double by_name_percent = 60;
  double remote_percent = 0;
  bool overwrite_history = false;
  bool own_warehouses = false;  // each worker has warehouses of its own

  uint64_t loaded_history() const { return uint64_t{kDistricts} * customers; }  // rows of a warehouse
};

struct PaymentRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(warehouse);
    coder.Code(district);
    coder.Code(customer_warehouse);
    coder.Code(customer_district);
    coder.Code(customer);
    coder.Code(last_name);
    coder.Code(history_slot);
    coder.Code(amount_cents);
  }

  uint32_t warehouse = 0;  // where it is paid
  uint32_t district = 0;
  uint32_t customer_warehouse = 0;
  uint32_t customer_district = 0;
  uint32_t customer = 0;      // 0: by name
  uint32_t last_name = 0;     // its number
  uint64_t history_slot = 0;  // which loaded history row of the warehouse to overwrite
  int64_t amount_cents = 0;

  bool remote() const { return customer_warehouse != warehouse; }
  CustomerChoice payer() const { return {customer_warehouse, customer_district, customer, last_name}; }
};

// What a payment of `amount_cents` adds to the audited sum.
int64_t PaymentAuditDelta(int64_t amount_cents);

class PaymentWorkload final : public instance::Workload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong or a table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<PaymentWorkload>> Create(const storage::Catalog& catalog,
                                                                 const instance::Parameters& parameters);

  const char* name() const override { return "payment"; }
  std::vector<std::string> tables() const override { return Describe().tables; }
  std::unique_ptr<instance::Request> MakeRequest() const override {
    return std::make_unique<PaymentRequest>();
  }
  absl::Status Load(instance::Loader& loader) const override;
  // Error when the island has no warehouse.
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override;
  const PaymentOptions& options() const { return options_; }

 private:
  PaymentWorkload(const PaymentTables& tables, const PaymentOptions& options)
      : tables_(tables), options_(options) {}

  using HistoryData = std::array<char, sizeof(HistoryRow::data)>;

  void AddAtHome(const PaymentRequest& request, instance::Batch& batch) const;
  // After the batch that added at home.
  absl::Status NoteHome(const PaymentRequest& request, const instance::Batch& batch, HistoryData* data) const;
  // After the batch that found the customer, whose place the next one takes: it writes the customer, behind
  // what is added at home if that has not been done.
  absl::Status PayFor(const PaymentRequest& request, instance::Batch& batch, uint32_t* customer) const;
  void EnterHistory(const coordinator::TransactionId& id, const PaymentRequest& request, uint32_t customer,
                    const HistoryData& data, instance::Batch& batch) const;

  const PaymentTables tables_;
  const PaymentOptions options_;
};

}  // namespace islands::experiments
