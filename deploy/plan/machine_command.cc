// `islands machine [SPEC]`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "deploy/cli/output.h"
#include "deploy/plan/commands.h"
#include "deploy/plan/measured_machine.h"
#include "deploy/plan/measured_text.h"
#include "deploy/plan/output.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

struct Arguments {
  std::string spec = "auto";
  bool measure = false;
  std::string output;
};

absl::StatusOr<MachineFile> Load(const std::string& spec) {
  if (topology::NamesMachineFile(spec)) return LoadMachineFile(spec);
  absl::StatusOr<topology::Machine> machine = topology::LoadMachine(spec);
  if (!machine.ok()) return machine.status();
  return MachineFile{.machine = *std::move(machine), .measured = std::nullopt};
}

void ShowText(const MachineFile& shown) {
  std::string text = topology::RenderTree(shown.machine);
  if (!text.ends_with('\n')) text += '\n';
  if (shown.measured) text += "\n" + RenderMeasured(*shown.measured, shown.machine);
  fmt::print("{}", text);
}

int Show(const CommandContext& context, const std::string& spec) {
  const auto shown = Load(spec);
  if (absl::IsNotFound(shown.status()))  // as a wrong name in a deployment file
    return Fail(context, absl::InvalidArgumentError(shown.status().message()));
  if (!shown.ok()) return Fail(context, shown.status());
  if (context.json()) {
    PrintJson(MachineJson(shown->machine));
  } else {
    ShowText(*shown);
  }
  return kExitOk;
}

// Ctrl-C ends the process as it is: nothing is written before all is measured.
int Measure(const CommandContext& context, const std::string& output) {
  if (!output.empty()) {  // rather now than after minutes
    const absl::Status possible = WriteNew(output, "");
    if (!possible.ok()) return Fail(context, possible);
    unlink(output.c_str());
  }
  const absl::StatusOr<MachineFile> shown = MeasureThisMachine();
  if (!shown.ok()) return Fail(context, shown.status());
  const std::string text = MeasuredText(*shown->measured, shown->machine);
  if (!output.empty()) {
    const absl::Status written = WriteNew(output, text);
    if (!written.ok()) return Fail(context, written);
  }
  if (context.json()) {
    fmt::print("{}", text);
    return kExitOk;
  }
  ShowText(*shown);
  if (!output.empty()) fmt::print("wrote {}; in a deployment file: machine: {}\n", output, output);
  return kExitOk;
}

}  // namespace

void AddMachineCommand(CLI::App& app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* machine =
      app.add_subcommand("machine", "Show a machine as hwloc sees it: packages, nodes, caches, cores");
  CLI::Option* spec =
      machine->add_option("SPEC", arguments->spec,
                          "auto (this machine), an hwloc XML file, what --measure has written, or "
                          "'pack:4 [numa] core:6 pu:1'");
  CLI::Option* measure =
      machine->add_flag("--measure", arguments->measure,
                        "Measure round trips of a cache line between all cores of this machine, which should "
                        "be idle (96 cores: a "
                        "minute); find clusters of near cores, and say whether the firmware names the same");
  measure->excludes(spec);
  machine
      ->add_option("-o,--output", arguments->output,
                   "With --measure: write this new file, for 'machine:' in a deployment file")
      ->needs(measure);
  OnCommand(machine, context, [&context, arguments] {
    return arguments->measure ? Measure(context, arguments->output) : Show(context, arguments->spec);
  });
}

}  // namespace islands::deploy
