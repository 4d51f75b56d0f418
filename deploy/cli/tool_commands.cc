// Programs in Python, started in our place: `sweep`, `report`, `advise`, `workload` of experiments/;
// `client`, `table`, `history` of instance/gateway/tools; `doctor` of deploy/. They call `islands`, and exit
// with codes that mean the same.
#include "deploy/cli/tool_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace islands::deploy {
namespace {

// Debian's own: its packages of yaml and matplotlib are not seen by any other.
constexpr const char* kPython = "/usr/bin/python3";

struct Tool {
  const char* name;
  const char* about;
  const char* folder;  // below lib/islands
};
constexpr std::array<Tool, 8> kTools = {{
    {"sweep", "Run a series of experiments from a sweep file; goes on where it was interrupted",
     "experiments"},
    {"report", "Make a page of plots of a sweep's results, with what the paper claims beside them",
     "experiments"},
    {"advise", "Predict every layout's throughput under a load from a few short runs, and recommend one",
     "experiments"},
    {"workload", "Begin a workload of your own: a folder with one that builds, runs, is tested and swept",
     "experiments"},
    {"client", "Get, put and scan rows through the gateway, one command or at a prompt", "gateway"},
    {"table", "Create, list, drop tables; load rows from a CSV or JSON Lines file and dump them", "gateway"},
    {"history", "Run list-append transactions from standard input through the gateway, for checkers",
     "gateway"},
    {"doctor", "Say what in this machine makes islands slow or their figures doubtful, and how to change it",
     "doctor"},
}};

}  // namespace

void AddToolCommands(CLI::App& app) {
  for (const Tool& tool : kTools) app.add_subcommand(tool.name, tool.about);
}

bool IsTool(const std::string& word) {
  return std::any_of(kTools.begin(), kTools.end(), [&](const Tool& tool) { return word == tool.name; });
}

int ExecTool(const CommandContext& context, const std::string& tool,
             const std::vector<std::string>& arguments) {
  const auto found =
      std::find_if(kTools.begin(), kTools.end(), [&](const Tool& each) { return tool == each.name; });
  const std::filesystem::path folder =
      std::filesystem::path(context.binary_directory) / "../lib/islands" / found->folder;
  const std::string script = (folder / (tool + ".py")).lexically_normal().string();
  if (access(script.c_str(), R_OK) != 0) {
    return Fail(context,
                absl::NotFoundError(fmt::format("`islands {}` is not built: there is no {}", tool, script)));
  }
  setenv("ISLANDS_BIN", (std::filesystem::path(context.binary_directory) / "islands").c_str(), 1);
  std::vector<std::string> words = {kPython, script};
  bool skipped = false;  // the command's own name
  for (const std::string& argument : arguments) {
    if (!skipped && argument == tool) {
      skipped = true;
    } else {
      words.push_back(argument);
    }
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(kPython, pointers.data());
  return Fail(context,
              absl::ErrnoToStatus(errno, fmt::format("cannot start {}; install python3, python3-yaml, "
                                                     "python3-matplotlib and python3-grpcio",
                                                     kPython)));
}

}  // namespace islands::deploy
