// Whether the histories of a run of `append` are strictly serializable together.
//
// All attempts of all workers' files become one History, in the order of their times, for the checker of
// instance/simulation/serializability.h. A begin counts before an end of the same nanosecond, so there is a
// real-time edge only where an answer was there before somebody else began.
//
// A row's version is named by the number of its elements and by the last of them, so that two attempts that
// made the same number of elements out of the same row are told apart. Elements are names of attempts:
// whoever saw one proves that its attempt committed. That decides what no file tells:
//
//  - Outcome unknown, or not in the file: committed exactly if somebody saw its element. On islands whose
//    life lasts to the end it must be the same everywhere: an element that was seen here, and there another
//    one in its place, or the row as it was before for somebody who began too late for that, is half a
//    commit.
//  - The coordinator's island died (a later boot epoch of it exists, or an attempt of it has no end): where
//    nothing is durable, what it told its clients binds nobody else. Attempts that appended on other
//    islands, too, are cut into one branch per island, each committed exactly if its element was seen. They
//    must not be half a commit either; and where the island provably lived on after its answer (an attempt
//    of the same life begins or ends later), whoever began after the answer and was through by then has to
//    find the elements: otherwise it is a lost commit.
//    Attempts on its own rows alone, and those that only read, stay as they were answered.
//  - A row of an island that was loaded again is another row: its life says so.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/append/append_history.h"

namespace islands::experiments {

struct Judgement {
  std::vector<std::string> violations;  // for people; none: strictly serializable
  uint64_t attempts = 0;                // in the files; the rest are numbers of them
  uint64_t committed = 0;
  uint64_t aborted = 0;
  uint64_t unknown = 0;
  uint64_t open = 0;          // without an end
  uint64_t distributed = 0;   // committed ones that looked at rows of several islands
  uint64_t cut = 0;           // into branches, since their coordinator died
  uint64_t deaths = 0;        // lives of islands that ended
  uint64_t torn_files = 0;    // whose last record is not complete
  uint64_t looks = 0;         // at rows
  uint64_t transactions = 0;  // in the graph
  uint64_t edges = 0;
};

// What islands that die keep.
enum class Keeps : uint8_t {
  kNothing,
  kWhatWasSeen,      // nothing is excused: rows are never lost, and what was answered or seen binds everybody
  kWhatWasAnswered,  // after a loss of power: what was seen counts if its reader was told that it committed
};
Judgement JudgeAppends(const std::vector<RecordedHistory>& histories, Keeps keeps = Keeps::kNothing);

}  // namespace islands::experiments
