// The encoded keys of the tables that Payment does not know. Those of orders begin like a customer's:
// warehouse, district, number.
//
// Thread safety: plain values.
#pragma once

#include "experiments/payment/payment_keys.h"

namespace islands::experiments {

inline auto OrderKey(uint32_t warehouse, uint32_t district, uint32_t order) {
  return CustomerKey(warehouse, district, order);
}
inline auto LineKey(uint32_t warehouse, uint32_t district, uint32_t order, uint8_t line) {
  return PackedKey<13>().Number(warehouse).Number(district).Number(order).Byte(line);
}
inline auto StockKey(uint32_t warehouse, uint32_t item) { return DistrictKey(warehouse, item); }
inline auto ItemKey(uint32_t item) { return WarehouseKey(item); }

// The component of a key at this place, of those before which all are 32 bits wide.
inline uint32_t ComponentOf(partitioner::KeyView key, size_t place) {
  uint32_t number = 0;
  std::memcpy(&number, key.data() + place * sizeof(number), sizeof(number));
  return __builtin_bswap32(number);
}

}  // namespace islands::experiments
