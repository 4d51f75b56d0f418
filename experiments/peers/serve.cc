#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "experiments/peers/commands.h"

namespace islands::experiments {
namespace {

using nlohmann::json;

void Answer(const json& answer) {
  fmt::print("{}\n", answer.dump());
  std::fflush(stdout);
}

// Parses "ENGINE OP SECONDS"; false when the line is something else.
bool ParseLine(const std::string& line, std::string* engine, std::string* op, double* seconds) {
  std::istringstream words(line);
  std::string more;
  if (!(words >> *engine >> *op >> *seconds) || words >> more) return false;
  return MicroOpOf(*op).has_value() && std::isfinite(*seconds) && *seconds > 0;
}

}  // namespace

int RunServe(PeerDriver& driver) {
  Answer({{"ready", true}, {"engines", EnginesJson(driver)}});
  int exit_code = 0;
  std::string line;
  for (uint64_t stream = 0; std::getline(std::cin, line); ++stream) {
    std::string engine, op;
    double seconds = 0;
    if (!ParseLine(line, &engine, &op, &seconds)) {
      Answer({{"error", fmt::format("'{}': expected ENGINE read|update|add SECONDS", line)}});
      exit_code = 1;
      continue;
    }
    const auto measured = driver.Measure(engine, *MicroOpOf(op), seconds, stream);
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
