// Isolation scripts: named sessions, their steps in a fixed order, and what must not come of it.
//
// A file of scripts/ holds scenarios; README.md describes the format. Rows have eight names in key order,
// which a Placement turns into keys: the same scenario runs within one site and across every kind of border.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::simulation::isolation {

inline constexpr std::array<std::string_view, 8> kRowNames = {"below", "low", "x",    "mid",
                                                              "more",  "y",   "high", "above"};
// Values by position in kRowNames; what is not there is absent.
using Rows = std::map<uint32_t, int64_t>;
// "x=10 y=20" or "nothing".
std::string RowsText(const Rows& rows);

enum class Verb : uint8_t {
  kBegin,
  kRead,
  kLock,  // reads for update
  kWrite,
  kAdd,      // of a range: to every row in it
  kUpdate,   // the same by reading the row and writing it back; one row
  kReplace,  // by a longer row
  kInsert,
  kDelete,  // of a range: what has the filter's value
  kScan,
  kFind,  // by index, within one site
  kCommit,
  kAbort,
};

struct Step {
  std::string text;      // as written, without what it may return
  uint32_t session = 0;  // 0 = T1
  Verb verb = Verb::kBegin;
  uint32_t first = 0;  // position in kRowNames
  uint32_t last = 0;   // inclusive; == first without a range
  bool range = false;
  int64_t value = 0;
  std::optional<int64_t> filter;  // of a range: only rows with this value
  bool reverse = false;
  uint32_t limit = 0;                // 0 = none
  std::vector<std::string> allowed;  // what it may return if it returns at all; empty = not said
};

// One part of an anomaly.
struct Condition {
  enum Kind : uint8_t { kReturned, kCommitted, kFinal };
  Kind kind = kReturned;
  uint32_t step = 0;     // kReturned
  uint32_t session = 0;  // kCommitted
  uint32_t row = 0;      // kFinal
  std::string value;
};

struct Anomaly {
  std::string text;
  std::vector<Condition> all_of;
};

struct Scenario {
  std::string file;  // "g1a"
  std::string name;
  Rows rows;  // at the beginning
  uint32_t sessions = 0;
  std::vector<Step> steps;
  std::vector<Anomaly> anomalies;

  bool UsesIndex() const;
};

// INVALID_ARGUMENT names file, line, what was found and what would be right.
absl::StatusOr<std::vector<Scenario>> ParseScenarios(std::string_view file, std::string_view text);
// All *.txt of a directory in the order of their names.
absl::StatusOr<std::vector<Scenario>> LoadScenarios(const std::string& directory);

}  // namespace islands::simulation::isolation
