// All of crash_matrix.h: at every point that a transaction comes by, its coordinator or participant is
// killed, or the whole box loses power; and both happen once more while what died comes back.
//
// Whatever happens, the transaction is whole on all islands or on none, as the table says, and as its client
// was told; it ends, no lock is left, no branch, nothing that the log is needed for; and another one commits
// after it. Between the two the victim has found in its log what the table says.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "instance/simulation/crash_matrix.h"
#include "instance/simulation/fault_injector.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using coordinator::Coordinator;
using coordinator::Outcome;
using coordinator::Participant;
using instance::TwoPhaseStep;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;
using runtime::kNsPerUs;

constexpr uint32_t kIslands = 4;
constexpr uint32_t kCoordinator = 0, kOne = 1, kTwo = 2;
constexpr int64_t kPacketNs = 200 * kNsPerUs;  // longer than a step of the cluster
constexpr int64_t kHeldNs = 3 * kNsPerSecond;  // longer than anything that a point waits for
// After which who sees nothing of its coordinator gives up (peer_watch.h).
constexpr int64_t kSilenceNs = 1200 * kNsPerMs;
constexpr StateIndex kVoting = IndexOf(Coordinator::State::kVoting);
constexpr StateIndex kOnePhase = IndexOf(Coordinator::State::kOnePhase);
constexpr StateIndex kInquiring = IndexOf(Coordinator::State::kInquiring);
constexpr StateIndex kActive = IndexOf(Participant::State::kActive);
constexpr StateIndex kPrepared = IndexOf(Participant::State::kPrepared);
constexpr StateIndex kHasDecided = IndexOf(Participant::State::kDecided);

enum class Disaster : uint8_t {
  kKill,          // of one island
  kLosesAll,      // power is lost, and nothing of the transaction is durable
  kLosesOutcome,  // the same, but what was appended until the votes were given is
  kLosesNothing,  // the same, but all that was appended is
};
enum class Again : uint8_t {
  kNo,
  kReading,    // while the next life reads its log; power: when some of the islands are there again
  kRecovered,  // when it knows what was left, and has said nothing
  kTalking,    // a little later
  kOver,       // when all has ended
};
constexpr int kDisasters = 4, kAgains = 5;
// Of power. More would not be others: as good as nothing is under way when it strikes.
constexpr size_t kImagesOfALoss = 1;
constexpr uint64_t kLeastImages = 1500;  // of all clusters
uint64_t images = 0;
constexpr std::array<std::string_view, kDisasters> kDisasterNames = {"kill", "loses all", "loses outcome",
                                                                     "loses nothing"};
constexpr std::array<std::string_view, kAgains> kAgainNames = {"no", "reading", "recovered", "talking",
                                                               "over"};

struct Case {
  Shape shape{};
  Point point{};
  Disaster disaster{};
  Again again{};
};

class Crossed {
 public:
  explicit Crossed(const Case& what)
      : what_(what),
        victim_(OfCoordinator(what.point) ? kCoordinator : kOne),
        random_(runtime::Random::Stream(
            static_cast<uint64_t>(what.shape) * kPoints + static_cast<uint64_t>(what.point),
            static_cast<uint64_t>(what.disaster) * kAgains + static_cast<uint64_t>(what.again))) {
    transaction_->roles = RolesOf(what.shape);
  }

  void Run() {
    ASSERT_NO_FATAL_FAILURE(Begin());
    ASSERT_NO_FATAL_FAILURE(Reach());
    Strike(LosesWords() ? SimCluster::LastWords::kAreLost : SimCluster::LastWords::kArrive);
    ASSERT_NO_FATAL_FAILURE(ComeBackAgain());
    ASSERT_NO_FATAL_FAILURE(ExpectEnd());
    ASSERT_NO_FATAL_FAILURE(ExpectAnotherOne());
    images += cluster_->log().images();
  }

 private:
  bool kills() const { return what_.disaster == Disaster::kKill; }
  bool one_phase() const { return what_.shape == Shape::kOnePhase; }
  // Its deadline passes meanwhile, and its client hears that nobody knows.
  bool AsksDecider() const { return one_phase() && what_.point == Point::kInquiring; }
  // Its answer, for EPOCH, which stands still.
  bool Waits() const { return what_.disaster == Disaster::kLosesAll || paused_; }
  bool LosesWords() const {
    return what_.point == Point::kDecided || what_.point == Point::kPrepared ||
           what_.point == Point::kCommitted;
  }

  void Begin();
  void BeginTransaction(uint64_t run);
  void Execute();
  void Reach();
  void ReachOfCoordinator();
  void ReachOfParticipant();
  void Strike(SimCluster::LastWords words);
  void RestartDead();
  void ComeBackAgain();
  void ComeBackInVain();
  bool AllOver();
  void ExpectFound();
  Found ToBeFound() const;
  void ExpectEnd();
  bool Commits() const;
  void ExpectRows(int64_t added);
  void ExpectAnotherOne();

  template <typename Wanted>
  bool StepUntil(Wanted&& wanted) {
    for (int step = 0; step < 20'000; ++step) {
      NoteVotes();
      if (wanted()) return true;
      cluster_->Step();
    }
    return false;
  }
  // Of the transaction there; nothing: it has ended there, or not begun.
  std::optional<StateIndex> StateAt(uint32_t island) {
    for (const Machine& machine : Machines(*cluster_)) {
      if (machine.id == transaction_->id && machine.where.island == island) return machine.state;
    }
    return std::nullopt;
  }
  uint64_t Said(uint32_t island, TwoPhaseStep step) {
    return cluster_->island(island).workers()[0]->counters().two_phase[static_cast<uint8_t>(step)].Get();
  }
  bool HasVoted(uint32_t island) {
    using enum TwoPhaseStep;
    return Said(island, kVotedYes) + Said(island, kVotedRead) + Said(island, kVotedNo) != 0;
  }
  bool HasExecuted(uint32_t island) {
    for (const instance::ParticipantEntry* entry : cluster_->island(island).workers()[0]->branches().All()) {
      if (entry->id == transaction_->id) return entry->step == 1 && !entry->executing;
    }
    return false;
  }
  // What goes from one to the other from now on takes so long that it does not arrive.
  void Hold(uint32_t from, uint32_t to) { held_.insert({from, to}); }
  // What is under way between the two is lost.
  void Break(uint32_t a, uint32_t b) {
    cluster_->hub().Break({a, 0}, b);
    cluster_->hub().Break({b, 0}, a);
  }
  // kLosesOutcome: nothing becomes durable any more once the votes are given.
  void NoteVotes() {
    if (what_.disaster != Disaster::kLosesOutcome || struck_ || paused_) return;
    for (const uint32_t voter : VotersOf(what_.shape)) {
      if (!HasVoted(voter)) return;
    }
    cluster_->MakeDurable();
    cluster_->log().Pause();
    paused_ = true;
  }
  void PassTime() { cluster_->RunFor(static_cast<int64_t>(random_.Below(20)) * kNsPerMs); }

  const Case what_;
  const uint32_t victim_;
  runtime::Random random_;
  const std::shared_ptr<OneTransaction> transaction_ = std::make_shared<OneTransaction>();
  std::set<std::pair<uint32_t, uint32_t>> held_;
  std::optional<SimCluster> cluster_;
  bool struck_ = false;
  bool paused_ = false;  // before the outcome
};

void Crossed::Begin() {
  SimOptions options;
  options.seed = random_();
  options.islands = options.sites = kIslands;
  options.config.set_pool_bytes(64 * storage::kPageBytes);
  options.config.set_transaction_timeout_ms(AsksDecider() ? 1000 : 10'000);
  options.keeps = true;
  options.ring_bytes = log::Ring::kLeastCapacity;
  options.answers_wait = !kills();
  options.images_of_a_loss = kImagesOfALoss;
  *options.config.add_tables() = OneTransaction::Table(kIslands);
  options.open = [this](const storage::Catalog& catalog) {
    return OneTransaction::Open(catalog, transaction_);
  };
  options.delay = [this](runtime::Random&, messaging::Address from, messaging::Address to) {
    return held_.contains({from.island, to.island}) ? kHeldNs : kPacketNs;
  };
  cluster_.emplace(options);
  ASSERT_TRUE(cluster_->Start().ok());
  if (what_.disaster == Disaster::kLosesAll) cluster_->log().Pause();
  ASSERT_NO_FATAL_FAILURE(BeginTransaction(1));
}

void Crossed::BeginTransaction(uint64_t run) {
  transaction_->id.reset();
  transaction_->answer.reset();
  control::v1::StartRun request;
  request.set_run_id(run);
  request.set_mpl(1);
  ASSERT_TRUE(cluster_->island(kCoordinator).StartRun(request).ok());
  ASSERT_TRUE(StepUntil([this] { return transaction_->id.has_value(); }));
  cluster_->island(kCoordinator).RequestStop();
}

// Until all shares are carried out.
void Crossed::Execute() {
  ASSERT_TRUE(StepUntil([this] {
    for (uint32_t island = kOne; island < kIslands; ++island) {
      if (transaction_->roles[island] != Role::kNone && !HasExecuted(island)) return false;
    }
    return true;
  }));
  if (what_.shape != Shape::kNoVote) return;
  // Nobody moves whom island 2 could hear: it gives up, before it is asked.
  for (const uint32_t island : {kCoordinator, kOne}) cluster_->Stall(island, 0, kSilenceNs);
  ASSERT_TRUE(StepUntil([this] { return !StateAt(kTwo); }));
  ASSERT_EQ(StateAt(kOne), kActive);
}

void Crossed::Reach() {
  ASSERT_NO_FATAL_FAILURE(Execute());
  ASSERT_EQ(StateAt(kCoordinator), IndexOf(Coordinator::State::kExecuting));
  OfCoordinator(what_.point) ? ReachOfCoordinator() : ReachOfParticipant();
}

void Crossed::ReachOfCoordinator() {
  const uint32_t first = VotersOf(what_.shape).front(), slow = VotersOf(what_.shape).back();
  if (what_.point == Point::kExecuted) return;
  ASSERT_TRUE(StepUntil([this] { return StateAt(kCoordinator) == kVoting; }));
  ASSERT_FALSE(HasVoted(first) || HasVoted(slow));
  if (what_.point == Point::kSomePrepares) return Break(kCoordinator, slow);
  if (what_.point == Point::kAllPrepares) return;
  if (what_.point == Point::kOneVote || what_.point == Point::kAllVotes) {
    Hold(slow, kCoordinator);
    const uint32_t awaited = what_.point == Point::kOneVote ? first : slow;
    ASSERT_TRUE(StepUntil([&] { return HasVoted(awaited); }));
    const int64_t arrives_ns = cluster_->NowNs() + 2 * kPacketNs;
    ASSERT_TRUE(StepUntil([&] { return cluster_->NowNs() > arrives_ns; }));
    ASSERT_EQ(StateAt(kCoordinator), kVoting);
    return;
  }
  ASSERT_TRUE(StepUntil([this] { return StateAt(kCoordinator) != kVoting; }));
  if (what_.point == Point::kSomeDecisions) return Break(kCoordinator, slow);
  if (what_.point == Point::kDecided) return;
  ASSERT_EQ(what_.point, Point::kAllEnded);
  for (uint32_t island = kOne; island < kIslands; ++island) Hold(island, kCoordinator);
  ASSERT_TRUE(StepUntil([this] {
    return StateAt(kOne) == (one_phase() ? std::optional(kHasDecided) : std::nullopt) && !StateAt(kTwo) &&
           !StateAt(3);
  }));
  ASSERT_TRUE(StateAt(kCoordinator));
}

void Crossed::ReachOfParticipant() {
  const auto is_asked = [this] { return StateAt(kCoordinator) == (one_phase() ? kOnePhase : kVoting); };
  const auto has_decided = [this] { return StateAt(kOne) == kHasDecided; };
  switch (what_.point) {
    case Point::kAsked:
      Hold(kCoordinator, kOne);
      ASSERT_TRUE(StepUntil(is_asked));
      ASSERT_EQ(StateAt(kOne), kActive);
      return;
    case Point::kForgotten:
      ASSERT_TRUE(
          StepUntil([this] { return Machines(*cluster_).empty() && (Waits() || transaction_->answer); }));
      return;
    case Point::kInquiring:
      if (!one_phase()) break;
      ASSERT_TRUE(StepUntil(is_asked));
      Hold(kOne, kCoordinator);
      ASSERT_TRUE(StepUntil([this] {
        return StateAt(kCoordinator) == kInquiring && Said(kCoordinator, TwoPhaseStep::kInquirySent) != 0;
      }));
      ASSERT_EQ(StateAt(kOne), kHasDecided);
      return;
    default:
      break;
  }
  if (one_phase()) {
    ASSERT_TRUE(StepUntil(has_decided));
    return;
  }
  ASSERT_TRUE(StepUntil([this] { return HasVoted(kOne); }));
  ASSERT_EQ(StateAt(kCoordinator), kVoting);
  if (what_.shape == Shape::kAllReaders) return;
  ASSERT_EQ(StateAt(kOne), kPrepared);
  if (what_.point == Point::kPrepared || what_.point == Point::kVoted) return;
  if (what_.point == Point::kCommitted || what_.point == Point::kAcknowledged) {
    ASSERT_TRUE(StepUntil([this] { return !StateAt(kOne); }));
    return;
  }
  Hold(kCoordinator, kOne);
  ASSERT_TRUE(StepUntil([this] { return StateAt(kCoordinator) != kVoting; }));
  if (what_.point == Point::kInquiring) {
    ASSERT_TRUE(StepUntil([this] { return Said(kOne, TwoPhaseStep::kInquirySent) != 0; }));
  }
  ASSERT_EQ(StateAt(kOne), kPrepared);
}

// kLosesOutcome before the votes are given: nothing is lost.
void Crossed::Strike(SimCluster::LastWords words) {
  if (kills()) {
    cluster_->CrashWith(victim_, words);
  } else {
    if (!struck_ && what_.disaster != Disaster::kLosesAll && !paused_) cluster_->MakeDurable();
    cluster_->LosePower();
  }
  struck_ = true;
  held_.clear();
}

void Crossed::RestartDead() {
  for (uint32_t island = 0; island < kIslands; ++island) {
    if (cluster_->alive(island)) continue;
    ASSERT_TRUE(cluster_->Restart(island).ok()) << island;
  }
}

// It dies while it reads; or power is lost when not all islands are there again.
void Crossed::ComeBackInVain() {
  if (kills()) {
    cluster_->log().BreakOffNextRead(0);
    const bool read = cluster_->Restart(victim_).ok();
    ASSERT_TRUE(!read || ToBeFound() == Found::kNothing) << "it has nothing to read";
    if (read) Strike(SimCluster::LastWords::kByChance);
    return;
  }
  for (const uint32_t island : {kCoordinator, kOne}) ASSERT_TRUE(cluster_->Restart(island).ok());
  Strike(SimCluster::LastWords::kByChance);
}

void Crossed::ComeBackAgain() {
  PassTime();
  if (what_.again == Again::kReading) {
    ASSERT_NO_FATAL_FAILURE(ComeBackInVain());
    PassTime();
  }
  ASSERT_NO_FATAL_FAILURE(RestartDead());
  ASSERT_NO_FATAL_FAILURE(ExpectFound());
  if (what_.again == Again::kNo || what_.again == Again::kReading) return;
  if (what_.again == Again::kTalking) {
    for (uint64_t steps = 1 + random_.Below(100); steps > 0; --steps) cluster_->Step();
  } else if (what_.again == Again::kOver) {
    ASSERT_TRUE(StepUntil([this] { return AllOver(); }));
  }
  Strike(SimCluster::LastWords::kByChance);
  PassTime();
  ASSERT_NO_FATAL_FAILURE(RestartDead());
  if (what_.again == Again::kRecovered) ExpectFound();
}

bool Crossed::AllOver() {
  if (!Machines(*cluster_).empty() || !cluster_->Quiet()) return false;
  for (uint32_t island = 0; island < kIslands; ++island) {
    const instance::Worker& worker = *cluster_->island(island).workers()[0];
    if (worker.OldestOpen() != log::OpenTransactions::kNone) return false;
    if (worker.links().PeersUp() != kIslands - 1) return false;
  }
  return true;
}

Found Crossed::ToBeFound() const {
  if (what_.disaster == Disaster::kLosesAll) return Found::kNothing;
  if (!paused_) return At(what_.shape, what_.point).found;
  const bool voted_yes = transaction_->roles[kOne] == Role::kWrites && !one_phase();
  return voted_yes && victim_ == kOne ? Found::kInDoubt : Found::kNothing;
}

void Crossed::ExpectFound() {
  const std::optional<StateIndex> state = StateAt(victim_);
  const size_t locks = cluster_->island(victim_).locks().LocksHeld();
  switch (ToBeFound()) {
    case Found::kNothing:
      EXPECT_EQ(state, std::nullopt);
      EXPECT_EQ(locks, 0u);
      return;
    case Found::kInDoubt:
      EXPECT_EQ(state, kPrepared);
      EXPECT_GT(locks, 0u) << "what it is in doubt about is not locked";
      return;
    case Found::kDecision:
      EXPECT_EQ(state, IndexOf(Coordinator::State::kCommitting));
      return;
    case Found::kOutcome:
      EXPECT_EQ(state, kHasDecided);
      return;
  }
}

bool Crossed::Commits() const {
  const End end = At(what_.shape, what_.point).end;
  if (kills()) return end == End::kCommits || end == End::kByVote;
  return end == End::kCommits && what_.disaster != Disaster::kLosesAll && !paused_;
}

void Crossed::ExpectEnd() {
  ASSERT_TRUE(StepUntil([this] { return AllOver(); })) << "it does not end";
  const SimCluster::Totals totals = cluster_->Sum();
  EXPECT_EQ(totals.locks_held, 0u);
  EXPECT_EQ(totals.branches_open, 0u);
  ExpectRows(Commits() ? 1 : 0);
  const std::optional<Outcome> answer = transaction_->answer;
  if (kills() && victim_ != kCoordinator && !AsksDecider()) {
    EXPECT_TRUE(answer) << "its client has heard nothing";
  }
  if (answer && At(what_.shape, what_.point).end != End::kIsRead) {
    EXPECT_EQ(*answer, Commits() ? Outcome::kCommitted : Outcome::kAborted);
  }
}

void Crossed::ExpectRows(int64_t added) {
  for (uint32_t island = 0; island < kIslands; ++island) {
    const bool writes = transaction_->roles[island] == Role::kWrites;
    EXPECT_EQ(cluster_->island(island).Audit({})->value(), writes ? added : 0) << "island " << island;
  }
}

void Crossed::ExpectAnotherOne() {
  ASSERT_NO_FATAL_FAILURE(BeginTransaction(2));
  ASSERT_TRUE(StepUntil([this] { return transaction_->answer.has_value() && AllOver(); }));
  EXPECT_EQ(*transaction_->answer, Outcome::kCommitted);
  ExpectRows(Commits() ? 2 : 1);
}

using ShapeAndPoint = std::pair<Shape, Point>;

std::vector<ShapeAndPoint> All(bool ever) {
  std::vector<ShapeAndPoint> all;
  for (size_t shape = 0; shape < kShapes; ++shape) {
    for (size_t point = 0; point < kPoints; ++point) {
      const ShapeAndPoint both{static_cast<Shape>(shape), static_cast<Point>(point)};
      if ((At(both.first, both.second).never == nullptr) == ever) all.push_back(both);
    }
  }
  return all;
}

TEST(CrashMatrix, Table_NamesWhatNeverOccurs) {
  EXPECT_EQ(All(/*ever=*/true).size(), 81u);
  EXPECT_EQ(All(/*ever=*/false).size(), 15u);
}

class CrashMatrixTest : public testing::TestWithParam<ShapeAndPoint> {};

TEST_P(CrashMatrixTest, Transaction_IsWholeOrGone) {
  const auto [shape, point] = GetParam();
  for (int disaster = 0; disaster < kDisasters; ++disaster) {
    for (int again = 0; again < kAgains; ++again) {
      SCOPED_TRACE(fmt::format("disaster: {}, again: {}", kDisasterNames[disaster], kAgainNames[again]));
      Crossed({shape, point, static_cast<Disaster>(disaster), static_cast<Again>(again)}).Run();
    }
  }
}

// After all tests.
class Images : public testing::Environment {
 public:
  void TearDown() override {
    fmt::print("{} images of lost power\n", images);
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    if (all.test_to_run_count() == all.total_test_count() && all.Passed()) {
      EXPECT_GT(images, kLeastImages);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CrashMatrixTest, testing::ValuesIn(All(/*ever=*/true)), [](const auto& info) {
  return fmt::format("{}_{}", NameOf(info.param.first), NameOf(info.param.second));
});

}  // namespace
}  // namespace islands::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new islands::simulation::Images);
  spdlog::set_level(spdlog::level::off);
  return RUN_ALL_TESTS();
}
