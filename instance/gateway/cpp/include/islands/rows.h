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

#include <concepts>
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

// What a field holds: a whole number, a double or bytes.
class Value {
 public:
  template <typename T>
    requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>)
  Value(T number)  // NOLINT: 7 is a value
      : kind_(number < T{} ? Kind::kNegative : Kind::kNumber), number_(static_cast<uint64_t>(number)) {}
  Value(double number) : kind_(Kind::kDouble), double_(number) {}              // NOLINT
  Value(std::string bytes) : kind_(Kind::kBytes), bytes_(std::move(bytes)) {}  // NOLINT
  Value(std::string_view bytes) : Value(std::string(bytes)) {}                 // NOLINT
  Value(const char* bytes) : Value(std::string(bytes)) {}                      // NOLINT

  bool is_integer() const { return kind_ == Kind::kNegative || kind_ == Kind::kNumber; }
  bool is_negative() const { return kind_ == Kind::kNegative; }
  bool is_double() const { return kind_ == Kind::kDouble; }
  bool is_bytes() const { return kind_ == Kind::kBytes; }
  // Of whole numbers, as the field's type has it here; otherwise 0.
  uint64_t as_uint64() const { return number_; }
  int64_t as_int64() const { return static_cast<int64_t>(number_); }
  // Of any number; otherwise 0.
  double as_double() const {
    return is_double()     ? double_
           : is_negative() ? static_cast<double>(as_int64())
                           : static_cast<double>(number_);
  }
  const std::string& bytes() const { return bytes_; }  // of a string or bytes; otherwise empty

  friend bool operator==(const Value&, const Value&) = default;

 private:
  enum class Kind : uint8_t { kNegative, kNumber, kDouble, kBytes };

  Kind kind_;
  uint64_t number_ = 0;
  double double_ = 0;
  std::string bytes_;
};

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
