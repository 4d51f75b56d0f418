#include "deploy/cluster/commands.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/observe/command.h"

namespace islands::deploy {
namespace {

constexpr double kMaxTimeoutS = 24 * 3600;

void AddTimeout(CLI::App* command, double* timeout_s, const char* what) {
  command->add_option("--timeout", *timeout_s, what)
      ->check(CLI::Range(0.1, kMaxTimeoutS))
      ->capture_default_str();
}

// What FindDownTarget takes.
void AddDeployment(CLI::App* command, std::string* deployment) {
  command
      ->add_option(
          "DEPLOYMENT", *deployment,
          "The deployment file; where it is gone or broken its path all the same, or a name or a control "
          "directory that `islands ps` shows")
      ->required();
}

std::string CheckSource(const std::string& text) {
  static const std::set<std::string> kOthers = {"supervisor", "logger", "gateway"};
  uint32_t island = 0;
  if (kOthers.contains(text) || (absl::SimpleAtoi(text, &island) && text == std::to_string(island)))
    return "";
  return "found '" + text + "', expected an island's number, supervisor, logger or gateway";
}

}  // namespace

void AddUpCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("up", "Start a deployment and wait until every island is ready");
  auto options = std::make_shared<UpOptions>();
  AddDeploymentFile(command, &options->file);
  AddTimeout(command, &options->timeout_s, "Seconds to wait at most while no island gets further");
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

void AddStatusCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("status", "Show a running deployment as the kernel sees it");
  auto options = std::make_shared<StatusOptions>();
  AddDeploymentFile(command, &options->file);
  command->footer(
      "Exit code 3: it is up, and not all of it works: an island or the gateway is not ready, or hung, "
      "there\n"
      "is no logger, or nothing can be changed. 1: it is not up.\n" +
      command->get_footer());
  command->add_flag("--diff", options->diff,
                    "Only where the file differs from what runs, a line each; exit code 3 if it does");
  OnCommand(command, context, [&context, options] { return Status(context, *options); });
}

void AddLogsCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("logs", "Show what the processes of a deployment say, up or not");
  command->footer(
      "Lines of all logs of the control directory, by time; one without a time stays behind the one before "
      "it\n"
      "in its log. With --follow lines of different logs that come within 0.1 s are in that order. It goes "
      "on\n"
      "over restarts, rotated and truncated logs, until the deployment ends (exit code 0) or Ctrl-C (130).\n"
      "With --format json stdout is one object a line: source, time, level, text.\n" +
      command->get_footer());
  auto options = std::make_shared<LogsOptions>();
  AddDeployment(command, &options->deployment);
  command
      ->add_option("ISLAND", options->source,
                   "An island's number, supervisor, logger or gateway; default: all")
      ->check(CheckSource);
  command->add_flag("-f,--follow", options->follow, "Go on with what comes");
  command
      ->add_option("--lines", options->lines,
                   "So many last lines of all together; default: all, and 10 with --follow")
      ->check(NotNegative);
  OnCommand(command, context, [&context, options] { return Logs(context, *options); });
}

void AddTxnCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("txn", "Show the open transactions of a running deployment");
  command->footer(
      "A line is what a transaction has on one island. States: running; voting: its coordinator waits for\n"
      "votes; in doubt: has voted yes and does not know the decision; committing: committed, not "
      "acknowledged\n"
      "by all; deciding, decided: the only writer decides alone. `age` is since it began on that island, or\n"
      "since the island's last start if it was restored by recovery. An island lists its 1,000 oldest.\n" +
      command->get_footer());
  auto options = std::make_shared<TxnOptions>();
  auto action = std::make_shared<std::string>();
  AddDeploymentFile(command, &options->file);
  command->add_option("ACTION", *action, "What to do: list")->required()->check(CLI::IsMember({"list"}));
  command->add_flag("--in-doubt", options->in_doubt, "Only branches that are in doubt");
  OnCommand(command, context, [&context, options, action] { return ListTransactions(context, *options); });
}

void AddPsCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("ps", "Show which deployments of this user are up; root: everybody's");
  command->footer(
      "States: up; starting; degraded: an island is not ready, see `islands status`; stopping; silent: the\n"
      "supervisor does not answer; cut_off: the control directory was removed; alive: another user's, or in\n"
      "another container; gone: it has died without `down`, and is shown this once.\n" +
      command->get_footer());
  OnCommand(command, context, [&context] { return ListDeployments(context); });
}

void AddRestartCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("restart", "Restart islands one after the other, each when the one before is ready");
  command->footer(
      "Nothing that was acknowledged is lost; what is under way on an island that ends is aborted, or its\n"
      "outcome unknown. But with durability none an island begins with its initial rows.\n"
      "Islands are those of the last `up`: what was changed in the file since counts from the next one "
      "on.\n" +
      command->get_footer());
  auto options = std::make_shared<RestartOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_option("ISLAND", options->islands, "Numbers of islands; default: all")->check(NotNegative);
  command->add_flag("--yes", options->yes, "Also with durability none, which loses rows");
  AddTimeout(command, &options->timeout_s, "Seconds to wait at most for each island");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return RestartIslands(context, *options); });
}

void AddApplyCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("apply", "Bring a running deployment to what its file says now");
  command->footer(
      "What may change while it is up: timeouts.hung_ms, at once; timeouts.transaction_ms and a larger\n"
      "storage.buffer_pool, island after island, each restarted as by `islands restart`. If anything else\n"
      "differs it says what, and changes nothing: layout and data.sites take `islands down`, `islands "
      "relayout`\n"
      "and `islands up`, the rest `islands down` and `islands up`. `islands status FILE --diff` shows what\n"
      "differs.\n" +
      command->get_footer());
  auto options = std::make_shared<ApplyOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_flag("--yes", options->yes, "Also with durability none, which loses rows");
  AddTimeout(command, &options->timeout_s, "Seconds to wait at most for each island");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Apply(context, *options); });
}

void AddDownCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("down", "Stop a deployment and wait until every process is gone");
  auto options = std::make_shared<DownOptions>();
  AddDeployment(command, &options->deployment);
  AddTimeout(command, &options->timeout_s, "Seconds to wait at most");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Down(context, *options); });
}

void AddVerifyCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("verify", "Look whether what a stopped deployment keeps is sound; changes nothing");
  command->footer(
      "It reads manifests, EPOCH, logs, checkpoints and data files, makes of them in memory what the next\n"
      "`up` would recover, and walks every tree. For all but durability none. While it looks, `up` is\n"
      "refused. Exit code 3: there are findings, a line each; 1: it could not look.\n" +
      command->get_footer());
  auto options = std::make_shared<VerifyOptions>();
  AddDeploymentFile(command, &options->file);
  OnCommand(command, context, [&context, options] { return Verify(context, *options); });
}

void AddRelayoutCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("relayout", "Cut a stopped deployment's rows as its file says now");
  command->footer(
      "Edit layout, islands or data.sites of the file of a deployment that was taken down with `islands "
      "down`,\n"
      "then run this. Rows are copied into the new islands' files, beside the old ones, which are removed "
      "in\n"
      "the end: the disk needs room for both. Until the last step, one rename, all is as before, and Ctrl-C "
      "or\n"
      "a crash leaves it so; a crash behind it leaves the new layout. For all but durability none.\n" +
      command->get_footer());
  auto options = std::make_shared<RelayoutOptions>();
  AddDeploymentFile(command, &options->file);
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Relayout(context, *options); });
}

void AddCompactCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("compact", "Shrink the data files of a stopped deployment");
  command->footer(
      "Pages that deletes have left free are used again by later rows of the same site, and files only "
      "grow:\n"
      "this gives their room back to the disk. Take the deployment down with `islands down`, then run this. "
      "Rows\n"
      "are copied into new files beside the old ones, which are removed in the end, so the disk needs room "
      "for "
      "both;\n"
      "it is asked for beforehand (--dry-run shows it). Memory: the buffer pools of an island, twice. Until "
      "the last\n"
      "step, one rename, all is as before, and Ctrl-C or a crash leaves it so; what a crash leaves beside it "
      "is\n"
      "removed by `islands up` and by the next one. If the files would not become smaller they stay as they "
      "are. For\n"
      "all but durability none, whether pools are resident or paged.\n" +
      command->get_footer());
  auto options = std::make_shared<CompactOptions>();
  AddDeploymentFile(command, &options->file);
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Compact(context, *options); });
}

void AddDestroyCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("destroy", "Remove a stopped deployment's data");
  auto options = std::make_shared<DestroyOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_flag("--yes", options->yes, "Do not ask; only a terminal is asked");
  AddDryRun(command, context);
  OnCommand(command, context, [&context, options] { return Destroy(context, *options); });
}

void AddSuperviseCommand(CLI::App& app, CommandContext& context) {
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

}  // namespace islands::deploy
