#include "islands/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace islands {
namespace {

using testing::HasSubstr;

std::string Said(const absl::Status& status) { return std::string(status.message()); }

Table With(std::vector<Field> fields) { return {.name = "people", .fields = std::move(fields)}; }

RowFormat FormatOf(std::vector<Field> fields) {
  absl::StatusOr<RowFormat> format = RowFormat::Of(With(std::move(fields)));
  EXPECT_TRUE(format.ok()) << format.status();
  return *std::move(format);
}

TEST(RowFormat, Pack_IsLittleEndianWithoutGaps) {
  const RowFormat format = FormatOf({{"a", "int16"},
                                     {"b", "uint32"},
                                     {"c", "double"},
                                     {"d", "string:4"},
                                     {"e", "bytes:2"},
                                     {"f", "string"}});
  const Values values = {
      {"a", -2}, {"b", 0x01020304}, {"c", 1.0}, {"d", "ab"}, {"e", std::string("x\0", 2)}, {"f", "rest"}};
  const absl::StatusOr<std::string> row = format.Pack(values);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(*row, std::string("\xfe\xff\x04\x03\x02\x01\0\0\0\0\0\0\xf0\x3f"
                              "ab\0\0x\0rest",
                              24));
  EXPECT_EQ(*format.Unpack(*row), values);
  EXPECT_EQ(*format.OffsetOf("c"), 6u);
  EXPECT_EQ(format.row_bytes(), 0u);
  EXPECT_EQ(format.Get(*row, "a")->as_int64(), -2);
  EXPECT_EQ(format.Get(*row, "c")->as_double(), 1.0);
  EXPECT_EQ(format.Get(*row, "f")->bytes(), "rest");
}

TEST(RowFormat, EveryInteger_FitsUpToItsLimits) {
  for (const uint32_t bits : {8, 16, 32, 64}) {
    SCOPED_TRACE(bits);
    const RowFormat format =
        FormatOf({{"s", "int" + std::to_string(bits)}, {"u", "uint" + std::to_string(bits)}});
    EXPECT_EQ(format.row_bytes(), bits / 4);
    const int64_t greatest = std::numeric_limits<int64_t>::max() >> (64 - bits);
    const uint64_t most = std::numeric_limits<uint64_t>::max() >> (64 - bits);
    for (const Values& values : {Values{{"s", greatest}, {"u", most}}, Values{{"s", ~greatest}, {"u", 0}}}) {
      const absl::StatusOr<std::string> row = format.Pack(values);
      ASSERT_TRUE(row.ok()) << row.status();
      EXPECT_EQ(*format.Unpack(*row), values);
    }
    EXPECT_FALSE(format.Pack({{"s", static_cast<uint64_t>(greatest) + 1}, {"u", 0}}).ok());
    EXPECT_FALSE(format.Pack({{"s", 0}, {"u", -1}}).ok());
    if (bits == 64) continue;
    EXPECT_FALSE(format.Pack({{"s", ~greatest - 1}, {"u", 0}}).ok());
    EXPECT_FALSE(format.Pack({{"s", 0}, {"u", most + 1}}).ok());
  }
}

TEST(RowFormat, Set_ChangesOneField) {
  const RowFormat format = FormatOf({{"a", "int64"}, {"b", "string"}});
  std::string row = *format.Pack({{"a", 1}, {"b", ""}});
  EXPECT_TRUE(format.Set("b", "longer", &row).ok());
  EXPECT_TRUE(format.Set("a", -7, &row).ok());
  EXPECT_EQ(*format.Unpack(row), (Values{{"a", -7}, {"b", "longer"}}));
  EXPECT_FALSE(format.Set("a", "text", &row).ok());
  EXPECT_FALSE(format.Set("c", 1, &row).ok());
  row = "short";
  EXPECT_FALSE(format.Set("a", 1, &row).ok());
}

TEST(RowFormat, WhatDoesNotFit_IsSaid) {
  const RowFormat format =
      FormatOf({{"age", "uint8"}, {"town", "string:3"}, {"key", "bytes:2"}, {"x", "double"}});
  const auto complaint = [&](const char* name, const Value& value) {
    Values values = {{"age", 1}, {"town", "abc"}, {"key", "ab"}, {"x", 1}};
    values.insert_or_assign(name, value);
    return Said(format.Pack(values).status());
  };
  EXPECT_EQ(complaint("x", 2), "");
  EXPECT_EQ(complaint("age", 300),
            "table 'people', field 'age' (uint8): expected a whole number from 0 to 255");
  EXPECT_THAT(complaint("age", 1.5), HasSubstr("a whole number"));
  EXPECT_THAT(complaint("town", "abcd"), HasSubstr("at most 3 bytes, not 4"));
  EXPECT_THAT(complaint("town", std::string("a\0", 2)), HasSubstr("does not end with a zero"));
  EXPECT_THAT(complaint("town", 5), HasSubstr("expected text"));
  EXPECT_THAT(complaint("key", "a"), HasSubstr("2 bytes, not 1"));
  EXPECT_THAT(complaint("key", 1), HasSubstr("expected bytes"));
  EXPECT_THAT(complaint("x", "a"), HasSubstr("a number"));
  EXPECT_THAT(complaint("y", 1), HasSubstr("found 'y', expected one of age, town, key, x"));
  EXPECT_THAT(Said(format.Pack({}).status()), HasSubstr("expected a value, found none"));
  EXPECT_THAT(Said(format.Unpack("short").status()),
              HasSubstr("a row of 5 bytes, expected 14 by its fields"));
  EXPECT_FALSE(format.Get("short", "age").ok());
  EXPECT_FALSE(format.OffsetOf("y").ok());
}

TEST(RowFormat, FieldsThatMakeNoRow_AreRefused) {
  const auto complaint = [](std::vector<Field> fields) {
    return Said(RowFormat::Of(With(std::move(fields))).status());
  };
  for (const char* type : {"int", "int7", "int128", "uint64 ", "strings", "string:", "string:0", "string:08",
                           "string:-1", "bytes:x", "float", "", "int99999999999999999999"})
    EXPECT_THAT(complaint({{"a", type}}), HasSubstr("field 'a': found the type '")) << type;
  EXPECT_THAT(complaint({{"a", "string"}, {"b", "int8"}}), HasSubstr("others follow"));
  EXPECT_THAT(complaint({{"a", "int8"}, {"a", "int8"}}), HasSubstr("two fields 'a'"));
  EXPECT_THAT(complaint({{"a", "bytes:4294967295"}, {"b", "int8"}}),
              HasSubstr("more bytes than any row has"));
  EXPECT_THAT(complaint({}), HasSubstr("does not say what its rows hold"));
}

}  // namespace
}  // namespace islands
