#include "deploy/cluster/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace islands::deploy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kNoon = "2026-01-31T12:00:00.";

TEST(ParseLogLine, LinesOfOurs_InParts) {
  const LogLine line = ParseLogLine("island 3", "2026-01-31T12:00:00.123Z island 3 warning  two  words");
  EXPECT_EQ(line.source, "island 3");
  EXPECT_EQ(line.time, "2026-01-31T12:00:00.123Z");
  EXPECT_EQ(line.level, "warning");
  EXPECT_EQ(line.text, " two  words");
  EXPECT_EQ(ParseLogLine("logger", "2026-01-31T12:00:00.123Z logger info ").text, "");
}

TEST(ParseLogLine, Others_AsTheyAre) {
  for (const char* text :
       {"terminate called after", "", "2026-01-31T12:00:00.123Z", "2026-01-31 12:00:00.123Z island 3 info x",
        "2026-01-31T12:00:00.123Z island 30 info x", "2026-01-31T12:00:00.123Z island 3",
        "2026-01-31T12:00:00.123Z island 3 noise x"}) {
    const LogLine line = ParseLogLine("island 3", text);
    EXPECT_EQ(line.text, text);
    EXPECT_EQ(line.time + line.level, "") << text;
  }
}

class LogFilesTest : public testing::Test {
 protected:
  ~LogFilesTest() override { std::filesystem::remove_all(folder_); }

  static std::string Line(const std::string& source, int ms, const std::string& text) {
    char time[8];
    std::snprintf(time, sizeof(time), "%03d", ms);
    return kNoon + std::string(time) + "Z " + source + " info " + text + "\n";
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Append(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::app) << text;
  }
  std::vector<std::string> Drained(bool last = false) {
    std::vector<std::string> texts;
    const absl::Status drained =
        Drain(files_, last, [&](const LogLine& line) { texts.push_back(line.text); });
    EXPECT_TRUE(drained.ok()) << drained;
    return texts;
  }

  const std::string folder_ = [] {
    std::string path = testing::TempDir() + "islands-log-lines-XXXXXX";
    return std::string(mkdtemp(path.data()));
  }();
  std::vector<LogFile> files_;
};

TEST_F(LogFilesTest, SeveralFiles_ByTimeAndWhatHasNoneStaysWithItsLine) {
  files_.emplace_back("a", Path("a"));
  files_.emplace_back("b", Path("b"));
  files_.emplace_back("absent", Path("absent"));
  Append("a", Line("a", 1, "a1") + Line("a", 5, "a5") + "stack\nmore\n" + Line("a", 9, "a9"));
  Append("b", "begin\n" + Line("b", 2, "b2") + Line("b", 5, "b5") + Line("b", 3, "b3, by a clock set back"));
  EXPECT_THAT(Drained(),
              ElementsAre("begin", "a1", "b2", "a5", "stack", "more", "b5", "b3, by a clock set back", "a9"));
}

TEST_F(LogFilesTest, Appended_ComesNextAndHalfALineWaits) {
  files_.emplace_back("a", Path("a"));
  EXPECT_THAT(Drained(), IsEmpty());
  Append("a", "one\ntw");
  EXPECT_THAT(Drained(), ElementsAre("one"));
  Append("a", "o\nthree");
  EXPECT_THAT(Drained(), ElementsAre("two"));
  EXPECT_THAT(Drained(true), ElementsAre("three"));
}

TEST_F(LogFilesTest, Truncated_IsReadFromItsBeginning) {
  files_.emplace_back("a", Path("a"));
  Append("a", "one\ntwo\n");
  EXPECT_THAT(Drained(), ElementsAre("one", "two"));
  std::filesystem::resize_file(Path("a"), 0);
  Append("a", "new\n");
  EXPECT_THAT(Drained(), ElementsAre("new"));
}

TEST_F(LogFilesTest, Rotated_TheOldToItsEndThenTheNew) {
  files_.emplace_back("a", Path("a"));
  Append("a", "one\n");
  EXPECT_THAT(Drained(), ElementsAre("one"));
  Append("a", "two\nhalf");
  std::filesystem::rename(Path("a"), Path("a.1"));
  Append("a", "a new one, and longer\n");
  EXPECT_THAT(Drained(), ElementsAre("two", "half", "a new one, and longer"));
}

TEST_F(LogFilesTest, SkipTo_LastLinesAlsoOfLongFiles) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += std::to_string(i) + "\n";
  Append("a", text);
  Append("half", "one\ntwo");
  const auto last = [&](const char* name, uint64_t lines) {
    files_.clear();
    files_.emplace_back("a", Path(name));
    EXPECT_TRUE(files_[0].SkipTo(lines).ok());
    return Drained(true);
  };
  EXPECT_THAT(last("a", 2), ElementsAre("29998", "29999"));
  EXPECT_THAT(last("a", 0), IsEmpty());
  EXPECT_EQ(last("a", 20'000).size(), 20'000u);
  EXPECT_EQ(last("a", 40'000).size(), 30'000u);
  EXPECT_THAT(last("half", 1), ElementsAre("two"));
  EXPECT_THAT(last("half", 2), ElementsAre("one", "two"));
  EXPECT_THAT(last("absent", 2), IsEmpty());
}

TEST_F(LogFilesTest, Links_AreNotFollowed) {
  Append("secret", "x\n");
  std::filesystem::create_symlink(Path("secret"), Path("a"));
  files_.emplace_back("a", Path("a"));
  const absl::Status drained = Drain(files_, true, [](const LogLine&) { FAIL(); });
  EXPECT_TRUE(absl::IsPermissionDenied(drained)) << drained;
}

}  // namespace
}  // namespace islands::deploy
