#include "partitioner/key_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace islands::partitioner {
namespace {

using testing::HasSubstr;

constexpr KeyType kAllTypes[] = {KeyType::kUint8,  KeyType::kUint16, KeyType::kUint32,
                                 KeyType::kUint64, KeyType::kInt8,   KeyType::kInt16,
                                 KeyType::kInt32,  KeyType::kInt64,  KeyType::kString};

KeyView View(const std::string& key) { return std::as_bytes(std::span(key)); }

std::string Encode(const KeySchema& schema, const std::vector<KeyComponent>& components) {
  absl::StatusOr<std::string> key = EncodeKey(schema, components);
  EXPECT_TRUE(key.ok()) << key.status();
  return key.value_or("");
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Values close to each other and to the edges, where a wrong order would show.
KeyComponent RandomComponent(KeyType type, std::mt19937_64& random) {
  if (type == KeyType::kString) {
    static constexpr char kAlphabet[] = {'\x00', '\x01', '\x02', 'a', 'b', '\xfe', '\xff'};
    std::string text(random() % 5, '\0');
    for (char& c : text) c = kAlphabet[random() % sizeof(kAlphabet)];
    return text;
  }
  const size_t unused_bits = 64 - 8 * KeyTypeBytes(type);
  uint64_t raw = random();
  if (random() % 2 == 0) raw = uint64_t{0} + random() % 5 - 2;                          // around 0
  if (random() % 4 == 0) raw = (uint64_t{1} << (63 - unused_bits)) + random() % 5 - 2;  // around the sign bit
  raw <<= unused_bits;
  if (type >= KeyType::kInt8) return static_cast<int64_t>(raw) >> unused_bits;
  return raw >> unused_bits;
}

TEST(KeyCodec, TypeNames_RoundTrip) {
  for (const KeyType type : kAllTypes) {
    absl::StatusOr<KeyType> parsed = ParseKeyType(KeyTypeName(type));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, type);
  }
  EXPECT_EQ(KeyTypeBytes(KeyType::kUint8), 1u);
  EXPECT_EQ(KeyTypeBytes(KeyType::kInt16), 2u);
  EXPECT_EQ(KeyTypeBytes(KeyType::kUint32), 4u);
  EXPECT_EQ(KeyTypeBytes(KeyType::kInt64), 8u);
  EXPECT_EQ(KeyTypeBytes(KeyType::kString), 0u);
}

TEST(KeyCodec, ParseKeyType_UnknownNamesTheAllowedOnes) {
  const absl::Status status = ParseKeyType("float").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("'float'"));
  EXPECT_THAT(Message(status), HasSubstr("uint8, uint16, uint32, uint64, int8, int16, int32, int64, string"));
  EXPECT_FALSE(ParseKeyType("").ok());
  EXPECT_FALSE(ParseKeyType("Uint64").ok());
}

// The bytes are on disk and on the wire: they may not change.
TEST(KeyCodec, EncodeKey_ExactBytes) {
  using std::string;
  EXPECT_EQ(Encode({KeyType::kUint8}, {uint64_t{0xfe}}), string("\xfe", 1));
  EXPECT_EQ(Encode({KeyType::kUint32}, {uint64_t{0x01020304}}), string("\x01\x02\x03\x04", 4));
  EXPECT_EQ(Encode({KeyType::kUint64}, {uint64_t{1}}), string("\0\0\0\0\0\0\0\1", 8));
  EXPECT_EQ(Encode({KeyType::kInt16}, {int64_t{-1}}), string("\x7f\xff", 2));
  EXPECT_EQ(Encode({KeyType::kInt64}, {int64_t{0}}), string("\x80\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(Encode({KeyType::kInt64}, {std::numeric_limits<int64_t>::min()}), string(8, '\0'));
  EXPECT_EQ(Encode({KeyType::kString}, {string("a\0b", 3)}), string("a\0\xff"
                                                                    "b\0\1",
                                                                    6));
  EXPECT_EQ(Encode({KeyType::kString}, {string()}), string("\0\1", 2));
}

TEST(KeyCodec, EncodeKey_HeaderExampleOrder) {
  const KeySchema schema = {KeyType::kString};
  const std::string a = Encode(schema, {std::string("a")});
  const std::string a_zero = Encode(schema, {std::string("a\0", 2)});
  const std::string ab = Encode(schema, {std::string("ab")});
  EXPECT_LT(a, a_zero);
  EXPECT_LT(a_zero, ab);
}

TEST(KeyCodec, Uint64Key_SameAsEncodeKey) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{239999}, ~uint64_t{0}, uint64_t{0x0102030405060708}}) {
    const KeyView key = Uint64Key(value);
    const Uint64Key kept(value);
    EXPECT_EQ(key.size(), 8u);
    const std::string encoded = Encode({KeyType::kUint64}, {value});
    EXPECT_TRUE(std::ranges::equal(KeyView(kept), View(encoded)));
  }
}

TEST(KeyCodec, Property_OrderAndRoundTrip) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100000; ++round) {
    KeySchema schema(1 + random() % 3);
    for (KeyType& type : schema) type = kAllTypes[random() % std::size(kAllTypes)];
    std::vector<KeyComponent> a, b;
    for (const KeyType type : schema) {
      a.push_back(RandomComponent(type, random));
      b.push_back(random() % 3 == 0 ? a.back() : RandomComponent(type, random));
    }
    const std::string key_a = Encode(schema, a);
    const std::string key_b = Encode(schema, b);
    ASSERT_EQ(key_a < key_b, a < b) << "round " << round;
    ASSERT_EQ(key_a == key_b, a == b) << "round " << round;
    ASSERT_EQ(key_b.starts_with(key_a), key_a == key_b) << "round " << round;
    absl::StatusOr<std::vector<KeyComponent>> decoded = DecodeKey(schema, View(key_a));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(*decoded, a) << "round " << round;
  }
}

TEST(KeyCodec, DecodeKey_EveryCutAndExtensionIsAnError) {
  const KeySchema schema = {KeyType::kInt32, KeyType::kString, KeyType::kUint16};
  const std::string key = Encode(schema, {int64_t{-5}, std::string("x\0y", 3), uint64_t{7}});
  for (size_t length = 0; length < key.size(); ++length) {
    EXPECT_FALSE(DecodeKey(schema, View(key.substr(0, length))).ok()) << length;
    EXPECT_FALSE(FirstComponent(schema, View(key.substr(0, length))).ok()) << length;
  }
  const absl::Status longer = DecodeKey(schema, View(key + "z")).status();
  EXPECT_THAT(Message(longer), HasSubstr("1 bytes after its last component"));
  EXPECT_FALSE(FirstComponent(schema, View(key + "z")).ok());
}

TEST(KeyCodec, DecodeKey_BadEscape) {
  EXPECT_FALSE(DecodeKey({KeyType::kString}, View(std::string("a\0\x02", 3))).ok());
  EXPECT_FALSE(DecodeKey({KeyType::kString}, View(std::string("a\0\0\1", 4))).ok());
  EXPECT_FALSE(DecodeKey({KeyType::kString}, View(std::string("a\0", 2))).ok());
}

TEST(KeyCodec, EncodeKey_RejectsWrongValues) {
  EXPECT_FALSE(EncodeKey({KeyType::kUint8}, {}).ok());
  const auto status_of = [](KeyType type, KeyComponent component) {
    return EncodeKey({type}, std::span(&component, 1)).status();
  };
  EXPECT_THAT(Message(status_of(KeyType::kUint8, uint64_t{256})), HasSubstr("256 does not fit uint8"));
  EXPECT_THAT(Message(status_of(KeyType::kInt8, int64_t{-129})), HasSubstr("-129 does not fit int8"));
  EXPECT_FALSE(status_of(KeyType::kInt8, int64_t{128}).ok());
  EXPECT_TRUE(status_of(KeyType::kInt8, int64_t{-128}).ok());
  EXPECT_THAT(Message(status_of(KeyType::kUint8, int64_t{1})), HasSubstr("not a uint8"));
  EXPECT_FALSE(status_of(KeyType::kInt64, uint64_t{1}).ok());
  EXPECT_FALSE(status_of(KeyType::kString, uint64_t{1}).ok());
  EXPECT_FALSE(status_of(KeyType::kUint64, std::string("1")).ok());
}

TEST(KeyCodec, EncodeKey_LengthLimit) {
  const KeySchema schema = {KeyType::kString};
  const std::string longest = Encode(schema, {std::string(kMaxKeyBytes - 2, 'x')});
  EXPECT_EQ(longest.size(), kMaxKeyBytes);
  EXPECT_TRUE(DecodeKey(schema, View(longest)).ok());
  const KeyComponent too_long = std::string(kMaxKeyBytes - 1, 'x');
  EXPECT_THAT(Message(EncodeKey(schema, std::span(&too_long, 1)).status()), HasSubstr("at most 256"));
  EXPECT_FALSE(DecodeKey(schema, View(std::string(kMaxKeyBytes - 1, 'x') + std::string("\0\1", 2))).ok());
}

TEST(KeyCodec, FirstComponent_EveryIntegerType) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20000; ++round) {
    const KeyType type = kAllTypes[random() % 8];
    const KeySchema schema = {type, KeyType::kString};
    const KeyComponent first = RandomComponent(type, random);
    const std::string key = Encode(schema, {first, RandomComponent(KeyType::kString, random)});
    const absl::StatusOr<int64_t> value = FirstComponent(schema, View(key));
    const bool fits = !std::holds_alternative<uint64_t>(first) || std::get<uint64_t>(first) >> 63 == 0;
    ASSERT_EQ(value.ok(), fits);
    if (!fits) continue;
    ASSERT_EQ(*value, first.index() == 0 ? static_cast<int64_t>(std::get<0>(first)) : std::get<1>(first));
  }
}

TEST(KeyCodec, IntegerKey_AgreesWithFirstComponent) {
  std::mt19937_64 random(3);
  size_t found = 0;
  for (int round = 0; round < 50000; ++round) {
    KeySchema schema;
    std::vector<KeyComponent> components;
    for (uint64_t left = 1 + random() % 4; left > 0; --left) {
      schema.push_back(kAllTypes[random() % 40 == 0 ? 8 : random() % 8]);
      components.push_back(RandomComponent(schema.back(), random));
    }
    std::string key = Encode(schema, components);
    if (random() % 8 == 0) key.resize(random() % (key.size() + 4));
    const std::optional<int64_t> at_once = IntegerKey(schema).First(View(key));
    const absl::StatusOr<int64_t> value = FirstComponent(schema, View(key));
    const bool integers = std::count(schema.begin(), schema.end(), KeyType::kString) == 0;
    ASSERT_EQ(at_once.has_value(), value.ok() && integers && key.size() >= 4) << "round " << round;
    if (!at_once) continue;
    ASSERT_EQ(*at_once, *value) << "round " << round;
    ++found;
  }
  EXPECT_GT(found, 20000u);
  EXPECT_FALSE(IntegerKey().First({}).has_value());
}

TEST(KeyCodec, FirstComponent_MustBeAnInteger) {
  EXPECT_FALSE(FirstComponent({}, {}).ok());
  EXPECT_FALSE(FirstComponent({KeyType::kString}, View(std::string("\0\1", 2))).ok());
  const absl::Status large = FirstComponent({KeyType::kUint64}, Uint64Key(uint64_t{1} << 63)).status();
  EXPECT_THAT(Message(large), HasSubstr("9223372036854775808 is above 9223372036854775807"));
}

TEST(KeyCodec, KeyToString_DecodedOrHex) {
  const KeySchema schema = {KeyType::kUint32, KeyType::kInt8, KeyType::kString};
  EXPECT_EQ(KeyToString(schema, View(Encode(schema, {uint64_t{7}, int64_t{-2}, std::string("alice")}))),
            "7/-2/alice");
  EXPECT_EQ(KeyToString(schema, View(Encode(schema, {uint64_t{7}, int64_t{0}, std::string("a\0", 2)}))),
            "7/0/a\\x00");
  EXPECT_EQ(KeyToString(schema, View(std::string("\x01\xff", 2))), "0x01ff");
  EXPECT_EQ(KeyToString(schema, {}), "0x");
}

}  // namespace
}  // namespace islands::partitioner
