// `islands template NISL`.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "deploy/cli/output.h"
#include "deploy/plan/output.h"
#include "deploy/plan/template.h"
#include "deploy/run/command.h"
#include "deploy/run/describe.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

struct Arguments {
  TemplateOptions options;
  std::string name;
  std::string workload;
  std::optional<uint64_t> scale;
  std::string transport = "shm";
  std::string output;
};

int Template(const CommandContext& context, Arguments arguments) {
  arguments.options.transport = TransportOf(arguments.transport);
  if (!arguments.name.empty()) arguments.options.name = arguments.name;
  if (!arguments.workload.empty()) {
    const auto described = DescribeWorkload(arguments.workload, context.binary_directory);
    if (!described.ok()) return Fail(context, described.status());
    arguments.options.tables = {described->name, described->description.tables_yaml, arguments.scale};
  }
  const auto machine = topology::LoadThisMachine();
  if (!machine.ok()) return Fail(context, machine.status());
  const auto text = MakeTemplate(arguments.options, *machine);
  if (!text.ok()) return Fail(context, text.status());
  const bool write = !arguments.output.empty() && !context.dry_run;
  if (write) {
    const absl::Status written = WriteNew(arguments.output, *text);
    if (!written.ok()) return Fail(context, written);
  }
  if (context.json()) {
    PrintJson({{"layout", arguments.options.layout},
               {"output", arguments.output},
               {"written", write},
               {"yaml", *text}});
  } else if (arguments.output.empty()) {
    fmt::print("{}", *text);
  } else {
    fmt::print("{} {}; next: islands plan {}\n", write ? "wrote" : "would write", arguments.output,
               arguments.output);
  }
  return kExitOk;
}

}  // namespace

void AddTemplateCommand(CLI::App& app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("template", "Write a commented deployment file for this machine, ready for `up`");
  command->add_option("NISL", arguments->options.layout, "The layout: 1ISL, 2ISL, ... or auto")->required();
  command->add_option("--name", arguments->name, "The deployment's name; default: the layout");
  CLI::Option* rows_total =
      command->add_option("--rows-total", arguments->options.rows_total, "Rows of the microbenchmark's table")
          ->check(NotNegative)
          ->capture_default_str();
  CLI::Option* workload =
      command
          ->add_option("--workload", arguments->workload,
                       "With the tables that this workload needs instead of the microbenchmark's: its name, "
                       "or the path of its object")
          ->excludes(rows_total);
  command
      ->add_option(
          "--scale", arguments->scale,
          "Keys in the range of each of the workload's tables: warehouses of payment and tpcc, subscribers "
          "of tatp, rows of others; default: the workload's own, but one for each site at least. With "
          "fewer there are as many sites")
      ->check(NotNegative)
      ->needs(workload);
  command->add_option("--transport", arguments->transport, "Between islands")
      ->check(CLI::IsMember({"shm", "uds", "zmq"}))
      ->capture_default_str();
  command->add_option("-o,--output", arguments->output, "Write this new file instead of stdout");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, arguments] { return Template(context, *arguments); });
}

}  // namespace islands::deploy
