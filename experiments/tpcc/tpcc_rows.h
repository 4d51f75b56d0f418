// The rows of TPC-C that Payment does not know (experiments/payment/payment_rows.h has the others): the
// columns of clause 1.3 at their full widths, little endian, without gaps; columns of the key are not
// repeated. What is changed stands first.
//
// Dates are numbers of transactions, as in HistoryRow: procedures have no clock. 0 is null.
//
// Thread safety: plain values.
//
// Invariants:
//  1. Money is in cents.
//  2. A row is sizeof(its struct) bytes; the tables fix that length (tpcc_tables.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "coordinator/transaction_id.h"
#include "experiments/payment/payment_rows.h"

namespace islands::experiments {

inline constexpr uint32_t kTpccItems = 100'000;  // numbered from 1
inline constexpr uint32_t kFewestLines = 5;      // of an order
inline constexpr uint32_t kMostLines = 15;

inline constexpr int64_t kLoadedDate = 1;
inline int64_t DateOf(const coordinator::TransactionId& id) { return static_cast<int64_t>(id.sequence) + 1; }

struct [[gnu::packed]] OrderRow {
  uint8_t carrier;  // 0: null, it waits for its delivery
  uint8_t lines;
  uint8_t all_local;
  uint32_t customer;
  int64_t entered;
};

// NEW-ORDER has nothing but its key.
struct NewOrderRow {
  char unused;
};

struct [[gnu::packed]] OrderLineRow {
  int64_t delivered;  // 0: null
  int64_t amount_cents;
  uint32_t item;
  uint32_t supply_warehouse;
  uint8_t quantity;
  char district_info[24];
};

// What every order changes of a stock.
struct [[gnu::packed]] StockAccount {
  int32_t quantity;
  int64_t ytd;  // of pieces
  uint32_t orders;
  uint32_t remote_orders;
};

struct [[gnu::packed]] StockRow {
  StockAccount account;
  char districts[kDistricts][24];
  char data[50];
};

struct [[gnu::packed]] ItemRow {
  int64_t price_cents;
  uint32_t image;
  char name[24];
  char data[50];
};

// A customer's newest order: how Order-Status finds it. No table of TPC-C, but the index that it takes for
// granted; a row that is overwritten, because index scans would lock out all orders of the site.
struct LastOrderRow {
  uint32_t order;
};

static_assert(sizeof(OrderRow) == 15 && sizeof(NewOrderRow) == 1 && sizeof(OrderLineRow) == 49 &&
              sizeof(StockRow) == 310 && sizeof(ItemRow) == 86 && sizeof(LastOrderRow) == 4);

}  // namespace islands::experiments
