// `ipc`: messages between two processes, by mechanism and by where the two run (OLTP on Hardware Islands,
// Figure 6).
#include <fmt/format.h>
#include <signal.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <map>

#include "experiments/ipc/channel.h"
#include "experiments/ipc/core_pair.h"
#include "experiments/ipc/exchange.h"
#include "experiments/ipc/peer_process.h"
#include "experiments/program.h"
#include "topology/binding.h"

namespace islands::experiments {
namespace {

constexpr const char* kName = "ipc";

constexpr const char* kFooter = R"(
Metrics: messages_per_s, both directions together; round_trip_us_p50 and round_trip_us_p99 with --batch 1;
in_flight_max, less than --batch where the mechanism has no room for more (a POSIX message queue holds 10).
A machine without such a pair of cores: {"skipped": "why"}, and exit code 0.
Spinning on one core, and on ZeroMQ, whose own thread does the sending, gives the core away between two looks.
Exit codes: 0 ok or skipped, 1 failed or a message was wrong, 2 usage, 130 interrupted.)";

struct Arguments {
  ProgramOptions program;
  ChannelOptions channel{.mechanism = "uds-stream"};
  std::string where = "same-socket";
  std::string wait = "sleep";
  double patience_s = 10;
};

const std::map<std::string, Where>& Places() {
  static const std::map<std::string, Where> places = {{"same-core", Where::kSameCore},
                                                      {"same-cache", Where::kSameCache},
                                                      {"same-socket", Where::kSameSocket},
                                                      {"cross-socket", Where::kCrossSocket}};
  return places;
}

void AddOptions(CLI::App& app, Arguments& arguments) {
  app.add_option("--mechanism", arguments.channel.mechanism, "that carries the messages")
      ->check(CLI::IsMember(MechanismNames()))
      ->capture_default_str();
  app.add_option("--where", arguments.where, "the two processes run: same-core is one CPU for both")
      ->check(CLI::IsMember(Places()))
      ->capture_default_str();
  app.add_option("--batch", arguments.channel.batch, "messages on their way at once")
      ->check(CLI::Range(1u, kMaxBatch))
      ->capture_default_str();
  app.add_option("--wait", arguments.wait, "for a message: sleep in the kernel, or spin")
      ->check(CLI::IsMember({"sleep", "spin"}))
      ->capture_default_str();
  app.add_option("--bytes", arguments.channel.bytes, "of a message")
      ->check(CLI::Range(kMinMessageBytes, kMaxMessageBytes))
      ->capture_default_str();
  app.add_option("--patience", arguments.patience_s, "seconds over the time asked for until giving up")
      ->check(SecondsFrom(0.1))
      ->capture_default_str();
  AddProgramOptions(app, arguments.program);
  app.footer(kFooter);
}

// What the second process does. Its exit code.
int RunPeer(ChannelEnds& ends, const CorePair& pair, const ExchangeOptions& exchange) {
  ends[0].reset();
  // Not bound: said by the first process, which meets the same refusal.
  topology::BindThreadToCpu(pair.far).IgnoreError();
  absl::Status status = ends[1]->Attach();
  if (status.ok()) status = Echo(*ends[1], exchange);
  ends[1].reset();
  if (status.ok()) return 0;
  // The channel is closed: the first process has met an error, and says so.
  if (absl::IsUnavailable(status)) return 0;
  return PrintError(kName,
                    absl::InternalError(fmt::format("peer process: {}", std::string(status.message()))));
}

absl::StatusOr<ExchangeResult> Measure(ChannelEnds& ends, const CorePair& pair,
                                       const ExchangeOptions& exchange, double patience_s) {
  const auto peer = PeerProcess::Start(kName, [&] { return RunPeer(ends, pair, exchange); });
  if (!peer.ok()) return peer.status();
  ends[1].reset();
  (*peer)->Watch(exchange.warmup_s + exchange.seconds + patience_s);
  absl::Status status = ends[0]->Attach();
  if (status.ok()) {
    absl::StatusOr<ExchangeResult> result = Exchange(*ends[0], exchange);
    ends[0].reset();
    if (result.ok()) return result;
    status = result.status();
  }
  (*peer)->EndIfPeerIsGone();
  return status;
}

int Report(const Arguments& arguments, const ExchangeResult& measured, std::string placement) {
  const ChannelOptions& channel = arguments.channel;
  ProgramResult result;
  result.parameters = {{"mechanism", channel.mechanism},
                       {"where", arguments.where},
                       {"batch", uint64_t{channel.batch}},
                       {"wait", arguments.wait},
                       {"bytes", uint64_t{channel.bytes}}};
  result.metrics = {{"messages_per_s", measured.MessagesPerSecond()},
                    {"in_flight_max", static_cast<double>(measured.in_flight_max)}};
  if (channel.batch == 1) {
    result.metrics.emplace_back("round_trip_us_p50", measured.round_trip_us_p50);
    result.metrics.emplace_back("round_trip_us_p99", measured.round_trip_us_p99);
  }
  result.placement = std::move(placement);
  return PrintResult(kName, arguments.program, result);
}

int Run(Arguments& arguments) {
  signal(SIGPIPE, SIG_IGN);
  BlockTermination();
  const auto machine = topology::LoadThisMachine();
  if (!machine.ok()) return PrintError(kName, machine.status());
  const auto cpus = ChooseCpus(*machine, arguments.program.cores, topology::WorkerOrder::kGrouped);
  if (!cpus.ok()) return PrintError(kName, cpus.status());
  const auto pair = ChooseCorePair(*machine, *cpus, Places().at(arguments.where));
  if (!pair.ok()) return PrintSkipped(kName, arguments.program, std::string(pair.status().message()));
  ChannelOptions& channel = arguments.channel;
  channel.spin = arguments.wait == "spin";
  channel.yield = pair->near == pair->far;
  std::string placement = pair->text;
  if (channel.spin && channel.yield) placement += ", which each gives away between two looks";
  if (channel.mechanism == "zmq-ipc") placement += "; each with its ZeroMQ thread";
  if (absl::Status bound = topology::BindThreadToCpu(pair->near); !bound.ok()) {
    placement = fmt::format("not bound: {}", std::string(bound.message()));
  }
  auto ends = MakeChannels(channel);
  if (absl::IsUnimplemented(ends.status()))
    return PrintSkipped(kName, arguments.program, std::string(ends.status().message()));
  if (!ends.ok()) return PrintError(kName, ends.status());
  const auto measured = Measure(*ends, *pair,
                                {.bytes = channel.bytes,
                                 .batch = channel.batch,
                                 .seed = arguments.program.seed,
                                 .warmup_s = arguments.program.warmup_s,
                                 .seconds = arguments.program.seconds},
                                arguments.patience_s);
  if (!measured.ok()) return PrintError(kName, measured.status());
  return Report(arguments, *measured, placement);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Exchanges messages between two processes, each of which checks every one."};
  AddOptions(app, arguments);
  if (const auto exit_code = ParseArguments(app, kName, argc, argv)) return *exit_code;
  return Run(arguments);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
