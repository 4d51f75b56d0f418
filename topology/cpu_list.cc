#include <algorithm>
#include <charconv>

#include "fmt/format.h"
#include "topology/machine.h"

namespace islands::topology {
namespace {

// Linux counts at most 8192 CPUs; the cap keeps "0-4000000000" from filling memory.
constexpr uint32_t kMaxCpu = 65535;

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

absl::StatusOr<uint32_t> ParseCpu(std::string_view number, std::string_view part) {
  uint32_t value = 0;
  const char* end = number.data() + number.size();
  auto [stopped, error] = std::from_chars(number.data(), end, value);
  if (number.empty() || error == std::errc::invalid_argument || stopped != end) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' in a CPU list: expected a number or a range such as 0-5", part));
  }
  if (error != std::errc() || value > kMaxCpu) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' in a CPU list: CPU numbers go up to {}", part, kMaxCpu));
  }
  return value;
}

absl::Status AddPart(std::string_view part, std::vector<uint32_t>& cpus) {
  size_t dash = part.find('-');
  absl::StatusOr<uint32_t> first = ParseCpu(Trim(part.substr(0, dash)), part);
  if (!first.ok()) return first.status();
  absl::StatusOr<uint32_t> last = first;
  if (dash != std::string_view::npos) last = ParseCpu(Trim(part.substr(dash + 1)), part);
  if (!last.ok()) return last.status();
  if (*last < *first) {
    return absl::InvalidArgumentError(fmt::format("'{}' in a CPU list: the range runs backwards", part));
  }
  // Overlapping ranges could otherwise multiply the cap by the number of parts.
  if (cpus.size() + (*last - *first) > kMaxCpu) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' in a CPU list: more than {} CPUs in all", part, kMaxCpu + 1));
  }
  for (uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text) {
  std::vector<uint32_t> cpus;
  if (Trim(text).empty()) {
    return absl::InvalidArgumentError("the CPU list is empty: expected for example 0-5,12");
  }
  for (size_t begin = 0; begin <= text.size();) {
    size_t comma = std::min(text.find(',', begin), text.size());
    std::string_view part = Trim(text.substr(begin, comma - begin));
    if (part.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("CPU list '{}': nothing before or after a comma at character {}", text, begin + 1));
    }
    if (absl::Status status = AddPart(part, cpus); !status.ok()) return status;
    begin = comma + 1;
  }
  std::sort(cpus.begin(), cpus.end());
  auto twice = std::adjacent_find(cpus.begin(), cpus.end());
  if (twice != cpus.end()) {
    return absl::InvalidArgumentError(fmt::format("CPU list '{}': CPU {} is named twice", text, *twice));
  }
  return cpus;
}

std::string FormatCpuList(std::vector<uint32_t> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace islands::topology
