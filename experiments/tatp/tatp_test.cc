// Parameters, tables and initial rows.
#include "experiments/tatp/tatp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/tatp/tatp_cluster.h"

namespace islands::experiments {
namespace {

using TableSpecs = storage::Catalog::TableSpecs;

std::string ErrorOf(const TableSpecs& tables, const instance::Parameters& parameters) {
  const auto catalog = storage::Catalog::Create(tables, 24);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  const auto workload = TatpWorkload::Create(*catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

TEST(Tatp, Create_BadParameters) {
  const TableSpecs tables = TatpTableSpecs(1000);
  EXPECT_TRUE(instance::CheckDescription(TatpWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(tables, {}), "");
  EXPECT_EQ(ErrorOf(tables, {{"mix", "update"}, {"uniform", "yes"}, {"remote", "12.5"}}), "");
  EXPECT_EQ(ErrorOf(tables, {{"mix", "write"}}),
            "--mix: found 'write', expected standard | read | update | in_place");
  EXPECT_EQ(ErrorOf(tables, {{"uniform", "1"}}), "--uniform: found '1', expected yes | no");
  EXPECT_EQ(ErrorOf(tables, {{"remote", "101"}}),
            "--remote: found '101', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(tables, {{"remote", "nan"}}),
            "--remote: found 'nan', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(tables, {{"multisite", "1"}}),
            "--multisite: found an unknown parameter, expected one of --mix, --uniform, --remote");
}

TEST(Tatp, Create_WrongTablesAreToldWithTheLinesToAdd) {
  const auto expect = [](const TableSpecs& tables, const std::string& what) {
    const std::string error = ErrorOf(tables, {});
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_NE(error.find("indexes: [{name: by_number, key: ['row:0:string:15']}]"), std::string::npos);
    EXPECT_NE(error.find("- {name: call_forwarding, key: [uint64, uint8, uint8]"), std::string::npos);
  };
  TableSpecs tables = TatpTableSpecs(1000);
  tables.at(2).set_name("facility");
  expect(tables, "there is no table 'special_facility'");
  tables = TatpTableSpecs(1000);
  tables.at(1).set_row_bytes(9);
  expect(tables, "table 'access_info' has another key or row_bytes");
  tables = TatpTableSpecs(1000);
  tables.at(3).mutable_key()->RemoveLast();
  expect(tables, "table 'call_forwarding' has another key");
  tables = TatpTableSpecs(1000);
  tables.at(3).set_range_end(1002);
  expect(tables, "tables 'subscriber' and 'call_forwarding' have different ranges");
  tables = TatpTableSpecs(1000);
  tables.at(0).clear_indexes();
  expect(tables, "has no index 'by_number'");
  tables = TatpTableSpecs(1000);
  *tables.at(0).mutable_indexes(0)->mutable_key(0) = "row:1:string:15";
  expect(tables, "has no index 'by_number'");
  tables = TatpTableSpecs(2'000'000'000'000'000);
  expect(tables, "the range of table 'subscriber' leaves 0 to 1000000000000000");
  tables = TatpTableSpecs(1000);
  for (auto& table : tables) table.set_row_bytes(0);  // any length
  EXPECT_EQ(ErrorOf(tables, {}), "");
}

TEST(Tatp, NumberOf_IsTheSubscriberWithLeadingZeros) {
  const TatpNumber number = NumberOf(90'210);
  EXPECT_EQ(std::string(number.begin(), number.end()), "000000000090210");
  EXPECT_EQ(SubscriberOfNumber(number), 90'210u);
  EXPECT_EQ(SubscriberOfNumber(NumberOf(999'999'999'999'999)), 999'999'999'999'999u);
}

// Of one table, by subscriber; the keys' other components come first in each row's text.
std::map<uint64_t, std::vector<std::pair<std::string, std::vector<std::byte>>>> BySubscriber(
    const TatpRows& rows, instance::TableId table) {
  std::map<uint64_t, std::vector<std::pair<std::string, std::vector<std::byte>>>> found;
  for (const auto& [key, row] : rows) {
    if (key.first != table) continue;
    const uint64_t s_id = SubscriberOfKey(std::as_bytes(std::span(key.second)));
    found[s_id].emplace_back(key.second.substr(8), row);
  }
  return found;
}

TatpRows LoadedRows(uint32_t islands, int64_t subscribers) {
  instance::InProcessCluster cluster(TatpCluster({.islands = islands, .subscribers = subscribers}));
  EXPECT_TRUE(cluster.Start().ok());
  return AllTatpRows(cluster);
}

TEST(TatpPopulation, Load_SameRowsInEveryLayout) { EXPECT_EQ(LoadedRows(1, 300), LoadedRows(2, 300)); }

TEST(TatpPopulation, Load_SubscribersAndAccessInfos) {
  constexpr int kSubscribers = 4000;
  const TatpRows rows = LoadedRows(1, kSubscribers);
  const auto subscribers = BySubscriber(rows, 0);
  ASSERT_EQ(subscribers.size(), static_cast<size_t>(kSubscribers));
  int bits = 0;
  for (const auto& [s_id, found] : subscribers) {
    const auto row = RowOf<SubscriberRow>(found.front().second);
    ASSERT_EQ(row.sub_nbr, NumberOf(s_id));
    ASSERT_EQ(row.changes, 0);
    ASSERT_TRUE(row.vlr_location > 0 && row.msc_location > 0);
    for (uint8_t bit : row.bit) {
      ASSERT_LE(bit, 1);
      bits += bit;
    }
    for (uint8_t hex : row.hex) ASSERT_LE(hex, 15);
  }
  EXPECT_NEAR(bits, 5 * kSubscribers, 500);
  std::map<size_t, int> counts;
  std::map<char, int> types;
  for (const auto& [s_id, found] : BySubscriber(rows, 1)) {
    ++counts[found.size()];
    for (const auto& [type, row] : found) ++types[type[0]];
  }
  ASSERT_EQ(counts.size(), 4u);  // and none with 0: their sum is kSubscribers
  for (auto [count, seen] : counts) EXPECT_NEAR(seen, kSubscribers / 4, 150) << count << " access infos";
  ASSERT_EQ(types.size(), 4u);
  EXPECT_EQ(types.begin()->first, 1);
  for (auto [type, seen] : types) EXPECT_NEAR(seen, kSubscribers * 5 / 8, 200) << "type " << int{type};
}

TEST(TatpPopulation, Load_FacilitiesAndForwardings) {
  constexpr int kSubscribers = 4000;
  const TatpRows rows = LoadedRows(1, kSubscribers);
  const auto forwardings = BySubscriber(rows, 3);
  std::map<size_t, int> facility_counts;
  std::map<size_t, int> forwarding_counts;
  int facilities = 0, active = 0;
  for (const auto& [s_id, found] : BySubscriber(rows, 2)) {
    ++facility_counts[found.size()];
    for (const auto& [type, row] : found) {
      ++facilities;
      active += RowOf<SpecialFacilityRow>(row).is_active;
      size_t count = 0;
      if (const auto all = forwardings.find(s_id); all != forwardings.end()) {
        count = static_cast<size_t>(std::count_if(all->second.begin(), all->second.end(),
                                                  [&](const auto& row) { return row.first[0] == type[0]; }));
      }
      ++forwarding_counts[count];
    }
  }
  ASSERT_EQ(facility_counts.size(), 4u);
  for (auto [count, seen] : facility_counts) EXPECT_NEAR(seen, kSubscribers / 4, 150) << count;
  ASSERT_EQ(forwarding_counts.size(), 4u);
  for (auto [count, seen] : forwarding_counts) EXPECT_NEAR(seen, facilities / 4, 300) << count;
  EXPECT_NEAR(active, 0.85 * facilities, 250);
  for (const auto& [s_id, found] : forwardings) {
    for (const auto& [type_and_start, row] : found) {
      ASSERT_TRUE(rows.contains({2, TextOfKey(TatpKey(s_id, type_and_start[0]))}));
      const int start = type_and_start[1];
      const int end = RowOf<CallForwardingRow>(row).end_time;
      ASSERT_TRUE(start == 0 || start == 8 || start == 16) << start;
      ASSERT_TRUE(end > start && end <= start + 8) << start << " " << end;
    }
  }
}

}  // namespace
}  // namespace islands::experiments
