// TPC-C: all five transactions of a wholesale supplier (tpc.org, revision 5.11), on all nine tables.
//
// Tables, columns at their full widths: Payment's warehouse, district, customer and history; orders,
// new_order, order_line and stock; item, which is replicated; and last_order, each customer's newest. The
// first key component, the warehouse, partitions them; their `range`, the same for all but item, says how
// many warehouses there are. A warehouse takes about 90 MB, the items 13 MB on every island. Parameters:
// TpccWorkload::Describe.
//
// The parameter `mix`, in percent of the transactions that are begun (clause 5.2.3 has minima: 43, 4, 4, 4,
// and New-Order the rest):
//
//                 standard   batches
//   New-Order           45   2: what is read, stock of other warehouses too; what is written
//   Payment             43   2 or 3: experiments/payment/, which inserts a row into the history
//   Order-Status         4   3: the customer; the number of the newest order; the order and its lines
//   Delivery             4   3: the oldest orders of all ten districts, in one transaction (clause 2.7.2
//                            allows one to ten); their lines; customers, orders and lines delivered
//   Stock-Level          4   3: the district; lines of its last 20 orders; their stock
//
// Every other choice is one transaction alone. Who orders where: at any warehouse of the island, or with
// `warehouses: own` at those of the worker, as payment.h says. Each line of an order comes from another
// warehouse in `remote_lines` percent (1), each payment is of another's customer in `remote_payments` (15).
// With one warehouse there is no other. `rollback` percent of the orders (1) end with an item that there is
// not: all else is carried out, then undone (clause 2.4.2.3); they count as aborted by their procedure.
//
// Locks come in the order warehouse, district, customer, stock by warehouse and item, then what is inserted.
// New-Orders ask for the stock of other islands in the batch that asks at home: two that need each other's
// may deadlock, which the islands find. Deliveries of a warehouse wait for each other at a key of new_order
// that never has a row (district 0), because of two that have read the oldest order neither could take it.
//
// A slot (`--mpl`) is a terminal. Before a transaction it waits for `think` percent (0) of the keying time of
// clause 5.2.5.2 and of a thinking time, which is drawn as clause 5.2.5.4 has it; with 100, ten slots for
// each warehouse are TPC-C's terminals. When a run begins each is anywhere in its first wait.
//
// Left out: the terminal's input and output, and the clock (tpcc_rows.h).
//
// The audit (tpcc_audit.h) checks the conditions of clause 3.3.2 and the books of the stock before and after
// every run. The audited sum is 0.
//
// Thread safety: a TpccWorkload is immutable; generators and requests belong to one worker.
//
// Invariants:
//  1. The home warehouse of a request is one of its generator's island.
//  2. Lines of a request are in the order in which their stock is locked.
//  3. A generator allocates nothing after warm-up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/payment/payment.h"
#include "experiments/tpcc/tpcc_rows.h"
#include "experiments/tpcc/tpcc_tables.h"
#include "instance/workload/audit.h"
#include "instance/workload/workload.h"

namespace islands::experiments {

enum class TpccTransaction : uint8_t { kNewOrder, kPayment, kOrderStatus, kDelivery, kStockLevel };
inline constexpr size_t kTpccTransactions = 5;
// Of 100 transactions.
using TpccMix = std::array<uint32_t, kTpccTransactions>;
inline constexpr TpccMix kStandardMix = {45, 43, 4, 4, 4};

struct TpccOptions {
  TpccMix mix = kStandardMix;
  PaymentOptions payment = {.remote_percent = 15};
  uint32_t items = kTpccItems;
  double remote_lines_percent = 1;
  double rollback_percent = 1;
  double think_percent = 0;

  // Clause 4.3.3.1: an order of each customer, and the last three tenths wait for their delivery.
  uint32_t loaded_orders() const { return payment.customers; }
  uint32_t loaded_delivered() const { return payment.customers / 10 * 7 + payment.customers % 10 * 7 / 10; }
};

struct RequestedLine {
  uint32_t item;
  uint32_t supply_warehouse;
  uint8_t quantity;
};

// The inputs of whichever transaction it is; the others' are left over.
struct TpccRequest final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override;

  TpccTransaction transaction = TpccTransaction::kNewOrder;
  PaymentRequest payment;   // of Payment
  uint32_t warehouse = 0;   // of the others
  uint32_t district = 0;    // not of Delivery
  CustomerChoice customer;  // of New-Order, by number, and of Order-Status
  uint8_t carrier = 0;      // of Delivery
  int32_t threshold = 0;    // of Stock-Level
  uint32_t lines = 0;       // of New-Order
  std::array<RequestedLine, kMostLines> line{};

  // What a terminal would show of the latest attempt: the order's total in cents; the number of the order
  // that was looked up, 0 for none; how many districts had something to deliver; how many stocks are low.
  mutable int64_t result = 0;
};

class TpccWorkload final : public instance::Workload, public instance::AuditedWorkload {
 public:
  static const instance::Description& Describe();
  // Error when a parameter is wrong or a table is absent or of another shape.
  static absl::StatusOr<std::unique_ptr<TpccWorkload>> Create(const storage::Catalog& catalog,
                                                              const instance::Parameters& parameters);

  const char* name() const override { return "tpcc"; }
  std::vector<std::string> tables() const override { return Describe().tables; }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<TpccRequest>(); }
  absl::Status Load(instance::Loader& loader) const override;
  // Error when the island has no warehouse.
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override;
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override;
  std::unique_ptr<instance::RowAudit> BeginAudit(partitioner::SiteRun sites) const override;

  const TpccTables& table_ids() const { return tables_; }
  const TpccOptions& options() const { return options_; }

 private:
  using Result = runtime::Task<absl::Status>;

  TpccWorkload(const TpccTables& tables, const TpccOptions& options, uint32_t sites,
               std::unique_ptr<const PaymentWorkload> payment)
      : tables_(tables), options_(options), sites_(sites), payment_(std::move(payment)) {}
  Result NewOrder(instance::Transaction& transaction, const TpccRequest& request) const;
  Result OrderStatus(instance::Transaction& transaction, const TpccRequest& request) const;
  Result Delivery(instance::Transaction& transaction, const TpccRequest& request) const;
  Result StockLevel(instance::Transaction& transaction, const TpccRequest& request) const;

  const TpccTables tables_;
  const TpccOptions options_;
  const uint32_t sites_;
  const std::unique_ptr<const PaymentWorkload> payment_;
};

}  // namespace islands::experiments
