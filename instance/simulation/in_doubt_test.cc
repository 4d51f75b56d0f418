// Branches in doubt: what ends them, and what must not - a link that is down, a coordinator that stands still
// for longer than every timeout, an island that is not the one that voted. One scenario each; the seeds mix
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "instance/simulation/bank.h"
#include "instance/simulation/fault_injector.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using coordinator::Coordinator;
using coordinator::Participant;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

constexpr int64_t kOpeningSum = kAccounts * kOpeningBalance;
constexpr uint32_t kMany = 16;  // transactions in flight per worker: some of them are what is looked for
constexpr StateIndex kExecuting = IndexOf(Coordinator::State::kExecuting);
constexpr StateIndex kPrepared = IndexOf(Participant::State::kPrepared);
constexpr StateIndex kVoting = IndexOf(Coordinator::State::kVoting);
constexpr StateIndex kCommitting = IndexOf(Coordinator::State::kCommitting);

class InDoubtTest : public testing::TestWithParam<uint64_t> {
 protected:
  void Start(uint32_t islands, uint32_t mpl = 4, bool keeps = false) {
    SimOptions options;
    options.keeps = keeps;
    options.seed = GetParam();
    options.islands = islands;
    *options.config.add_tables() = BankTable();
    options.open = OpenBank;
    cluster_.emplace(options);
    ASSERT_TRUE(cluster_->Start().ok());
    ASSERT_TRUE(cluster_->StartRun(mpl).ok());
    cluster_->RunFor(5 * kNsPerMs);
  }

  // Steps until there is such a machine.
  template <typename Wanted>
  Machine Find(Wanted&& wanted) {
    for (int step = 0; step < 200'000; ++step) {
      for (const Machine& machine : Machines(*cluster_)) {
        if (wanted(machine)) return machine;
      }
      cluster_->Step();
    }
    ADD_FAILURE() << "no such machine";
    return {};
  }
  struct At {
    uint32_t island;
    StateIndex state;
    bool Is(const Machine& machine) const { return machine.where.island == island && machine.state == state; }
  };
  // The first of two of the same transaction: with both known, nothing under way ends the state of either.
  Machine FindPair(const At& one, const At& other) {
    return Find([&](const Machine& found) {
      const std::vector<Machine> all = Machines(*cluster_);
      return one.Is(found) && std::any_of(all.begin(), all.end(), [&](const Machine& machine) {
               return other.Is(machine) && machine.id == found.id;
             });
    });
  }
  Machine FindInDoubt(uint32_t island) {
    return Find([island](const Machine& m) { return m.state == kPrepared && m.where.island == island; });
  }
  std::optional<StateIndex> StateOf(const Machine& wanted) {
    for (const Machine& machine : Machines(*cluster_)) {
      if (machine.id == wanted.id && machine.where == wanted.where) return machine.state;
    }
    return std::nullopt;
  }
  // What `islands txn FILE list --in-doubt` shows of the island.
  control::v1::Transactions InDoubtOn(uint32_t island) {
    control::v1::TransactionsRequest request;
    request.set_in_doubt(true);
    request.set_most(100);
    const auto asked = cluster_->island(island).AskTransactions(request);
    cluster_->RunFor(kNsPerMs);
    control::v1::Transactions listed = asked->Take(0);
    EXPECT_EQ(listed.silent_workers_size(), 0);
    return listed;
  }
  uint64_t Aborts(uint32_t island, instance::AbortReason reason) {
    uint64_t aborts = 0;
    for (const auto& worker : cluster_->island(island).workers())
      aborts += worker->counters().aborts[static_cast<uint8_t>(reason)].Get();
    return aborts;
  }
  uint64_t Committed(uint32_t island, instance::Scope scope) {
    uint64_t committed = 0;
    for (const auto& worker : cluster_->island(island).workers())
      committed += worker->counters().scopes[static_cast<uint8_t>(scope)].committed.Get();
    return committed;
  }
  void Hang(uint32_t island, int64_t ns) {
    for (uint32_t w = 0; w < cluster_->workers_of(island); ++w) cluster_->Stall(island, w, ns);
  }
  // Of island 0: one that executes, for which island 1 has done its part and island 2 has not.
  std::optional<Machine> HalfAnswered() {
    for (instance::CoordinatorEntry* entry : cluster_->island(0).workers()[0]->coordinated().All()) {
      const auto *one = entry->FindPeer(1), *two = entry->FindPeer(2);
      if (IndexOf(entry->machine.state()) != kExecuting || one == nullptr || two == nullptr) continue;
      if (!one->answer_due && two->answer_due) return Machine{kExecuting, {0, 0}, entry->id, {}};
    }
    return std::nullopt;
  }
  // Island 1 dies and is there again before such a transaction goes on: what it has done for it is lost.
  void ExpectNoVoteForALostShare() {
    std::optional<Machine> executing;
    for (int tries = 0; tries < 20 && !executing; ++tries) {
      cluster_->RunFor(200 * kNsPerMs);
      Hang(2, 100 * kNsPerMs);
      cluster_->RunFor(2 * kNsPerMs);  // its answers that are under way
      executing = HalfAnswered();
    }
    ASSERT_TRUE(executing);
    cluster_->Crash(1);
    ASSERT_TRUE(cluster_->Restart(1).ok());
    for (int step = 0; step < 200'000 && StateOf(*executing); ++step) {
      ASSERT_EQ(StateOf(*executing), kExecuting) << executing->id.ToString();
      cluster_->Step();
    }
    EXPECT_EQ(StateOf(*executing), std::nullopt);
  }
  struct Gone {
    int64_t committed = 0;
    uint64_t unknown = 0;
  };
  Gone CountsOf(uint32_t island) {
    Gone gone;
    for (const auto& worker : cluster_->island(island).workers()) {
      gone.committed += static_cast<int64_t>(worker->counters().audit_committed.Get());
      for (const auto& scope : worker->counters().scopes) gone.unknown += scope.unknown.Get();
    }
    return gone;
  }
  void ExpectMoneyIsThere(int64_t committed_before = 0) {
    ASSERT_TRUE(cluster_->Drain(10 * kNsPerSecond));
    const SimCluster::Totals totals = cluster_->Sum();
    EXPECT_EQ(totals.locks_held, 0u);
    EXPECT_EQ(totals.branches_open, 0u);
    if (totals.unknown == 0) {
      EXPECT_EQ(totals.audit_sum, kOpeningSum + totals.audit_committed + committed_before);
    }
  }

  std::optional<SimCluster> cluster_;
};

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeeds = 2;
#else
constexpr uint64_t kSeeds = 6;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, InDoubtTest, testing::Range<uint64_t>(1, 1 + kSeeds));

// What the log has of it is appended again and again, so that checkpoints pass what was there before, and is
// all that the next life needs.
TEST_P(InDoubtTest, Voter_KeepsNoMoreOfTheLogThanTheLastSeconds) {
  Start(2, 4, /*keeps=*/true);
  const Machine voter = FindPair({1, kPrepared}, {0, kVoting});
  cluster_->RequestStop();
  Hang(0, 60 * kNsPerSecond);
  cluster_->hub().Break({1, 0}, 0);
  const auto oldest = [&] { return cluster_->island(1).workers()[0]->OldestOpen(); };
  const uint64_t first = oldest();
  cluster_->RunFor(12 * kNsPerSecond);
  const uint64_t later = oldest();
  EXPECT_GT(later, first);
  EXPECT_EQ(StateOf(voter), kPrepared);
  cluster_->RunFor(12 * kNsPerSecond);
  EXPECT_GT(oldest(), later);
  const uint64_t in_doubt = InDoubtOn(1).total();
  ASSERT_GT(in_doubt, 0u);
  const Gone gone = CountsOf(1);
  cluster_->Crash(1);
  ASSERT_TRUE(cluster_->Restart(1).ok());
  EXPECT_EQ(InDoubtOn(1).total(), in_doubt);
  EXPECT_GE(oldest(), later);
  cluster_->RunFor(40 * kNsPerSecond);
  if (gone.unknown == 0) ExpectMoneyIsThere(gone.committed);
}

// The same of a decision that a participant does not hear of, and of the coordinator's next life.
TEST_P(InDoubtTest, Decision_KeepsNoMoreOfTheLogThanTheLastSeconds) {
  Start(2, 4, /*keeps=*/true);
  const Machine decided = FindPair({0, kCommitting}, {1, kPrepared});
  cluster_->RequestStop();
  Hang(1, 60 * kNsPerSecond);
  const auto oldest = [&] { return cluster_->island(0).workers()[0]->OldestOpen(); };
  const uint64_t first = oldest();
  cluster_->RunFor(12 * kNsPerSecond);
  const uint64_t later = oldest();
  EXPECT_GT(later, first);
  EXPECT_EQ(StateOf(decided), kCommitting);
  const Gone gone = CountsOf(0);
  cluster_->Crash(0);
  ASSERT_TRUE(cluster_->Restart(0).ok());
  EXPECT_EQ(StateOf(decided), kCommitting);
  const uint64_t restored = oldest();
  EXPECT_GE(restored, later);
  cluster_->RunFor(12 * kNsPerSecond);
  EXPECT_GT(oldest(), restored);
  cluster_->RunFor(40 * kNsPerSecond);
  if (gone.unknown == 0) ExpectMoneyIsThere(gone.committed);
}

// Found on real islands, with signals: the coordinator stands still, and the voter's own connection to it is
// down for longer than it used to wait. Nobody has died, so it has to wait: the YES lies in the coordinator's
// socket.
TEST_P(InDoubtTest, Voter_WaitsForACoordinatorThatStandsStillHoweverLong) {
  Start(2);
  const Machine voter = FindPair({1, kPrepared}, {0, kVoting});
  cluster_->RequestStop();
  Hang(0, 60 * kNsPerSecond);
  cluster_->hub().Break({1, 0}, 0);
  cluster_->RunFor(40 * kNsPerSecond);
  EXPECT_EQ(StateOf(voter), kPrepared) << "it gave up on a coordinator that lives";
  const control::v1::Transactions listed = InDoubtOn(1);
  EXPECT_GT(listed.total(), 0u);
  for (const control::v1::TransactionWork& work : listed.work()) {
    EXPECT_EQ(work.state(), control::v1::PREPARED);
    EXPECT_EQ(work.coordinator(), 0u);
    EXPECT_GT(work.in_doubt_us(), 39'000'000);
    EXPECT_EQ(work.out_of_reach_size(), 1) << work.ShortDebugString();
  }
  EXPECT_EQ(cluster_->island(1).Status().in_doubt(), listed.total());
  EXPECT_GT(cluster_->island(1).Status().in_doubt_ms(), 39'000);
  cluster_->RunFor(25 * kNsPerSecond);
  EXPECT_EQ(InDoubtOn(1).total(), 0u);
  EXPECT_EQ(cluster_->island(1).Status().in_doubt_ms(), 0);
  EXPECT_EQ(StateOf(voter), std::nullopt);
  ExpectMoneyIsThere();
}

// All links are cut for long, with both sides alive.
TEST_P(InDoubtTest, Voter_WaitsForACoordinatorThatIsOutOfReachHoweverLong) {
  Start(2);
  const Machine voter = FindInDoubt(1);
  cluster_->RequestStop();
  cluster_->hub().Partition(0, 1);
  cluster_->RunFor(30 * kNsPerSecond);
  EXPECT_EQ(StateOf(voter), kPrepared);
  cluster_->hub().HealAll();
  cluster_->RunFor(5 * kNsPerSecond);
  EXPECT_EQ(StateOf(voter), std::nullopt);
  ExpectMoneyIsThere();
}

// Its request has come over the coordinator's own link, so the coordinator is there, whatever the other
// link says.
TEST_P(InDoubtTest, Voter_DoesNotNeedALinkOfItsOwnToItsCoordinator) {
  Start(2);
  for (int i = 0; i < 20; ++i) {
    cluster_->hub().Break({1, 0}, 0);
    cluster_->RunFor(5 * kNsPerMs);
  }
  EXPECT_GT(Committed(0, instance::Scope::kDistributed), 0u);
  ExpectMoneyIsThere();
}

// Death is proven by the kernel, at once: nobody waits for a clock then either.
TEST_P(InDoubtTest, Voter_EndsAsSoonAsItsCoordinatorIsProvenDead) {
  Start(2);
  const Machine voter = FindInDoubt(1);
  cluster_->Crash(0);
  cluster_->RunFor(200 * kNsPerMs);
  EXPECT_EQ(StateOf(voter), std::nullopt);
  ASSERT_TRUE(cluster_->Drain(5 * kNsPerSecond));
  EXPECT_EQ(cluster_->Sum().locks_held, 0u);
}

// Some participants have heard the word of a coordinator that then died: the others hear it from them.
TEST_P(InDoubtTest, Orphans_AgreeWithThoseWhoHaveHeard) {
  Start(4);
  const auto in_doubt = [this](const Machine& decided) {
    std::vector<Machine> voters;
    for (const Machine& machine : Machines(*cluster_)) {
      if (machine.id == decided.id && machine.state == kPrepared) voters.push_back(machine);
    }
    return voters;
  };
  const Machine decided =
      Find([&](const Machine& m) { return m.state == kCommitting && in_doubt(m).size() > 1; });
  std::vector<Machine> voters = in_doubt(decided);
  ASSERT_GE(voters.size(), 2u);
  // All but the first hear it; that one never will: its link is cut with what is under way on it.
  cluster_->hub().Partition(decided.where.island, voters[0].where.island);
  for (int step = 0; step < 100'000 && in_doubt(decided).size() > 1; ++step) cluster_->Step();
  ASSERT_EQ(in_doubt(decided).size(), 1u);
  const auto& worker = cluster_->island(voters[0].where.island).workers()[voters[0].where.worker];
  const auto acknowledged = [&] {
    return worker->counters().two_phase[static_cast<uint8_t>(instance::TwoPhaseStep::kAcknowledged)].Get();
  };
  cluster_->RequestStop();
  cluster_->RunFor(100 * kNsPerMs);
  const uint64_t before = acknowledged();
  cluster_->Crash(decided.where.island);
  cluster_->RunFor(300 * kNsPerMs);
  EXPECT_EQ(StateOf(voters[0]), std::nullopt);
  EXPECT_GT(acknowledged(), before) << "it did not commit what the others have committed";
}

// A commit reaches a participant that has died and come back meanwhile: it says that it does not have it, and
// the coordinator counts what is lost instead of taking it for done.
TEST_P(InDoubtTest, Coordinator_CountsTheShareOfAParticipantThatDied) {
  Start(2);
  const Machine decided =
      Find([](const Machine& m) { return m.state == kCommitting && m.where.island == 0; });
  cluster_->hub().Partition(0, 1);
  cluster_->Crash(1);
  ASSERT_TRUE(cluster_->Restart(1).ok());
  cluster_->hub().HealAll();
  cluster_->RequestStop();
  cluster_->RunFor(5 * kNsPerSecond);
  EXPECT_EQ(StateOf(decided), std::nullopt);
  uint64_t lost = 0;
  for (const auto& worker : cluster_->island(0).workers()) lost += worker->counters().shares_lost.Get();
  EXPECT_GT(lost, 0u);
}

TEST_P(InDoubtTest, Transaction_EndsWithTheLifeThatItKnew) {
  Start(3, kMany);
  ExpectNoVoteForALostShare();
}

TEST_P(InDoubtTest, Transaction_EndsWithALaterLifeThatItKnew) {
  Start(3, kMany);
  for (const uint32_t island : {0u, 1u}) {
    cluster_->Crash(island);
    ASSERT_TRUE(cluster_->Restart(island).ok());
    cluster_->RunFor(kNsPerSecond);
  }
  ASSERT_TRUE(cluster_->StartRun(kMany).ok());
  ExpectNoVoteForALostShare();
}

// An abort that was lost with its link. Who has not voted knows at once that nobody will ask it to: its locks
// are free as soon as the link is down, not when some clock has run out.
TEST_P(InDoubtTest, Branch_WithoutAVoteEndsWithTheLinkOfItsCoordinator) {
  Start(2);
  constexpr StateIndex kActive = IndexOf(Participant::State::kActive);
  const Machine branch =
      Find([](const Machine& m) { return m.state == kActive && m.where.island == 1 && m.where.worker == 0; });
  cluster_->RequestStop();
  cluster_->hub().Partition(0, 1);
  cluster_->RunFor(100 * kNsPerMs);
  EXPECT_EQ(StateOf(branch), std::nullopt);
  for (const Machine& machine : Machines(*cluster_))
    EXPECT_NE(machine.state, kActive) << machine.id.ToString();
  cluster_->hub().HealAll();
  ExpectMoneyIsThere();
}

// The same when it stands still, and only what this island has dialled is down: its requests came over its
// own.
TEST_P(InDoubtTest, Branch_WithoutAVoteEndsWhenItsCoordinatorHangs) {
  Start(2);
  constexpr StateIndex kActive = IndexOf(Participant::State::kActive);
  const Machine branch =
      Find([](const Machine& m) { return m.state == kActive && m.where.island == 1 && m.where.worker == 0; });
  cluster_->RequestStop();
  Hang(0, 3 * kNsPerSecond);
  cluster_->hub().Break({1, 0}, 0);
  cluster_->RunFor(1500 * kNsPerMs);
  EXPECT_NE(StateOf(branch), kActive);  // gone; or it was asked to vote at the last moment, and waits
  ExpectMoneyIsThere();
}

// One has heard of the commit and the other has not, for longer than everything that came after took: it is
// remembered all the while.
TEST_P(InDoubtTest, Orphan_IsToldOfACommitLongAgo) {
  Start(3);
  const auto voter_of = [&](uint32_t island, const Machine& m) {
    return StateOf({kPrepared, {island, 0}, m.id, {}});
  };
  const Machine decided = Find([&](const Machine& m) {
    return m.state == kCommitting && m.where.island == 0 && voter_of(1, m) == kPrepared &&
           voter_of(2, m) == kPrepared;
  });
  cluster_->hub().Partition(0, 2);
  for (int step = 0; step < 100'000 && voter_of(1, decided); ++step) cluster_->Step();
  ASSERT_EQ(voter_of(1, decided), std::nullopt);
  ASSERT_EQ(voter_of(2, decided), kPrepared);
  const uint64_t before = Committed(0, instance::Scope::kDistributed);
  cluster_->RunFor(6 * kNsPerSecond);
  ASSERT_GT(Committed(0, instance::Scope::kDistributed), before + 500);
  cluster_->RequestStop();
  cluster_->RunFor(100 * kNsPerMs);
  const auto acknowledged = [&] {
    return cluster_->island(2)
        .workers()[0]
        ->counters()
        .two_phase[static_cast<uint8_t>(instance::TwoPhaseStep::kAcknowledged)]
        .Get();
  };
  const uint64_t acknowledged_before = acknowledged();
  cluster_->Crash(0);
  cluster_->RunFor(300 * kNsPerMs);
  EXPECT_EQ(voter_of(2, decided), std::nullopt);
  EXPECT_GT(acknowledged(), acknowledged_before) << "it did not commit what the other has committed";
}

// Its fellow stands still: it is asked when it goes on, not fifty times a second until then.
TEST_P(InDoubtTest, Orphan_DoesNotAskAFellowThatHangs) {
  Start(3, kMany);
  Machine voter;
  Find([&](const Machine& m) {
    if (m.state != kPrepared || m.where.island != 1 || m.id.island != 0) return false;
    voter = m;
    return StateOf({kPrepared, {2, 0}, m.id, {}}) == kPrepared;
  });
  cluster_->RequestStop();
  Hang(2, 7 * kNsPerSecond);
  cluster_->Crash(0);
  cluster_->RunFor(1 * kNsPerSecond);
  const instance::Counter& asked = cluster_->island(1)
                                       .workers()[0]
                                       ->counters()
                                       .two_phase[static_cast<uint8_t>(instance::TwoPhaseStep::kFellowAsked)];
  const uint64_t before = asked.Get();
  EXPECT_GT(before, 0u);
  cluster_->RunFor(5 * kNsPerSecond);
  EXPECT_EQ(asked.Get(), before);
  EXPECT_EQ(StateOf(voter), IndexOf(Participant::State::kOrphaned));
  cluster_->RunFor(3 * kNsPerSecond);
  EXPECT_EQ(StateOf(voter), std::nullopt);
}

// Others remember what they have committed until all have ended it; one that cannot end does not keep the
// rest.
TEST_P(InDoubtTest, Hang_DoesNotKeepOthersCommitsRemembered) {
  Start(3);
  Find([](const Machine& m) {
    return m.state == kCommitting && m.where.island == 0 && m.HasPeer(2) && !m.HasPeer(1);
  });
  Hang(2, 12 * kNsPerSecond);
  cluster_->RunFor(10 * kNsPerSecond);
  EXPECT_GT(Committed(0, instance::Scope::kDistributed), 3000u);
  for (const uint32_t island : {0u, 1u})
    EXPECT_LT(cluster_->island(island).workers()[0]->branches().commits_remembered(), 1500u);
  cluster_->RunFor(3 * kNsPerSecond);
  ExpectMoneyIsThere();
}

// An island that stands still: the others notice within a second, begin nothing new with it, and go on.
TEST_P(InDoubtTest, Hang_StopsNobodyElse) {
  Start(4);
  Hang(0, 5 * kNsPerSecond);
  cluster_->RunFor(1 * kNsPerSecond);
  EXPECT_GT(Aborts(1, instance::AbortReason::kPeerUnresponsive), 0u) << "not noticed within a second";
  // What asked it to decide alone waits for its answer until the deadline.
  cluster_->RunFor(1500 * kNsPerMs);
  const uint64_t then = Committed(1, instance::Scope::kLocal);
  cluster_->RunFor(500 * kNsPerMs);
  // How many depends on which rows are in doubt: deploy/e2e/test_hang.py measures it.
  EXPECT_GT(Committed(1, instance::Scope::kLocal), then);
  size_t queued = 0;
  for (const auto& worker : cluster_->island(1).workers()) queued += worker->links().QueuedBytes(0);
  EXPECT_LT(queued, 2u << 20);
  // All heals: nothing was lost, and it takes part again.
  cluster_->RunFor(2200 * kNsPerMs);
  const uint64_t distributed = Committed(0, instance::Scope::kDistributed);
  cluster_->RunFor(300 * kNsPerMs);
  EXPECT_GT(Committed(0, instance::Scope::kDistributed), distributed);
  ExpectMoneyIsThere();
}

}  // namespace
}  // namespace islands::simulation
