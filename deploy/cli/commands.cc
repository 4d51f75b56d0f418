#include "deploy/cli/commands.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "deploy/cli/output.h"

namespace islands::deploy {

void OnCommand(CLI::App* command, CommandContext& context, std::function<int()> function) {
  command->callback([&context, function = std::move(function)] { context.exit_code = function(); });
}

void AddDeploymentFile(CLI::App* command, std::string* path) {
  command->add_option("FILE", *path, "The deployment file")->required();
}

void AddDryRun(CLI::App* command, CommandContext& context) {
  command->add_flag("--dry-run", context.dry_run, "Say what would be done, change nothing");
}

std::string NotNegative(const std::string& text) {
  return text.starts_with('-') ? "found " + text + ", expected 0 or more" : "";
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimeout;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

int Fail(const CommandContext& context, const absl::Status& status) {
  const std::string message(status.message());
  // A complaint about a file begins with the file's name; anything else with ours.
  const bool complaint = status.code() == absl::StatusCode::kInvalidArgument;
  std::fprintf(stderr, "%s%s\n", complaint ? "" : "islands: ", message.c_str());
  if (context.json()) PrintJson(ErrorJson(message, ExitCode(status)));
  return ExitCode(status);
}

}  // namespace islands::deploy
