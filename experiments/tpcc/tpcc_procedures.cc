// Order-Status, Delivery and Stock-Level (clauses 2.6 to 2.8).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "experiments/tpcc/tpcc.h"
#include "experiments/tpcc/tpcc_errors.h"
#include "experiments/tpcc/tpcc_keys.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;
using instance::Batch;
using instance::Transaction;

constexpr uint32_t kRecentOrders = 20;  // whose stock Stock-Level looks at

void ScanLines(const TpccTables& tables, uint32_t warehouse, uint32_t district, uint32_t first, uint32_t end,
               Batch& batch) {
  batch.Scan(tables.order_line, LineKey(warehouse, district, first, 0), LineKey(warehouse, district, end, 0));
}

std::string OrderText(uint32_t warehouse, uint32_t district, uint32_t order) {
  return fmt::format("order {}/{} {}", warehouse, district, order);
}

// An order that is on its way, of each district.
struct Parcel {
  uint32_t order = 0;  // 0: nothing to deliver
  uint32_t customer = 0;
  uint32_t lines = 0;
  int64_t amount_cents = 0;
};
using Parcels = std::array<Parcel, kDistricts>;

// Deliveries queue at the first key, which has no row. Results of district d: operation d.
void FindOldest(const TpccTables& tables, uint32_t warehouse, Batch& batch) {
  batch.ReadForUpdate(tables.new_order, OrderKey(warehouse, 0, 0));
  for (uint32_t district = 1; district <= kDistricts; ++district) {
    batch.Scan(tables.new_order, OrderKey(warehouse, district, 0), OrderKey(warehouse, district + 1, 0),
               /*limit=*/1);
  }
}

void NoteOldest(const Batch& batch, Parcels* parcels) {
  for (uint32_t district = 1; district <= kDistricts; ++district) {
    if (batch.scanned_rows(district) > 0) {
      (*parcels)[district - 1].order = ComponentOf(batch.scanned_key(district, 0), 2);
    }
  }
}

// Of one parcel: what its row in new_order becomes, its order, its lines.
enum : size_t { kDeleteNewOrder, kReadOrder, kScanLines, kOperationsOfParcel };

void TakeOut(const TpccTables& tables, uint32_t warehouse, const Parcels& parcels, Batch& batch) {
  for (uint32_t d = 0; d < kDistricts; ++d) {
    const uint32_t number = parcels[d].order;
    if (number == 0) continue;
    const auto order = OrderKey(warehouse, d + 1, number);
    batch.Delete(tables.new_order, order);
    batch.ReadForUpdate(tables.orders, order);
    ScanLines(tables, warehouse, d + 1, number, number + 1, batch);
  }
}

absl::Status NoteContents(uint32_t warehouse, const Batch& batch, Parcels* parcels) {
  size_t at = 0;
  for (uint32_t d = 0; d < kDistricts; ++d) {
    Parcel& parcel = (*parcels)[d];
    if (parcel.order == 0) continue;
    if (batch.code(at + kDeleteNewOrder) != StatusCode::kOk ||
        batch.code(at + kReadOrder) != StatusCode::kOk) {
      return Contradiction(OrderText(warehouse, d + 1, parcel.order) +
                           " waits for its delivery, and is not there");
    }
    const auto order = RowOf<OrderRow>(batch.row(at + kReadOrder));
    parcel.customer = order.customer;
    parcel.lines = static_cast<uint32_t>(batch.scanned_rows(at + kScanLines));
    if (order.carrier != 0 || parcel.lines != order.lines) {
      return Contradiction(fmt::format("{} has carrier {} and {} lines, expected none and {}",
                                       OrderText(warehouse, d + 1, parcel.order), order.carrier, parcel.lines,
                                       order.lines));
    }
    for (uint32_t line = 0; line < parcel.lines; ++line) {
      parcel.amount_cents += RowOf<OrderLineRow>(batch.scanned_row(at + kScanLines, line)).amount_cents;
    }
    at += kOperationsOfParcel;
  }
  return absl::OkStatus();
}

void HandOver(const TpccTables& tables, const coordinator::TransactionId& id, const TpccRequest& request,
              const Parcels& parcels, Batch& batch) {
  const int64_t date = DateOf(id);
  for (uint32_t d = 0; d < kDistricts; ++d) {
    const Parcel& parcel = parcels[d];
    if (parcel.order == 0) continue;
    batch.Write(tables.orders, OrderKey(request.warehouse, d + 1, parcel.order), offsetof(OrderRow, carrier),
                BytesOf(request.carrier));
    for (uint32_t line = 1; line <= parcel.lines; ++line) {
      const auto key = LineKey(request.warehouse, d + 1, parcel.order, static_cast<uint8_t>(line));
      batch.Write(tables.order_line, key, offsetof(OrderLineRow, delivered), BytesOf(date));
    }
    const auto customer = CustomerKey(request.warehouse, d + 1, parcel.customer);
    batch.Add(tables.payment.customer, customer, offsetof(CustomerAccount, balance_cents),
              parcel.amount_cents);
    // A count of 32 bits: as long as it does not overflow, nothing is carried into the next column.
    batch.Add(tables.payment.customer, customer, offsetof(CustomerRow, deliveries), 1);
  }
}

}  // namespace

TpccWorkload::Result TpccWorkload::OrderStatus(Transaction& transaction, const TpccRequest& request) const {
  Batch& batch = transaction.batch();
  FindCustomer(tables_.payment, request.customer, /*for_update=*/false, batch);
  Result found = transaction.Execute(batch);
  absl::Status status = co_await found;
  if (!status.ok()) co_return status;
  const FoundCustomer customer = CustomerIn(request.customer, batch, 0);
  if (customer.row.empty()) co_return MissingRow(CustomerText(request.customer));
  const auto key = CustomerKey(request.warehouse, request.district, customer.number());
  batch.Clear();
  batch.Read(tables_.last_order, key);
  Result looked_up = transaction.Execute(batch);
  status = co_await looked_up;
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return absl::OkStatus();  // this one has never ordered
  const uint32_t number = RowOf<LastOrderRow>(batch.row(0)).order;
  batch.Clear();
  batch.Read(tables_.orders, OrderKey(request.warehouse, request.district, number));
  ScanLines(tables_, request.warehouse, request.district, number, number + 1, batch);
  Result read = transaction.Execute(batch);
  status = co_await read;
  if (!status.ok()) co_return status;
  const size_t lines = batch.scanned_rows(1);
  if (batch.code(0) != StatusCode::kOk || RowOf<OrderRow>(batch.row(0)).lines != lines) {
    co_return Contradiction(fmt::format("{} is not there, or has other lines than the {} found",
                                        OrderText(request.warehouse, request.district, number), lines));
  }
  request.result = number;
  co_return absl::OkStatus();
}

TpccWorkload::Result TpccWorkload::Delivery(Transaction& transaction, const TpccRequest& request) const {
  Batch& batch = transaction.batch();
  FindOldest(tables_, request.warehouse, batch);
  Result found = transaction.Execute(batch);
  absl::Status status = co_await found;
  if (!status.ok()) co_return status;
  Parcels parcels;
  NoteOldest(batch, &parcels);
  batch.Clear();
  TakeOut(tables_, request.warehouse, parcels, batch);
  if (batch.empty()) co_return absl::OkStatus();  // nothing waits anywhere: a delivery that is skipped
  Result taken = transaction.Execute(batch);
  status = co_await taken;
  if (status.ok()) status = NoteContents(request.warehouse, batch, &parcels);
  if (!status.ok()) co_return status;
  batch.Clear();
  HandOver(tables_, transaction.id(), request, parcels, batch);
  Result handed = transaction.Execute(batch);
  status = co_await handed;
  if (!status.ok()) co_return status;
  if (const size_t failed = FirstFailed(batch); failed < batch.size()) {
    co_return Contradiction(fmt::format("a delivery in warehouse {}: operation {} of {} did not find its row",
                                        request.warehouse, failed, batch.size()));
  }
  request.result =
      std::count_if(parcels.begin(), parcels.end(), [](const Parcel& p) { return p.order != 0; });
  co_return absl::OkStatus();
}

TpccWorkload::Result TpccWorkload::StockLevel(Transaction& transaction, const TpccRequest& request) const {
  Batch& batch = transaction.batch();
  batch.Read(tables_.payment.district, DistrictKey(request.warehouse, request.district));
  Result asked = transaction.Execute(batch);
  absl::Status status = co_await asked;
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) {
    co_return MissingRow(fmt::format("district {}/{}", request.warehouse, request.district));
  }
  const uint32_t next = RowOf<DistrictRow>(batch.row(0)).next_order;
  batch.Clear();
  ScanLines(tables_, request.warehouse, request.district, next - std::min(next, kRecentOrders), next, batch);
  Result scanned = transaction.Execute(batch);
  status = co_await scanned;
  if (!status.ok()) co_return status;
  std::array<uint32_t, size_t{kRecentOrders} * kMostLines> items;
  const auto end = items.begin() + static_cast<ptrdiff_t>(std::min(batch.scanned_rows(0), items.size()));
  for (auto item = items.begin(); item != end; ++item) {
    const auto line = static_cast<size_t>(item - items.begin());
    *item = RowOf<OrderLineRow>(batch.scanned_row(0, line)).item;
  }
  std::sort(items.begin(), end);
  const auto distinct = std::unique(items.begin(), end);
  batch.Clear();
  for (auto item = items.begin(); item != distinct; ++item) {
    batch.Read(tables_.stock, StockKey(request.warehouse, *item));
  }
  Result read = transaction.Execute(batch);
  status = co_await read;
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch.code(i) != StatusCode::kOk) {
      co_return MissingRow(fmt::format("the stock {}/{}", request.warehouse, items[i]));
    }
    request.result += RowOf<StockAccount>(batch.row(i)).quantity < request.threshold;
  }
  co_return absl::OkStatus();
}

}  // namespace islands::experiments
