// Keys as byte strings whose memcmp order is the order of their typed components.
//
//   uint8..uint64   big endian
//   int8..int64     big endian with the sign bit flipped
//   string          bytes with 0x00 -> 0x00 0xff, ended by 0x00 0x01, so that "a" < "a\0" < "ab" and no
//                   string's encoding is a prefix of another's
//
// Thread safety: pure functions and immutable objects.
//
// Invariants:
//  1. Encode(a) < Encode(b) bytewise exactly when a < b component by component.
//  2. Decode(Encode(a)) == a; Decode of any other bytes is an error, never a crash.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::partitioner {

using KeyView = std::span<const std::byte>;

inline constexpr size_t kMaxKeyBytes = 256;  // encoded

enum class KeyType : uint8_t { kUint8, kUint16, kUint32, kUint64, kInt8, kInt16, kInt32, kInt64, kString };

// "uint64" -> kUint64. Error names the allowed types.
absl::StatusOr<KeyType> ParseKeyType(std::string_view name);
std::string_view KeyTypeName(KeyType type);
// Encoded width of an integer type; 0 for strings.
size_t KeyTypeBytes(KeyType type);
bool IsSigned(KeyType type);

using KeySchema = std::vector<KeyType>;
using KeyComponent = std::variant<uint64_t, int64_t, std::string>;

// Appends one encoded component. The caller keeps to the schema's types.
void AppendUnsigned(KeyType type, uint64_t value, std::string* key);
void AppendSigned(KeyType type, int64_t value, std::string* key);
void AppendString(std::string_view value, std::string* key);

absl::StatusOr<std::string> EncodeKey(const KeySchema& schema, std::span<const KeyComponent> components);
absl::StatusOr<std::vector<KeyComponent>> DecodeKey(const KeySchema& schema, KeyView key);

// The partitioning value: the first component, an integer, as int64 (uint64 values above INT64_MAX are an
// error). The rest of the key is checked as DecodeKey does, but nothing is allocated.
absl::StatusOr<int64_t> FirstComponent(const KeySchema& schema, KeyView key);

// Of integer types, where the compiler is to see them.
constexpr size_t IntegerBytes(KeyType type) { return size_t{1} << (static_cast<uint8_t>(type) & 3); }
constexpr bool IsSignedInteger(KeyType type) { return (static_cast<uint8_t>(type) & 4) != 0; }
static_assert(IntegerBytes(KeyType::kUint8) == 1 && IntegerBytes(KeyType::kUint64) == 8 &&
              IntegerBytes(KeyType::kInt8) == 1 && IntegerBytes(KeyType::kInt64) == 8);
static_assert(!IsSignedInteger(KeyType::kUint64) && IsSignedInteger(KeyType::kInt8));

// FirstComponent of the commonest keys, integers only and four bytes or more, as a few instructions.
class IntegerKey {
 public:
  IntegerKey() = default;  // First is always empty, as it is of keys with strings and of shorter ones
  explicit IntegerKey(const KeySchema& schema) {
    size_t bytes = 0;
    for (const KeyType type : schema) {
      if (type == KeyType::kString) return;
      bytes += IntegerBytes(type);
    }
    if (bytes < sizeof(uint32_t)) return;
    key_bytes_ = bytes;
    below_ = static_cast<uint8_t>(64 - 8 * IntegerBytes(schema[0]));
    flipped_ = IsSignedInteger(schema[0]) ? kSignBit : 0;
  }

  // Empty: ask FirstComponent.
  std::optional<int64_t> First(KeyView key) const {
    if (key.size() != key_bytes_) return {};
    uint64_t value = 0;
    if (key_bytes_ >= sizeof(value)) {
      std::memcpy(&value, key.data(), sizeof(value));
    } else {
      std::memcpy(&value, key.data(), sizeof(uint32_t));
    }
    value = __builtin_bswap64(value) ^ flipped_;  // the first component on top
    if (flipped_ != 0) return static_cast<int64_t>(value) >> below_;
    value >>= below_;
    if ((value & kSignBit) != 0) return {};
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kSignBit = uint64_t{1} << 63;

  size_t key_bytes_ = ~size_t{0};
  uint64_t flipped_ = 0;  // the sign bit, of a signed component
  uint8_t below_ = 0;     // bits, of the first eight bytes
};

// The common single-uint64 key without allocation.
struct Uint64Key {
  std::byte bytes[8];
  explicit Uint64Key(uint64_t value) {
    static_assert(std::endian::native == std::endian::little);
    value = __builtin_bswap64(value);
    std::memcpy(bytes, &value, sizeof(bytes));
  }
  operator KeyView() const { return KeyView(bytes, 8); }  // NOLINT: a key is its bytes
};

// "7/alice" for messages; hex when it does not decode.
std::string KeyToString(const KeySchema& schema, KeyView key);

}  // namespace islands::partitioner
