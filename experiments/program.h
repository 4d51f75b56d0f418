// What the programs of experiments/ (counters, ipc) share: the options that each of them takes, how a result,
// an error and "this machine cannot do that" are printed, and which CPUs `--cores` means. A sweep calls a
// program as NAME --seconds S --warmup S --seed N --PARAM VALUE ... --format json and reads one JSON object
// from stdout.
//
// Thread safety: none; a program's main thread calls these.
//
// Invariants:
//  1. stdout holds nothing but the result; an error is one line on stderr.
//  2. Exit codes: 0 done or skipped, 1 failed, 2 usage, 130 interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/machine.h"
#include "topology/planner.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace islands::experiments {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

struct ProgramOptions {
  double seconds = 1;
  double warmup_s = 0.2;
  uint64_t seed = 1;
  std::string cores = "all";
  std::string format = "text";
};

using ParameterValue = std::variant<uint64_t, double, std::string>;

struct ProgramResult {
  std::vector<std::pair<std::string, ParameterValue>>
      parameters;  // the program's own; the shared ones are added
  std::vector<std::pair<std::string, double>> metrics;
  std::string placement;  // what ran where
};

// Checks an option of `least` to 3600 seconds.
CLI::Validator SecondsFrom(double least);
void AddProgramOptions(CLI::App& app, ProgramOptions& options);

// Parses; an exit code if the program is thereby over: --help (0) or wrong usage (2).
std::optional<int> ParseArguments(CLI::App& app, std::string_view program, int argc, char** argv);

// The CPUs of `--cores` ("all", the first N, or a list "0-5,12"), one per core, as a deployment file's
// `cores` means them: `grouped` in the machine's order, `spread` dealt from all sockets in turn.
absl::StatusOr<std::vector<uint32_t>> ChooseCpus(const topology::Machine& machine, std::string_view cores,
                                                 topology::WorkerOrder order);
// The core that `cpu` is a hardware thread of; nullptr if none is.
const topology::Core* CoreOfCpu(const topology::Machine& machine, uint32_t cpu);

// Each prints and returns the exit code.
int PrintResult(std::string_view program, const ProgramOptions& options, const ProgramResult& result);
int PrintSkipped(std::string_view program, const ProgramOptions& options, std::string_view reason);
int PrintError(std::string_view program, const absl::Status& status);  // INVALID_ARGUMENT is usage

}  // namespace islands::experiments
