// The words of a deployment file: layouts, sizes.
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "fmt/format.h"
#include "topology/planner.h"

namespace islands::topology {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 5> kUnits = {
    {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}};

}  // namespace

absl::StatusOr<std::optional<uint32_t>> ParseLayout(std::string_view text) {
  if (text == "auto") return std::optional<uint32_t>();
  constexpr std::string_view kSuffix = "ISL";
  uint32_t islands = 0;
  std::string_view digits = text;
  bool well_formed = text.ends_with(kSuffix) && !text.starts_with('0');
  if (well_formed) digits.remove_suffix(kSuffix.size());
  auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), islands);
  if (!well_formed || stopped != digits.data() + digits.size() || error == std::errc::invalid_argument) {
    return absl::InvalidArgumentError(std::string(kLayoutWords));
  }
  if (error != std::errc() || islands > kMaxIslands) {
    return absl::InvalidArgumentError(fmt::format("at most {} islands", kMaxIslands));
  }
  return std::optional<uint32_t>(islands);
}

std::string FormatSize(uint64_t bytes) {
  for (const auto& [name, shift] : kUnits) {
    const uint64_t unit = uint64_t{1} << shift;
    if (bytes < unit) continue;
    if (bytes % unit == 0 || bytes >= unit * 100) return fmt::format("{}{}", bytes / unit, name);
    return fmt::format("{:.1f}{}", static_cast<double>(bytes) / static_cast<double>(unit), name);
  }
  return "0B";
}

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(stop - text.data());
  if (error == std::errc()) {
    if (unit.empty()) return number;
    for (const auto& [name, shift] : kUnits) {
      if (unit == name && number <= (std::numeric_limits<uint64_t>::max() >> shift)) return number << shift;
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("'{}' is not a size; expected for example 12GiB, 64MiB or a plain number of bytes", text));
}

std::optional<std::string> NearestSize(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  double number = 0;
  const auto [stop, error] =
      std::from_chars(plain.data(), plain.data() + plain.size(), number, std::chars_format::fixed);
  const std::string unit = plain.substr(stop - plain.data());
  if (error != std::errc() || !(number > 0)) return std::nullopt;
  for (const auto& [name, shift] : kUnits) {
    const std::string letter(1, static_cast<char>(std::tolower(static_cast<unsigned char>(name[0]))));
    if (unit != letter && unit != letter + "b" && unit != letter + "ib") continue;
    const double bytes = number * static_cast<double>(uint64_t{1} << shift);
    constexpr double kMost = 1e18;  // no memory, and well within 64 bits
    if (bytes > kMost || bytes != std::floor(bytes)) return std::nullopt;
    for (const auto& [largest, its_shift] : kUnits) {
      const uint64_t whole = static_cast<uint64_t>(bytes);
      if (whole % (uint64_t{1} << its_shift) == 0) return fmt::format("{}{}", whole >> its_shift, largest);
    }
  }
  return std::nullopt;
}

}  // namespace islands::topology
