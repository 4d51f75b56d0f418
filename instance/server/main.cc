// islandd: one island as a process. Started by the supervisor; everything it needs to know stands in its
// configuration.
#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "instance/island/island.h"
#include "instance/messaging/control_channel.h"
#include "instance/messaging/transport_factory.h"
#include "instance/server/config.h"
#include "instance/server/control_service.h"
#include "instance/server/exposer.h"
#include "instance/server/life.h"
#include "instance/server/log_seam.h"
#include "instance/server/metric_descriptors.h"
#include "instance/server/metrics.h"
#include "instance/workload/workload_library.h"
#include "runtime/descriptor.h"
#include "topology/binding.h"

namespace islands::server {
namespace {

void SetUpLog(uint32_t island) {
  auto logger = spdlog::stderr_logger_mt("islandd");
  logger->set_pattern(fmt::format("%Y-%m-%dT%H:%M:%S.%eZ island {} %l %v", island),
                      spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

// SIGTERM and SIGINT are waited for, not handled: blocked before any thread exists, so that all threads
// inherit it.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

absl::StatusOr<std::unique_ptr<runtime::PulseBoard>> MapPulses(const control::v1::IslandConfig& config,
                                                               int descriptor) {
  std::vector<uint32_t> workers;
  for (const control::v1::Peer& peer : config.peers()) workers.push_back(peer.workers());
  return runtime::PulseBoard::Map(descriptor, workers);
}

absl::Status Serve(const control::v1::IslandConfig& config, int pulse_fd, int board_fd,
                   const sigset_t& signals) {
  if (absl::Status status = LockIsland(config); !status.ok()) return status;
  runtime::AllowManyFiles();
  const auto pulses = MapPulses(config, pulse_fd);
  if (!pulses.ok()) return pulses.status();
  // All of the island's memory, from here on: what is built before the workers run, and the service threads.
  if (const topology::MemoryPolicy policy = instance::PolicyOf(config);
      policy != topology::MemoryPolicy::kDefault) {
    const std::vector<uint32_t> nodes(config.numa_nodes().begin(), config.numa_nodes().end());
    // Refused where a container forbids it; the workers' own attempt shows in the status.
    (void)topology::SetThreadMemoryPolicy(nodes, policy);
  }
  // Control and metrics threads inherit this; workers pin themselves.
  if (config.service_cpu() >= 0) {
    absl::Status status = topology::BindThreadToCpu(static_cast<uint32_t>(config.service_cpu()));
    if (!status.ok()) spdlog::warn("service threads run unbound: {}", std::string(status.message()));
  }
  const runtime::MonotonicClock clock;
  const std::unique_ptr<runtime::FileSystem> files = runtime::MakePosixFileSystem();
  runtime::ThreadSchedulerOptions scheduling;
  if (config.cores_shared() || config.without() == "spinning") scheduling.spin_ns = 0;
  const std::unique_ptr<runtime::Scheduler> scheduler = runtime::MakeThreadScheduler(clock, scheduling);
  instance::Seams seams;
  seams.clock = &clock;
  seams.files = files.get();
  seams.scheduler = scheduler.get();
  seams.make_transport = [&config](messaging::Address self) {
    return messaging::MakeTransport(config.transport(), config.control_directory(), self);
  };
  seams.open_workload = instance::OpenWorkload;
  seams.seed = std::random_device{}();
  seams.uid = getuid();
  seams.pulses = pulses->get();
  seams.proven_dead = [&config](uint32_t island, uint64_t boot_epoch) {
    return ProvenDead(config.control_directory(), island, boot_epoch);
  };

  absl::StatusOr<std::unique_ptr<ServerLog>> log = nullptr;
  if (config.durability() != "none") {
    log = ServerLog::Open(config, board_fd, *files);
    if (!log.ok()) return log.status();
    seams.log = &(*log)->seam();
  }
  absl::StatusOr<std::unique_ptr<instance::Island>> island = nullptr;  // outlives those who ask for it
  ControlService service(config, [] { kill(getpid(), SIGTERM); });
  auto control = messaging::ControlServer::Start(
      fmt::format("{}/island-{}.ctl", config.control_directory(), config.island()),
      [&service](const control::v1::Request& request) { return service.Handle(request); });
  if (!control.ok()) return control.status();
  seams.say = [&service](std::string progress) { service.Say(std::move(progress)); };
  island = instance::Island::Create(config, seams);
  if (!island.ok()) return island.status();
  if (absl::Status status = (*island)->Start(); !status.ok()) return status;
  auto collector = std::make_shared<MetricsCollector>(
      **island, BuildInfo{ISLANDS_VERSION, ISLANDS_COMMIT, ISLANDS_COMPILER},
      static_cast<double>(time(nullptr)));
  std::string metrics_problem;
  const auto exposer = ServeMetrics(config.metrics_port(), collector, &metrics_problem);
  service.Serve(**island, metrics_problem);
  const std::string warning = (*island)->Status().placement().warning();
  if (!warning.empty()) spdlog::warn("not everything could be bound: {}", warning);
  spdlog::info("ready: {} worker(s), epoch {}, sites {} to {}", config.workers_size(), config.boot_epoch(),
               config.peers(static_cast<int>(config.island())).sites().first(),
               config.peers(static_cast<int>(config.island())).sites().first() +
                   config.peers(static_cast<int>(config.island())).sites().count() - 1);
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("stopping");
  return absl::OkStatus();
}

// For `islands` and sweeps, which cannot open an object: it needs symbols of this program.
absl::Status Describe(const std::string& object) {
  const absl::StatusOr<instance::Description> description = instance::DescribeWorkload(object);
  if (description.ok()) fmt::print("{}\n", instance::DescriptionToJson(*description));
  return description.status();
}

// Opens what the configuration wants loaded for a run, and loads nothing: before anything is emptied for it.
absl::Status CheckLoads(const control::v1::IslandConfig& config) {
  const auto catalog = storage::Catalog::Create(config.tables(), config.site_count());
  if (!catalog.ok()) return catalog.status();
  for (const control::v1::LoadSpec& load : config.loads()) {
    const instance::Parameters parameters(load.parameters().begin(), load.parameters().end());
    const auto opened = instance::OpenWorkload(load.object(), *catalog, parameters);
    if (!opened.ok()) return opened.status();
    if (absl::Status possible = (*opened)->CheckRun(*catalog); !possible.ok()) return possible;
  }
  return absl::OkStatus();
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app{"One island of a deployment. Started by `islands up`; not meant to be started by hand."};
  int config_fd = -1;
  int pulse_fd = -1;
  int board_fd = -1;
  std::string name;
  bool metrics_page = false;
  std::string described;
  bool check_loads = false;
  const auto* config_option =
      app.add_option("--config-fd", config_fd, "an open descriptor to read the island's configuration from");
  const auto* pulse_option = app.add_option(
      "--pulse-fd", pulse_fd, "an open descriptor of the memory in which all islands show that they move");
  app.add_option("--board-fd", board_fd,
                 "an open descriptor of the memory with the epochs of the log; only where there is one");
  app.add_option("--name", name, "who it is, for people who look at the list of processes");
  app.add_flag("--metrics-page", metrics_page, "print what every metric means, as dashboards/METRICS.md");
  app.add_option("--describe", described,
                 "print what the workload in this shared object can be told, as JSON");
  app.add_flag("--check-loads", check_loads,
               "only say whether workloads would load what the configuration wants");
  app.set_version_flag("--version", ISLANDS_VERSION);
  CLI11_PARSE(app, argc, argv);
  if (metrics_page) {
    fmt::print("{}", MetricsPage());
    return 0;
  }
  if (!described.empty()) return ExitCode(Describe(described));
  if (config_option->empty()) return app.exit(CLI::RequiredError("--config-fd"));
  if (pulse_option->empty() && !check_loads) return app.exit(CLI::RequiredError("--pulse-fd"));
  const sigset_t signals = BlockSignals();
  absl::StatusOr<control::v1::IslandConfig> config = ReadConfig(config_fd);
  if (!config.ok()) {
    fmt::print(stderr, "islandd: {}\n", std::string(config.status().message()));
    return 2;
  }
  if (check_loads) return ExitCode(CheckLoads(*config));
  SetUpLog(config->island());
  const absl::Status status = Serve(*config, pulse_fd, board_fd, signals);
  if (!status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace islands::server

int main(int argc, char** argv) { return islands::server::Main(argc, argv); }
