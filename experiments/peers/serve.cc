#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "experiments/peers/commands.h"

namespace islands::experiments {
namespace {

using nlohmann::json;

void Answer(const json& answer) {
  fmt::print("{}\n", answer.dump());
  std::fflush(stdout);
}

struct Wanted {
  std::string engine, op;
  double seconds = 0;
  uint32_t threads = 0;  // all
};

// Parses "ENGINE OP SECONDS [THREADS]"; nothing when the line is something else.
std::optional<Wanted> ParseLine(const std::string& line) {
  std::istringstream words(line);
  Wanted wanted;
  if (!(words >> wanted.engine >> wanted.op >> wanted.seconds)) return std::nullopt;
  std::string more;
  if (words >> more && (!absl::SimpleAtoi(more, &wanted.threads) || wanted.threads == 0)) return std::nullopt;
  if (words >> more || !MicroOpOf(wanted.op)) return std::nullopt;
  if (!std::isfinite(wanted.seconds) || wanted.seconds <= 0) return std::nullopt;
  return wanted;
}

}  // namespace

int RunServe(PeerDriver& driver) {
  Answer({{"ready", true}, {"engines", EnginesJson(driver)}});
  int exit_code = 0;
  std::string line;
  for (uint64_t stream = 0; std::getline(std::cin, line); ++stream) {
    const std::optional<Wanted> wanted = ParseLine(line);
    if (!wanted) {
      Answer({{"error", fmt::format("'{}': expected ENGINE read|update|add SECONDS [THREADS]", line)}});
      exit_code = 1;
      continue;
    }
    const auto& [engine, op, seconds, threads] = *wanted;
    const auto measured = driver.Measure(engine, *MicroOpOf(op), seconds, stream, threads);
    if (!measured.ok()) {
      Answer({{"engine", engine}, {"op", op}, {"error", std::string(measured.status().message())}});
      exit_code = 1;
      continue;
    }
    Answer({{"engine", engine},
            {"op", op},
            {"seconds", measured->seconds},
            {"transactions", measured->transactions},
            {"per_s", measured->PerSecond()},
            {"sum_check", "ok"}});
  }
  return exit_code;
}

}  // namespace islands::experiments
