#include "experiments/append/append.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace islands::experiments {
namespace {

using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(AppendRow, Lists_KeepTheirEndsAndShowTears) {
  std::vector<std::byte> row(120);  // six elements
  FillAppendRow(77, row);
  for (uint64_t n = 0; n < 20; ++n) {
    const auto found = ReadAppendRow(row);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->count, n);
    EXPECT_EQ(found->life, 77u);
    EXPECT_EQ(found->last.sequence, n);
    std::vector<std::byte> before = row;
    AppendToRow(Element::Of({1, 2, 3, n + 1}), row);
    if (n < 10) continue;
    std::copy(row.begin(), row.begin() + 60, before.begin());  // half of it of another age
    EXPECT_FALSE(ReadAppendRow(before));
  }
  EXPECT_FALSE(ReadAppendRow(std::span(row).first(32)));
}

TEST(AppendRow, Elements_AreIds) {
  const coordinator::TransactionId id{1023, 65535, 4'000'000'000, uint64_t{1} << 60};
  EXPECT_EQ(Element::Of(id).id(), id);
}

storage::Catalog MakeCatalog() {
  storage::Catalog::TableSpecs tables;
  control::v1::TableSpec& table = *tables.Add();
  table.set_name(kAppendTable);
  table.add_key("uint64");
  table.set_range_end(40);
  table.set_row_bytes(120);
  return *storage::Catalog::Create(tables, 4);
}

TEST(AppendWorkload, Create_BadParameters) {
  EXPECT_TRUE(instance::CheckDescription(AppendWorkload::Describe()).ok());
  const storage::Catalog catalog = MakeCatalog();
  const instance::Parameters good = {
      {"history", "/tmp"}, {"rows", "7"}, {"multisite", "20"}, {"zipf", "0.9"}, {"readers", "5"}};
  EXPECT_TRUE(AppendWorkload::Create(catalog, good).ok());
  const auto complaint = [&](const char* name, const char* value) {
    instance::Parameters bad = good;
    bad[name] = value;
    return Text(AppendWorkload::Create(catalog, bad).status());
  };
  EXPECT_THAT(Text(AppendWorkload::Create(catalog, {}).status()), HasSubstr("--history: found none"));
  EXPECT_THAT(complaint("history", "here"), HasSubstr("absolute path"));
  EXPECT_THAT(complaint("readers", "101"), HasSubstr("from 0 to 100"));
  EXPECT_THAT(complaint("op", "read"),
              HasSubstr("--op: found an unknown parameter, expected one of --history"));
  EXPECT_THAT(complaint("zipf", "-1"), HasSubstr("--zipf: found '-1'"));
}

TEST(AppendWorkload, CheckRun_RowsOfTheSmallestSite) {
  const storage::Catalog catalog = MakeCatalog();
  const auto complaint = [&](const char* rows) {
    return Text((*AppendWorkload::Create(catalog, {{"history", "/tmp"}, {"rows", rows}}))->CheckRun(catalog));
  };
  EXPECT_EQ(complaint("10"), "");
  EXPECT_THAT(complaint("11"), HasSubstr("at most the 10 rows of the smallest site"));
}

class AppendHistory : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/history-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string File() const { return std::filesystem::directory_iterator(directory_)->path().string(); }

  std::string directory_;
};

RecordedAttempt Made(uint64_t sequence, int64_t begun_ns) {
  RecordedAttempt attempt{.id = Element::Of({3, 1, 9, sequence}), .begun_ns = begun_ns};
  attempt.looks.push_back({.key = 5, .appends = true, .before = {.count = 0, .life = 4}});
  attempt.looks.push_back(
      {.key = 6, .before = {.count = 2, .life = 4, .last = Element::Of({1, 0, 2, sequence})}});
  return attempt;
}

// What a killed process has begun is in the file; what ended last may be missing.
TEST_F(AppendHistory, BegunAttempts_AreInTheFileAtOnce) {
  auto log = *HistoryLog::Create(directory_, 3, 1, 2, 1000);
  ASSERT_TRUE(log->Begin(Made(1, 10)).ok());
  ASSERT_TRUE(log->Begin(Made(2, 20)).ok());
  log->End({3, 1, 9, 1}, coordinator::Outcome::kCommitted, 30);
  log->End({3, 1, 9, 99}, coordinator::Outcome::kAborted, 30);  // ended before it was begun here
  auto history = ReadHistory(File());
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_EQ(history->attempts.size(), 2u);
  log->End({3, 1, 9, 2}, coordinator::Outcome::kUnknown, 40);  // nothing is open now
  history = ReadHistory(File());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->island, 3u);
  EXPECT_EQ(history->worker, 1u);
  EXPECT_EQ(history->first_site, 2u);
  EXPECT_FALSE(history->torn);
  const RecordedAttempt& first = history->attempts[0];
  EXPECT_EQ(first.fate, RecordedAttempt::kCommitted);
  EXPECT_EQ(first.begun_ns, 10);
  EXPECT_EQ(first.ended_ns, 30);
  EXPECT_EQ(history->attempts[1].fate, RecordedAttempt::kUnknown);
  ASSERT_EQ(first.looks.size(), 2u);
  EXPECT_TRUE(first.looks[0].appends);
  EXPECT_EQ(first.looks[1].before.count, 2u);
  EXPECT_EQ(first.looks[1].before.last, Element::Of({1, 0, 2, 1}));
}

TEST_F(AppendHistory, RecordsCutShort_AreRecognized) {
  std::string bytes = EncodeHeader(3, 1, 2);
  EncodeAttempt(Made(1, 10), &bytes);
  const size_t whole = bytes.size();
  EncodeAttempt(Made(2, 20), &bytes);
  for (size_t size = whole; size < bytes.size(); ++size) {
    const auto history = ParseHistory(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(history.ok()) << history.status();
    EXPECT_EQ(history->attempts.size(), 1u);
    EXPECT_EQ(history->torn, size != whole);
  }
  EXPECT_TRUE(ParseHistory("")->torn);
}

TEST_F(AppendHistory, Garbage_IsRefusedWithItsPlace) {
  std::string good = EncodeHeader(3, 1, 2);
  EncodeAttempt(Made(1, 10), &good);
  const auto complaint = [](const std::string& bytes) { return Text(ParseHistory(bytes).status()); };
  EXPECT_THAT(complaint("not a history at all, this"), HasSubstr("at byte 0: expected the header"));
  std::string flipped = good;
  flipped[60] ^= 1;
  EXPECT_THAT(complaint(flipped), HasSubstr("at byte 24: a record whose hash is wrong"));
  std::string twice = good;
  EncodeAttempt(Made(1, 10), &twice);
  EXPECT_THAT(complaint(twice), HasSubstr("there before"));
  std::string early = good;
  EncodeEnd(Element::Of({3, 1, 9, 1}), RecordedAttempt::kCommitted, 9, &early);
  EXPECT_THAT(complaint(early), HasSubstr("ended before it began"));
  std::string strange = good;
  EncodeEnd(Element::Of({3, 1, 9, 2}), RecordedAttempt::kCommitted, 9, &strange);
  EXPECT_THAT(complaint(strange), HasSubstr("not there"));
  std::string other = EncodeHeader(2, 1, 2);
  EncodeAttempt(Made(1, 10), &other);
  EXPECT_THAT(complaint(other), HasSubstr("another worker"));
  std::ofstream(directory_ + "/a.history") << "nonsense";
  EXPECT_THAT(Text(ReadHistory(File()).status()), HasSubstr(File()));
}

TEST_F(AppendHistory, DirectoryThatIsNotThere_IsNamed) {
  EXPECT_THAT(Text(HistoryLog::Create(directory_ + "/none", 0, 0, 0, 1).status()), HasSubstr("history=DIR"));
}

}  // namespace
}  // namespace islands::experiments
