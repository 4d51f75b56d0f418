// Deadlocks over several islands in simulated clusters: found by probes, one victim each, long before the
// lock timeout. A failure prints its seed; running the same test again with --gtest_filter repeats it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>

#include "instance/messaging/links.h"
#include "instance/simulation/bank.h"
#include "instance/simulation/sim_cluster.h"
#include "instance/worker/wire.h"

namespace islands::simulation {
namespace {

using coordinator::TransactionId;
using instance::AbortReason;
using instance::Batch;
using partitioner::Uint64Key;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;
using runtime::kNsPerUs;

using Keys = std::vector<uint64_t>;

// Each transaction adds 1 to its accounts. One after the other: every step takes one lock and keeps it.
// Or at once: every island takes its share of the locks in their order, so a transaction may wait in several
// places.
struct Walk final : instance::Request {
  Keys keys;
};

// What the workload of the test now running does: its generators are made by a plain function.
// `next` gets the place of the generator and the number of the request.
struct Script {
  std::function<Keys(const instance::GeneratorContext&, runtime::Random&, uint64_t number)> next;
  bool at_once = false;
};
Script script;

class Walkers final : public instance::Generator {
 public:
  explicit Walkers(const instance::GeneratorContext& context) : context_(context) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Walk>(); }
  void Next(runtime::Random& random, instance::Request& request) override {
    auto& walk = static_cast<Walk&>(request);
    walk.keys = script.next(context_, random, number_++);
    walk.audit_delta = static_cast<int64_t>(walk.keys.size());
  }

 private:
  const instance::GeneratorContext context_;
  uint64_t number_ = 0;
};

class WalkWorkload final : public instance::Workload {
 public:
  explicit WalkWorkload(instance::TableId accounts, std::shared_ptr<const instance::Workload> bank)
      : accounts_(accounts), bank_(std::move(bank)) {}
  const char* name() const override { return "walk"; }
  std::vector<std::string> tables() const override { return {"accounts"}; }
  absl::Status Load(instance::Loader& loader) const override { return bank_->Load(loader); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Walkers>(context);
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    Batch& batch = transaction.batch();
    const Keys& keys = static_cast<const Walk&>(request).keys;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Uint64Key key(keys[i]);
      batch.Add(accounts_, key, 0, 1);
      if (script.at_once && i + 1 < keys.size()) continue;
      runtime::Task<absl::Status> step = transaction.Execute(batch);
      absl::Status status = co_await step;
      if (!status.ok()) co_return status;
      batch.Clear();
    }
    co_return absl::OkStatus();
  }
  int64_t AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const override {
    return bank_->AuditRow(table, key, row);
  }

 private:
  const instance::TableId accounts_;
  const std::shared_ptr<const instance::Workload> bank_;
};

std::shared_ptr<const instance::Workload> OpenWalk(const storage::Catalog& catalog) {
  return std::make_shared<WalkWorkload>(catalog.Find("accounts")->id, OpenBank(catalog));
}

SimOptions Options(uint64_t seed, uint32_t islands, uint32_t workers) {
  SimOptions options;
  options.seed = seed;
  options.islands = islands;
  options.workers = workers;
  options.sites = 12;
  *options.config.add_tables() = BankTable();
  options.open = OpenWalk;
  return options;
}

struct Counts {
  uint64_t deadlocks = 0, timeouts = 0, other_aborts = 0, probes = 0, probe_victims = 0;
};

Counts CountsOf(SimCluster& cluster, uint32_t islands) {
  Counts counts;
  for (uint32_t i = 0; i < islands; ++i) {
    if (!cluster.alive(i)) continue;
    for (const auto& worker : cluster.island(i).workers()) {
      const instance::WorkerCounters& from = worker->counters();
      for (uint32_t reason = 1; reason < instance::kAbortReasons; ++reason) {
        const uint64_t aborts = from.aborts[reason].Get();
        if (reason == static_cast<uint32_t>(AbortReason::kDeadlock)) {
          counts.deadlocks += aborts;
        } else if (reason == static_cast<uint32_t>(AbortReason::kLockTimeout)) {
          counts.timeouts += aborts;
        } else {
          counts.other_aborts += aborts;
        }
      }
      counts.probes += from.probes_sent.Get();
      counts.probe_victims += from.probe_victims.Get();
    }
  }
  return counts;
}

// An account of an island: `n` < kAccounts / islands.
uint64_t On(uint32_t island, uint32_t islands, uint64_t n) { return island * (kAccounts / islands) + n; }

// A few accounts on every island, visited in any order: what deadlocks over islands are made of.
void HotWalks(uint32_t islands) {
  script.at_once = false;
  script.next = [islands](const instance::GeneratorContext&, runtime::Random& random, uint64_t) {
    Keys keys;
    for (uint32_t i = 0; i < islands; ++i) keys.push_back(On(i, islands, random.Below(6)));
    for (size_t n = keys.size(); n > 1; --n) std::swap(keys[n - 1], keys[random.Below(n)]);
    return keys;
  };
}

// Several accounts of every island in one batch.
void HotBatches(uint32_t islands) {
  script.at_once = true;
  script.next = [islands](const instance::GeneratorContext&, runtime::Random& random, uint64_t) {
    Keys keys;
    for (uint32_t i = 0; i < 3 * islands; ++i) keys.push_back(On(i % islands, islands, random.Below(30)));
    return keys;
  };
}

TEST(Probes, FrequentDeadlocks_NoneLastsUntilTheLockTimeout) {
  Counts sum;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto islands = static_cast<uint32_t>(2 + seed % 2);
    if (seed % 3 == 0) {
      HotBatches(islands);
    } else {
      HotWalks(islands);
    }
    SimCluster cluster(Options(seed, islands, static_cast<uint32_t>(1 + seed / 2 % 2)));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(static_cast<uint32_t>(1 + seed / 4 % 3)).ok());
    cluster.RunFor(400 * kNsPerMs);
    ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
    const SimCluster::Totals totals = cluster.Sum();
    EXPECT_EQ(totals.locks_held, 0u);
    EXPECT_EQ(totals.branches_open, 0u);
    EXPECT_GT(totals.distributed, 50u);
    EXPECT_EQ(totals.audit_sum, kAccounts * kOpeningBalance + totals.audit_committed);
    const Counts counts = CountsOf(cluster, islands);
    EXPECT_EQ(counts.timeouts, 0u);
    EXPECT_EQ(counts.other_aborts, 0u);
    EXPECT_GT(counts.probe_victims, 0u);
    sum.deadlocks += counts.deadlocks;
    sum.probe_victims += counts.probe_victims;
    sum.probes += counts.probes;
  }
  std::cout << fmt::format("{} deadlocks, {} of them found by {} probes\n", sum.deadlocks, sum.probe_victims,
                           sum.probes);
}

TEST(Probes, SameSeed_SameTrace) {
  const auto run = [] {
    HotWalks(3);
    SimCluster cluster(Options(7, 3, 2));
    EXPECT_TRUE(cluster.Start().ok());
    EXPECT_TRUE(cluster.StartRun(3).ok());
    cluster.RunFor(200 * kNsPerMs);
    const Counts counts = CountsOf(cluster, 3);
    EXPECT_GT(counts.probe_victims, 0u);
    return std::tuple(cluster.trace(), counts.probes, counts.probe_victims);
  };
  EXPECT_EQ(run(), run());
}

// Where a generator is: (island, worker).
using Place = std::pair<uint32_t, uint32_t>;

// The first transaction of every place walks as given; everything else there keeps to itself.
void Once(uint32_t islands, std::map<Place, Keys> walks) {
  script.at_once = false;
  script.next = [islands, walks = std::move(walks)](const instance::GeneratorContext& context,
                                                    runtime::Random&, uint64_t number) {
    const auto found = walks.find({context.island, context.worker});
    if (number == 0 && found != walks.end()) return found->second;
    return Keys{On(context.island, islands, 40 + context.worker)};
  };
}

struct Cycle {
  Counts counts;
  int64_t lasted_ns = 0;
};

// Runs the script until a victim has fallen and everybody else has committed.
Cycle RunOnce(uint64_t seed, uint32_t islands, uint32_t workers, uint64_t transactions) {
  SimCluster cluster(Options(seed, islands, workers));
  EXPECT_TRUE(cluster.Start().ok());
  EXPECT_TRUE(cluster.StartRun(1).ok());
  const int64_t begun_ns = cluster.NowNs();
  Cycle cycle;
  while (cluster.NowNs() - begun_ns < 290 * kNsPerMs && cluster.Sum().distributed < transactions) {
    cluster.RunFor(200 * kNsPerUs);
    if (cycle.lasted_ns == 0 && CountsOf(cluster, islands).deadlocks != 0) {
      cycle.lasted_ns = cluster.NowNs() - begun_ns;
    }
  }
  EXPECT_TRUE(cluster.Drain(10 * kNsPerSecond));
  const SimCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.distributed, transactions);
  EXPECT_EQ(totals.locks_held, 0u);
  EXPECT_EQ(totals.audit_sum, kAccounts * kOpeningBalance + totals.audit_committed);
  cycle.counts = CountsOf(cluster, islands);
  return cycle;
}

void ExpectOneVictim(const Cycle& cycle) {
  EXPECT_EQ(cycle.counts.deadlocks, 1u);
  EXPECT_EQ(cycle.counts.probe_victims, 1u);
  EXPECT_EQ(cycle.counts.timeouts, 0u);
  EXPECT_EQ(cycle.counts.other_aborts, 0u);
  // The wait has to be old enough, a round has to come by, and the probe takes two messages per island.
  EXPECT_LT(cycle.lasted_ns, 15 * kNsPerMs);
}

TEST(Probes, CycleOverIslands_ExactlyOneVictim) {
  for (const uint32_t islands : {2u, 3u, 4u}) {
    int64_t sum_ns = 0, longest_ns = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << islands << " islands");
      std::map<Place, Keys> walks;
      for (uint32_t i = 0; i < islands; ++i) {
        const auto next = [&](uint64_t n) { return On((i + 1) % islands, islands, n); };
        walks[{i, 0}] = {On(i, islands, 0), next(50), next(51), next(0)};
      }
      Once(islands, walks);
      const Cycle cycle = RunOnce(seed, islands, 1, islands);
      ExpectOneVictim(cycle);
      sum_ns += cycle.lasted_ns;
      longest_ns = std::max(longest_ns, cycle.lasted_ns);
    }
    std::cout << fmt::format("a deadlock over {} islands lasted {:.1f} ms on average, {:.1f} ms at most\n",
                             islands, static_cast<double>(sum_ns) / 20e6,
                             static_cast<double>(longest_ns) / 1e6);
  }
}

// Nobody waits at home: each transaction visits the other islands only, so that both ends of every wait are
// participants' branches.
TEST(Probes, CycleOfParticipants_ExactlyOneVictim) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Once(4, {{{0, 0}, {On(2, 4, 0), On(3, 4, 0)}}, {{1, 0}, {On(3, 4, 0), On(2, 4, 0)}}});
    const Cycle cycle = RunOnce(seed, 4, 1, 2);
    if (cycle.counts.deadlocks == 0) continue;  // one was through before the other came
    ExpectOneVictim(cycle);
  }
}

// 0.0 waits on island 1 for 1.0, which waits on island 0 for 0.1, which waits there for 0.0: a wait between
// two workers of one island is part of the cycle.
TEST(Probes, CycleThroughTwoWorkersOfAnIsland_ExactlyOneVictim) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const uint64_t a = On(0, 2, 0), b = On(0, 2, 1), x = On(1, 2, 0);
    // Visits of accounts that nobody else wants take the time until the others hold their first ones.
    const auto away = [](uint64_t n) { return On(1, 2, 30 + n); };
    Once(2, {{{0, 0}, {a, away(0), away(1), x}},
             {{0, 1}, {b, away(2), away(3), a}},
             {{1, 0}, {x, On(0, 2, 30), On(0, 2, 31), b}}});
    ExpectOneVictim(RunOnce(seed, 2, 2, 3));
  }
}

// Somebody who only waits for one of the cycle may have the highest priority; its probes go round without
// doing harm, and it is not the one to fall.
TEST(Probes, WaiterOutsideTheCycle_IsNoVictim) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Once(3, {{{0, 0}, {On(0, 3, 0), On(1, 3, 50), On(1, 3, 51), On(1, 3, 0)}},
             {{1, 0}, {On(1, 3, 0), On(0, 3, 50), On(0, 3, 51), On(0, 3, 0)}},
             {{2, 0}, {On(0, 3, 52), On(0, 3, 53), On(0, 3, 0)}}});
    SimCluster cluster(Options(seed, 3, 1));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(1).ok());
    cluster.RunFor(100 * kNsPerMs);
    const auto deadlock = static_cast<uint32_t>(AbortReason::kDeadlock);
    EXPECT_EQ(cluster.island(2).workers()[0]->counters().aborts[deadlock].Get(), 0u);
    EXPECT_EQ(CountsOf(cluster, 3).deadlocks, 1u);
    EXPECT_EQ(cluster.Sum().distributed, 3u);
    ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
  }
}

// 0.0 has row a and waits for row b, behind 1.0; 1.0 waits for a. Who holds b and for 200 ms goes on holding
// it waits for nobody: the probes that follow holders end there.
TEST(Probes, CycleThroughTheQueueBehindWhoMoves_FallsBeforeHeIsDone) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const uint64_t a = On(0, 3, 0), b = On(1, 3, 0);
    bool begun = false;  // those of islands 0 and 1
    script.at_once = true;
    script.next = [&](const instance::GeneratorContext& context, runtime::Random&, uint64_t number) {
      const Keys own{On(context.island, 3, 40)};
      if (context.island == 2) return number == 0 ? Keys{b} : own;
      return begun ? Keys{a, b} : own;
    };
    SimOptions options = Options(seed, 3, 1);
    options.delay = [](runtime::Random&, messaging::Address from, messaging::Address to) {
      return from.island == 2 || to.island == 2 ? 100 * kNsPerMs : kNsPerMs;
    };
    SimCluster cluster(options);
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(1).ok());
    cluster.RunFor(110 * kNsPerMs);
    begun = true;
    cluster.RunFor(kNsPerMs / 2);
    begun = false;  // they are in it, and try nothing else afterwards
    const int64_t begun_ns = cluster.NowNs();
    while (CountsOf(cluster, 3).deadlocks == 0 && cluster.NowNs() - begun_ns < 250 * kNsPerMs)
      cluster.RunFor(kNsPerMs);
    // Its highest one's chase through queues comes after 16 ms, and takes four messages of 1 ms.
    EXPECT_LT(cluster.NowNs() - begun_ns, 30 * kNsPerMs);
    EXPECT_EQ(CountsOf(cluster, 3).probe_victims, 1u);
    EXPECT_EQ(cluster.Sum().distributed, 0u) << "and he is not done";
    EXPECT_TRUE(cluster.Drain(10 * kNsPerSecond));
  }
}

TEST(Probes, WaitWithoutCycle_IsLeftAlone) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    // Everybody in the same order: long queues, no cycle.
    script.at_once = false;
    script.next = [](const instance::GeneratorContext&, runtime::Random&, uint64_t) {
      return Keys{On(0, 3, 0), On(1, 3, 0), On(2, 3, 0)};
    };
    SimOptions options = Options(seed, 3, 1);
    options.max_delay_ns = 3 * kNsPerMs;
    SimCluster cluster(options);
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(2).ok());
    cluster.RunFor(200 * kNsPerMs);
    const Counts counts = CountsOf(cluster, 3);
    EXPECT_GT(counts.probes, 0u);
    EXPECT_EQ(counts.deadlocks, 0u);
    ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
  }
}

// A test that plays an island: it answers nothing, sends what probes it likes, and counts those it gets.
class FakeIsland final : public messaging::LinksHandler {
 public:
  FakeIsland(SimCluster& cluster, runtime::Clock& clock, uint32_t island, uint32_t islands)
      : cluster_(cluster), transport_(cluster.hub().MakeTransport({island, 0})) {
    messaging::LinksOptions options;
    options.cluster_id = cluster.island(0).config().cluster_id();
    options.self = {island, 0};
    options.boot_epoch = 2;
    options.workers_per_island.assign(islands, 1);
    links_ = std::make_unique<messaging::Links>(options, *transport_, clock, *this);
    EXPECT_TRUE(links_->Start().ok());
  }
  void OnPeerUp(uint32_t, uint64_t) override {}
  void OnPeerLost(uint32_t, uint64_t, const absl::Status&) override {}
  void OnMessage(const messaging::Origin&, messaging::FrameType type,
                 std::span<const std::byte> payload) override {
    if (type == messaging::FrameType::kExecuteRequest) ++requests_received;
    data::v1::Probe probe;
    if (type != messaging::FrameType::kProbe) return;
    ASSERT_TRUE(probe.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    // Others are of the islands' own chases.
    if (probe.initiator().island() == 2) ++probes_received;
  }
  void Run(int64_t ns) {
    const int64_t until_ns = cluster_.NowNs() + ns;
    while (cluster_.NowNs() < until_ns) {
      cluster_.RunFor(100 * kNsPerUs);
      links_->Poll();
      links_->Flush();
    }
  }
  bool Up(uint32_t peers) const { return links_->PeersUp() == peers; }
  // Until it has been followed.
  void Send(uint32_t to, const TransactionId& initiator, const TransactionId& blocked_on,
            uint32_t from_island, uint32_t hops = 1, bool at_participant = false) {
    Queue(to, initiator, blocked_on, from_island, hops, at_participant);
    Run(2 * kNsPerMs);
  }
  void Queue(uint32_t to, const TransactionId& initiator, const TransactionId& blocked_on,
             uint32_t from_island, uint32_t hops = 1, bool at_participant = false) {
    data::v1::Probe probe;
    instance::EncodeId(initiator, probe.mutable_initiator());
    instance::EncodeId(blocked_on, probe.mutable_blocked_on());
    probe.set_from_island(from_island);
    probe.set_hops(hops);
    probe.set_at_participant(at_participant);
    EXPECT_TRUE(links_->Send(to, messaging::FrameType::kProbe, probe));
    links_->Flush();
  }
  uint32_t probes_received = 0;  // that the test started
  uint32_t requests_received = 0;

 private:
  SimCluster& cluster_;
  std::unique_ptr<messaging::Transport> transport_;
  std::unique_ptr<messaging::Links> links_;
};

class ProbesFromAPeer : public testing::Test {
 protected:
  // 0.0 waits on island 1 for 1.0, which waits for an answer of island 2: the test.
  void SetUp() override {
    Once(3, {{{0, 0}, {On(0, 3, 0), On(0, 3, 0), On(1, 3, 1)}}, {{1, 0}, {On(1, 3, 1), On(2, 3, 0)}}});
    cluster_ = std::make_unique<SimCluster>(Options(1, 3, 1));
    ASSERT_TRUE(cluster_->Start().ok());
    cluster_->Crash(2);
    clock_ = std::make_unique<ClusterClock>(*cluster_);
    peer_ = std::make_unique<FakeIsland>(*cluster_, *clock_, 2, 3);
    while (!peer_->Up(2)) peer_->Run(kNsPerMs);
    peer_->Run(600 * kNsPerMs);  // until they have dialled back
    ASSERT_TRUE(cluster_->StartRun(1).ok());
    while (peer_->requests_received == 0) peer_->Run(kNsPerMs / 2);
    peer_->Run(2 * kNsPerMs);
    ASSERT_EQ(cluster_->Sum().aborted, 0u);
  }
  void TearDown() override {
    peer_.reset();
    EXPECT_TRUE(cluster_->Drain(15 * kNsPerSecond));
    EXPECT_EQ(cluster_->Sum().locks_held, 0u);
  }
  uint64_t Victims() { return CountsOf(*cluster_, 3).probe_victims; }
  // A transaction of the test that goes before all others as far as this wait is concerned.
  TransactionId HighInitiator() {
    for (uint64_t sequence = 1; sequence < 100; ++sequence) {
      const TransactionId initiator{2, 0, 2, sequence};
      const uint32_t before = peer_->probes_received;
      peer_->Send(0, initiator, waits_, 2);
      if (peer_->probes_received > before) return initiator;
    }
    ADD_FAILURE() << "no probe came through";
    return {};
  }

  struct ClusterClock final : runtime::Clock {
    explicit ClusterClock(const SimCluster& cluster) : cluster(cluster) {}
    int64_t NowNs() const override { return cluster.NowNs(); }
    const SimCluster& cluster;
  };
  const TransactionId waits_{0, 0, 1, 1};
  const TransactionId holds_{1, 0, 1, 1};
  std::unique_ptr<SimCluster> cluster_;
  std::unique_ptr<ClusterClock> clock_;
  std::unique_ptr<FakeIsland> peer_;
};

TEST_F(ProbesFromAPeer, Closed_VictimFallsOnce) {
  peer_->Send(0, waits_, waits_, 1);
  EXPECT_EQ(Victims(), 1u);
  peer_->Send(0, waits_, waits_, 1);
  EXPECT_EQ(Victims(), 1u);
}

TEST_F(ProbesFromAPeer, WaitIsOver_NobodyFalls) {
  peer_->Send(0, waits_, waits_, 0);  // it waits on island 1, not at home
  peer_->Send(0, waits_, waits_, 2);
  peer_->Send(0, {0, 0, 1, 77}, {0, 0, 1, 77}, 1);  // no such transaction
  EXPECT_EQ(Victims(), 0u);
}

TEST_F(ProbesFromAPeer, ForAnEarlierLife_IsDropped) {
  peer_->Send(0, {0, 0, 0, 1}, {0, 0, 0, 1}, 1);
  peer_->Send(0, waits_, {0, 0, 9, 1}, 1);
  ASSERT_TRUE(cluster_->island(0).workers()[0]->running());
  EXPECT_EQ(Victims(), 0u);
}

TEST_F(ProbesFromAPeer, Malformed_IsDropped) {
  peer_->Send(0, {0, 0, 1, 0}, waits_, 1);                        // nobody
  peer_->Send(0, waits_, {0, 0, 1, 0}, 1);                        // nobody
  peer_->Send(0, {9, 0, 1, 1}, waits_, 1);                        // no such island
  peer_->Send(0, waits_, waits_, 9);                              // no such island
  peer_->Send(0, waits_, holds_, 1);                              // lives elsewhere
  peer_->Send(0, waits_, {0, 5, 1, 1}, 1);                        // no such worker
  peer_->Send(0, waits_, holds_, 1, 1, /*at_participant=*/true);  // not the sender's to speak of
  EXPECT_EQ(Victims(), 0u);
  EXPECT_EQ(peer_->probes_received, 0u);
}

TEST_F(ProbesFromAPeer, Duplicates_AreFollowedOncePerRound) {
  const TransactionId initiator = HighInitiator();
  ASSERT_TRUE(initiator.valid());
  peer_->Run(10 * kNsPerMs);
  const uint32_t before = peer_->probes_received;
  for (int i = 0; i < 20; ++i) peer_->Queue(0, initiator, waits_, 2);
  peer_->Run(2 * kNsPerMs);
  EXPECT_GE(peer_->probes_received, before + 1);
  EXPECT_LE(peer_->probes_received, before + 2);  // a round may have ended between two of them
  EXPECT_EQ(Victims(), 0u);
}

TEST_F(ProbesFromAPeer, TooManyHops_IsDropped) {
  const TransactionId initiator = HighInitiator();
  ASSERT_TRUE(initiator.valid());
  peer_->Run(10 * kNsPerMs);
  const uint32_t before = peer_->probes_received;
  peer_->Send(0, initiator, waits_, 2, 64);
  EXPECT_EQ(peer_->probes_received, before);
  peer_->Send(0, initiator, waits_, 2, 62);  // goes on to island 1, and no further
  EXPECT_EQ(peer_->probes_received, before);
  peer_->Run(20 * kNsPerMs);  // until the other one is forgotten
  peer_->Send(0, initiator, waits_, 2, 61);
  EXPECT_EQ(peer_->probes_received, before + 1);
}

}  // namespace
}  // namespace islands::simulation
