// Rows by the names of their fields, as a Table describes them (Table::fields).
//
// A row is its fields one after the other, without gaps: numbers little-endian, zeros after a string that is
// shorter than its field. The gateway does not look at them.
//
//   auto format = islands::RowFormat::Of(table);            // one of Client::Tables(), or as it was created
//   absl::StatusOr<std::string> row = format->Pack({{"owner", "ann"}, {"balance", 100}});
//   absl::StatusOr<islands::Value> balance = format->Get(*row, "balance");     // balance->as_int64()
//   db.Add("accounts", 7, -30, *format->OffsetOf("balance"));
//
// Thread safety: plain values; a RowFormat is constant, and for any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "islands/values.h"

namespace islands {

using Values = std::map<std::string, Value, std::less<>>;  // by the field's name

class RowFormat {
 public:
  // kInvalidArgument if it has no fields, or they make no row.
  static absl::StatusOr<RowFormat> Of(const Table& table);

  // All fields, no others. kInvalidArgument if a value does not fit its field.
  absl::StatusOr<std::string> Pack(const Values& values) const;
  // Changes one field of a packed row.
  absl::Status Set(std::string_view field, const Value& value, std::string* row) const;

  absl::StatusOr<Values> Unpack(std::string_view row) const;
  absl::StatusOr<Value> Get(std::string_view row, std::string_view field) const;

  // Where it begins in the row: for Add, of a field of type int64.
  absl::StatusOr<uint32_t> OffsetOf(std::string_view field) const;
  uint32_t row_bytes() const { return any_length_ ? 0 : least_bytes_; }  // 0 = any length

 private:
  enum class Kind : uint8_t { kSigned, kUnsigned, kDouble, kString, kBytes };
  struct Place {
    std::string name, type;
    Kind kind = Kind::kBytes;
    uint32_t offset = 0;
    uint32_t bytes = 0;  // 0 = all that is left: the last one only
  };

  static absl::StatusOr<Place> Parse(const Field& field);
  absl::StatusOr<const Place*> Find(std::string_view field) const;
  absl::Status CheckLength(std::string_view row) const;
  absl::StatusOr<std::string> Encode(const Place& place, const Value& value) const;
  static Value Decode(const Place& place, std::string_view row);
  absl::Status Wrong(const Place& place, std::string_view expected) const;

  std::string table_;
  std::vector<Place> places_;
  uint32_t least_bytes_ = 0;
  bool any_length_ = false;
};

}  // namespace islands
