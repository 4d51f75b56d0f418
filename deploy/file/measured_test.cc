#include "deploy/file/measured.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace islands::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGood = R"({
  "version": 1,
  "cpus": [0, 2, 4, 6],
  "round_trip_ns": [[0, 40, 90, 90], [40, 0, 90, 90], [90, 90, 0, 40], [90, 90, 40, 0]],
  "clusters": [{"cpus": ["0,2", "4,6"], "within_ns": 40, "across_ns": 90, "lone_cpus": ""}],
  "hwloc_xml": "<topology a=\"b\">\n</topology>"
})";

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = kGood;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ParseMeasured, Good) {
  const auto measured = ParseMeasured(kGood, "m.json");
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_THAT(measured->trips.cpus, ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(measured->trips.ns[1][2], 90u);
  ASSERT_EQ(measured->levels.size(), 1u);
  EXPECT_THAT(measured->levels[0].clusters, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(measured->levels[0].across_ns, 90u);
  EXPECT_EQ(measured->hwloc_xml, "<topology a=\"b\">\n</topology>");
}

TEST(ParseMeasured, SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, std::string> kCases[] = {
      {Replaced("\"version\": 1", "\"version\": 2"),
       "m.json:2:14: found '2', expected a whole number from 1 to 1"},
      {Replaced("\"version\": 1,", ""), "m.json:1:1: found no 'version', expected it"},
      {Replaced("\"version\"", "\"verzion\""),
       "m.json:2:3: found unknown key 'verzion', expected 'version'?"},
      {Replaced("[0, 2, 4, 6]", "[0, 2, 2, 6]"), "m.json:3:18: found CPU 2 again, expected every CPU once"},
      {Replaced("[0, 2, 4, 6]", "[]"),
       "m.json:3:11: found an empty list, expected the CPUs that were measured"},
      {Replaced("[0, 2, 4, 6]", "[0, 2, 4, \"6\"]"), "m.json:3:21: found '6', expected a whole number"},
      {Replaced("[0, 40, 90, 90]", "[0, 40, 90]"),
       "m.json:4:21: found a list of 3, expected a list of 4 numbers"},
      {Replaced("[0, 40, 90, 90], ", ""), "m.json:4:20: found 3 rows, expected a list of 4 lists"},
      {Replaced("[40, 0, 90", "[41, 0, 90"), "m.json:4:39: found 41, expected 40 as in the other direction"},
      {Replaced("[0, 40, 90, 90]", "[1, 40, 90, 90]"),
       "m.json:4:22: found '1', expected a whole number from 0 to 0"},
      {Replaced("[0, 40, 90, 90]", "[0, 0, 90, 90]"),
       "m.json:4:25: found '0', expected a whole number from 1"},
      {Replaced("\"4,6\"", "\"4\""),
       "m.json:5:25: found 3 CPUs in clusters, expected all 4 that were measured"},
      {Replaced("\"4,6\"", "\"2,4,6\""), "m.json:5:33: found CPU 2 again, expected every CPU in one cluster"},
      {Replaced("\"4,6\"", "\"4,6,8\""), "m.json:5:33: found CPU 8, expected CPUs that were measured"},
      {Replaced("\"4,6\"", "\"a\""), "m.json:5:33: found 'a', expected a CPU list"},
      {Replaced("<topology a=\\\"b\\\">\\n</topology>", ""),
       "m.json:6:16: found '', expected the machine as hwloc XML"},
      {"{", "m.json:1:1: found a YAML error"},
      {"[]", "m.json:1:1: found a list, expected what `islands machine --measure` writes"},
  };
  for (const auto& [text, complaint] : kCases) {
    const absl::Status status = ParseMeasured(text, "m.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
  }
}

TEST(ParseMeasured, TooLarge) {
  EXPECT_THAT(std::string(ParseMeasured("{" + std::string(17 << 20, ' ') + "}", "m.json").status().message()),
              HasSubstr("m.json:1:1: found a file of 17.0 MiB, expected at most 16 MiB"));
}

TEST(LooksMeasured, ByItsFirstCharacter) {
  EXPECT_TRUE(LooksMeasured(" \n{"));
  EXPECT_FALSE(LooksMeasured("<?xml?>{"));
  EXPECT_FALSE(LooksMeasured(""));
}

TEST(MeasuredJson, IsReadAgain) {
  const auto measured = ParseMeasured(kGood, "m.json");
  ASSERT_TRUE(measured.ok());
  const topology::Machine machine = *topology::LoadMachineSynthetic("pack:2 [numa] core:2 pu:2");
  const nlohmann::ordered_json json = MeasuredJson(*measured, machine);
  EXPECT_EQ(json["clusters"][0]["packages"], "the same as");
  EXPECT_EQ(json["firmware"]["packages"], (std::vector<std::string>{"0,2", "4,6"}));
  for (const std::string& text : {json.dump(), json.dump(2), MeasuredText(*measured, machine)}) {
    const auto again = ParseMeasured(text, "again.json");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->trips.cpus, measured->trips.cpus);
    EXPECT_EQ(again->trips.ns, measured->trips.ns);
    EXPECT_EQ(again->levels[0].clusters, measured->levels[0].clusters);
    EXPECT_EQ(again->hwloc_xml, measured->hwloc_xml);
  }
}

}  // namespace
}  // namespace islands::deploy
