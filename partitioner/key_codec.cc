#include "partitioner/key_codec.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"

namespace islands::partitioner {
namespace {

constexpr std::array<std::string_view, 9> kTypeNames = {"uint8", "uint16", "uint32", "uint64", "int8",
                                                        "int16", "int32",  "int64",  "string"};
static_assert(static_cast<size_t>(KeyType::kString) + 1 == kTypeNames.size());

constexpr char kEscape = '\x00';
constexpr char kEscapedZero = '\xff';
constexpr char kTerminator = '\x01';

bool Fits(KeyType type, uint64_t value) {
  const int bits = 8 * static_cast<int>(KeyTypeBytes(type));
  return bits == 64 || value >> bits == 0;
}

bool Fits(KeyType type, int64_t value) {
  const int bits = 8 * static_cast<int>(KeyTypeBytes(type));
  return value >> (bits - 1) == 0 || value >> (bits - 1) == -1;
}

void AppendBigEndian(uint64_t value, size_t bytes, std::string* key) {
  for (size_t i = bytes; i-- > 0;) key->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t SignBit(size_t bytes) { return uint64_t{1} << (8 * bytes - 1); }

// Walks a key; every Read consumes one component and is empty when the bytes are not that component.
class Reader {
 public:
  explicit Reader(KeyView key) : rest_(key) {}

  bool at_end() const { return rest_.empty(); }
  size_t remaining() const { return rest_.size(); }

  std::optional<uint64_t> ReadUnsigned(size_t bytes) {
    if (rest_.size() < bytes) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<uint64_t>(rest_[i]);
    rest_ = rest_.subspan(bytes);
    return value;
  }

  std::optional<int64_t> ReadSigned(size_t bytes) {
    const std::optional<uint64_t> flipped = ReadUnsigned(bytes);
    if (!flipped) return std::nullopt;
    const size_t unused_bits = 64 - 8 * bytes;
    return static_cast<int64_t>((*flipped ^ SignBit(bytes)) << unused_bits) >> unused_bits;
  }

  // `out` may be null to skip the string.
  bool ReadString(std::string* out) {
    for (size_t i = 0; i < rest_.size(); ++i) {
      char c = static_cast<char>(rest_[i]);
      if (c == kEscape) {
        if (++i == rest_.size()) return false;
        const char next = static_cast<char>(rest_[i]);
        if (next == kTerminator) {
          rest_ = rest_.subspan(i + 1);
          return true;
        }
        if (next != kEscapedZero) return false;
      }
      if (out != nullptr) out->push_back(c);
    }
    return false;
  }

 private:
  KeyView rest_;
};

absl::Status Undecodable(size_t component, KeyType type, KeyView key) {
  return absl::InvalidArgumentError(
      fmt::format("key of {} bytes: component {} is not a {}", key.size(), component + 1, KeyTypeName(type)));
}

absl::Status CheckLength(size_t bytes) {
  if (bytes <= kMaxKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("key is {} bytes when encoded; at most {} are allowed", bytes, kMaxKeyBytes));
}

absl::Status TrailingBytes(size_t count, KeyView key) {
  return absl::InvalidArgumentError(
      fmt::format("key of {} bytes has {} bytes after its last component", key.size(), count));
}

template <typename Integer>
absl::Status DoesNotFit(size_t component, KeyType type, Integer value) {
  return absl::InvalidArgumentError(
      fmt::format("key component {}: {} does not fit {}", component + 1, value, KeyTypeName(type)));
}

absl::Status WrongKind(size_t component, KeyType type) {
  return absl::InvalidArgumentError(
      fmt::format("key component {}: the value given is not a {}", component + 1, KeyTypeName(type)));
}

absl::Status AppendComponent(size_t i, KeyType type, const KeyComponent& component, std::string* key) {
  if (type == KeyType::kString) {
    const auto* text = std::get_if<std::string>(&component);
    if (text == nullptr) return WrongKind(i, type);
    AppendString(*text, key);
  } else if (IsSigned(type)) {
    const auto* value = std::get_if<int64_t>(&component);
    if (value == nullptr) return WrongKind(i, type);
    if (!Fits(type, *value)) return DoesNotFit(i, type, *value);
    AppendSigned(type, *value, key);
  } else {
    const auto* value = std::get_if<uint64_t>(&component);
    if (value == nullptr) return WrongKind(i, type);
    if (!Fits(type, *value)) return DoesNotFit(i, type, *value);
    AppendUnsigned(type, *value, key);
  }
  return absl::OkStatus();
}

bool ReadComponent(KeyType type, Reader* reader, KeyComponent* component) {
  if (type == KeyType::kString) return reader->ReadString(&component->emplace<std::string>());
  if (IsSigned(type)) {
    const std::optional<int64_t> value = reader->ReadSigned(KeyTypeBytes(type));
    if (value) *component = *value;
    return value.has_value();
  }
  const std::optional<uint64_t> value = reader->ReadUnsigned(KeyTypeBytes(type));
  if (value) *component = *value;
  return value.has_value();
}

bool SkipComponent(KeyType type, Reader* reader) {
  if (type == KeyType::kString) return reader->ReadString(nullptr);
  return reader->ReadUnsigned(KeyTypeBytes(type)).has_value();
}

absl::StatusOr<int64_t> ReadFirst(KeyType type, KeyView key, Reader* reader) {
  if (IsSigned(type)) {
    const std::optional<int64_t> value = reader->ReadSigned(KeyTypeBytes(type));
    if (!value) return Undecodable(0, type, key);
    return *value;
  }
  const std::optional<uint64_t> value = reader->ReadUnsigned(KeyTypeBytes(type));
  if (!value) return Undecodable(0, type, key);
  if (*value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(
        fmt::format("key component 1: {} is above {}, the largest value data can "
                    "be partitioned by",
                    *value, std::numeric_limits<int64_t>::max()));
  }
  return static_cast<int64_t>(*value);
}

}  // namespace

absl::StatusOr<KeyType> ParseKeyType(std::string_view name) {
  std::string allowed;
  for (size_t i = 0; i < kTypeNames.size(); ++i) {
    if (kTypeNames[i] == name) return static_cast<KeyType>(i);
    allowed += fmt::format("{}{}", i == 0 ? "" : ", ", kTypeNames[i]);
  }
  return absl::InvalidArgumentError(fmt::format("unknown key type '{}'; expected one of {}", name, allowed));
}

std::string_view KeyTypeName(KeyType type) { return kTypeNames[static_cast<size_t>(type)]; }

size_t KeyTypeBytes(KeyType type) { return type == KeyType::kString ? 0 : IntegerBytes(type); }

bool IsSigned(KeyType type) { return type != KeyType::kString && IsSignedInteger(type); }

void AppendUnsigned(KeyType type, uint64_t value, std::string* key) {
  assert(type != KeyType::kString && !IsSigned(type) && Fits(type, value));
  AppendBigEndian(value, KeyTypeBytes(type), key);
}

void AppendSigned(KeyType type, int64_t value, std::string* key) {
  assert(IsSigned(type) && Fits(type, value));
  const size_t bytes = KeyTypeBytes(type);
  AppendBigEndian(static_cast<uint64_t>(value) ^ SignBit(bytes), bytes, key);
}

void AppendString(std::string_view value, std::string* key) {
  for (const char c : value) {
    key->push_back(c);
    if (c == kEscape) key->push_back(kEscapedZero);
  }
  key->push_back(kEscape);
  key->push_back(kTerminator);
}

absl::StatusOr<std::string> EncodeKey(const KeySchema& schema, std::span<const KeyComponent> components) {
  if (schema.size() != components.size()) {
    return absl::InvalidArgumentError(
        fmt::format("key has {} components, its table expects {}", components.size(), schema.size()));
  }
  std::string key;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (absl::Status status = AppendComponent(i, schema[i], components[i], &key); !status.ok()) return status;
  }
  if (absl::Status status = CheckLength(key.size()); !status.ok()) return status;
  return key;
}

absl::StatusOr<std::vector<KeyComponent>> DecodeKey(const KeySchema& schema, KeyView key) {
  if (absl::Status status = CheckLength(key.size()); !status.ok()) return status;
  std::vector<KeyComponent> components(schema.size());
  Reader reader(key);
  for (size_t i = 0; i < schema.size(); ++i) {
    if (!ReadComponent(schema[i], &reader, &components[i])) return Undecodable(i, schema[i], key);
  }
  if (!reader.at_end()) return TrailingBytes(reader.remaining(), key);
  return components;
}

absl::StatusOr<int64_t> FirstComponent(const KeySchema& schema, KeyView key) {
  if (schema.empty() || schema[0] == KeyType::kString) {
    return absl::InvalidArgumentError(
        "data is partitioned by the first key component, which must be an integer");
  }
  if (absl::Status status = CheckLength(key.size()); !status.ok()) return status;
  Reader reader(key);
  const absl::StatusOr<int64_t> first = ReadFirst(schema[0], key, &reader);
  if (!first.ok()) return first;
  for (size_t i = 1; i < schema.size(); ++i) {
    if (!SkipComponent(schema[i], &reader)) return Undecodable(i, schema[i], key);
  }
  if (!reader.at_end()) return TrailingBytes(reader.remaining(), key);
  return first;
}

std::string KeyToString(const KeySchema& schema, KeyView key) {
  const absl::StatusOr<std::vector<KeyComponent>> components = DecodeKey(schema, key);
  std::string text;
  if (!components.ok()) {
    for (const std::byte b : key) text += fmt::format("{:02x}", std::to_integer<int>(b));
    return "0x" + text;
  }
  for (const KeyComponent& component : *components) {
    if (&component != components->data()) text += '/';
    if (const auto* value = std::get_if<std::string>(&component)) {
      text += absl::CHexEscape(*value);
    } else if (const auto* value = std::get_if<int64_t>(&component)) {
      text += fmt::format("{}", *value);
    } else {
      text += fmt::format("{}", std::get<uint64_t>(component));
    }
  }
  return text;
}

}  // namespace islands::partitioner
