// How TATP's rows and keys lie in the tables, for the workload and its tests.
//
//   subscriber        [uint64 s_id]                                   100 bytes, index by_number on sub_nbr
//   access_info       [uint64 s_id, uint8 ai_type]                     10 bytes
//   special_facility  [uint64 s_id, uint8 sf_type]                     16 bytes
//   call_forwarding   [uint64 s_id, uint8 sf_type, uint8 start_time]   16 bytes
//
// A row of `subscriber` is filled up to 100 bytes. `changes` is no column of TATP: it is what the audited sum
// is made of (tatp.h).
//
// Thread safety: plain values and pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "instance/workload/operation.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {

static_assert(std::endian::native == std::endian::little, "rows are read as they lie");

inline constexpr size_t kTatpDigits = 15;
using TatpNumber = std::array<char, kTatpDigits>;  // a phone number

struct [[gnu::packed]] SubscriberRow {
  TatpNumber sub_nbr;
  char unused;
  int64_t changes;
  uint32_t vlr_location;  // UpdateLocation writes it together with `changes`
  uint32_t msc_location;
  std::array<uint8_t, 10> bit;    // 0 or 1; bit_1 is bit[0]
  std::array<uint8_t, 10> hex;    // 0..15
  std::array<uint8_t, 10> byte2;  // 0..255
  std::array<char, 38> filler;
};
static_assert(sizeof(SubscriberRow) == 100);
static_assert(offsetof(SubscriberRow, vlr_location) == offsetof(SubscriberRow, changes) + sizeof(int64_t));

struct [[gnu::packed]] AccessInfoRow {
  uint8_t data1;
  uint8_t data2;
  std::array<char, 3> data3;
  std::array<char, 5> data4;
};
static_assert(sizeof(AccessInfoRow) == 10);

struct [[gnu::packed]] SpecialFacilityRow {
  int64_t changes;
  uint8_t is_active;
  uint8_t error_cntrl;
  uint8_t data_a;
  std::array<char, 5> data_b;
};
static_assert(sizeof(SpecialFacilityRow) == 16);

struct [[gnu::packed]] CallForwardingRow {
  uint8_t end_time;
  TatpNumber numberx;
};
static_assert(sizeof(CallForwardingRow) == 16);

// Rows have their table's row_bytes; a shorter one leaves the rest zero.
template <typename Row>
Row RowOf(instance::RowView bytes) {
  Row row{};
  std::memcpy(&row, bytes.data(), std::min(sizeof(row), bytes.size()));
  return row;
}

template <typename Row>
instance::RowView BytesOf(const Row& row) {
  return std::as_bytes(std::span(&row, 1));
}

// A key of one to three components, without allocation.
class TatpKey {
 public:
  explicit TatpKey(uint64_t s_id) : size_(sizeof(s_id)) {
    const partitioner::Uint64Key encoded(s_id);
    std::memcpy(bytes_.data(), encoded.bytes, sizeof(encoded.bytes));
  }
  TatpKey(uint64_t s_id, uint8_t type) : TatpKey(s_id) { Append(type); }
  TatpKey(uint64_t s_id, uint8_t type, uint8_t start_time) : TatpKey(s_id, type) { Append(start_time); }

  operator instance::KeyView() const { return {bytes_.data(), size_}; }  // NOLINT: a key is its bytes

 private:
  void Append(uint8_t component) { bytes_[size_++] = std::byte{component}; }

  std::array<std::byte, sizeof(uint64_t) + 2> bytes_;
  size_t size_;
};

// The first component of a key of any of the four tables.
inline uint64_t SubscriberOfKey(instance::KeyView key) {
  uint64_t s_id = 0;
  std::memcpy(&s_id, key.data(), std::min(sizeof(s_id), key.size()));
  return __builtin_bswap64(s_id);
}

// The subscriber's number: s_id with leading zeros. So whoever knows the number also knows s_id, and with it
// the site whose index has to be asked.
inline TatpNumber NumberOf(uint64_t s_id) {
  TatpNumber number;
  for (size_t i = number.size(); i-- > 0; s_id /= 10) number[i] = static_cast<char>('0' + s_id % 10);
  return number;
}
inline uint64_t SubscriberOfNumber(const TatpNumber& number) {
  uint64_t s_id = 0;
  for (char digit : number) s_id = 10 * s_id + static_cast<uint64_t>(digit - '0');
  return s_id;
}

// The entries of index by_number whose number this is: from Begin() up to End(). Encoded as key_codec.h says;
// digits need no escape.
class NumberRange {
 public:
  explicit NumberRange(const TatpNumber& number) {
    std::memcpy(begin_.data(), number.data(), number.size());
    begin_[kTatpDigits] = std::byte{0};
    begin_[kTatpDigits + 1] = std::byte{1};
    end_ = begin_;
    end_[kTatpDigits + 1] = std::byte{2};
  }
  instance::KeyView Begin() const { return begin_; }
  instance::KeyView End() const { return end_; }

 private:
  std::array<std::byte, kTatpDigits + 2> begin_;
  std::array<std::byte, kTatpDigits + 2> end_;
};

}  // namespace islands::experiments
