// The `islands` command: what every subcommand shares.
//
// Rooms of deploy/ add their subcommands to the CLI::App and give each its function with OnCommand; main.cc
// collects them, parses the command line, which calls the chosen one, and exits with
// CommandContext::exit_code. `--format` may stand before or after the subcommand. stdout carries the result
// (with --format json exactly one JSON document), stderr everything else.
//
// Thread safety: commands run on the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace islands::deploy {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;  // bad command line or invalid file
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitInterrupted = 130;

enum class OutputFormat { kText, kJson };

struct CommandContext {
  OutputFormat format = OutputFormat::kText;
  bool dry_run = false;     // set by AddDryRun's option
  int exit_code = kExitOk;  // of the command that ran
  std::string
      binary_directory;      // absolute; where `islands` itself lies, and islandd and the workloads beside it
  std::string command_line;  // as typed, for meta.json and messages
  std::vector<std::string> arguments;  // the same in words, without the program

  bool json() const { return format == OutputFormat::kJson; }
};

// Runs `function` when `command` is the chosen subcommand; what it returns becomes the exit code.
void OnCommand(CLI::App* command, CommandContext& context, std::function<int()> function);
// A subcommand's required first argument FILE, stored in `*path`.
void AddDeploymentFile(CLI::App* command, std::string* path);
void AddDryRun(CLI::App* command, CommandContext& context);
// A check of an option that counts: CLI11 takes -5 for 64 bits of something large.
std::string NotNegative(const std::string& text);

// 0, 2 for INVALID_ARGUMENT, 124 for DEADLINE_EXCEEDED, 130 for CANCELLED, 1 for the rest.
int ExitCode(const absl::Status& status);
// Says what went wrong, on stderr, and with --format json also as {"error": {...}} on stdout. Returns the
// exit code.
int Fail(const CommandContext& context, const absl::Status& status);

}  // namespace islands::deploy
