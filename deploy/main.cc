// The `islands` command (design, section 7).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/output.h"
#include "deploy/cli/tool_commands.h"
#include "deploy/cluster/commands.h"
#include "deploy/cluster/shared_cores.h"
#include "deploy/observe/command.h"
#include "deploy/plan/commands.h"
#include "deploy/run/command.h"
#include "deploy/run/profile_command.h"
#include "deploy/top/command.h"

namespace islands::deploy {
namespace {

constexpr const char* kExamples = R"(
Examples:
  islands machine                             what this machine looks like
  islands template 2ISL --output two.yaml     a deployment file for it
  islands plan two.yaml                       what would run where
  islands up two.yaml                         start it, wait until every island is ready
  islands run two.yaml micro --multisite 20   run the microbenchmark
  islands top two.yaml                        watch every island meanwhile; `up --observe`: with Prometheus
  islands ps                                  which deployments are up
  islands down two.yaml                       stop it, wait until every process is gone
  islands sweep experiments/quick.yaml        the paper's experiments, five minutes of them
  islands report                              a page of plots of the newest results

`islands help COMMAND`, or `islands COMMAND --help`, explains a command.
)";

// What somebody would type, before the footer of each command's help; those in Python have their own.
struct Example {
  const char* command;
  const char* lines;
};
constexpr std::array kExamplesOf = {
    Example{"check",
            "  islands check my.yaml                     every mistake in it, with line and column\n"},
    Example{"plan",
            "  islands plan my.yaml                      which island gets which cores, memory, sites\n"},
    Example{"template",
            "  islands template 4ISL --output my.yaml    a deployment file for this machine\n"
            "  islands template auto --workload tpcc     with the tables that a workload needs\n"},
    Example{"machine",
            "  islands machine                           what hwloc sees, as a tree\n"
            "  islands machine --measure                 what cores tell each other, measured\n"},
    Example{"up",
            "  islands up my.yaml                        until every island is ready\n"
            "  islands up my.yaml --observe              with Prometheus, and a Grafana told\n"},
    Example{"status",
            "  islands status my.yaml                    what runs where, as the kernel sees it\n"
            "  islands status my.yaml --diff             what was edited in the file since\n"},
    Example{"logs",
            "  islands logs my.yaml                      what all its processes say, by time\n"
            "  islands logs my.yaml 0 -f                 island 0, and what comes\n"},
    Example{"txn", "  islands txn my.yaml list --in-doubt       who waits for a coordinator\n"},
    Example{"top", "  islands top my.yaml                       live, in another terminal\n"},
    Example{"profile",
            "  islands profile my.yaml --seconds 10      where cores and transactions spend theirs\n"},
    Example{"observe",
            "  islands observe watch/                    one Prometheus for several deployments\n"},
    Example{"ps", "  islands ps                                which deployments are up\n"},
    Example{"restart",
            "  islands restart my.yaml                   all islands, one after the other\n"
            "  islands restart my.yaml 1 3               those two\n"},
    Example{"apply", "  islands apply my.yaml --dry-run           what would change, and how\n"},
    Example{"down",
            "  islands down my.yaml                      until every process is gone\n"
            "  islands down quad                         by the name that `islands ps` shows\n"},
    Example{"verify", "  islands verify my.yaml                    of what is down\n"},
    Example{"relayout",
            "  islands relayout my.yaml --dry-run        how much would be cut, from what into what\n"
            "  islands relayout my.yaml                  after `down`, and another `layout` in the file\n"},
    Example{
        "compact",
        "  islands compact my.yaml --dry-run         how much would be written, and whether there is room\n"
        "  islands compact my.yaml                   after `down`\n"},
    Example{"destroy", "  islands destroy my.yaml --dry-run         what would be removed\n"},
};

// Of every command's help.
constexpr const char* kFooter = R"(
--format text|json may stand before or after the command; with json, stdout is one JSON document.
Exit codes: 0 ok, 1 failed, 2 usage or invalid file, 3 findings of `status` and `verify`,
124 timeout, 130 interrupted.)";

std::string BinaryDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

// The first argument that is neither an option nor the value of one before the command.
std::string CommandWord(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--format") {
      ++i;
    } else if (!arguments[i].starts_with('-')) {
      return arguments[i];
    }
  }
  return "";
}

// The command line may be too wrong to be parsed, and the answer must still have the format that was asked
// for.
bool WantsJson(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--format=json") return true;
    if (arguments[i] == "--format" && i + 1 < arguments.size() && arguments[i + 1] == "json") return true;
  }
  return false;
}

int UsageError(bool json, const std::string& message) {
  fmt::print(stderr, "islands: {}\n", message);
  if (json) PrintJson(ErrorJson(message, kExitUsage));
  return kExitUsage;
}

std::string UnknownCommand(const std::string& word, const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  const auto near = Nearest(word, names);
  return fmt::format("unknown command '{}'; {}", word,
                     near ? fmt::format("did you mean '{}'?", *near) : "see `islands --help`");
}

// With what is there instead: names of options differ from workload to workload.
std::string UnknownOption(const CLI::App& app, const std::string& word,
                          const std::vector<std::string>& extras) {
  const auto commands = app.get_subcommands([&](const CLI::App* sub) { return sub->check_name(word); });
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& text) { return text.starts_with('-'); });
  if (option == extras.end() || commands.empty()) {
    return fmt::format("found '{}', which is no option", fmt::join(extras, " "));
  }
  std::vector<std::string> names;
  for (const CLI::Option* known : commands[0]->get_options()) {
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  }
  const std::string name = option->substr(0, option->find('='));
  if (std::count(names.begin(), names.end(), name) > 0)  // behind `--`
    return fmt::format("found '{}', which is no option there", fmt::join(extras, " "));
  const auto near = Nearest(name, names);
  return fmt::format("found unknown option '{}', expected {}", name,
                     near ? fmt::format("'{}'?", *near) : fmt::format("one of {}", fmt::join(names, ", ")));
}

bool Knows(const CLI::App& app, const std::string& word) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->check_name(word); });
}

// `help up`, as git and kubectl have it, is `up --help`, and `help` alone that of all.
void HelpFirst(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "help") return;
  arguments.erase(arguments.begin());
  arguments.push_back("--help");
}

int ParseAndRun(CLI::App& app, CommandContext& context) {
  const std::vector<std::string>& arguments = context.arguments;
  const std::string word = CommandWord(arguments);
  if (!word.empty() && !Knows(app, word)) return UsageError(WantsJson(arguments), UnknownCommand(word, app));
  if (IsTool(word)) return ExecTool(context, word, arguments);
  if (arguments.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // it takes the last one first
  } catch (const CLI::Success& asked) {                                         // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const std::string command = word.empty() ? "islands" : "islands " + word;
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string what = extras ? UnknownOption(app, word, app.remaining(true)) : error.what();
    return UsageError(WantsJson(arguments), fmt::format("{}; see `{} --help`", what, command));
  }
  return context.exit_code;
}

// A result that did not get out (full disk, closed pipe) is none.
int CheckStdout(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "islands: cannot write to stdout\n");
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

int Main(int argc, char** argv) {
  // Who started us may ignore it, and then the kernel does not say how our own children end.
  signal(SIGCHLD, SIG_DFL);
  CommandContext context;
  context.binary_directory = BinaryDirectory();
  context.arguments.assign(argv + 1, argv + argc);
  HelpFirst(context.arguments);
  for (int i = 0; i < argc; ++i) context.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);

  CLI::App app("Cuts a multisocket machine into islands and runs a shared-nothing OLTP system on them.",
               "islands");
  app.footer(kFooter);
  app.set_version_flag("--version", "islands " ISLANDS_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --format may stand after the command, too
  app.add_option_function<std::string>(
         "--format",
         [&](const std::string& name) {
           context.format = name == "json" ? OutputFormat::kJson : OutputFormat::kText;
         },
         "Of what is written to stdout")
      ->check(CLI::IsMember({"text", "json"}));
  // In the order of `islands --help`.
  AddCheckCommand(app, context, NotesOnSharedCores);
  AddPlanCommand(app, context, NotesOnSharedCores);
  for (auto* add :
       {AddTemplateCommand, AddMachineCommand,  AddUpCommand,      AddStatusCommand,  AddLogsCommand,
        AddTxnCommand,      AddTopCommand,      AddLoadCommand,    AddRunCommand,     AddProfileCommand,
        AddObserveCommand,  AddPsCommand,       AddRestartCommand, AddApplyCommand,   AddDownCommand,
        AddVerifyCommand,   AddRelayoutCommand, AddCompactCommand, AddDestroyCommand, AddSuperviseCommand}) {
    add(app, context);
  }
  for (const Example& example : kExamplesOf) {
    CLI::App* command = app.get_subcommand(example.command);
    command->footer(std::string("Examples:\n") + example.lines + "\n" + command->get_footer());
  }
  AddToolCommands(app);
  app.footer(std::string(kExamples) + kFooter);
  return CheckStdout(ParseAndRun(app, context));
}

}  // namespace
}  // namespace islands::deploy

int main(int argc, char** argv) {
  try {
    return islands::deploy::Main(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a bug of ours
    std::fprintf(stderr, "islands: internal error: %s\n", error.what());
    return islands::deploy::kExitFailed;
  }
}
