// `counters`: counters behind locks, shared within a socket, across sockets or not at all: what contention
// and distance cost before there is any database (OLTP on Hardware Islands, Figure 2 and Table 1).
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <map>

#include "experiments/counters/measure.h"
#include "experiments/counters/placement.h"
#include "experiments/program.h"

namespace islands::experiments {
namespace {

constexpr const char* kName = "counters";
constexpr uint32_t kMaxThreads = 4096;

constexpr const char* kFooter = R"(
Metrics: increments_per_s of all threads; thread_min_per_s, thread_max_per_s of the slowest and fastest one;
std_dev_percent of the total over ten intervals of the measurement.
Exit codes: 0 ok, 1 failed or the sums differ, 2 usage, 130 interrupted.)";

template <typename T>
using Names = std::map<std::string, T>;

const Names<CounterSetup>& Setups() {
  static const Names<CounterSetup> names = {{"single", CounterSetup::kSingle},
                                            {"per-socket", CounterSetup::kPerSocket},
                                            {"per-core", CounterSetup::kPerCore}};
  return names;
}

const Names<CounterWorkers>& Workers() {
  static const Names<CounterWorkers> names = {{"spread", CounterWorkers::kSpread},
                                              {"grouped", CounterWorkers::kGrouped},
                                              {"os", CounterWorkers::kOs}};
  return names;
}

const Names<CounterLock>& Locks() {
  static const Names<CounterLock> names = {{"spin", CounterLock::kSpin}, {"mutex", CounterLock::kMutex}};
  return names;
}

struct Arguments {
  ProgramOptions program;
  std::string counters = "per-socket";
  std::string workers = "grouped";
  std::string lock = "spin";
  uint32_t threads = 0;
};

void AddOptions(CLI::App& app, Arguments& arguments) {
  app.add_option("--counters", arguments.counters,
                 "how many: single, per-socket, or per-core (one per thread)")
      ->check(CLI::IsMember(Setups()))
      ->capture_default_str();
  app.add_option("--workers", arguments.workers,
                 "threads that share a counter are spread over sockets, grouped in one, or left to the os")
      ->check(CLI::IsMember(Workers()))
      ->capture_default_str();
  app.add_option("--lock", arguments.lock, "of each counter: spin (test-and-set) or mutex (pthread's)")
      ->check(CLI::IsMember(Locks()))
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "0: one per core")
      ->check(CLI::Range(0u, kMaxThreads))
      ->capture_default_str();
  AddProgramOptions(app, arguments.program);
  app.footer(kFooter);
}

int Run(const Arguments& arguments) {
  const auto machine = topology::LoadThisMachine();
  if (!machine.ok()) return PrintError(kName, machine.status());
  const auto plan = PlanCounters(*machine, {.setup = Setups().at(arguments.counters),
                                            .workers = Workers().at(arguments.workers),
                                            .threads = arguments.threads,
                                            .cores = arguments.program.cores});
  if (!plan.ok()) return PrintError(kName, plan.status());
  const auto measured = MeasureCounters(*plan, {.lock = Locks().at(arguments.lock),
                                                .warmup_s = arguments.program.warmup_s,
                                                .seconds = arguments.program.seconds});
  if (absl::IsCancelled(measured.status())) return kExitInterrupted;
  if (!measured.ok()) return PrintError(kName, measured.status());
  ProgramResult result;
  result.parameters = {{"counters", arguments.counters},
                       {"workers", arguments.workers},
                       {"lock", arguments.lock},
                       {"threads", uint64_t{plan->threads.size()}}};
  result.metrics = {{"increments_per_s", measured->IncrementsPerSecond()},
                    {"thread_min_per_s", measured->ThreadMinPerSecond()},
                    {"thread_max_per_s", measured->ThreadMaxPerSecond()},
                    {"std_dev_percent", measured->StdDevPercent()},
                    {"counters", static_cast<double>(plan->counter_nodes.size())},
                    {"threads", static_cast<double>(plan->threads.size())}};
  result.placement = plan->text;
  if (!measured->unbound.empty()) {
    result.placement +=
        fmt::format("; not bound ({} of them): {}", measured->unbound.size(), measured->unbound[0]);
  }
  return PrintResult(kName, arguments.program, result);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Threads increment counters, each behind its own lock, in a tight loop."};
  AddOptions(app, arguments);
  if (const auto exit_code = ParseArguments(app, kName, argc, argv)) return *exit_code;
  return Run(arguments);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
