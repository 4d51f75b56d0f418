// Placement as the kernel tells it: /proc/PID/task/TID/status and /proc/PID/numa_maps.
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "fmt/format.h"
#include "topology/binding.h"

namespace islands::topology {
namespace {

constexpr uint64_t kSmallPageKib = 4;

absl::StatusOr<std::string> ReadProcFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (file && !text.str().empty()) return text.str();
  int error = errno;
  // Empty, or no such process: the process or thread has ended.
  if (error == 0 || error == ESRCH) return absl::NotFoundError(fmt::format("{}: nobody is there", path));
  return absl::ErrnoToStatus(error, path);
}

std::string_view NextLine(std::string_view& text) {
  size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view NextWord(std::string_view& line) {
  size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return line = {};
  line.remove_prefix(begin);
  std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

template <typename Number>
bool ParseNumber(std::string_view text, int base, Number& value) {
  auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && error == std::errc() && stopped == text.data() + text.size();
}

struct Mapping {
  uint64_t start = 0;
  std::string policy;
  std::map<uint32_t, uint64_t> pages_per_node;
};

// "7f00 prefer:1 file=/x anon=3 N0=1 N1=2 kernelpagesize_kB=4". Policies may be two words: "prefer
// (many):0-1", "weighted interleave:0-1".
absl::StatusOr<Mapping> ParseMapping(std::string_view line) {
  std::string_view rest = line;
  Mapping mapping;
  if (!ParseNumber(NextWord(rest), 16, mapping.start)) {
    return absl::InvalidArgumentError(
        fmt::format("numa_maps: no address at the start of '{}'", line.substr(0, 80)));
  }
  mapping.policy = NextWord(rest);
  if (mapping.policy.empty()) {
    return absl::InvalidArgumentError(fmt::format("numa_maps: no policy in '{}'", line.substr(0, 80)));
  }
  if (mapping.policy == "prefer" || mapping.policy == "weighted")
    mapping.policy += fmt::format(" {}", NextWord(rest));
  uint64_t small_pages = 1;  // per page of this mapping
  for (std::string_view word = NextWord(rest); !word.empty(); word = NextWord(rest)) {
    size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view key = word.substr(0, equals);
    uint64_t value = 0;
    uint32_t node = 0;
    bool is_number = ParseNumber(word.substr(equals + 1), 10, value);
    if (key == "kernelpagesize_kB" && is_number && value >= kSmallPageKib)
      small_pages = value / kSmallPageKib;
    if (key.starts_with('N') && ParseNumber(key.substr(1), 10, node)) {
      if (!is_number) {
        return absl::InvalidArgumentError(fmt::format("numa_maps: '{}' is no number of pages", word));
      }
      mapping.pages_per_node[node] += value;
    }
  }
  for (auto& [node, pages] : mapping.pages_per_node) {
    pages = pages > std::numeric_limits<uint64_t>::max() / small_pages ? std::numeric_limits<uint64_t>::max()
                                                                       : pages * small_pages;
  }
  return mapping;
}

}  // namespace

absl::StatusOr<std::string> ReadCpusAllowed(pid_t pid, pid_t tid) {
  std::string path = fmt::format("/proc/{}/task/{}/status", pid, tid);
  absl::StatusOr<std::string> text = ReadProcFile(path);
  if (!text.ok()) return text.status();
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = NextLine(rest);
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    return std::string(line);
  }
  return absl::UnimplementedError(fmt::format("{}: this kernel prints no {}", path, kKey));
}

absl::StatusOr<MemoryReadback> ParseNumaMaps(std::string_view text, uint64_t address, uint64_t bytes) {
  uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
  MemoryReadback readback;
  Mapping previous;
  bool have_previous = false;
  auto add = [&](uint64_t previous_end) {
    if (!have_previous || previous.start >= end || previous_end <= address) return;
    if (readback.policy.empty()) readback.policy = previous.policy;
    for (auto [node, pages] : previous.pages_per_node) {
      uint64_t& sum = readback.pages_per_node[node];
      sum = pages > UINT64_MAX - sum ? UINT64_MAX : sum + pages;
    }
  };
  while (!text.empty()) {
    std::string_view line = NextLine(text);
    if (line.empty()) continue;
    absl::StatusOr<Mapping> mapping = ParseMapping(line);
    if (!mapping.ok()) return mapping.status();
    add(mapping->start);
    previous = *std::move(mapping);
    have_previous = true;
  }
  add(UINT64_MAX);
  if (readback.policy.empty()) {
    return absl::NotFoundError(fmt::format("numa_maps: no mapping at {:#x}", address));
  }
  return readback;
}

absl::StatusOr<MemoryReadback> ReadMemoryPlacement(pid_t pid, uint64_t address, uint64_t bytes) {
  absl::StatusOr<std::string> text = ReadProcFile(fmt::format("/proc/{}/numa_maps", pid));
  if (text.ok()) return ParseNumaMaps(*text, address, bytes);
  bool process_lives = ReadProcFile(fmt::format("/proc/{}/status", pid)).ok();
  if (absl::IsNotFound(text.status()) && process_lives) {
    return absl::UnimplementedError("this kernel has no numa_maps: where memory lies cannot be read back");
  }
  return text.status();
}

}  // namespace islands::topology
