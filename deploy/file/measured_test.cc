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
      {Replaced("\"0,2\", \"4,6\"", "\"0,2\", \"4,6\", \"\""), "m.json:5:40: found '', expected a CPU list"},
      {Replaced("\"0,2\", \"4,6\"", "\"0-6\""), "m.json:5:26: found CPU 1, expected CPUs that were measured"},
      {Replaced("\"0,2\", \"4,6\"", "\"0,2,4,6\""), "m.json:5:25: found one cluster, expected at least two"},
      {Replaced("\"lone_cpus\": \"\"", "\"lone_cpus\": [2]"),
       "m.json:5:88: found a list, expected a CPU list"},
      {Replaced("\"lone_cpus\": \"\"", "\"lone_cpus\": \"3\""),
       "m.json:5:88: found CPU 3, expected CPUs that"},
      {Replaced("[0, 40, 90, 90], [40, 0", "[0, -40, 90, 90], [-40, 0"),
       "m.json:4:25: found '-40', expected a whole number from 1 to 1000000000"},
      {Replaced("[0, 40, 90, 90]", "[0, NaN, 90, 90]"), "m.json:4:25: found 'NaN', expected a whole number"},
      {Replaced("[0, 40, 90, 90]", "[0, 4e1, 90, 90]"), "m.json:4:25: found '4e1', expected a whole number"},
      {Replaced("[0, 40, 90, 90]", "[0, [40], 90, 90]"),
       "m.json:4:25: found a list, expected a whole number"},
      {Replaced("[0, 40, 90, 90]", "[0, null, 90, 90]"),
       "m.json:4:25: found nothing, expected a whole number"},
      {Replaced("\"within_ns\": 40", "\"within_ns\": -1"),
       "m.json:5:54: found '-1', expected a whole number"},
      {Replaced("\"within_ns\": 40", "\"within_ns\": NaN"),
       "m.json:5:54: found 'NaN', expected a whole number"},
      {Replaced("\"within_ns\": 40", "\"within_ns\": 90"),
       "m.json:5:54: found 90, expected the median of 'round_trip_ns', 40, or no 'within_ns'"},
      {Replaced("\"across_ns\": 90", "\"across_ns\": 40"),
       "m.json:5:71: found 40, expected the median of 'round_trip_ns', 90, or no 'across_ns'"},
      {Replaced("\"lone_cpus\": \"\"}", "\"lone_cpus\": \"\"}, {\"cpus\": [\"0,4\", \"2,6\"]}"),
       "m.json:5:93: found a level of 2 clusters, 90 ns within and 90 ns across, after one of 2, 40 and 90 "
       "ns; "
       "expected the coarsest first, and each once"},
      {Replaced("\"clusters\": [", "\"clusters\": [{\"cpus\": [\"4,6\", \"0,2\"]}, "),
       "m.json:5:42: found a level of 2 clusters, 40 ns within and 90 ns across, after one of 2, 40 and 90 "
       "ns; "
       "expected the coarsest first, and each once"},
      {Replaced("\"clusters\": [", "\"clusters\": null, \"firmware\": ["),
       "m.json:5:3: found nothing, expected a list of levels, or []"},
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

// As who changes clusters by hand may leave them.
TEST(ParseMeasured, WithoutMedians_TheyAreTheRoundTrips) {
  const auto measured = ParseMeasured(Replaced(", \"within_ns\": 40, \"across_ns\": 90", ""), "m.json");
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->levels[0].within_ns, 40u);
  EXPECT_EQ(measured->levels[0].across_ns, 90u);
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
