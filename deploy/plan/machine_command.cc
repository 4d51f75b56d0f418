// `islands machine [SPEC]`.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "deploy/cli/output.h"
#include "deploy/plan/commands.h"
#include "deploy/plan/output.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

int ShowMachine(const CommandContext& context, const std::string& spec) {
  const auto machine = topology::LoadMachine(spec);
  if (absl::IsNotFound(machine.status()))  // as a wrong name in a deployment file
    return Fail(context, absl::InvalidArgumentError(machine.status().message()));
  if (!machine.ok()) return Fail(context, machine.status());
  if (context.json()) {
    PrintJson(MachineJson(*machine));
    return kExitOk;
  }
  std::string tree = topology::RenderTree(*machine);
  if (!tree.ends_with('\n')) tree += '\n';
  fmt::print("{}", tree);
  return kExitOk;
}

}  // namespace

void AddMachineCommand(CLI::App& app, CommandContext& context) {
  auto spec = std::make_shared<std::string>("auto");
  CLI::App* machine =
      app.add_subcommand("machine", "Show a machine as hwloc sees it: packages, nodes, caches, cores");
  machine->add_option("SPEC", *spec,
                      "auto (this machine), an hwloc XML file, or 'pack:4 [numa] core:6 pu:1'");
  OnCommand(machine, context, [&context, spec] { return ShowMachine(context, *spec); });
}

}  // namespace islands::deploy
