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

constexpr Crossing kNothingToDecide = Never("nobody has written: with the last vote all is over");
constexpr Crossing kOneToTell = Never("only one is told");
constexpr Crossing kAbortsAlone = Never("nobody acknowledges an abort");
constexpr Crossing kEndsWithVote = Never("a reader's branch ends with its vote");
constexpr Crossing kDoesNotVote = Never("it decides instead of voting");

struct Row {
  Point point;
  std::string_view name;
  std::array<Crossing, kShapes> of;
};

// clang-format off
constexpr std::array<Row, kPoints> kTable = {{
  //                                     two writers three writers with a reader  readers           a NO vote     one phase
  {Point::kExecuted,      "Executed",      {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kSomePrepares,  "SomePrepares",  {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kAllPrepares,   "AllPrepares",   {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kOneVote,       "OneVote",       {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kAllVotes,      "AllVotes",      {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kDecided,       "Decided",       {kTells,  kTells,   kTells,     kNothingToDecide, kGone,        kGone}},
  {Point::kSomeDecisions, "SomeDecisions", {kTells,  kTells,   kOneToTell, kNothingToDecide, kOneToTell,   kOneToTell}},
  {Point::kAllEnded,      "AllEnded",      {kTells,  kTells,   kTells,     kNothingToDecide, kAbortsAlone, kThere}},
  {Point::kAsked,         "Asked",         {kGone,   kGone,    kGone,      kRead,            kGone,        kGone}},
  {Point::kPrepared,      "Prepared",      {kUndone, kUndone,  kUndone,    kRead,            kUndone,      kDoesNotVote}},
  {Point::kVoted,         "Voted",         {kByVote, kByVote,  kByVote,    kRead,            kUndone,      kDoesNotVote}},
  {Point::kDecisionDue,   "DecisionDue",   {kToldSo, kToldSo,  kToldSo,    kEndsWithVote,    kUndone,      kDoesNotVote}},
  {Point::kCommitted,     "Committed",     {kThere,  kThere,   kThere,     kEndsWithVote,    kGone,        kAnswers}},
  {Point::kAcknowledged,  "Acknowledged",  {kThere,  kThere,   kThere,     kEndsWithVote,    kAbortsAlone, kAnswers}},
  {Point::kForgotten,     "Forgotten",     {kThere,  kThere,   kThere,     kRead,            kGone,        kThere}},
  {Point::kInquiring,     "Inquiring",     {kToldSo, kToldSo,  kToldSo,    kEndsWithVote,    kUndone,      kAnswers}},
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

std::string_view NameOf(Point point) { return kTable[static_cast<size_t>(point)].name; }

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
