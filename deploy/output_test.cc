#include "deploy/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace islands::deploy {
namespace {

TEST(ParseBytes, Units) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("7B"), 7u);
  EXPECT_EQ(*ParseBytes("3KiB"), 3072u);
  EXPECT_EQ(*ParseBytes("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseBytes("12GiB"), uint64_t{12} << 30);
  EXPECT_EQ(*ParseBytes("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseBytes("18446744073709551615"), UINT64_MAX);
}

TEST(ParseBytes, Refused) {
  for (const char* text : {"", "GiB", "12GB", "12 GiB", "1.5GiB", "-1", "+1", "12gib", "18446744073709551616",
                           "16777216TiB", "1e9", "0x10"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(FormatBytes, WholeAndBroken) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(1023), "1023B");
  EXPECT_EQ(FormatBytes(4096), "4KiB");
  EXPECT_EQ(FormatBytes(64u << 20), "64MiB");
  EXPECT_EQ(FormatBytes((uint64_t{3} << 30) / 2), "1.5GiB");
  EXPECT_EQ(FormatBytes(uint64_t{12} << 30), "12GiB");
  EXPECT_EQ(FormatBytes((uint64_t{500} << 20) + 1), "500MiB");
}

TEST(TextTable, AlignsAndTrims) {
  TextTable table;
  table.AddColumn("id", TextTable::Align::kRight);
  table.AddColumn("name");
  table.AddColumn("x", TextTable::Align::kRight);
  table.AddRow({"7", "böe", "100"});
  table.AddRow({"12", "longer", ""});
  EXPECT_EQ(table.Render(),
            "id  name      x\n"
            " 7  böe     100\n"
            "12  longer\n");
}

TEST(Nearest, SlipsOfTheFingers) {
  const std::vector<std::string> words = {"placement", "cores", "layout", "up", "data"};
  EXPECT_EQ(Nearest("placment", words), "placement");
  EXPECT_EQ(Nearest("laoyut", words), "layout");
  EXPECT_EQ(Nearest("core", words), "cores");
  EXPECT_EQ(Nearest("pu", words), "up");
  EXPECT_EQ(Nearest("elephants", words), std::nullopt);
  EXPECT_EQ(Nearest("xyz", words), std::nullopt);
  EXPECT_EQ(Nearest("", words), std::nullopt);
  EXPECT_EQ(Nearest(std::string(1000, 'a'), words), std::nullopt);
}

TEST(ErrorJson, Shape) {
  EXPECT_EQ(ErrorJson("bad", 2).dump(), R"({"error":{"message":"bad","exit_code":2}})");
}

}  // namespace
}  // namespace islands::deploy
