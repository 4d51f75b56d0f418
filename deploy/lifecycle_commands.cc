#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "deploy/commands.h"
#include "deploy/lifecycle.h"
#include "deploy/run_command.h"
#include "deploy/top.h"
#include "topology/planner.h"

namespace islands::deploy {
namespace {

constexpr double kMaxTimeoutS = 24 * 3600;
constexpr double kMinIntervalS = 0.1;
constexpr double kMaxIntervalS = 3600;

void AddTimeout(CLI::App* command, double* timeout_s) {
  command->add_option("--timeout", *timeout_s, "Seconds to wait at most")
      ->check(CLI::Range(0.1, kMaxTimeoutS))
      ->capture_default_str();
}

CLI::Option* AddPrometheusPort(CLI::App* command, uint16_t* port) {
  return command->add_option("--prometheus-port", *port, "Where Prometheus listens, on 127.0.0.1")
      ->check(CLI::Range(topology::kMinPort, topology::kMaxPort))
      ->capture_default_str();
}

void AddUp(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("up", "Start a deployment and wait until every island is ready");
  auto options = std::make_shared<UpOptions>();
  AddDeploymentFile(command, &options->file);
  AddTimeout(command, &options->timeout_s);
  command
      ->add_option("--restarts", options->restarts,
                   "Restarts of one island within a minute before it is given up")
      ->check(CLI::Range(0u, 1000u))
      ->capture_default_str();
  CLI::Option* observe = command->add_flag("--observe", options->observe,
                                           "Start Prometheus with rules and alerts, its data under the "
                                           "deployment's, and tell a Grafana of this machine");
  AddPrometheusPort(command, &options->prometheus_port)->needs(observe);
  command
      ->add_option(
          "--targets", options->targets,
          "Write the islands as targets into this folder, for a Prometheus of your own or `islands observe`")
      ->excludes(observe);
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Up(context, *options); });
}

void AddStatus(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("status", "Show a running deployment as the kernel sees it");
  auto options = std::make_shared<StatusOptions>();
  AddDeploymentFile(command, &options->file);
  OnCommand(command, context, [&context, options] { return Status(context, *options); });
}

void AddTop(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("top", "Watch what every island does, live");
  auto options = std::make_shared<TopOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_flag("--once", options->once,
                    "Print one table, over one interval, and end; also where stdout is no terminal");
  auto sort = std::make_shared<std::string>(NameOf(options->sort));
  std::vector<std::string> names;
  for (const TopSortName& each : kTopSorts) names.push_back(each.name);
  command->add_option("--sort", *sort, "What the islands are sorted by")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--interval", options->interval_s, "Seconds from one look to the next")
      ->check(CLI::Range(kMinIntervalS, kMaxIntervalS))
      ->capture_default_str();
  command->footer(
      "Keys: i s t a b w m l sort by island, state, transactions, aborts, busy, wait, messages, latency;\n"
      "the same key again reverses. j k scroll, p pauses, ? shows the keys, q quits.");
  OnCommand(command, context, [&context, options, sort] {
    options->sort = TopSortOf(*sort);
    return Top(context, *options);
  });
}

void AddRun(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("run", "Run a workload on a running deployment and report");
  auto options = std::make_shared<RunOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_option("WORKLOAD", options->workload, "micro, payment, tatp, append, or one of your own")
      ->required();
  auto set = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("--set", *set, "NAME=VALUE: a parameter of a workload other than micro; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--op", options->op,
          "micro: what a transaction does with its rows: read, update (copies each, adds 1 to its counter "
          "and writes it back), add (adds 1 in place) or mix (updates and reads)")
      ->capture_default_str();
  command->add_option("--update-percent", options->update_percent,
                      "micro with --op mix: percentage of transactions that update, the others read");
  command->add_option("--rows", options->rows, "micro: distinct rows of a transaction")
      ->capture_default_str();
  command->add_option("--multisite", options->multisite, "micro: percentage of multisite transactions")
      ->capture_default_str();
  command->add_option("--zipf", options->zipf, "micro: skew of the choice of rows; 0 = uniform")
      ->capture_default_str();
  command
      ->add_option("--mpl", options->mpl,
                   "Transactions in flight per worker: as many slots, each of which draws its next "
                   "request when the one before has ended")
      ->capture_default_str();
  command->add_option("--duration", options->duration_s, "Seconds to measure")->capture_default_str();
  command->add_option("--warmup", options->warmup_s, "Seconds to run before measuring")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the generators' random numbers")
      ->check(NotNegative)
      ->capture_default_str();
  command->add_option("--rows-total", options->rows_total,
                      "micro: rows of the table; the deployment file's range if not given");
  command->add_option("--results", options->results, "Where the run directory is made")
      ->capture_default_str();
  OnCommand(command, context, [&context, command, options, set] {
    for (const char* name : {"--op", "--update-percent", "--rows", "--multisite", "--zipf", "--rows-total"}) {
      if (command->count(name) > 0) options->micro_options.push_back(name);
    }
    for (const std::string& text : *set) {
      absl::Status added = AddParameter(text, &options->parameters);
      if (!added.ok()) return Fail(context, added);
    }
    return Run(context, *options);
  });
}

void AddObserve(CLI::App& app, CommandContext& context) {
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

void AddDown(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("down", "Stop a deployment and wait until every process is gone");
  auto options = std::make_shared<DownOptions>();
  AddDeploymentFile(command, &options->file);
  AddTimeout(command, &options->timeout_s);
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Down(context, *options); });
}

void AddDestroy(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("destroy", "Remove a stopped deployment's data");
  auto options = std::make_shared<DestroyOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_flag("--yes", options->yes, "Do not ask; only a terminal is asked");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Destroy(context, *options); });
}

void AddSupervise(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("supervise", "The supervisor itself; `up` starts it");
  command->group("");  // not shown in --help
  auto options = std::make_shared<SuperviseOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_option("--report-fd", options->report_fd);
  command->add_option("--restarts", options->restarts);
  command->add_flag("--observe", options->observe);
  command->add_option("--prometheus-port", options->prometheus_port);
  command->add_option("--targets", options->targets);
  OnCommand(command, context, [&context, options] { return SuperviseFile(context, *options); });
}

}  // namespace

void AddLifecycleCommands(CLI::App& app, CommandContext& context) {
  AddUp(app, context);
  AddStatus(app, context);
  AddTop(app, context);
  AddRun(app, context);
  AddObserve(app, context);
  AddDown(app, context);
  AddDestroy(app, context);
  AddSupervise(app, context);
}

}  // namespace islands::deploy
