#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>

#include "deploy/cluster/log_lines.h"
#include "deploy/processes/claim.h"

// What commands read that other processes have written: lines of logs, and what stands in a lock. Half of the
// inputs follow the beginning of a right one, so that random bytes get past it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const bool folded = size > 0 && data[0] % 2 == 1;
  const std::string line = (folded ? "2026-01-31T12:00:00.000Z island 3 info " : "") + bytes;
  const islands::deploy::LogLine parsed = islands::deploy::ParseLogLine("island 3", line);
  assert(parsed.time.empty() == parsed.level.empty());
  assert(parsed.time.empty() ? parsed.text == line : line.ends_with(parsed.text));
  assert(!folded || (parsed.level == "info" && parsed.text == bytes));

  const std::string note =
      (folded
           ? R"({"name":"a","file":"/a","control_directory":"/c","data_directory":"/d","islands":1,"since":)"
           : "") +
      bytes;
  const auto claim = islands::deploy::ClaimIn(note);
  if (!claim.ok()) return 0;
  const auto again = islands::deploy::ClaimIn(islands::deploy::NoteOf(*claim));
  assert(again.ok() && again->name == claim->name && again->since_s == claim->since_s);
  return 0;
}
