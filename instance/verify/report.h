// What a walk over durable data has found, said to people: each finding and each note is one line.
//
// A finding is what is not as it was written, or does not go together: what and where, what it means, what to
// do. A note is what somebody who looks after the data wants to know, and is no reason for worry.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace islands::verify {

struct Finding {
  std::string path;   // the file that it is about, or the directory
  std::string text;   // names the path as well
  bool stops = true;  // `up` does not start on it; else it goes on with what is left
};

// An island as recovery makes it.
struct IslandFigures {
  uint32_t island = 0;
  uint64_t pages = 0;      // in its data files
  uint64_t records = 0;    // of the log, repeated
  uint64_t dropped = 0;    // of the log, in a cut
  uint64_t undone = 0;     // transactions
  uint64_t in_doubt = 0;   // that have prepared: their coordinators decide
  uint64_t decisions = 0;  // of which not all have heard
};

struct Report {
  std::vector<Finding> findings;
  std::vector<std::string> notes;
  std::vector<IslandFigures> islands;

  bool sound() const { return findings.empty(); }
  // What is wrong with the data becomes a finding about `path`, or a file in it that the error names. Any
  // other error keeps from looking, and is handed back: somebody holds a lock, there is no memory, we may not
  // read.
  absl::Status Take(const absl::Status& status, const std::string& path);
};

// How far a long work is; `all` 0: nobody knows how much it will be. Called now and then. Not OK: it ends
// there.
using Progress = absl::FunctionRef<absl::Status(const std::string& what, uint64_t done, uint64_t all)>;

inline constexpr char kRestore[] = "restore data and log from a copy";

}  // namespace islands::verify
