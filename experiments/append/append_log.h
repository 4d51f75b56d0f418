// Whether the log of islands that were killed has what their clients were told, record by record.
//
// The rows of `append` name who appended last, and an append writes the whole row: so the records say which
// attempt each change is of, whatever kind they are (instance/log/entry.h). Of every attempt that was
// answered as committed there have to be
//
//  - on every island on which it appended, all the rows that it made, and a record that says that they stay:
//    of a transaction that ran through kDone, else its COMMIT, its decision, or, where its coordinator has
//    not been heard yet, its PREPARE;
//  - on some island a record that says that it has committed.
//
// And of none that was answered as aborted there may be such a record.
//
// Thread safety: none.
//
// Invariant: 1. what is judged is the whole of the log: every stream of every life that the histories are of,
// from its first record on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "experiments/append/append_history.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"

namespace islands::experiments {

class AppendLogJudge {
 public:
  explicit AppendLogJudge(size_t row_bytes) : row_bytes_(row_bytes) {}

  // Every record of a stream, in order. DATA_LOSS: it says nothing, or its LSN is not above the one before.
  absl::Status Take(const log::StreamId& stream, const log::Record& record);

  // For people; none: the log has all of it. `*answered`: attempts that were looked for.
  std::vector<std::string> Judge(const std::vector<RecordedHistory>& histories, uint64_t* answered) const;

 private:
  // A row as somebody has made it: island, life and count.
  using Made = std::tuple<uint32_t, uint64_t, uint64_t>;
  struct Trace {
    std::map<Made, uint64_t> rows;
    std::set<uint32_t> stays;  // islands with a record that says so
    bool committed = false;
  };

  void TakeRows(uint32_t island, bool done, const Element& id, std::span<const std::byte> changes);
  std::string FindFault(const RecordedAttempt& attempt, const std::map<uint32_t, uint32_t>& islands) const;

  const size_t row_bytes_;
  std::map<log::StreamId, uint64_t> last_;  // LSN
  std::map<Element, Trace> traces_;         // by attempt
};

}  // namespace islands::experiments
