// The rows of TPC-C's Payment as they lie in their tables: the columns of clause 1.3 at their full widths,
// little endian, without gaps. Columns of the key are not repeated in the row. Text is padded with zeros at
// its end.
//
// What a payment changes stands first, so that it is changed by one operation a row.
//
// Thread safety: plain values.
//
// Invariants:
//  1. Money is in cents, rates are in 1/10000.
//  2. A row is sizeof(its struct) bytes; the tables fix that length (payment_tables.cc).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace islands::experiments {

static_assert(std::endian::native == std::endian::little, "columns are read as they lie in the row");

inline constexpr uint32_t kDistricts = 10;        // of a warehouse, numbered from 1
inline constexpr uint32_t kTpccCustomers = 3000;  // of a district, numbered from 1

struct [[gnu::packed]] Address {
  char street_1[20];
  char street_2[20];
  char city[20];
  char state[2];
  char zip[9];
};

struct [[gnu::packed]] WarehouseRow {
  int64_t ytd_cents;
  int32_t tax;
  char name[10];
  Address address;
};

struct [[gnu::packed]] DistrictRow {
  int64_t ytd_cents;
  int32_t tax;
  uint32_t next_order;
  char name[10];
  Address address;
};

// What every payment changes of a customer.
struct [[gnu::packed]] CustomerAccount {
  int64_t balance_cents;
  int64_t ytd_payment_cents;
  uint32_t payments;
};

struct [[gnu::packed]] CustomerRow {
  CustomerAccount account;
  char data[500];  // changed if the credit is bad
  uint32_t deliveries;
  int32_t discount;
  int64_t credit_limit_cents;
  int64_t since;
  char credit[2];  // "GC" or "BC"
  char first[16];
  char middle[2];
  char last[16];
  Address address;
  char phone[16];
};

struct [[gnu::packed]] HistoryRow {
  // All amounts that were ever entered into this row: more than `amount_cents` where payments overwrite old
  // rows (payment.h), so that the books agree then as well.
  int64_t paid_cents;
  int64_t amount_cents;
  int64_t date;  // the payment's number: procedures have no clock, and a worker's numbers grow with time
  uint32_t customer_warehouse;
  uint32_t customer_district;
  uint32_t customer;
  uint32_t district;  // where it was paid; the warehouse is in the key
  char data[24];
};

static_assert(sizeof(WarehouseRow) == 93 && sizeof(DistrictRow) == 97 && sizeof(CustomerRow) == 667 &&
              sizeof(HistoryRow) == 64);
static_assert(offsetof(CustomerRow, data) == sizeof(CustomerAccount));
static_assert(offsetof(CustomerRow, first) == 546 && offsetof(CustomerRow, last) == 564,
              "the index by_name reads them there");

// `row` must have the struct's length.
template <typename Row>
Row RowOf(std::span<const std::byte> row) {
  Row copy;
  std::memcpy(&copy, row.data(), sizeof(copy));
  return copy;
}

template <typename Row>
std::span<const std::byte> BytesOf(const Row& row) {
  return std::as_bytes(std::span(&row, 1));
}

// A text column without its padding.
template <size_t N>
std::string_view TextOf(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

}  // namespace islands::experiments
