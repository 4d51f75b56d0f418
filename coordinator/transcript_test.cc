// Replays transcripts/*.txt: what the machines of two-phase commit do, readable by people.
//
//   machine coordinator | participant | cluster   first line of a file
//   scenario TEXT                         a fresh machine
//   > EVENT                               is stepped into it
//     ACTION                              expected, in this order and no others
//   = STATE                               expected now
//
// In a cluster every line says whose it is: C is the coordinator's island, P2 ... P9 are its participants.
// There `restart` ends the machine, `restart forgetful` that of an island without a log, `recover EVENT`
// steps what the log proves into a fresh one and drops the actions, a machine that is done is gone (state
// `none`), and an island without one answers by AnswerWithoutMachine. Messages are carried by whoever writes
// the transcript: also twice, late, or never.
//
// ISLANDS_REWRITE=1: nothing is expected; actions and states are written into the files as they are now, to
// be read by `git diff`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/participant.h"

namespace islands::coordinator {
namespace {

using Words = std::vector<std::string>;

Words Split(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

[[noreturn]] void Bad(const std::string& what) { throw std::invalid_argument("transcript: " + what); }

template <typename T>
T Lookup(const std::vector<std::pair<std::string, T>>& table, const std::string& word) {
  for (const auto& [name, value] : table) {
    if (name == word) return value;
  }
  Bad("unknown word '" + word + "'");
}

template <typename T>
std::string NameOf(const std::vector<std::pair<std::string, T>>& table, T value) {
  for (const auto& [name, other] : table) {
    if (other == value) return name;
  }
  Bad("value without a name");
}

bool IsNumber(const std::string& word) { return std::isdigit(static_cast<unsigned char>(word[0])) != 0; }

uint32_t Island(const std::string& word) { return static_cast<uint32_t>(std::stoul(word)); }

Outcome OutcomeOf(const std::string& word) {
  return Lookup<Outcome>({{"committed", Outcome::kCommitted},
                          {"aborted", Outcome::kAborted},
                          {"pending", Outcome::kPending},
                          {"unknown", Outcome::kUnknown}},
                         word);
}

// Words after the first may be an island, a vote, an outcome or a flag; which they are shows by themselves.
void ReadArguments(const Words& words, CoordinatorEvent* event) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (IsNumber(word)) {
      event->island = Island(word);
    } else if (word == "local-wrote" || word == "restarted") {
      (word == "restarted" ? event->restarted : event->local_wrote) = true;
    } else if (words[0] == "vote") {
      event->vote =
          Lookup<VoteKind>({{"yes", VoteKind::kYes}, {"no", VoteKind::kNo}, {"read", VoteKind::kRead}}, word);
    } else {
      event->outcome = OutcomeOf(word);
    }
  }
}

// The first number is the fellow, unless the event has none; later ones, or all, go into `islands`.
void ReadArguments(const Words& words, ParticipantEvent* event, std::vector<uint32_t>* islands) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (IsNumber(word)) {
      if (words[0] != "prepare" && i == 1) {
        event->island = Island(word);
      } else {
        islands->push_back(Island(word));
      }
    } else if (words[0] == "decision") {
      event->commit = Lookup<bool>({{"commit", true}, {"abort", false}}, word);
    } else if (word == "early") {
      event->early = true;
    } else if (words[0] == "prepare" || words[0] == "one-phase") {
      event->wrote = Lookup<bool>({{"wrote", true}, {"read-only", false}}, word);
    } else {
      event->outcome = OutcomeOf(word);
    }
  }
  event->fellows = event->gone = *islands;
}

// One machine behind text.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual Words Step(const Words& event) = 0;  // the actions
  virtual std::string State(const Words& whose) = 0;
};

// What a machine did: "coordinator: voting x vote yes", without islands and other detail.
std::set<std::string>& Reached() {
  static std::set<std::string> reached;
  return reached;
}

void Reach(const std::string& machine, std::string_view state, const Words& event) {
  std::string pair = machine + ": " + std::string(state) + " x";
  for (const std::string& word : event) {
    if (!IsNumber(word) && word != "local-wrote") pair += " " + word;
  }
  Reached().insert(pair);
}

class CoordinatorMachine final : public Machine {
 public:
  explicit CoordinatorMachine(bool forgets = false) : forgets_(forgets) {}

  void Restart(bool forgetful) {
    machine_.reset();
    life_ = forgetful ? Life::kEarlierLost : Life::kEarlierKept;
  }
  void Recover(const Words& words) {
    if (!machine_) machine_.emplace();
    std::vector<CoordinatorAction> dropped;
    machine_->Step(Read(words), &dropped);
  }
  Words Step(const Words& words) override {
    const CoordinatorEvent event = Read(words);
    std::vector<CoordinatorAction> actions;
    if (machine_) {
      Reach("coordinator", StateName(machine_->state()), words);
      machine_->Step(event, &actions);
      machine_->CheckInvariants();
      if (forgets_ && machine_->done()) machine_.reset();
    } else {
      AnswerWithoutMachine(event, life_, &actions);
    }
    Words lines;
    for (const CoordinatorAction& action : actions) lines.push_back(Text(action));
    return lines;
  }
  std::string State(const Words&) override {
    return machine_ ? std::string(StateName(machine_->state())) : "none";
  }

 private:
  static CoordinatorEvent Read(const Words& words) {
    using E = CoordinatorEvent;
    static const std::vector<std::pair<std::string, E::Kind>> kKinds = {
        {"participant", E::kParticipant},
        {"wrote", E::kWrote},
        {"prepare-early", E::kPrepareEarly},
        {"commit", E::kCommitRequested},
        {"abort", E::kAbortRequested},
        {"vote", E::kVote},
        {"durable", E::kCommitRecordDurable},
        {"ack", E::kAcknowledged},
        {"one-phase-reply", E::kOnePhaseReply},
        {"lost", E::kPeerLost},
        {"silent", E::kPeerSilent},
        {"up", E::kPeerUp},
        {"gone", E::kPeerGone},
        {"inquiry", E::kInquiry},
        {"inquiry-reply", E::kInquiryReply},
        {"timeout", E::kTimeout}};
    CoordinatorEvent event{.kind = Lookup(kKinds, words.at(0))};
    ReadArguments(words, &event);
    return event;
  }
  static std::string Text(const CoordinatorAction& action) {
    using A = CoordinatorAction;
    static const std::vector<std::pair<std::string, A::Kind>> kKinds = {
        {"prepare", A::kSendPrepare},
        {"one-phase", A::kSendCommitOnePhase},
        {"decision", A::kSendDecision},
        {"force-commit", A::kForceCommitRecord},
        {"lose-share", A::kLoseShare},
        {"end", A::kWriteEnd},
        {"commit-local", A::kCommitLocal},
        {"abort-local", A::kAbortLocal},
        {"inquire", A::kSendInquiry},
        {"confirm", A::kSendOnePhaseConfirm},
        {"inquiry-reply", A::kSendInquiryReply},
        {"answer", A::kAnswer},
        {"forget", A::kForget}};
    std::string text = NameOf(kKinds, action.kind);
    if (action.island != 0) text += " " + std::to_string(action.island);
    if (action.kind == A::kSendDecision) text += action.commit ? " commit" : " abort";
    if (action.early) text += " early";
    if (action.kind == A::kSendInquiryReply || action.kind == A::kAnswer) {
      text += " " + std::string(OutcomeName(action.outcome));
    }
    return text;
  }

  const bool forgets_;
  Life life_ = Life::kThis;
  std::optional<Coordinator> machine_ = Coordinator();
};

class ParticipantMachine final : public Machine {
 public:
  explicit ParticipantMachine(bool forgets = false) : forgets_(forgets) {}

  void Restart(bool forgetful) {
    machine_.reset();
    restarted_ = true;
    trace_ = forgetful ? Trace::kEarlierLife : Trace::kKept;
  }
  void Recover(const Words& words) {
    if (!machine_) machine_.emplace();
    std::vector<ParticipantAction> dropped;
    machine_->Step(Read(words), &dropped);
  }
  Words Step(const Words& words) override {
    const ParticipantEvent event = Read(words);
    // These may not name an earlier life of the island.
    const bool this_life_only =
        event.kind == ParticipantEvent::kPrepare || event.kind == ParticipantEvent::kCommitOnePhase;
    std::vector<ParticipantAction> actions;
    if (machine_ && (!restarted_ || !this_life_only)) {
      Reach("participant", StateName(machine_->state()), words);
      machine_->Step(event, &actions);
      machine_->CheckInvariants();
    } else {
      AnswerWithoutMachine(event, trace_, &actions);
    }
    Words lines;
    for (const ParticipantAction& action : actions) {
      lines.push_back(Text(action));
      if (action.kind == ParticipantAction::kSendAcknowledge) trace_ = Trace::kCommitted;
    }
    if (forgets_ && machine_ && machine_->done()) machine_.reset();
    return lines;
  }
  std::string State(const Words&) override {
    return machine_ ? std::string(StateName(machine_->state())) : "none";
  }

 private:
  ParticipantEvent Read(const Words& words) {
    using E = ParticipantEvent;
    static const std::vector<std::pair<std::string, E::Kind>> kKinds = {
        {"prepare", E::kPrepare},
        {"prepare-durable", E::kPrepareDurable},
        {"decision", E::kDecision},
        {"commit-durable", E::kCommitDurable},
        {"one-phase", E::kCommitOnePhase},
        {"confirmed", E::kOnePhaseConfirmed},
        {"coordinator-inquiry", E::kCoordinatorInquiry},
        {"coordinator-lost", E::kCoordinatorLost},
        {"coordinator-up", E::kCoordinatorUp},
        {"coordinator-restarted", E::kCoordinatorRestarted},
        {"coordinator-gone", E::kCoordinatorGone},
        {"fellow-gone", E::kFellowGone},
        {"decision-request", E::kDecisionRequest},
        {"decision-reply", E::kDecisionReply},
        {"inquiry-due", E::kInquiryDue},
        {"inquiry-reply", E::kInquiryReply},
        {"timeout", E::kTimeout},
        {"abort-locally", E::kAbortLocally}};
    ParticipantEvent event{.kind = Lookup(kKinds, words.at(0))};
    islands_.clear();
    ReadArguments(words, &event, &islands_);
    return event;
  }
  std::string Text(const ParticipantAction& action) const {
    using A = ParticipantAction;
    static const std::vector<std::pair<std::string, A::Kind>> kKinds = {
        {"force-prepare", A::kForcePrepare},
        {"force-commit", A::kForceCommit},
        {"vote", A::kSendVote},
        {"ack", A::kSendAcknowledge},
        {"say-gone", A::kSendGone},
        {"one-phase-reply", A::kSendOnePhaseReply},
        {"inquire", A::kSendInquiry},
        {"inquiry-reply", A::kSendInquiryReply},
        {"ask-fellow", A::kAskFellow},
        {"answer-fellow", A::kAnswerFellow},
        {"apply-commit", A::kApplyCommit},
        {"apply-abort", A::kApplyAbort},
        {"forget", A::kForget}};
    std::string text = NameOf(kKinds, action.kind);
    if (action.island != 0) text += " " + std::to_string(action.island);
    if (action.kind == A::kSendVote) text += " " + std::string(VoteName(action.vote));
    if (action.kind == A::kSendOnePhaseReply || action.kind == A::kSendInquiryReply ||
        action.kind == A::kAnswerFellow) {
      text += " " + std::string(OutcomeName(action.outcome));
    }
    if (action.kind != A::kAnswerFellow || !machine_) return text;
    for (const uint32_t gone : machine_->Gone()) text += " " + std::to_string(gone);
    return text;
  }

  const bool forgets_;
  bool restarted_ = false;
  Trace trace_ = Trace::kNothing;
  std::vector<uint32_t> islands_;  // what the event's spans point to
  std::optional<Participant> machine_ = Participant();
};

// The islands of one transaction.
class ClusterMachine final : public Machine {
 public:
  Words Step(const Words& words) override {
    const std::string& who = words.at(0);
    Words lines = who == "C" ? StepIsland(coordinator_, Rest(words)) : StepIsland(Island(who), Rest(words));
    for (std::string& line : lines) line = who + " " + line;
    return lines;
  }
  std::string State(const Words& whose) override {
    const std::string& who = whose.at(0);
    return who + " " + (who == "C" ? coordinator_.State({}) : Island(who).State({}));
  }

 private:
  ParticipantMachine& Island(const std::string& who) {
    return participants_.try_emplace(who, /*forgets=*/true).first->second;
  }
  static Words Rest(const Words& words) { return Words(words.begin() + 1, words.end()); }
  template <typename Island>
  static Words StepIsland(Island& island, const Words& words) {
    if (words.at(0) == "recover") {
      island.Recover(Rest(words));
    } else if (words[0] == "restart") {
      island.Restart(words.size() > 1);
    } else {
      return island.Step(words);
    }
    return {};
  }

  CoordinatorMachine coordinator_{true};
  std::map<std::string, ParticipantMachine> participants_;
};

std::unique_ptr<Machine> MakeMachine(const std::string& name) {
  if (name == "coordinator") return std::make_unique<CoordinatorMachine>();
  if (name == "participant") return std::make_unique<ParticipantMachine>();
  if (name == "cluster") return std::make_unique<ClusterMachine>();
  Bad("unknown machine '" + name + "'");
}

bool Rewrites() { return std::getenv("ISLANDS_REWRITE") != nullptr; }

// The same file with what the machines say now.
void Rewrite(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  std::string machine_name;
  std::unique_ptr<Machine> machine;
  for (std::string line; std::getline(file, line);) {
    const Words words = Split(line);
    if (!words.empty() && line[0] == ' ') continue;
    if (!words.empty() && words[0] == "=")
      line = "= " + machine->State(Words(words.begin() + 1, words.end()));
    text << line << "\n";
    if (words.empty()) continue;
    if (words[0] == "machine") machine_name = words.at(1);
    if (words[0] == "scenario") machine = MakeMachine(machine_name);
    if (words[0] != ">") continue;
    for (const std::string& action : machine->Step(Words(words.begin() + 1, words.end())))
      text << "  " << action << "\n";
  }
  file.close();
  std::ofstream(path) << text.str();
}

// Returns the number of scenarios.
int Replay(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string machine_name, scenario, event;
  std::unique_ptr<Machine> machine;
  Words actions;    // of the last event,
  size_t seen = 0;  // of which so many were expected so far
  int scenarios = 0, number = 0;
  const auto expect_no_more = [&] {
    for (; seen < actions.size(); ++seen) {
      ADD_FAILURE() << path.filename().string() << ", before line " << number << ", scenario '" << scenario
                    << "', after '" << event << "': unexpected action '" << actions[seen] << "'";
    }
  };
  for (std::string line; std::getline(file, line);) {
    ++number;
    const Words words = Split(line);
    const std::string where = path.filename().string() + ":" + std::to_string(number) + " (" + scenario + ")";
    if (words.empty() || words[0][0] == '#') continue;
    if (line[0] == ' ') {
      const std::string got = seen < actions.size() ? actions[seen++] : "nothing";
      EXPECT_EQ(got, line.substr(2)) << where << " after '" << event << "'";
    } else if (words[0] == ">") {
      expect_no_more();
      event = line.substr(2);
      actions = machine->Step(Words(words.begin() + 1, words.end()));
      seen = 0;
    } else if (words[0] == "=") {
      const Words expected(words.begin() + 1, words.end());
      EXPECT_EQ(machine->State(expected), line.substr(2)) << where;
    } else if (words[0] == "scenario") {
      expect_no_more();
      actions.clear();
      seen = 0;
      scenario = line.substr(9);
      machine = MakeMachine(machine_name);
      ++scenarios;
    } else if (words[0] == "machine") {
      machine_name = words.at(1);
    } else {
      Bad(where + ": '" + line + "'");
    }
  }
  expect_no_more();
  return scenarios;
}

TEST(Transcript, Replay_All) {
  int files = 0, scenarios = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRANSCRIPT_DIRECTORY)) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    if (Rewrites()) Rewrite(entry.path());
    scenarios += Replay(entry.path());
  }
  EXPECT_EQ(files, 12);
  EXPECT_GT(scenarios, 110);
}

// Nothing is impossible for a pure machine: whatever comes, late, again or by mistake, some scenario says
// what happens.
TEST(Transcript, Replay_ReachesEveryPairOfStateAndEvent) {
  Reached().clear();
  for (const auto& entry : std::filesystem::directory_iterator(TRANSCRIPT_DIRECTORY)) {
    if (entry.path().extension() == ".txt") Replay(entry.path());
  }
  const std::vector<std::string> coordinator_events = {"participant",
                                                       "wrote",
                                                       "prepare-early",
                                                       "commit",
                                                       "abort",
                                                       "vote yes",
                                                       "vote no",
                                                       "vote read",
                                                       "durable",
                                                       "ack",
                                                       "one-phase-reply committed",
                                                       "one-phase-reply aborted",
                                                       "one-phase-reply pending",
                                                       "one-phase-reply unknown",
                                                       "lost",
                                                       "silent",
                                                       "up",
                                                       "up restarted",
                                                       "gone",
                                                       "inquiry",
                                                       "inquiry-reply committed",
                                                       "inquiry-reply aborted",
                                                       "inquiry-reply pending",
                                                       "inquiry-reply unknown",
                                                       "timeout"};
  const std::vector<std::string> participant_events = {"prepare wrote",
                                                       "prepare read-only",
                                                       "prepare wrote early",
                                                       "prepare read-only early",
                                                       "prepare-durable",
                                                       "decision commit",
                                                       "decision abort",
                                                       "commit-durable",
                                                       "one-phase wrote",
                                                       "one-phase read-only",
                                                       "confirmed",
                                                       "coordinator-inquiry",
                                                       "coordinator-lost",
                                                       "coordinator-up",
                                                       "coordinator-restarted",
                                                       "coordinator-gone",
                                                       "fellow-gone",
                                                       "decision-request",
                                                       "decision-reply committed",
                                                       "decision-reply aborted",
                                                       "decision-reply pending",
                                                       "decision-reply unknown",
                                                       "inquiry-due",
                                                       "inquiry-reply committed",
                                                       "inquiry-reply aborted",
                                                       "inquiry-reply pending",
                                                       "inquiry-reply unknown",
                                                       "timeout",
                                                       "abort-locally"};
  const auto expect = [](const std::string& machine, std::string_view state, const std::string& event) {
    const std::string pair = machine + ": " + std::string(state) + " x " + event;
    EXPECT_TRUE(Reached().contains(pair)) << "no scenario has " << pair;
  };
  for (int state = 0; state <= static_cast<int>(Coordinator::State::kDone); ++state) {
    for (const std::string& event : coordinator_events) {
      expect("coordinator", StateName(static_cast<Coordinator::State>(state)), event);
    }
  }
  for (int state = 0; state <= static_cast<int>(Participant::State::kDone); ++state) {
    for (const std::string& event : participant_events) {
      expect("participant", StateName(static_cast<Participant::State>(state)), event);
    }
  }
}

TEST(Coordinator, Reset_MakesAFreshMachine) {
  Coordinator machine;
  std::vector<CoordinatorAction> actions;
  machine.Step({.kind = CoordinatorEvent::kParticipant, .island = 2}, &actions);
  machine.Step({.kind = CoordinatorEvent::kAbortRequested}, &actions);
  EXPECT_TRUE(machine.done());
  machine.Reset();
  EXPECT_EQ(machine.state(), Coordinator::State::kExecuting);
  actions.clear();
  machine.Step({.kind = CoordinatorEvent::kCommitRequested}, &actions);
  EXPECT_EQ(actions.size(), 3u);
  EXPECT_TRUE(machine.done());
}

TEST(Participant, Reset_MakesAFreshMachine) {
  Participant machine;
  std::vector<ParticipantAction> actions;
  machine.Step({.kind = ParticipantEvent::kPrepare, .wrote = true}, &actions);
  machine.Step({.kind = ParticipantEvent::kPrepareDurable}, &actions);
  EXPECT_TRUE(machine.in_doubt());
  machine.Reset();
  EXPECT_EQ(machine.state(), Participant::State::kActive);
}

TEST(Names, EveryValueHasOne) {
  EXPECT_EQ(OutcomeName(Outcome::kUnknown), "unknown");
  EXPECT_EQ(OutcomeName(static_cast<Outcome>(0)), "invalid");
  EXPECT_EQ(VoteName(VoteKind::kRead), "read");
  EXPECT_EQ(VoteName(static_cast<VoteKind>(0)), "invalid");
}

}  // namespace
}  // namespace islands::coordinator
