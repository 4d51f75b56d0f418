#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/machine.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) { return std::string(ParseCpuList(text).status().message()); }

TEST(CpuList, Parse_RangesAndNumbers) {
  EXPECT_THAT(*ParseCpuList("0-2,7"), ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList(" 3 - 4 , 1\n"), ElementsAre(1, 3, 4));
  EXPECT_THAT(*ParseCpuList("4-4"), ElementsAre(4));
  EXPECT_EQ(ParseCpuList("0-65535")->size(), 65536);
}

TEST(CpuList, Parse_ErrorNamesTheOffendingPart) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("  "), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("0,,2"), HasSubstr("comma at character 3"));
  EXPECT_THAT(ErrorOf("0,"), HasSubstr("comma"));
  EXPECT_THAT(ErrorOf("0-3,x7"), HasSubstr("'x7'"));
  EXPECT_THAT(ErrorOf("0-3,5-"), HasSubstr("'5-'"));
  EXPECT_THAT(ErrorOf("-1"), HasSubstr("'-1'"));
  EXPECT_THAT(ErrorOf("1-2-3"), HasSubstr("'1-2-3'"));
  EXPECT_THAT(ErrorOf("9-2"), HasSubstr("backwards"));
  EXPECT_THAT(ErrorOf("0-65536"), HasSubstr("up to 65535"));
  EXPECT_THAT(ErrorOf("99999999999"), HasSubstr("up to 65535"));
  EXPECT_THAT(ErrorOf("0-65535,0-65535"), HasSubstr("more than"));
  EXPECT_THAT(ErrorOf("0-3,2"), HasSubstr("CPU 2 is named twice"));
  EXPECT_THAT(ErrorOf("0x3"), HasSubstr("'0x3'"));
}

TEST(CpuList, Format_JoinsNeighbours) {
  EXPECT_EQ(FormatCpuList({}), "");
  EXPECT_EQ(FormatCpuList({7, 0, 2, 1, 2}), "0-2,7");
  EXPECT_EQ(FormatCpuList({4}), "4");
  EXPECT_EQ(FormatCpuList({0, 2, 4, 5}), "0,2,4-5");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(250), "250 B");
  EXPECT_EQ(FormatBytes(uint64_t{16} << 30), "16 GiB");
  EXPECT_EQ(FormatBytes((uint64_t{9} << 30) / 2), "4.5 GiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16 EiB");
}

}  // namespace
}  // namespace islands::topology
