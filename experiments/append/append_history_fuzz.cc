// Any bytes as a history file, and as records of one with the right hash: refused with an error, or
// understood in a way that can be written down again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "experiments/append/append_history.h"
#include "runtime/check.h"

namespace {

using namespace islands::experiments;  // NOLINT: a fuzz target

void Try(const std::string& bytes) {
  const auto history = ParseHistory(bytes);
  if (!history.ok()) return;
  std::string again = EncodeHeader(history->island, history->worker, history->first_site);
  for (const RecordedAttempt& attempt : history->attempts) {
    EncodeAttempt(attempt, &again);
    if (attempt.fate == RecordedAttempt::kOpen) continue;
    EncodeEnd(attempt.id, attempt.fate, attempt.ended_ns, &again);
  }
  const auto decoded = ParseHistory(again);
  ISLANDS_CHECK(decoded.ok() && decoded->attempts.size() == history->attempts.size());
}

std::string Valid() {
  std::string bytes = EncodeHeader(0, 1, 3);
  for (uint64_t i = 1; i <= 3; ++i) {
    RecordedAttempt attempt{.id = Element::Of({0, 1, 7, i}), .begun_ns = static_cast<int64_t>(i)};
    attempt.looks.push_back({.key = i, .appends = i != 2, .before = {.count = 0, .life = 5}});
    attempt.looks.push_back({.key = i + 1, .before = {.count = i, .life = 5, .last = attempt.id}});
    EncodeAttempt(attempt, &bytes);
    if (i != 2) EncodeEnd(attempt.id, RecordedAttempt::kCommitted, 10, &bytes);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Try(bytes);
  Try(EncodeHeader(0, 1, 3) + bytes);
  // As bodies of records: the first byte of each says how long it is.
  std::string framed = EncodeHeader(0, 0, 0);
  for (size_t at = 0; at < size; at += 1 + data[at]) EncodeRecord(bytes.substr(at + 1, data[at]), &framed);
  Try(framed);
  // A file of ours, with bytes changed or its end missing.
  std::string changed = Valid();
  for (size_t i = 0; i + 1 < size && i < 8; i += 2) {
    changed[(data[i] * 7 + i) % changed.size()] ^= static_cast<char>(data[i + 1]);
  }
  Try(changed);
  if (size != 0) Try(Valid().substr(0, data[0] * 2));
  return 0;
}
