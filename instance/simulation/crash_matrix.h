// Where two-phase commit can be interrupted, what of it each kind of transaction comes to, and what has to
// become of the transaction then. crash_matrix_test.cc goes through all of it.
//
// A worker does in one round what it hears, what it appends and what it says, and between two rounds of all
// workers something is under way or it is not. So a death in the midst of a round is one of these: before the
// round, what it was to hear being lost; after it, with what it has said, or without.
//
// Thread safety: constants and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "instance/simulation/one_transaction.h"

namespace islands::simulation {

// What the transaction does, which island 0 coordinates.
enum class Shape : uint8_t {
  kTwoWriters,       // on islands 1 and 2
  kThreeWriters,     // on 1, 2 and 3
  kWriterAndReader,  // writes at home and on 1, reads on 2
  kAllReaders,       // at home, 1 and 2
  kNoVote,           // as two writers; 2 has given up by the time that it is asked
  kOnePhase,         // reads on 2 and 3; 1, the only writer, decides
};
inline constexpr size_t kShapes = 6;

// The last of those who are asked to vote, and what is said to it, are slower than the others, where that
// makes a point.
enum class Point : uint8_t {
  // Island 0 dies:
  kExecuted,       // its participants have done their work, and it does not know
  kSomePrepares,   // it has asked for votes, but not the last one
  kAllPrepares,    // it has asked for votes
  kOneVote,        // one vote has come in
  kAllVotes,       // all votes are given, and the last has not come in
  kDecided,        // it has decided, and said so to nobody
  kSomeDecisions,  // it has decided, and said so to all but one
  kAllEnded,       // all have done what it has decided, and it does not know
  // Island 1 dies:
  kAsked,         // it is asked for its vote, or to decide, and has not heard it
  kPrepared,      // it can do both, and its vote is not sent
  kVoted,         // its vote is sent
  kDecisionDue,   // it is told the decision, and has not heard it
  kCommitted,     // it has done what was decided, or has decided itself, and not said so
  kAcknowledged,  // it has said so
  kForgotten,     // all have ended
  kInquiring,     // it is in doubt and has asked; of one that decides itself: its coordinator has
};
inline constexpr size_t kPoints = 16;
inline constexpr size_t kCoordinatorPoints = 8;

// What has to become of it.
enum class End : uint8_t {
  kAborts,
  kCommits,
  kByVote,  // commits if only island 1 dies; with all islands the decision, too, is lost that nobody has made
  kIsRead,  // there is nothing to commit
};

// What island 1, or the coordinator, finds in its log when it is there again: what it has to end.
enum class Found : uint8_t { kNothing, kInDoubt, kDecision, kOutcome };

struct Crossing {
  End end = End::kAborts;
  Found found = Found::kNothing;
  const char* never = nullptr;  // why the transaction does not come by there
};

const Crossing& At(Shape shape, Point point);
std::string_view NameOf(Shape shape);
std::string_view NameOf(Point point);
inline bool OfCoordinator(Point point) { return static_cast<size_t>(point) < kCoordinatorPoints; }

// By island; there are four.
std::vector<Role> RolesOf(Shape shape);
// Whom the coordinator asks to vote, the one that is slow being the last.
std::vector<uint32_t> VotersOf(Shape shape);

}  // namespace islands::simulation
