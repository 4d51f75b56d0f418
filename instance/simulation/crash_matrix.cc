#include "instance/simulation/crash_matrix.h"

namespace islands::simulation {
namespace {

constexpr Crossing kGone{End::kAborts, Found::kNothing};
constexpr Crossing kUndone{End::kAborts, Found::kInDoubt};
constexpr Crossing kThere{End::kCommits, Found::kNothing};
constexpr Crossing kToldSo{End::kCommits, Found::kInDoubt};
constexpr Crossing kByVote{End::kByVote, Found::kInDoubt};
constexpr Crossing kTells{End::kCommits, Found::kDecision};
constexpr Crossing kAnswers{End::kCommits, Found::kOutcome};
constexpr Crossing kRead{End::kIsRead, Found::kNothing};
constexpr Crossing Never(const char* why) { return {.never = why}; }

constexpr Crossing kNoWriter = Never("nobody has written: with the last vote all is over");
constexpr Crossing kOnlyOne = Never("only one is told");
constexpr Crossing kNoAck = Never("nobody acknowledges an abort");
constexpr Crossing kEnded = Never("a reader's branch ends with its vote");
constexpr Crossing kNoVoter = Never("it decides instead of voting");

struct Row {
  Point point;
  std::array<Crossing, kShapes> of;
};

// clang-format off
using enum Point;
constexpr std::array<Row, kPoints> kTable = {{
  // writers:        two      three    and reader none       a NO vote one phase
  {kExecuted,      {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kSomePrepares,  {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kAllPrepares,   {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kOneVote,       {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kAllVotes,      {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kDecided,       {kTells,  kTells,  kTells,    kNoWriter, kGone,    kGone}},
  {kSomeDecisions, {kTells,  kTells,  kOnlyOne,  kNoWriter, kOnlyOne, kOnlyOne}},
  {kAllEnded,      {kTells,  kTells,  kTells,    kNoWriter, kNoAck,   kThere}},
  {kAsked,         {kGone,   kGone,   kGone,     kRead,     kGone,    kGone}},
  {kPrepared,      {kUndone, kUndone, kUndone,   kRead,     kUndone,  kNoVoter}},
  {kVoted,         {kByVote, kByVote, kByVote,   kRead,     kUndone,  kNoVoter}},
  {kDecisionDue,   {kToldSo, kToldSo, kToldSo,   kEnded,    kUndone,  kNoVoter}},
  {kCommitted,     {kThere,  kThere,  kThere,    kEnded,    kGone,    kAnswers}},
  {kAcknowledged,  {kThere,  kThere,  kThere,    kEnded,    kNoAck,   kAnswers}},
  {kForgotten,     {kThere,  kThere,  kThere,    kRead,     kGone,    kThere}},
  {kInquiring,     {kToldSo, kToldSo, kToldSo,   kEnded,    kUndone,  kAnswers}},
}};
// clang-format on

constexpr bool InOrder() {
  for (size_t i = 0; i < kPoints; ++i) {
    if (static_cast<size_t>(kTable[i].point) != i) return false;
  }
  return true;
}
static_assert(InOrder());

}  // namespace

const Crossing& At(Shape shape, Point point) {
  return kTable[static_cast<size_t>(point)].of[static_cast<size_t>(shape)];
}

std::string_view NameOf(Point point) {
  constexpr std::array<std::string_view, kPoints> kNames = {
      "Executed",      "SomePrepares", "AllPrepares", "OneVote",  "AllVotes", "Decided",
      "SomeDecisions", "AllEnded",     "Asked",       "Prepared", "Voted",    "DecisionDue",
      "Committed",     "Acknowledged", "Forgotten",   "Inquiring"};
  return kNames[static_cast<size_t>(point)];
}

std::string_view NameOf(Shape shape) {
  constexpr std::array<std::string_view, kShapes> kNames = {"TwoWriters", "ThreeWriters", "WriterAndReader",
                                                            "AllReaders", "NoVote",       "OnePhase"};
  return kNames[static_cast<size_t>(shape)];
}

std::vector<Role> RolesOf(Shape shape) {
  using enum Role;
  switch (shape) {
    case Shape::kTwoWriters:
    case Shape::kNoVote:
      return {kNone, kWrites, kWrites, kNone};
    case Shape::kThreeWriters:
      return {kNone, kWrites, kWrites, kWrites};
    case Shape::kWriterAndReader:
      return {kWrites, kWrites, kReads, kNone};
    case Shape::kAllReaders:
      return {kReads, kReads, kReads, kNone};
    case Shape::kOnePhase:
      return {kNone, kWrites, kReads, kReads};
  }
  return {};
}

std::vector<uint32_t> VotersOf(Shape shape) {
  if (shape == Shape::kThreeWriters) return {1, 2, 3};
  if (shape == Shape::kOnePhase) return {2, 3};
  return {1, 2};
}

}  // namespace islands::simulation
