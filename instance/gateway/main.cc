// islands-gateway: the front door of a deployment as a process. Started by the supervisor, which it asks
// who the islands are and which tables they have.
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <pthread.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "instance/gateway/channels.h"
#include "instance/gateway/metrics.h"
#include "instance/gateway/server.h"
#include "instance/gateway/service.h"
#include "instance/gateway/tokens.h"
#include "instance/gateway/view.h"
#include "instance/messaging/control_channel.h"
#include "instance/messaging/transport_factory.h"
#include "instance/messaging/uds_transport.h"
#include "instance/server/exposer.h"
#include "runtime/descriptor.h"
#include "runtime/latch_site.h"
#include "runtime/mutex.h"
#include "runtime/pulse_board.h"
#include "topology/binding.h"

namespace islands::gateway {
namespace {

constexpr int64_t kAskTimeoutMs = 2000;
constexpr int64_t kLookEveryNs = 200 * runtime::kNsPerMs;
// Who has just started the deployment finds all islands there, and who starts it again with one of them
// lost does not wait for that one.
constexpr int64_t kWaitForIslandsNs = runtime::kNsPerSecond;
constexpr int64_t kAskEveryNs =
    5 * runtime::kNsPerSecond;  // nobody may have noticed that tables have changed
constexpr int64_t kFirstSweepNs = 60 * runtime::kNsPerSecond;
constexpr int64_t kSweepEveryNs = 600 * runtime::kNsPerSecond;
constexpr int64_t kSweepPauseNs = 10 * runtime::kNsPerMs;  // 50,000 tokens a second at most
constexpr size_t kMostChanges = 64;                        // that wait
constexpr int64_t kChangeTimeoutMs = 30'000;

void SetUpLog() {
  auto logger = spdlog::stderr_logger_mt("islands-gateway");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ gateway %l %v", spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);  // the main thread to itself: there is something to do
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

absl::StatusOr<control::v1::GatewayConfig> ReadConfig(int fd) {
  const runtime::UniqueFd file(fd);
  const absl::StatusOr<std::string> json = runtime::ReadAll(file.get(), "the gateway's configuration");
  if (!json.ok()) return json.status();
  control::v1::GatewayConfig config;
  if (const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &config); !parsed.ok())
    return absl::InvalidArgumentError("the gateway's configuration cannot be read: " + parsed.ToString());
  if (config.control_directory().empty())
    return absl::InvalidArgumentError(
        "the gateway's configuration: controlDirectory: expected an absolute path");
  return config;
}

absl::StatusOr<std::shared_ptr<const View>> AskSupervisor(const std::string& control_directory) {
  control::v1::Request request;
  request.mutable_status();
  const auto reply = messaging::ControlCall(control_directory + "/supervisor.sock", request, kAskTimeoutMs);
  if (!reply.ok()) return reply.status();
  return View::Create(reply->cluster_status());
}

// The newest view, for whoever needs it.
class Views {
 public:
  explicit Views(std::shared_ptr<const View> view) : view_(std::move(view)) {}
  std::shared_ptr<const View> Get() const {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.view"));
    return view_;
  }
  void Set(std::shared_ptr<const View> view) {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.view"));
    view_ = std::move(view);
  }

 private:
  mutable runtime::Mutex mutex_;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
};

// What the main thread is to have the supervisor do with the tables, while calls wait. A request that changes
// nothing waits for a new view.
class TableChanges {
 public:
  void Post(control::v1::TablesRequest request, Service::Done done) {
    absl::Status refused;
    {
      const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.changes"));
      if (ended_) refused = absl::UnavailableError("the gateway is stopping");
      if (posted_.size() == kMostChanges)
        refused = absl::ResourceExhaustedError(
            fmt::format("{} changes of tables are waiting; try again", kMostChanges));
      if (refused.ok()) posted_.push_back({std::move(request), std::move(done)});
    }
    refused.ok() ? void(kill(getpid(), SIGUSR1)) : done(refused);
  }
  // On the main thread. `refresh`: before those who wait hear of it.
  void Do(const std::string& control_directory, const std::function<void()>& refresh) {
    std::vector<Posted> taken;
    {
      const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.changes"));
      taken.swap(posted_);
    }
    const auto changes = [](const Posted& each) {
      return !each.request.add().empty() || !each.request.drop().empty();
    };
    if (!std::ranges::all_of(taken, changes)) refresh();
    for (const Posted& each : taken) {
      if (!changes(each)) {
        each.done(absl::OkStatus());
        continue;
      }
      control::v1::Request request;
      *request.mutable_tables() = each.request;
      const auto reply =
          messaging::ControlCall(control_directory + "/supervisor.sock", request, kChangeTimeoutMs);
      refresh();
      each.done(reply.status());
    }
  }
  // Nobody will do any.
  void End() {
    std::vector<Posted> taken;
    {
      const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.changes"));
      taken.swap(posted_);
      ended_ = true;
    }
    for (const Posted& each : taken) each.done(absl::UnavailableError("the gateway is stopping"));
  }

 private:
  struct Posted {
    control::v1::TablesRequest request;
    Service::Done done;
  };
  runtime::Mutex mutex_;
  std::vector<Posted> posted_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Waits for a signal to end; meanwhile asks for the tables, now and then and when an island has others, has
// them changed, and removes tokens that are old.
void DoChores(const std::string& control_directory, const sigset_t& signals, std::atomic<bool>& stale,
              TableChanges& changes, Channels& channels, Views& views) {
  const auto refresh = [&] {
    const auto view = AskSupervisor(control_directory);
    if (!view.ok()) {  // it lives no longer than its supervisor, which may be slow
      stale = true;
      return;
    }
    if ((*view)->SaysTheSame(*views.Get())) return;
    if ((*view)->tables != views.Get()->tables) spdlog::info("the tables have changed");
    views.Set(*view);
  };
  TokenSweeper sweeper(channels);
  const runtime::MonotonicClock clock;
  int64_t ask_ns = clock.NowNs() + kAskEveryNs, sweep_ns = clock.NowNs() + kFirstSweepNs;
  for (;;) {
    const timespec wait{0, std::clamp<int64_t>(sweep_ns - clock.NowNs(), 1, kLookEveryNs)};
    const int signal = sigtimedwait(&signals, nullptr, &wait);
    if (signal == SIGTERM || signal == SIGINT) return;
    changes.Do(control_directory, refresh);
    if (stale.exchange(false) || clock.NowNs() >= ask_ns) {
      refresh();
      ask_ns = clock.NowNs() + kAskEveryNs;
    }
    if (clock.NowNs() < sweep_ns) continue;
    // Some at a time, so that nobody who wants something of us waits for long.
    const bool more = sweeper.Step(*views.Get(), absl::ToUnixSeconds(absl::Now()));
    sweep_ns = clock.NowNs() + (more ? kSweepPauseNs : kSweepEveryNs);
  }
}

absl::Status Serve(const control::v1::GatewayConfig& config, int pulse_fd, const sigset_t& signals) {
  const auto pulse = runtime::PulseBoard::Map(pulse_fd, std::array{1u});
  if (!pulse.ok()) return pulse.status();
  runtime::AllowManyFiles();
  if (!config.cpus().empty()) {
    const std::vector<uint32_t> cpus(config.cpus().begin(), config.cpus().end());
    const absl::Status bound = topology::BindThreadToCpus(cpus);  // its threads inherit it
    if (!bound.ok()) spdlog::warn("runs unbound: {}", std::string(bound.message()));
  }
  const auto view = AskSupervisor(config.control_directory());
  if (!view.ok()) return view.status();
  Views views(*view);
  std::atomic<bool> stale{false};
  TableChanges changes;
  const runtime::MonotonicClock clock;
  // Islands do not dial it: an address that none has. Programs do, if frames lie in the stream as they are;
  // they have no rings.
  const messaging::Address self{static_cast<uint32_t>((*view)->workers.size()), 0};
  const std::string socket = config.control_directory() + "/gateway.sock";
  const bool rings = (*view)->transport == "shm";
  const bool direct = rings || (*view)->transport == "uds";
  auto transport = direct ? messaging::MakeUdsTransport(config.control_directory(), self,
                                                        socket + kDirectSuffix, {.dialled = rings})
                          : messaging::MakeTransport((*view)->transport, config.control_directory(), self);
  if (!transport.ok()) return transport.status();

  std::atomic<Server*> health{nullptr};
  ChannelsOptions options{.cluster_id = (*view)->cluster_id, .workers = (*view)->workers};
  options.pulse = pulse->get();
  std::vector<bool> up(options.workers.size());
  options.on_island = [&](uint32_t island, bool is_up) {
    spdlog::info("island {} is {}", island, is_up ? "there" : "out of reach");
    Server* server = health.load();
    up[island] = is_up;
    if (server == nullptr) return;
    server->SetHealth(fmt::format("island-{}", island), is_up);
    server->SetHealth("", std::find(up.begin(), up.end(), false) == up.end());
  };
  Channels channels(options, *std::move(transport), clock);
  const auto all_up = [&channels, &options] {
    for (uint32_t island = 0; island < options.workers.size(); ++island) {
      if (!channels.IsUp(island)) return false;
    }
    return true;
  };
  for (const int64_t until_ns = clock.NowNs() + kWaitForIslandsNs; !all_up() && clock.NowNs() < until_ns;) {
    const timespec wait{0, runtime::kNsPerMs};
    if (sigtimedwait(&signals, nullptr, &wait) >= 0) return absl::OkStatus();
  }
  ServiceLimits limits;
  if (config.call_ms() != 0) limits.call_us = static_cast<int64_t>(config.call_ms()) * 1000;
  if (config.idle_ms() != 0) limits.idle_us = static_cast<int64_t>(config.idle_ms()) * 1000;
  if (config.most_transactions() != 0) limits.most_transactions = config.most_transactions();
  Service service(
      limits, channels, [&views] { return views.Get(); }, [&stale] { stale = true; },
      [&changes](control::v1::TablesRequest request, Service::Done done) {
        changes.Post(std::move(request), std::move(done));
      });
  ServerOptions server_options{.socket = socket,
                               .direct = direct,
                               .listen = config.listen(),
                               .certificate = config.certificate(),
                               .key = config.key(),
                               .client_authority = config.client_authority()};
  if (config.most_message_bytes() != 0) server_options.most_message_bytes = config.most_message_bytes();
  const auto server = Server::Start(server_options, service);
  if (!server.ok()) return server.status();
  for (uint32_t island = 0; island < options.workers.size(); ++island)
    (*server)->SetHealth(fmt::format("island-{}", island), channels.IsUp(island));
  (*server)->SetHealth("", all_up());
  health = server->get();
  const auto metrics =
      std::make_shared<MetricsCollector>(service, channels, **server, static_cast<double>(time(nullptr)));
  std::string no_metrics;  // why; it is in the log, and clients are served all the same
  const auto exposer = server::ServeMetrics(config.metrics_port(), metrics, &no_metrics);
  for (const std::string& address : (*server)->addresses()) spdlog::info("ready: {}", address);
  DoChores(config.control_directory(), signals, stale, changes, channels, views);
  spdlog::info("stopping");
  changes.End();
  health = nullptr;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app{"The front door of a deployment. Started by `islands up`; not meant to be started by hand."};
  int config_fd = -1, pulse_fd = -1;
  std::string name;
  app.add_option("--config-fd", config_fd, "an open descriptor to read the gateway's configuration from")
      ->required();
  app.add_option("--pulse-fd", pulse_fd, "an open descriptor of the memory in which it shows that it moves")
      ->required();
  app.add_option("--name", name, "which deployment's, for people who look at the list of processes");
  app.set_version_flag("--version", ISLANDS_VERSION);
  CLI11_PARSE(app, argc, argv);
  const sigset_t signals = BlockSignals();
  const absl::StatusOr<control::v1::GatewayConfig> config = ReadConfig(config_fd);
  if (!config.ok()) {
    fmt::print(stderr, "islands-gateway: {}\n", std::string(config.status().message()));
    return 2;
  }
  SetUpLog();
  if (const absl::Status status = Serve(*config, pulse_fd, signals); !status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace islands::gateway

int main(int argc, char** argv) { return islands::gateway::Main(argc, argv); }
