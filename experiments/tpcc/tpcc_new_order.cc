// New-Order (clause 2.4.2), in two batches: what is read, then what is written. Locked is the district first,
// and the warehouse, which all want, last, as by Payment and Stock-Level. Stock of other warehouses, perhaps
// of other islands, is done with before, to the votes of those islands: nothing at home is locked while there
// is a message to wait for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "experiments/tpcc/tpcc.h"
#include "experiments/tpcc/tpcc_errors.h"
#include "experiments/tpcc/tpcc_keys.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;
using instance::Batch;

// Operations of a line. At home they are between the one that reads the district and those that read the
// customer and the warehouse.
enum : size_t { kReadItem, kReadStock, kOperationsOfLine };

// What is left of an order's rows when the second batch takes the place of the first.
struct Noted {
  struct Line {
    bool unused = false;  // there is no such item
    StockAccount stock;   // as the order leaves it
    char district_info[24];
    int64_t amount_cents = 0;
  };
  uint32_t number = 0;
  bool unused_item = false;
  int64_t total_cents = 0;
  std::array<Line, kMostLines> line;
};

// From where an order's lines come.
enum class From : bool { kHome, kElsewhere };

From WhereFrom(const TpccRequest& request, uint32_t line) {
  return request.line[line].supply_warehouse == request.warehouse ? From::kHome : From::kElsewhere;
}

bool SameStock(const RequestedLine& a, const RequestedLine& b) {
  return a.item == b.item && a.supply_warehouse == b.supply_warehouse;
}

// Clause 2.4.2.2: stock is filled up when it would fall below ten.
void Take(uint8_t quantity, bool remote, StockAccount* stock) {
  stock->quantity += stock->quantity >= quantity + 10 ? -quantity : 91 - quantity;
  stock->ytd += quantity;
  stock->orders += 1;
  stock->remote_orders += remote ? 1 : 0;
}

absl::Status NoteLine(const TpccRequest& request, const Batch& batch, size_t at, uint32_t i, Noted* noted) {
  const RequestedLine& wanted = request.line[i];
  Noted::Line& line = noted->line[i];
  line.unused = batch.code(at + kReadItem) == StatusCode::kNotFound;
  noted->unused_item |= line.unused;
  if (line.unused) return absl::OkStatus();
  if (batch.code(at + kReadStock) != StatusCode::kOk) {
    return MissingRow(fmt::format("the stock {}/{}", wanted.supply_warehouse, wanted.item));
  }
  const instance::RowView stock = batch.row(at + kReadStock);
  // A line before this one may have taken of the same.
  const bool again = i > 0 && SameStock(request.line[i - 1], wanted);
  line.stock = again ? noted->line[i - 1].stock : RowOf<StockAccount>(stock);
  Take(wanted.quantity, wanted.supply_warehouse != request.warehouse, &line.stock);
  std::memcpy(
      line.district_info,
      stock.data() + offsetof(StockRow, districts) + (request.district - 1) * sizeof(line.district_info),
      sizeof(line.district_info));
  line.amount_cents = wanted.quantity * RowOf<ItemRow>(batch.row(at + kReadItem)).price_cents;
  noted->total_cents += line.amount_cents;
  return absl::OkStatus();
}

// What the customer has to pay: rates are in 1/10000.
int64_t Total(int64_t amounts_cents, int32_t discount, int32_t taxes) {
  return amounts_cents * (10'000 - discount) / 10'000 * (10'000 + taxes) / 10'000;
}

// Of those that the batch has asked for.
absl::Status NoteLines(const TpccRequest& request, From from, const Batch& batch, Noted* noted) {
  size_t at = from == From::kHome ? 1 : 0;
  for (uint32_t i = 0; i < request.lines; ++i) {
    if (WhereFrom(request, i) != from) continue;
    absl::Status line = NoteLine(request, batch, at, i, noted);
    if (!line.ok()) return line;
    at += kOperationsOfLine;
  }
  return absl::OkStatus();
}

absl::Status NoteHome(const TpccRequest& request, const Batch& batch, Noted* noted) {
  const size_t read_district = 0, read_customer = batch.size() - 2, read_warehouse = batch.size() - 1;
  for (const size_t read : {read_district, read_customer, read_warehouse}) {
    if (batch.code(read) == StatusCode::kOk) continue;
    return MissingRow(read == read_customer ? CustomerText(request.customer)
                                            : fmt::format("warehouse {} or its district {}",
                                                          request.warehouse, request.district));
  }
  const auto district = RowOf<DistrictRow>(batch.row(read_district));
  noted->number = district.next_order;
  noted->total_cents = Total(noted->total_cents, RowOf<CustomerRow>(batch.row(read_customer)).discount,
                             RowOf<WarehouseRow>(batch.row(read_warehouse)).tax + district.tax);
  return absl::OkStatus();
}

void AskLines(const TpccTables& tables, const TpccRequest& request, From from, Batch& batch) {
  for (uint32_t i = 0; i < request.lines; ++i) {
    if (WhereFrom(request, i) != from) continue;
    const RequestedLine& line = request.line[i];
    batch.Read(tables.item, ItemKey(line.item));
    batch.ReadForUpdate(tables.stock, StockKey(line.supply_warehouse, line.item));
  }
}

void AskHome(const TpccTables& tables, const TpccRequest& request, Batch& batch) {
  batch.ReadForUpdate(tables.payment.district, DistrictKey(request.warehouse, request.district));
  AskLines(tables, request, From::kHome, batch);
  FindCustomer(tables.payment, request.customer, /*for_update=*/false, batch);
  batch.Read(tables.payment.warehouse, WarehouseKey(request.warehouse));
}

bool IsAllLocal(const TpccRequest& request) {
  for (uint32_t i = 0; i < request.lines; ++i) {
    if (WhereFrom(request, i) != From::kHome) return false;
  }
  return true;
}

void WriteStock(const TpccTables& tables, const TpccRequest& request, const Noted& noted, uint32_t i,
                Batch& batch) {
  const RequestedLine& wanted = request.line[i];
  const bool more = i + 1 < request.lines && SameStock(wanted, request.line[i + 1]);
  if (more) return;
  batch.Write(tables.stock, StockKey(wanted.supply_warehouse, wanted.item), 0, BytesOf(noted.line[i].stock));
}

void EnterLine(const TpccTables& tables, const TpccRequest& request, const Noted& noted, uint32_t i,
               Batch& batch) {
  const RequestedLine& wanted = request.line[i];
  const Noted::Line& line = noted.line[i];
  OrderLineRow row{.delivered = 0,
                   .amount_cents = line.amount_cents,
                   .item = wanted.item,
                   .supply_warehouse = wanted.supply_warehouse,
                   .quantity = wanted.quantity,
                   .district_info = {}};
  std::memcpy(row.district_info, line.district_info, sizeof(row.district_info));
  const auto key = LineKey(request.warehouse, request.district, noted.number, static_cast<uint8_t>(i + 1));
  batch.Insert(tables.order_line, key, BytesOf(row));
}

void WriteStocks(const TpccTables& tables, const TpccRequest& request, From from, const Noted& noted,
                 Batch& batch) {
  for (uint32_t i = 0; i < request.lines; ++i) {
    if (WhereFrom(request, i) == from && !noted.line[i].unused) WriteStock(tables, request, noted, i, batch);
  }
}

void Enter(const TpccTables& tables, const coordinator::TransactionId& id, const TpccRequest& request,
           const Noted& noted, Batch& batch) {
  const uint32_t next = noted.number + 1;
  batch.Write(tables.payment.district, DistrictKey(request.warehouse, request.district),
              offsetof(DistrictRow, next_order), BytesOf(next));
  const auto order = OrderKey(request.warehouse, request.district, noted.number);
  const OrderRow row = {.carrier = 0,
                        .lines = static_cast<uint8_t>(request.lines),
                        .all_local = IsAllLocal(request),
                        .customer = request.customer.customer,
                        .entered = DateOf(id)};
  batch.Insert(tables.orders, order, BytesOf(row));
  batch.Insert(tables.new_order, order, BytesOf(NewOrderRow{}));
  const LastOrderRow last{noted.number};
  batch.Put(tables.last_order, CustomerKey(request.warehouse, request.district, request.customer.customer),
            BytesOf(last));
  WriteStocks(tables, request, From::kHome, noted, batch);
  // One behind the other, as they will be: each is looked for from where the one before it was found.
  for (uint32_t i = 0; i < request.lines; ++i) {
    if (!noted.line[i].unused) EnterLine(tables, request, noted, i, batch);
  }
}

}  // namespace

TpccWorkload::Result TpccWorkload::NewOrder(instance::Transaction& transaction,
                                            const TpccRequest& request) const {
  Batch& batch = transaction.batch();
  Noted noted;
  absl::Status status;
  if (!IsAllLocal(request)) {
    AskLines(tables_, request, From::kElsewhere, batch);
    Result asked = transaction.Execute(batch);
    status = co_await asked;
    if (status.ok()) status = NoteLines(request, From::kElsewhere, batch, &noted);
    if (!status.ok()) co_return status;
    batch.Clear();
    WriteStocks(tables_, request, From::kElsewhere, noted, batch);
    batch.LastElsewhere();  // none, if the one item from there is not sold
    Result taken = transaction.Execute(batch);
    status = co_await taken;
    if (status.ok() && FirstFailed(batch) < batch.size())
      status = Contradiction("the stock of an order was there, and is gone");
    if (!status.ok()) co_return status;
    batch.Clear();
  }
  AskHome(tables_, request, batch);
  Result asked = transaction.Execute(batch);
  status = co_await asked;
  if (status.ok()) status = NoteLines(request, From::kHome, batch, &noted);
  if (status.ok()) status = NoteHome(request, batch, &noted);
  if (!status.ok()) co_return status;
  batch.Clear();
  Enter(tables_, transaction.id(), request, noted, batch);
  Result entered = transaction.Execute(batch);
  status = co_await entered;
  if (!status.ok()) co_return status;
  if (const size_t failed = FirstFailed(batch); failed < batch.size()) {
    co_return Contradiction(fmt::format("order {}/{} {}: operation {} of {} found its row there, or gone",
                                        request.warehouse, request.district, noted.number, failed,
                                        batch.size()));
  }
  request.result = noted.total_cents;
  if (noted.unused_item) co_return absl::NotFoundError("tpcc: an item of the order is none that is sold");
  co_return absl::OkStatus();
}

}  // namespace islands::experiments
