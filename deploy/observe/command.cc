#include "deploy/observe/command.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "deploy/observe/observation.h"
#include "deploy/observe/observer.h"
#include "deploy/processes/interrupts.h"
#include "topology/planner.h"

namespace islands::deploy {
namespace {

struct ObserveOptions {
  std::string directory;
  uint16_t prometheus_port = kPrometheusPort;
  bool end_with_parent = false;  // for programs that start it
};

constexpr int64_t kLookMs = 50;  // while Prometheus starts
constexpr int64_t kStepMs = 500;

absl::Status Gone(const Observer& observer) {
  const control::v1::Observation observation = observer.Describe();
  return absl::UnavailableError(observation.notes().empty() ? "Prometheus is gone" : observation.notes(0));
}

void Print(const CommandContext& context, const Observer& observer) {
  const control::v1::Observation observation = observer.Describe();
  if (context.json()) {
    fmt::print("{}\n", ObservationJson(observation).dump());
  } else {
    fmt::print("{}targets: {}; start deployments with `islands up FILE --targets {}`\nCtrl-C ends it\n",
               ObservationText(observation), observation.targets(), observation.targets());
  }
  std::fflush(stdout);  // a program may wait for it
}

// A Prometheus for deployments that write their targets below `directory`, until interrupted.
int Observe(const CommandContext& context, const ObserveOptions& options) {
  auto log = spdlog::stderr_logger_st("observe");  // stdout is for the result
  log->set_pattern("%v");
  log->set_level(spdlog::level::warn);
  spdlog::set_default_logger(std::move(log));
  Interrupts interrupts;
  if (options.end_with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  ObserverOptions observing;
  observing.directory = std::filesystem::absolute(options.directory).lexically_normal().string();
  observing.dashboards = DashboardsFolder(context);
  observing.tools = ToolsFolder(context);
  observing.port = options.prometheus_port;
  Observer observer(observing);
  observer.Start();
  bool printed = false;
  for (;;) {
    observer.Step();
    if (observer.gone()) {
      const absl::Status gone = Gone(observer);
      if (!printed) return Fail(context, gone);
      fmt::print(stderr, "islands: {}\n", std::string(gone.message()));  // stdout has its document
      return kExitFailed;
    }
    if (!printed && observer.settled()) {
      Print(context, observer);
      printed = true;
    }
    if (interrupts.Sleep(printed ? kStepMs : kLookMs) == Interrupts::Wake::kInterrupted)
      return kExitInterrupted;
  }
}

}  // namespace

std::string DashboardsFolder(const CommandContext& context) {
  return (std::filesystem::path(context.binary_directory) / "../lib/islands/dashboards")
      .lexically_normal()
      .string();
}

std::string ToolsFolder(const CommandContext& context) {
  return (std::filesystem::path(context.binary_directory) / "../../tools").lexically_normal().string();
}

CLI::Option* AddPrometheusPort(CLI::App* command, uint16_t* port) {
  return command->add_option("--prometheus-port", *port, "Where Prometheus listens, on 127.0.0.1")
      ->check(CLI::Range(topology::kMinPort, topology::kMaxPort))
      ->capture_default_str();
}

void AddObserveCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("observe", "Run one Prometheus for several deployments, until Ctrl-C");
  command->footer(
      "The deployments are those that were started with `islands up FILE --targets DIRECTORY/targets`.");
  auto options = std::make_shared<ObserveOptions>();
  command
      ->add_option("DIRECTORY", options->directory,
                   "For its targets, rules and data; made if it is not there")
      ->required();
  AddPrometheusPort(command, &options->prometheus_port);
  command->add_flag("--end-with-parent", options->end_with_parent)->group("");
  OnCommand(command, context, [&context, options] { return Observe(context, *options); });
}

}  // namespace islands::deploy
