// The words of a deployment file: placements, worker orders, layouts.
#include <charconv>

#include "fmt/format.h"
#include "topology/planner.h"

namespace islands::topology {
namespace {
constexpr uint32_t kMaxIslands = 4096;
}  // namespace

absl::StatusOr<Placement> ParsePlacement(std::string_view text) {
  for (Placement placement : {Placement::kIslands, Placement::kSpread, Placement::kOs}) {
    if (text == PlacementName(placement)) return placement;
  }
  return absl::InvalidArgumentError(fmt::format("placement '{}': expected islands, spread or os", text));
}

absl::StatusOr<WorkerOrder> ParseWorkerOrder(std::string_view text) {
  for (WorkerOrder order :
       {WorkerOrder::kGrouped, WorkerOrder::kSpread, WorkerOrder::kMix, WorkerOrder::kOs}) {
    if (text == WorkerOrderName(order)) return order;
  }
  return absl::InvalidArgumentError(fmt::format("workers '{}': expected grouped, spread, mix or os", text));
}

std::string_view PlacementName(Placement placement) {
  switch (placement) {
    case Placement::kIslands:
      return "islands";
    case Placement::kSpread:
      return "spread";
    case Placement::kOs:
      return "os";
  }
  return "unknown";
}

std::string_view WorkerOrderName(WorkerOrder order) {
  switch (order) {
    case WorkerOrder::kGrouped:
      return "grouped";
    case WorkerOrder::kSpread:
      return "spread";
    case WorkerOrder::kMix:
      return "mix";
    case WorkerOrder::kOs:
      return "os";
  }
  return "unknown";
}

absl::StatusOr<std::optional<uint32_t>> ParseLayout(std::string_view text) {
  if (text == "auto") return std::optional<uint32_t>();
  constexpr std::string_view kSuffix = "ISL";
  uint32_t islands = 0;
  std::string_view digits = text;
  bool well_formed = text.ends_with(kSuffix) && !text.starts_with('0');
  if (well_formed) digits.remove_suffix(kSuffix.size());
  auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), islands);
  if (!well_formed || stopped != digits.data() + digits.size() || error == std::errc::invalid_argument) {
    return absl::InvalidArgumentError(
        fmt::format("layout '{}': expected auto, or the number of islands as in 1ISL, 4ISL, 24ISL", text));
  }
  if (error != std::errc() || islands > kMaxIslands) {
    return absl::InvalidArgumentError(fmt::format("layout '{}': at most {}ISL", text, kMaxIslands));
  }
  return std::optional<uint32_t>(islands);
}

}  // namespace islands::topology
