// `islands observe`: what `up --observe` does for one deployment, for any number of them, and beyond their
// end.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "deploy/cluster_client.h"
#include "deploy/lifecycle.h"
#include "deploy/lifecycle_report.h"
#include "deploy/observer.h"

namespace islands::deploy {
namespace {

constexpr int64_t kLookMs = 50;  // while Prometheus starts
constexpr int64_t kStepMs = 500;

absl::Status Gone(const Observer& observer) {
  const control::v1::Observation observation = observer.Describe();
  return absl::UnavailableError(observation.notes().empty() ? "Prometheus is gone" : observation.notes(0));
}

void Print(const CommandContext& context, const Observer& observer) {
  const control::v1::Observation observation = observer.Describe();
  if (context.json()) {
    fmt::print("{}\n", ObservationJson(observation));
  } else {
    fmt::print("{}targets: {}; start deployments with `islands up FILE --targets {}`\nCtrl-C ends it\n",
               ObservationText(observation), observation.targets(), observation.targets());
  }
  std::fflush(stdout);  // a program may wait for it
}

}  // namespace

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

}  // namespace islands::deploy
