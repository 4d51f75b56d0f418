#include "deploy/cluster/transactions_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace islands::deploy {
namespace {

using control::v1::TransactionWork;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Island 0 is lost, 1 and 2 are up, 3 is given up.
control::v1::ClusterStatus Status() {
  control::v1::ClusterStatus status;
  status.set_deployment("shop");
  for (uint32_t i = 0; i < 4; ++i) {
    control::v1::IslandStatus& island = *status.add_islands();
    island.set_island(i);
    island.set_state(control::v1::READY);
    island.set_pid(100 + static_cast<int>(i));
  }
  status.mutable_islands(0)->set_state(control::v1::LOST);
  status.mutable_islands(0)->set_down_ms(12'300);
  status.mutable_islands(3)->set_state(control::v1::GIVEN_UP);
  status.mutable_islands(3)->set_down_ms(600'000);
  return status;
}

TransactionWork Work(const std::string& id, uint32_t coordinator, control::v1::TransactionState state,
                     int64_t age_us) {
  TransactionWork work;
  work.set_id(id);
  work.set_coordinator(coordinator);
  work.set_state(state);
  work.set_age_us(age_us);
  return work;
}

TransactionWork InDoubt(const std::string& id, uint32_t coordinator, int64_t age_us, int64_t in_doubt_us) {
  TransactionWork work = Work(id, coordinator, control::v1::PREPARED, age_us);
  work.set_wait(control::v1::FOR_DECISION);
  work.add_awaited(coordinator);
  work.add_out_of_reach(coordinator);
  work.add_participants(1);
  work.add_participants(2);
  work.set_in_doubt_us(in_doubt_us);
  work.set_locks(11);
  return work;
}

// Of islands 1 and 2; the others have no process.
std::vector<IslandTransactions> Answers(const std::vector<TransactionWork>& one,
                                        const std::vector<TransactionWork>& two) {
  std::vector<IslandTransactions> islands;
  for (uint32_t i = 0; i < 4; ++i) islands.push_back({i, absl::UnavailableError("it has no process")});
  for (uint32_t i : {1u, 2u}) {
    control::v1::Transactions answer;
    for (const TransactionWork& work : i == 1 ? one : two) *answer.add_work() = work;
    answer.set_total(static_cast<uint64_t>(answer.work_size()));
    islands[i].answer = answer;
  }
  return islands;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

TEST(TransactionsText, InDoubt_SaysSinceWhenAndWhomItAsks) {
  TransactionWork restored = InDoubt("0.0.3.1841", 0, 9'000'000, 9'000'000);
  restored.set_restored(true);
  const std::string text = TransactionsText(
      Status(), Answers({InDoubt("0.0.3.1841", 0, 14'300'000, 14'200'000)}, {restored}), true);
  const std::vector<std::string> lines = LinesOf(text);
  ASSERT_GE(lines.size(), 6u) << text;
  EXPECT_EQ(
      lines[0],
      "transaction  island  state        age  in doubt  locks  restored  coordinator         participants"
      "  waits for");
  EXPECT_EQ(
      lines[1],
      "0.0.3.1841        1  in doubt  14.3 s    14.2 s     11  -         0, lost for 12.3 s  1 2         "
      "  asks island 0, which is lost for 12.3 s: `islands status FILE`");
  EXPECT_EQ(
      lines[2],
      "0.0.3.1841        2  in doubt   9.0 s     9.0 s     11  yes       0, lost for 12.3 s  1 2         "
      "  asks island 0, which is lost for 12.3 s: `islands status FILE`");
  EXPECT_EQ(lines[4], "2 lines of 1 transaction: 2 in doubt, the oldest for 14.2 s");
  EXPECT_EQ(lines[5], "warning: what island 0 has is missing: it is lost for 12.3 s");
  EXPECT_EQ(lines[6], "warning: what island 3 has is missing: it is given up for 10 min");
  EXPECT_THAT(text, HasSubstr("Nothing has to be, or may be, decided by hand"));
}

TEST(TransactionsText, LinesOfATransactionStandTogetherTheOldestFirst) {
  const std::string text = TransactionsText(Status(),
                                            Answers({Work("2.0.1.5", 2, control::v1::RUNNING, 300'000),
                                                     Work("1.0.1.9", 1, control::v1::VOTING, 2'000'000)},
                                                    {Work("2.0.1.5", 2, control::v1::RUNNING, 400'000),
                                                     Work("1.0.1.9", 1, control::v1::RUNNING, 100'000),
                                                     Work("2.0.1.6", 2, control::v1::RUNNING, 1'000'000)}),
                                            false);
  const std::vector<std::string> lines = LinesOf(text);
  ASSERT_GE(lines.size(), 8u) << text;
  const char* const expected[] = {"1.0.1.9           1  voting", "1.0.1.9           2  running",
                                  "2.0.1.6           2  running", "2.0.1.5           2  running",
                                  "2.0.1.5           1  running"};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_THAT(lines[i + 1], StartsWith(expected[i])) << text;
  EXPECT_EQ(lines[7], "5 lines of 3 transactions: 4 running, 1 voting");
  EXPECT_THAT(text, Not(HasSubstr("decided by hand")));
}

// Whoever is up, and still not heard, is out of reach; who is up and heard needs no word.
TEST(TransactionsText, Waits_SayHowThoseAreWhomTheyAreFor) {
  const auto waits = [](control::v1::TransactionWait wait, std::vector<uint32_t> awaited,
                        std::vector<uint32_t> out_of_reach) {
    TransactionWork work = Work("1.0.1.9", 1, control::v1::RUNNING, 1);
    work.set_wait(wait);
    work.set_wait_us(250'000);
    work.mutable_awaited()->Assign(awaited.begin(), awaited.end());
    work.mutable_out_of_reach()->Assign(out_of_reach.begin(), out_of_reach.end());
    const std::string line = LinesOf(TransactionsText(Status(), Answers({work}, {}), false))[1];
    return line.substr(line.rfind("  ") + 2);
  };
  EXPECT_EQ(waits(control::v1::NO_WAIT, {}, {}), "its turn");
  EXPECT_EQ(waits(control::v1::FOR_LOCK, {}, {}), "a lock, for 0.2 s");
  EXPECT_EQ(waits(control::v1::FOR_REPLIES, {2}, {}), "the answer of island 2");
  EXPECT_EQ(waits(control::v1::FOR_DECISION, {2}, {2}),
            "asks island 2, which is up, but out of reach from here: `islands status FILE`");
  EXPECT_EQ(waits(control::v1::FOR_VOTES, {2, 3}, {}),
            "the vote of islands 2, 3, 3 is given up for 10 min: `islands status FILE`");
  EXPECT_EQ(waits(control::v1::FOR_ACKNOWLEDGEMENTS, {2}, {}), "tells island 2");
  EXPECT_EQ(waits(control::v1::FOR_FELLOWS, {}, {}), "the others, its coordinator being dead");
  EXPECT_EQ(waits(control::v1::FOR_DECIDER, {2}, {}), "the decision of island 2");
  EXPECT_EQ(waits(control::v1::FOR_CONFIRMATION, {2}, {}), "that island 2 has heard");
  EXPECT_EQ(waits(control::v1::FOR_NEXT_STEP, {2}, {}), "the next word of island 2");
}

TEST(TransactionsText, WhatIsNotListedIsSaid) {
  std::vector<IslandTransactions> islands = Answers({Work("1.0.1.9", 1, control::v1::RUNNING, 1)}, {});
  islands[1].answer->set_total(5213);
  islands[1].answer->add_silent_workers(2);
  islands[2].answer = absl::DeadlineExceededError("island 2: no answer within 1500 ms");
  const std::string text = TransactionsText(Status(), islands, false);
  EXPECT_THAT(text, HasSubstr("note: of 5213 on island 1 the 1 oldest are listed\n"));
  EXPECT_THAT(text, HasSubstr("what worker 2 of island 1 has is missing"));
  EXPECT_THAT(text, HasSubstr("what island 2 has is missing: island 2: no answer within 1500 ms\n"));
}

TEST(TransactionsText, NothingOpen) {
  EXPECT_THAT(TransactionsText(Status(), Answers({}, {}), false), StartsWith("no transaction is open\n"));
  EXPECT_THAT(TransactionsText(Status(), Answers({}, {}), true), StartsWith("no branch is in doubt\n"));
}

TEST(TransactionsJson, HasAllOfIt) {
  const auto json =
      nlohmann::json::parse(TransactionsJson(Status(),
                                             Answers({InDoubt("0.0.3.1841", 0, 14'300'000, 14'200'000)},
                                                     {Work("2.1.4.7", 2, control::v1::RUNNING, 500'000)}),
                                             false));
  EXPECT_EQ(json["deployment"], "shop");
  ASSERT_EQ(json["transactions"].size(), 2u);
  const auto& first = json["transactions"][0];
  EXPECT_EQ(first["transaction"], "0.0.3.1841");
  EXPECT_EQ(first["state"], "in doubt");
  EXPECT_EQ(first["age_s"], 14.3);
  EXPECT_EQ(first["in_doubt_s"], 14.2);
  EXPECT_EQ(first["coordinator"]["island"], 0);
  EXPECT_EQ(first["coordinator"]["state"], "lost");
  EXPECT_EQ(first["coordinator"]["for_s"], 12.3);
  EXPECT_EQ(first["participants"], nlohmann::json({1, 2}));
  EXPECT_EQ(first["waits_for"]["what"], "decision");
  EXPECT_EQ(first["waits_for"]["out_of_reach"], nlohmann::json({0}));
  EXPECT_TRUE(json["transactions"][1]["in_doubt_s"].is_null());
  EXPECT_EQ(json["islands"][0]["missing"], "it is lost for 12.3 s");
  EXPECT_EQ(json["islands"][1]["total"], 1);
  EXPECT_FALSE(json["islands"][1].contains("missing"));
}

}  // namespace
}  // namespace islands::deploy
