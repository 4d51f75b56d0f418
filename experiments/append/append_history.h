// What the transactions of one worker's life saw and did, in a file.
//
// An attempt is written before any of its appends is carried out, with one write(2), and how it ended once
// that is known: what another transaction can see of an attempt is in the file, even if the worker's process
// is killed the moment after. What was written stays when a process dies; a file does not outlive the
// machine's power.
//
// A file is a header and records, all little-endian:
//
//   header    magic "IslHist1", 8 | island, 4 | worker, 4 | the island's first site, 4 | 0, 4
//   record    bytes of its body, 4 | FNV-1a hash of the body, 4 | body
//   body      1, 4 | number of looks, 4 | id, 16 | begun ns, 8 | looks, 40 each       an attempt
//             2, 4 | outcome, 4 | id, 16 | ended ns, 8                                how it ended
//   look      key, 8 | life, 8 | flags and count of elements before, 8 | last element before, 16
//
// Id and element: Element of append_row.h. Outcome: 1 committed, 2 aborted, 3 unknown. Flags: bit 63, the
// attempt appends to the row; bit 62, the row was torn, nothing else is known of it. Times are of
// CLOCK_MONOTONIC, which all processes of a machine share: an attempt had not begun before, and had ended by
// then.
//
// A process that is killed in the middle of a write leaves the first part of a record at the end of its file.
// That is recognized; every other deviation is an error.
//
// Thread safety: a HistoryLog belongs to one worker; ParseHistory is a pure function.
//
// Invariants of a file:
//  1. Ids are of the header's island and worker. An attempt is there once, and its end, once, after it.
//  2. An attempt looks at a key once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "experiments/append/append_row.h"

namespace islands::experiments {

// More elements in one row than this are refused: the judge counts them in 23 bits.
inline constexpr uint64_t kMostElements = (uint64_t{1} << 23) - 1;

struct RecordedLook {
  uint64_t key = 0;
  bool torn = false;
  bool appends = false;
  AppendRow before;
};

struct RecordedAttempt {
  enum Fate : uint8_t { kOpen, kCommitted, kAborted, kUnknown };
  Element id;
  Fate fate = kOpen;  // kOpen: its end is not in the file
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
  std::vector<RecordedLook> looks;
};

struct RecordedHistory {
  uint32_t island = 0;
  uint32_t worker = 0;
  uint32_t first_site = 0;
  bool torn = false;  // the last record is not complete
  std::vector<RecordedAttempt> attempts;
};

// For the log, and for tests that make files up.
std::string EncodeHeader(uint32_t island, uint32_t worker, uint32_t first_site);
void EncodeAttempt(const RecordedAttempt& attempt, std::string* bytes);
void EncodeEnd(const Element& id, RecordedAttempt::Fate fate, int64_t ended_ns, std::string* bytes);
void EncodeRecord(std::string_view body, std::string* bytes);

// DATA_LOSS says at which byte, and what is wrong there.
absl::StatusOr<RecordedHistory> ParseHistory(std::string_view bytes);
// The same, of a file; errors name it.
absl::StatusOr<RecordedHistory> ReadHistory(const std::string& path);

class HistoryLog {
 public:
  // A new file in `directory`, which must exist: island-I.worker-W.NS.history.
  static absl::StatusOr<std::unique_ptr<HistoryLog>> Create(const std::string& directory, uint32_t island,
                                                            uint32_t worker, uint32_t first_site,
                                                            int64_t now_ns);
  ~HistoryLog();
  HistoryLog(const HistoryLog&) = delete;
  HistoryLog& operator=(const HistoryLog&) = delete;

  // OK: it is in the file. Otherwise the attempt must not go on.
  absl::Status Begin(const RecordedAttempt& attempt);
  // Of attempts that were begun here; others are ignored.
  void End(const coordinator::TransactionId& id, coordinator::Outcome outcome, int64_t now_ns);

 private:
  HistoryLog(int file, std::string path) : file_(file), path_(std::move(path)) {}
  absl::Status Flush();

  const int file_;
  const std::string path_;
  std::string buffer_;
  std::vector<uint64_t> open_;  // sequences of attempts that have not ended
  absl::Status broken_;
};

}  // namespace islands::experiments
