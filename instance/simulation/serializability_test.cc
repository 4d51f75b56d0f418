// Histories made by hand: every anomaly is found, and what a correct engine may do passes.
#include "instance/simulation/serializability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::simulation {
namespace {

using coordinator::Outcome;
using testing::HasSubstr;

constexpr uint64_t kX = 10;  // keys; loaded, on islands 0 and 1
constexpr uint64_t kY = 20;
constexpr uint64_t kZ = 15;  // not loaded, between them
constexpr uint64_t kLife = 1;

Word V(uint64_t version) { return LoadedWord(kLife) + version - 1; }  // V(1) is what was loaded

// Short words for what transactions do; the order of the calls is the order of time.
class Story {
 public:
  Story() {
    history_.SetLoaded(kX);
    history_.SetLoaded(kY);
  }
  size_t Begin() { return history_.Begin({0, 0, 1, ++sequence_}, 0); }
  void Access_(size_t t, Access::Kind kind, uint64_t key, Word before, Word after, uint64_t life = kLife) {
    const uint32_t island = key < 15 ? 0 : 1;
    history_.Learn(
        t, {.kind = kind, .island = island, .key = key, .life = life, .before = before, .after = after});
  }
  void Read(size_t t, uint64_t key, Word word) { Access_(t, Access::kRead, key, word, word); }
  void Scan(size_t t, uint64_t key, Word word) { Access_(t, Access::kPredicateRead, key, word, word); }
  void Update(size_t t, uint64_t key, Word before) { Access_(t, Access::kUpdate, key, before, before + 1); }
  Word Insert(size_t t, uint64_t key) {
    const Word word = MakeWord(1 + t, 1);
    Access_(t, Access::kInsert, key, kAbsent, word);
    return word;
  }
  void Delete(size_t t, uint64_t key, Word word) { Access_(t, Access::kDelete, key, word, kAbsent); }
  void End(size_t t, Outcome outcome) { history_.End(history_.attempts()[t].id, outcome, 0); }
  void Commit(size_t t) {
    history_.Finish(t);
    End(t, Outcome::kCommitted);
  }
  void Abort(size_t t) { End(t, Outcome::kAborted); }
  Attempt& attempt(size_t t) { return *history_.Find(history_.attempts()[t].id); }
  History& history() { return history_; }

  Verdict Check(const std::vector<FinalRow>& rows = {}) { return CheckHistory(history_, rows); }
  std::string Found(const std::vector<FinalRow>& rows = {}) {
    const Verdict verdict = Check(rows);
    return verdict.ok() ? "nothing" : verdict.violations.front();
  }

 private:
  History history_;
  uint64_t sequence_ = 0;
};

TEST(CheckHistory, OneAfterTheOther_Passes) {
  Story s;
  const size_t a = s.Begin();
  s.Read(a, kX, V(1));
  s.Update(a, kX, V(1));
  const Word z = s.Insert(a, kZ);
  s.Commit(a);
  const size_t b = s.Begin();
  s.Scan(b, kX, V(2));
  s.Scan(b, kZ, z);
  s.Delete(b, kZ, z);
  s.Read(b, kZ, kAbsent);
  s.Commit(b);
  const size_t c = s.Begin();
  s.Scan(c, kZ, kAbsent);
  s.Insert(c, kZ);
  s.Abort(c);
  EXPECT_EQ(s.Found({{0, kX, kLife, V(2)}, {1, kY, kLife, V(1)}, {1, kZ, kLife, kAbsent}}), "nothing");
}

// Overlapping in time, in an order that is not that of their beginnings.
TEST(CheckHistory, OverlappingButOrderable_Passes) {
  Story s;
  const size_t a = s.Begin();
  const size_t b = s.Begin();
  s.Update(b, kX, V(1));
  s.Commit(b);
  s.Read(a, kX, V(2));
  s.Update(a, kY, V(1));
  s.Commit(a);
  EXPECT_EQ(s.Found(), "nothing");
}

TEST(CheckHistory, G0_DirtyWriteIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Update(a, kX, V(1));
  s.Update(b, kX, V(2));
  s.Update(b, kY, V(1));
  s.Update(a, kY, V(2));
  s.Commit(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G0"));
}

TEST(CheckHistory, G1a_AbortedReadIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Update(a, kX, V(1));
  s.Read(b, kX, V(2));
  s.Abort(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G1a"));
}

TEST(CheckHistory, G1a_AbortedInsertAndDeleteSeenByAScanAreFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  const Word z = s.Insert(a, kZ);
  s.Scan(b, kZ, z);
  s.Abort(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G1a"));
  Story d;
  const size_t e = d.Begin(), f = d.Begin();
  d.Delete(e, kX, V(1));
  d.Scan(f, kX, kAbsent);
  d.Abort(e);
  d.Commit(f);
  EXPECT_THAT(d.Found(), HasSubstr("G1a"));
}

TEST(CheckHistory, G1b_IntermediateReadIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Update(a, kX, V(1));
  s.Read(b, kX, V(2));
  s.Update(a, kX, V(2));
  s.Commit(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G1b"));
}

TEST(CheckHistory, G1c_CircularFlowIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Update(a, kX, V(1));
  s.Update(b, kY, V(1));
  s.Read(a, kY, V(2));
  s.Read(b, kX, V(2));
  s.Commit(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G1c"));
}

TEST(CheckHistory, GSingle_ReadSkewIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Read(a, kX, V(1));
  s.Update(b, kX, V(1));
  s.Update(b, kY, V(1));
  s.Commit(b);
  s.Read(a, kY, V(2));
  s.Commit(a);
  EXPECT_THAT(s.Found(), HasSubstr("G-single"));
}

TEST(CheckHistory, P4_LostUpdateIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Read(a, kX, V(1));
  s.Read(b, kX, V(1));
  s.Update(a, kX, V(1));
  s.Commit(a);
  s.Update(b, kX, V(1));
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("lost update"));
}

TEST(CheckHistory, G2Item_WriteSkewIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Read(a, kX, V(1));
  s.Read(b, kY, V(1));
  s.Update(a, kY, V(1));
  s.Update(b, kX, V(1));
  s.Commit(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G2-item"));
}

TEST(CheckHistory, G2_PhantomIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Scan(a, kZ, kAbsent);
  s.Scan(b, kZ + 1, kAbsent);
  s.Insert(a, kZ + 1);
  s.Insert(b, kZ);
  s.Commit(a);
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G2, phantom"));
}

// Predicate-many-preceders: the same scan twice.
TEST(CheckHistory, Pmp_RowAppearsBetweenTwoScansIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Scan(a, kZ, kAbsent);
  const Word z = s.Insert(b, kZ);
  s.Commit(b);
  s.Scan(a, kZ, z);
  s.Commit(a);
  EXPECT_NE(s.Found(), "nothing");
}

TEST(CheckHistory, Pmp_RowVanishesBetweenTwoScansIsFound) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin();
  s.Scan(a, kX, V(1));
  s.Delete(b, kX, V(1));
  s.Commit(b);
  s.Scan(a, kX, kAbsent);
  s.Commit(a);
  EXPECT_NE(s.Found(), "nothing");
}

TEST(CheckHistory, RealTime_StaleReadIsFound) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Commit(a);
  const size_t b = s.Begin();
  s.Read(b, kX, V(1));
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("real-time"));
}

// Through a third one that touches neither row: the helper nodes carry the order on.
TEST(CheckHistory, RealTime_IsTransitive) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Commit(a);
  const size_t b = s.Begin();
  s.Read(b, kZ, kAbsent);
  s.Commit(b);
  const size_t c = s.Begin();
  s.Read(c, kX, V(1));
  s.Commit(c);
  EXPECT_THAT(s.Found(), HasSubstr("real-time"));
}

TEST(CheckHistory, RealTime_OverlappingStaleReadPasses) {
  Story s;
  const size_t a = s.Begin();
  const size_t b = s.Begin();
  s.Update(a, kX, V(1));
  s.Commit(a);
  s.Read(b, kX, V(1));
  s.Commit(b);
  EXPECT_EQ(s.Found(), "nothing");
}

TEST(CheckHistory, OwnWrites_MustBeSeen) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Read(a, kX, V(1));
  s.Commit(a);
  EXPECT_THAT(s.Found(), HasSubstr("own write"));
}

TEST(CheckHistory, InsertOverAPresentRow_IsFound) {
  Story s;
  const size_t a = s.Begin();
  s.Insert(a, kZ);
  s.Commit(a);
  const size_t b = s.Begin();
  s.Insert(b, kZ);
  s.Commit(b);
  EXPECT_NE(s.Found(), "nothing");
}

TEST(CheckHistory, ReadOfWhatNobodyWrote_IsFound) {
  Story s;
  const size_t a = s.Begin();
  s.Read(a, kX, V(7));
  s.Commit(a);
  EXPECT_THAT(s.Found(), HasSubstr("unexplained"));
}

TEST(CheckHistory, TornRow_IsFound) {
  Story s;
  const size_t a = s.Begin();
  s.history().Learn(a, {.kind = Access::kUpdate,
                        .key = kX,
                        .life = kLife,
                        .before = V(1),
                        .after = V(2),
                        .has_amount = true,
                        .amount = 5});
  s.Commit(a);
  const size_t b = s.Begin();
  s.history().Learn(b, {.kind = Access::kRead,
                        .key = kX,
                        .life = kLife,
                        .before = V(2),
                        .after = V(2),
                        .has_amount = true,
                        .amount = 4});
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("torn row"));
}

// A committed write that is not there at the end.
TEST(CheckHistory, FinalState_MissingWriteIsFound) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Commit(a);
  EXPECT_EQ(s.Found({{0, kX, kLife, V(2)}}), "nothing");
  EXPECT_NE(s.Found({{0, kX, kLife, V(1)}}), "nothing");
}

TEST(CheckHistory, Unknown_CountsAsCommittedWhenSeen) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Update(a, kY, V(1));
  s.history().Finish(a);
  s.End(a, Outcome::kUnknown);
  const size_t b = s.Begin();
  s.Read(b, kX, V(2));
  s.Commit(b);
  const Verdict verdict = s.Check();
  EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(verdict.committed, std::vector<bool>({true, true}));
  // Seen in one place, it has to be there in the other.
  const size_t c = s.Begin();
  s.Read(c, kY, V(1));
  s.Commit(c);
  EXPECT_NE(s.Found(), "nothing");
}

TEST(CheckHistory, Unknown_CountsAsAbortedWhenNotSeen) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.history().Finish(a);
  s.End(a, Outcome::kUnknown);
  const size_t b = s.Begin();
  s.Update(b, kX, V(1));  // makes the same version: the first one was undone
  s.Commit(b);
  const size_t c = s.Begin();
  s.Read(c, kX, V(2));
  s.Commit(c);
  const Verdict verdict = s.Check();
  EXPECT_TRUE(verdict.ok()) << verdict.violations.front();
  EXPECT_EQ(verdict.committed, std::vector<bool>({false, true, true}));
}

// The answer of its branch was long under way: meanwhile the branch was given up, and another transaction
// made the same version.
TEST(CheckHistory, Unknown_VersionBelongsToWhoIsKnownToHaveCommitted) {
  Story s;
  const size_t a = s.Begin();
  const size_t b = s.Begin();
  s.Update(b, kX, V(1));
  s.Commit(b);
  s.Update(a, kX, V(1));
  s.history().Finish(a);
  s.End(a, Outcome::kUnknown);
  const size_t c = s.Begin();
  s.Read(c, kX, V(2));
  s.Commit(c);
  const Verdict verdict = s.Check();
  EXPECT_TRUE(verdict.ok()) << verdict.violations.front();
  EXPECT_EQ(verdict.committed, std::vector<bool>({false, true, true}));
}

TEST(CheckHistory, Unknown_DeleteIsJudgedByTheNextLook) {
  for (const bool seen : {true, false}) {
    Story s;
    const size_t a = s.Begin();
    s.Delete(a, kX, V(1));
    s.history().Finish(a);
    s.End(a, Outcome::kUnknown);
    const size_t b = s.Begin();
    s.Scan(b, kX, seen ? kAbsent : V(1));
    s.Commit(b);
    const Verdict verdict = s.Check();
    EXPECT_TRUE(verdict.ok());
    EXPECT_EQ(verdict.committed[a], seen);
  }
}

// Its procedure never came to its end, so nobody can have committed it.
TEST(CheckHistory, Unfinished_MustNotBeSeen) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  const size_t b = s.Begin();
  s.Read(b, kX, V(2));
  s.Commit(b);
  EXPECT_THAT(s.Found(), HasSubstr("G1a"));
}

// The coordinator died while it told its participants: one keeps the changes, one presumes an abort.
TEST(CheckHistory, Torn_BranchesStandForThemselves) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Update(a, kY, V(1));
  s.Commit(a);
  const size_t b = s.Begin();
  s.Read(b, kX, V(2));
  s.Read(b, kY, V(1));
  s.Commit(b);
  EXPECT_NE(s.Found(), "nothing");
  s.attempt(a).torn = true;
  EXPECT_EQ(s.Found(), "nothing");
  // What a branch wrote does not vanish again.
  const size_t c = s.Begin();
  s.Read(c, kX, V(1));
  s.Commit(c);
  EXPECT_NE(s.Found(), "nothing");
}

TEST(CheckHistory, Lives_RowsOfAnEarlierLifeAreOtherRows) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.Commit(a);
  const size_t b = s.Begin();
  s.Access_(b, Access::kRead, kX, LoadedWord(2), LoadedWord(2), /*life=*/2);
  s.Commit(b);
  EXPECT_EQ(s.Found(), "nothing");
  const size_t c = s.Begin();
  s.Read(c, kX, V(2));
  s.Access_(c, Access::kRead, kX + 1, kAbsent, kAbsent, /*life=*/2);
  s.Commit(c);
  EXPECT_THAT(s.Found(), HasSubstr("two lives"));
}

TEST(CheckHistory, Doomed_MustNotCommit) {
  Story s;
  const size_t a = s.Begin();
  s.Update(a, kX, V(1));
  s.attempt(a).doomed = true;
  s.Commit(a);
  EXPECT_THAT(s.Found(), HasSubstr("lost branch"));
}

// The report names the smallest cycle, however large the component around it is.
TEST(CheckHistory, Report_SmallestCycleFirst) {
  Story s;
  const size_t a = s.Begin(), b = s.Begin(), c = s.Begin(), d = s.Begin();
  s.Read(a, kX, V(1));
  s.Read(b, kY, V(1));
  s.Read(c, kZ, kAbsent);
  s.Update(a, kY, V(1));
  s.Insert(b, kZ);
  s.Update(c, kX, V(1));
  s.Read(d, kX, V(2));
  s.Update(d, kY, V(2));
  s.Read(d, kZ, kAbsent);
  s.Commit(a);
  s.Commit(b);
  s.Commit(c);
  s.Commit(d);
  const std::string found = s.Found();
  EXPECT_THAT(found, HasSubstr("a cycle of 3"));
  EXPECT_THAT(found, HasSubstr("0.0.1.1"));
}

}  // namespace
}  // namespace islands::simulation
