#include "instance/workload/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::instance {
namespace {

using ::testing::HasSubstr;
using Kind = Parameter::Kind;

Description Made() {
  return {
      .parameters = {{.name = "op", .kind = Kind::kChoice, .choices = {"read", "mix"}, .preset = "read"},
                     {.name = "update_percent", .kind = Kind::kPercent, .only_with = {{"op", "mix"}}},
                     {.name = "rows", .kind = Kind::kWhole, .min = 1, .max = 100, .preset = "10"},
                     {.name = "zipf", .kind = Kind::kNumber, .help = "skew", .max = 1.5, .preset = "0"},
                     {.name = "folder", .kind = Kind::kPath, .loads = true},
                     {.name = "drift", .max = 9, .preset = "0", .idle_with = {{"zipf", "0"}}, .grows = true}},
      .tables = {"t", "u"},
      .tables_yaml = "- t\n- u",
      .row_per_key = true,
      .rows_total_of = "u"};
}

absl::StatusOr<Parameters> Read(Parameters given) {
  given.emplace("folder", "/tmp");
  return ReadParameters(Made().parameters, given);
}

std::string Complaint(const Parameters& given) { return std::string(Read(given).status().message()); }

TEST(ReadParameters, NotGiven_ArePreset) {
  EXPECT_EQ(*Read({}),
            (Parameters{{"op", "read"}, {"rows", "10"}, {"zipf", "0"}, {"folder", "/tmp"}, {"drift", "0"}}));
}

TEST(ReadParameters, EqualValues_AreSpelledTheSame) {
  const auto read = Read({{"op", "mix"}, {"update_percent", "20.0"}, {"rows", "+7"}, {"zipf", ".5"}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("update_percent"), "20");
  EXPECT_EQ(read->at("rows"), "7");
  EXPECT_EQ(read->at("zipf"), "0.5");
  EXPECT_EQ(NumberOf(*read, "zipf"), 0.5);
  EXPECT_EQ(*Read({{"rows", "10"}}), *Read({}));
}

TEST(ReadParameters, BadValues_NameParameterFoundAndExpected) {
  EXPECT_EQ(Complaint({{"row", "1"}}),
            "--row: found an unknown parameter, expected one of --op, --update-percent, --rows, --zipf, "
            "--folder, --drift");
  for (const char* rows : {"0", "101", "-1", "2.5", "ten", ""}) {
    EXPECT_EQ(Complaint({{"rows", rows}}),
              std::string("--rows: found '") + rows + "', expected a whole number from 1 to 100");
  }
  for (const char* zipf : {"-0.1", "1.6", "nan", "inf", "-inf", ""}) {
    EXPECT_EQ(Complaint({{"zipf", zipf}}),
              std::string("--zipf: found '") + zipf + "', expected a number from 0 to 1.5");
  }
  EXPECT_EQ(Complaint({{"op", "mix"}, {"update_percent", "nan"}}),
            "--update-percent: found 'nan', expected a percentage from 0 to 100");
  EXPECT_EQ(Complaint({{"op", "mix"}, {"update_percent", "100.5"}}),
            "--update-percent: found '100.5', expected a percentage from 0 to 100");
  EXPECT_EQ(Complaint({{"op", "write"}}), "--op: found 'write', expected read | mix");
  EXPECT_EQ(Complaint({{"folder", "here"}}), "--folder: found 'here', expected an absolute path");
}

TEST(ReadParameters, EqualNumbers_AreKeptAlike) {
  for (const char* zero : {"0", "-0", "0.0", "-0e3"})
    EXPECT_EQ((*Read({{"zipf", zero}}))["zipf"], "0") << zero;
}

TEST(ReadParameters, NeededOnes_AreMissed) {
  EXPECT_EQ(ReadParameters(Made().parameters, {}).status().message(),
            "--folder: found none, expected an absolute path");
}

TEST(ReadParameters, OnlyWith_NeedsTheCase) {
  EXPECT_TRUE(Read({{"op", "mix"}, {"update_percent", "20"}}).ok());
  EXPECT_EQ(Complaint({{"op", "mix"}}),
            "--update-percent: found none, expected a percentage from 0 to 100 with --op mix");
  EXPECT_EQ(Complaint({{"update_percent", "20"}}),
            "--update-percent: found '20', expected it only with --op mix");
}

TEST(ReadParameters, IdleWith_AllowsNothingButThePreset) {
  EXPECT_TRUE(Read({{"zipf", "1"}, {"drift", "3"}}).ok());
  EXPECT_TRUE(Read({{"zipf", "0"}, {"drift", "0.0"}}).ok());
  for (const Parameters& given : {Parameters{{"drift", "3"}}, Parameters{{"zipf", "0.0"}, {"drift", "3"}}}) {
    EXPECT_EQ(Complaint(given),
              "--drift: found '3', which has no effect with --zipf 0; expected 0, or another --zipf");
  }
}

TEST(CheckDescription, Contradictions_AreTold) {
  const auto complaint = [](auto change) {
    Description description = Made();
    change(description);
    return std::string(CheckDescription(description).message());
  };
  EXPECT_EQ(complaint([](auto&) {}), "");
  for (const char* name : {"", "Rows", "1st", "row-bytes"}) {
    EXPECT_THAT(complaint([&](auto& d) { d.parameters[2].name = name; }),
                HasSubstr("expected lower-case letters"));
  }
  EXPECT_THAT(complaint([](auto& d) { d.parameters[3].name = "rows"; }), HasSubstr("found twice"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[1].preset = "5"; }), HasSubstr("only_with and a preset"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[1].only_with->name = "what"; }),
              HasSubstr("only_with 'what'"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[1].only_with->name = "update_percent"; }),
              HasSubstr("expected another parameter"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[1].only_with->value = "write"; }),
              HasSubstr("only_with 'write', expected a value as it is kept"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[5].preset.reset(); }), HasSubstr("expected a preset"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[5].idle_with->name = "what"; }),
              HasSubstr("found idle_with 'what'"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[5].idle_with->value = "0.0"; }),
              HasSubstr("idle_with '0.0', expected a value as it is kept"));
  for (const char* name : {"seed", "rows_total", "sites"}) {
    EXPECT_THAT(complaint([&](auto& d) { d.parameters[2].name = name; }), HasSubstr("expected another"));
  }
  EXPECT_THAT(complaint([](auto& d) { d.parameters[0].choices.clear(); }), HasSubstr("found no value"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[2].min = 1000; }), HasSubstr("found no value"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[2].preset = "101"; }),
              HasSubstr("of its preset, found '101'"));
  EXPECT_THAT(complaint([](auto& d) { d.parameters[3].preset = "0.0"; }), HasSubstr("expected it as '0'"));
  EXPECT_THAT(complaint([](auto& d) { d.rows_total_of = "x"; }), HasSubstr("rows_total_of 'x'"));
}

TEST(DescriptionJson, ThereAndBack_IsTheSame) {
  const std::string json = DescriptionToJson(Made());
  const auto back = DescriptionFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(DescriptionToJson(*back), json);
  EXPECT_EQ(back->parameters[1].only_with->value, "mix");
  EXPECT_EQ(back->parameters[3].max, 1.5);
  EXPECT_TRUE(back->parameters[4].loads && !back->parameters[4].grows);
  EXPECT_TRUE(back->parameters[5].grows && !back->parameters[5].loads);
  EXPECT_EQ(back->parameters[5].idle_with->name, "zipf");
  EXPECT_EQ(back->rows_total_of, "u");
  EXPECT_TRUE(back->row_per_key);
}

TEST(DescriptionJson, WhatIsNone_IsRefused) {
  for (const char* text : {"", "[]", "{}", "{\"tables\": 5}", "\xff"}) {
    EXPECT_THAT(std::string(DescriptionFromJson(text).status().message()), HasSubstr("no description"))
        << text;
  }
  std::string strange = DescriptionToJson(Made());
  strange.replace(strange.find("\"whole\""), 7, "\"round\"");
  EXPECT_THAT(std::string(DescriptionFromJson(strange).status().message()), HasSubstr("kind 'round'"));
}

}  // namespace
}  // namespace islands::instance
