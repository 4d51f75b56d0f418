// The judges can say no: hand-made outcomes, and every script on rows without any isolation.
#include "instance/simulation/isolation/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace islands::simulation::isolation {
namespace {

using testing::HasSubstr;

constexpr const char* kLostUpdate = R"(
scenario lost update
rows x=10
T1 read x
T2 read x -> 10 | 11
T1 write x 11
T2 write x 12
T1 commit
T2 commit
anomaly T1 read x -> 10, T2 read x -> 10, T1 commit, T2 commit
)";

Scenario Parse(const std::string& text) {
  absl::StatusOr<std::vector<Scenario>> scenarios = ParseScenarios("test", text);
  EXPECT_TRUE(scenarios.ok()) << scenarios.status();
  return scenarios->at(0);
}

std::string ParseError(const std::string& text) {
  return std::string(ParseScenarios("test", text).status().message());
}

// Each step done with this result, everybody as told.
Observation Seen(const Scenario& scenario, const std::vector<std::string>& results, Rows final_rows) {
  Observation seen;
  for (const std::string& result : results) seen.steps.push_back({.done = true, .result = result});
  seen.sessions.resize(scenario.sessions, {.end = End::kCommitted});
  seen.final_rows = std::move(final_rows);
  return seen;
}

// The rows of nobody in particular: each step at once, aborts undone newest first.
Observation RunWithoutIsolation(const Scenario& scenario, Placement placement) {
  struct Undo {
    uint32_t session;
    uint32_t row;
    std::optional<int64_t> before;
  };
  const auto value_in = [](const Rows& rows, uint32_t row) {
    const auto found = rows.find(row);
    return found == rows.end() ? std::nullopt : std::optional(found->second);
  };
  Observation seen;
  seen.sessions.resize(scenario.sessions);
  Rows rows = scenario.rows;
  std::vector<Undo> undo;
  for (const Step& step : scenario.steps) {
    const Rows before = rows;
    seen.steps.push_back({.done = true, .result = Apply(step, placement, &rows)});
    for (uint32_t row = 0; row < kRowNames.size(); ++row) {
      if (value_in(before, row) != value_in(rows, row))
        undo.push_back({step.session, row, value_in(before, row)});
    }
    Observation::SessionSeen& session = seen.sessions[step.session];
    if (step.verb == Verb::kCommit) session.end = End::kCommitted;
    if (step.verb != Verb::kAbort) continue;
    session.end = End::kAborted;
    for (auto entry = undo.rbegin(); entry != undo.rend(); ++entry) {
      if (entry->session != step.session) continue;
      rows.erase(entry->row);
      if (entry->before) rows[entry->row] = *entry->before;
    }
  }
  seen.final_rows = rows;
  return seen;
}

TEST(Judge, EveryScript_FailsWithoutIsolation) {
  absl::StatusOr<std::vector<Scenario>> scenarios = LoadScenarios(SCRIPT_DIRECTORY);
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  EXPECT_GT(scenarios->size(), 50u);
  for (const Scenario& scenario : *scenarios) {
    for (const Placement placement : kPlacements) {
      SCOPED_TRACE(scenario.file + ": " + scenario.name + ", " + std::string(Name(placement)));
      const Observation seen = RunWithoutIsolation(scenario, placement);
      EXPECT_EQ(Judge(scenario, placement, seen).verdict, Verdict::kAnomaly);
      // The two judges of anomalies agree, each by itself.
      EXPECT_NE(FindAnomaly(scenario, seen), nullptr);
      EXPECT_FALSE(IsStrictlySerializable(scenario, placement, seen));
    }
  }
}

TEST(Judge, EverySerialRun_Passes) {
  absl::StatusOr<std::vector<Scenario>> scenarios = LoadScenarios(SCRIPT_DIRECTORY);
  ASSERT_TRUE(scenarios.ok()) << scenarios.status();
  for (Scenario& scenario : *scenarios) {
    SCOPED_TRACE(scenario.file + ": " + scenario.name);
    // The same steps, session after session; what was said of the order written does not hold for them.
    std::stable_sort(scenario.steps.begin(), scenario.steps.end(),
                     [](const Step& a, const Step& b) { return a.session < b.session; });
    for (Step& step : scenario.steps) step.allowed.clear();
    scenario.anomalies.clear();
    const Judgement judgement =
        Judge(scenario, Placement::kOneSite, RunWithoutIsolation(scenario, Placement::kOneSite));
    EXPECT_EQ(judgement.verdict, Verdict::kSerial) << judgement.detail;
  }
}

TEST(Judge, LostUpdate_IsFlaggedByEachJudge) {
  const Scenario scenario = Parse(kLostUpdate);
  Observation seen = Seen(scenario, {"10", "10", "done", "done", "done", "done"}, {{2, 12}});
  EXPECT_EQ(Judge(scenario, Placement::kOneSite, seen).verdict, Verdict::kAnomaly);
  EXPECT_NE(FindAnomaly(scenario, seen), nullptr);
  EXPECT_FALSE(IsStrictlySerializable(scenario, Placement::kOneSite, seen));
  // One after the other.
  seen = Seen(scenario, {"10", "11", "done", "done", "done", "done"}, {{2, 12}});
  EXPECT_EQ(Judge(scenario, Placement::kOneSite, seen).verdict, Verdict::kSerial);
  // What neither an anomaly line nor a serial order allows or names: final rows of nobody, a value of nobody.
  seen.final_rows = {{2, 11}};
  EXPECT_THAT(Judge(scenario, Placement::kOneSite, seen).detail, HasSubstr("no serial order"));
  seen = Seen(scenario, {"10", "17", "done", "done", "done", "done"}, {{2, 12}});
  EXPECT_THAT(Judge(scenario, Placement::kOneSite, seen).detail, HasSubstr("'T2 read x' returned '17'"));
}

TEST(Judge, Victim_CountsAsAbortedAndLeavesNothing) {
  const Scenario scenario = Parse(kLostUpdate);
  Observation seen = Seen(scenario, {"10", "10", "done", "done", "done", "done"}, {{2, 11}});
  seen.steps[3].done = seen.steps[5].done = false;
  seen.steps[2].blocked = true;
  seen.sessions[1] = {.end = End::kAborted, .why = "victim"};
  const Judgement judgement = Judge(scenario, Placement::kOneSite, seen);
  EXPECT_EQ(judgement.verdict, Verdict::kAborted);
  EXPECT_EQ(judgement.detail, "T2: victim");
  seen.final_rows = {{2, 12}};  // the victim's write stayed
  EXPECT_EQ(Judge(scenario, Placement::kOneSite, seen).verdict, Verdict::kAnomaly);
}

TEST(Judge, StaleRead_IsAgainstRealTime) {
  const Scenario scenario = Parse(
      "scenario stale\nrows x=10\nT1 write x 11\nT1 commit\nT2 read x\nT2 commit\nanomaly T2 read x -> 10\n");
  Observation seen = Seen(scenario, {"done", "done", "10", "done"}, {{2, 11}});
  EXPECT_TRUE(IsStrictlySerializable(scenario, Placement::kOneSite, seen));
  seen.sessions[0].over_by = 1;  // T1 had its answer before T2 began
  EXPECT_FALSE(IsStrictlySerializable(scenario, Placement::kOneSite, seen));
}

TEST(Judge, RunThatIsNotOver_Fails) {
  const Scenario scenario = Parse(kLostUpdate);
  const Observation good = Seen(scenario, {"10", "11", "done", "done", "done", "done"}, {{2, 12}});
  const auto detail = [&](const Observation& seen) {
    const Judgement judgement = Judge(scenario, Placement::kOneSite, seen);
    EXPECT_EQ(judgement.verdict, Verdict::kFailed);
    return judgement.detail;
  };
  Observation seen = good;
  seen.sessions[0].end = End::kNever;
  EXPECT_THAT(detail(seen), HasSubstr("T1 never ended"));
  seen = good;
  seen.sessions[1].end = End::kUnknown;
  EXPECT_THAT(detail(seen), HasSubstr("T2's outcome is unknown"));
  seen = good;
  seen.amiss = "2 locks held";
  EXPECT_THAT(detail(seen), HasSubstr("2 locks held"));
  seen = good;
  seen.sessions[0].end = seen.sessions[1].end = End::kAborted;
  EXPECT_THAT(detail(seen), HasSubstr("everybody aborted"));
}

TEST(Judge, Apply_SaysWhatAStepReturnsAndLeaves) {
  const auto apply = [](const std::string& words, Rows rows) {
    const Scenario scenario = Parse("scenario s\nrows\nT1 " + words + "\nT1 commit\nanomaly T1 commit\n");
    const std::string result = Apply(scenario.steps[0], Placement::kIslandBorder, &rows);
    return result + " | " + RowsText(rows);
  };
  const Rows rows = {{2, 10}, {5, 20}};
  EXPECT_EQ(apply("read x", rows), "10 | x=10 y=20");
  EXPECT_EQ(apply("lock mid", rows), "absent | x=10 y=20");
  EXPECT_EQ(apply("write x 11", rows), "done | x=11 y=20");
  EXPECT_EQ(apply("replace mid 11", rows), "absent | x=10 y=20");
  EXPECT_EQ(apply("add x -3", rows), "7 | x=7 y=20");
  EXPECT_EQ(apply("insert x 1", rows), "exists | x=10 y=20");
  EXPECT_EQ(apply("insert mid 1", rows), "done | x=10 mid=1 y=20");
  EXPECT_EQ(apply("delete x", rows), "done | y=20");
  EXPECT_EQ(apply("scan below..above reverse", rows), "y=20 x=10 | x=10 y=20");
  EXPECT_EQ(apply("scan below..above limit 1", rows), "x=10 | x=10 y=20");
  EXPECT_EQ(apply("scan below..x =20", rows), "nothing | x=10 y=20");
  EXPECT_EQ(apply("add below..above 1", rows), "x=11 y=21 | x=11 y=21");
  EXPECT_EQ(apply("delete below..above =20", rows), "y=20 | x=10");
  EXPECT_EQ(apply("find 20 near high", rows), "y=20 | x=10 y=20");
  EXPECT_EQ(apply("find 20 near x", rows), "nothing | x=10 y=20");  // y is in another site
}

TEST(Script, Mistakes_AreNamedWithTheirLine) {
  EXPECT_THAT(ParseError("T1 read x\n"),
              HasSubstr("test.txt:1: found 'T1 read x'; expected 'scenario NAME'"));
  EXPECT_THAT(ParseError("scenario s\nrows z=1\n"), HasSubstr("test.txt:2"));
  for (const char* step :
       {"T1 reed x", "T9 read x", "T1 read", "T1 read x 5", "T1 write x", "T1 read low..high", "T1 scan x",
        "T1 scan high..low", "T1 scan low..high limit 0", "T1 delete low..high", "T1 delete x =3",
        "T1 find 30 x", "T1 commit now", "T1 read x -> 1 -> 2"}) {
    EXPECT_THAT(ParseError(std::string("scenario s\n") + step + "\n"), HasSubstr("test.txt:2: found"))
        << step;
  }
  EXPECT_THAT(ParseError("scenario s\nT1 read x\nanomaly T1 read y -> 1\n"),
              HasSubstr("found 'T1 read y -> 1'"));
  EXPECT_THAT(ParseError("scenario s\nT1 read x\nanomaly T2 commit\n"), HasSubstr("found 'T2 commit'"));
  EXPECT_THAT(ParseError("scenario s\nT1 read x\n"), HasSubstr("one commit or abort"));
  EXPECT_THAT(ParseError("scenario s\nT1 commit\n"), HasSubstr("an 'anomaly' line"));
  EXPECT_THAT(ParseError("scenario s\nT2 commit\nanomaly T2 commit\n"), HasSubstr("last step of T1"));
}

TEST(Placement, RowsAreInOrderAndBordersWhereTheySay) {
  for (const Placement placement : kPlacements) {
    for (uint32_t row = 0; row < kRowNames.size(); ++row) {
      EXPECT_EQ(RowOf(placement, KeyOf(placement, row)), row);
      if (row != 0) {
        EXPECT_LT(KeyOf(placement, row - 1), KeyOf(placement, row));
      }
    }
    EXPECT_EQ(RowOf(placement, 5), kRowNames.size());
  }
  const auto sites = [](Placement placement) {
    return std::pair(SiteOf(placement, 3), SiteOf(placement, 4));
  };
  EXPECT_EQ(sites(Placement::kOneSite), std::pair(0u, 0u));
  EXPECT_EQ(sites(Placement::kSiteBorder), std::pair(0u, 1u));
  EXPECT_EQ(sites(Placement::kTwoIslands), std::pair(0u, 3u));
  EXPECT_EQ(sites(Placement::kIslandBorder), std::pair(1u, 2u));
}

TEST(Placement, SessionsHaveHomesOfTheirOwn) {
  EXPECT_EQ(AllArrangements(1).size(), 32u);
  const Arrangement apart{Placement::kOneSite, Homes::kApart, 2, 1};
  EXPECT_EQ(HomeIsland(apart, 0), 0u);
  EXPECT_EQ(HomeIsland(apart, 1), 1u);
  EXPECT_EQ(HomeWorker(apart, 1), 1u);
  EXPECT_EQ(HomeIsland({Placement::kOneSite, Homes::kCrossed, 1, 1}, 0), 1u);
  EXPECT_EQ(Name(apart), "one-site apart 2 workers seed 1");
}

}  // namespace
}  // namespace islands::simulation::isolation
