#include "deploy/run/command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/cluster/report.h"
#include "deploy/file/deployment.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/interrupts.h"
#include "deploy/run/directory.h"
#include "deploy/run/doctor_word.h"
#include "deploy/run/driver.h"
#include "deploy/run/options.h"
#include "deploy/run/rate_search.h"
#include "deploy/run/workload_options.h"
#include "instance/storage/pages/page.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStatusTimeoutMs = 10'000;

// While rows are loaded nothing needs to be cleaned up, the next run loads anew: an interrupt ends the
// process at once, with its exit code.
void ExitOnInterrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    constexpr std::string_view kWords =
        "\ninterrupted; what the islands were asked for goes on: the next `islands run` or `load` finds out "
        "which rows there are\n";
    (void)!write(STDERR_FILENO, kWords.data(), kWords.size());
    _exit(kExitInterrupted);
  };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int64_t UnixMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A machine that is very busy, or emulated, may stop a worker for a second or two.
constexpr int64_t kHungForGoodMs = 5'000;

absl::Status CheckAllReady(const control::v1::ClusterStatus& status) {
  if (status.configs().empty() || status.configs_size() != status.islands_size()) {
    return absl::UnavailableError("the supervisor is still starting; wait for `islands up`");
  }
  for (const control::v1::IslandStatus& island : status.islands()) {
    if (island.state() == control::v1::READY && island.hung_ms() >= kHungForGoodMs) {
      return absl::FailedPreconditionError(
          fmt::format("island {} has not moved for {} s; see `islands status`", island.island(),
                      island.hung_ms() / 1000));
    }
    if (island.state() == control::v1::READY) continue;
    return absl::FailedPreconditionError(
        fmt::format("island {} is {}; see `islands status`", island.island(), StateName(island.state())));
  }
  return absl::OkStatus();
}

// On a terminal one line that is rewritten; otherwise, in text format, one line per second.
class ProgressLine {
 public:
  ProgressLine(bool json, double duration_s) : json_(json), duration_s_(duration_s) {}
  void Show(double elapsed_s, double committed_per_s, double aborted_per_s, size_t lost) {
    const std::string when =
        elapsed_s < 0 ? std::string("warm-up") : fmt::format("{:.0f}/{:g} s", elapsed_s, duration_s_);
    const std::string missing = lost > 0 ? fmt::format(", without an answer: {} of the islands", lost) : "";
    const std::string text =
        fmt::format("{:>10}  {:>12} committed/s  {:>10} aborted/s{}", when,
                    Grouped(static_cast<uint64_t>(std::llround(committed_per_s))),
                    Grouped(static_cast<uint64_t>(std::llround(aborted_per_s))), missing);
    ShowText(text);
  }
  void ShowText(const std::string& text) {
    line_.Show(text);
    if (!line_.there() && !json_) fmt::print(stderr, "{}\n", text);
  }

 private:
  TerminalLine line_{TerminalLine::End::kStays};
  const bool json_;
  const double duration_s_;
};

// One `run` at a time on a deployment. The note is the run's id, so that the next one can tell what a killed
// one left.
absl::StatusOr<FileLock> LockRuns(const ControlFiles& files, uint64_t run_id) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(files.RunLock(), fmt::format("{}", run_id));
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::FailedPreconditionError(fmt::format(
      "another `islands run`, `load` or `apply` is under way on this deployment ({}); wait for it or stop it",
      std::string(lock.status().message())));
}

bool AnyRunning(const control::v1::ClusterStatus& status) {
  for (const control::v1::IslandStatus& island : status.islands()) {
    if (island.running()) return true;
  }
  return false;
}

// Whether transactions have read what cannot be. Those of islands that have died are in their logs alone.
bool Contradicts(const RunResult& result, const ControlFiles& files) {
  bool found = false;
  for (const IslandResult& island : result.islands) {
    const auto count = island.sums.aborts_by_reason.find("contradiction");
    if (count == island.sums.aborts_by_reason.end()) continue;
    fmt::print(stderr, "islands: {} transactions of island {} have read what cannot be; {} has the first\n",
               Grouped(count->second), island.island, files.IslandLog(island.island));
    found = true;
  }
  return found;
}

int Finish(const CommandContext& context, const RunResult& result, const ControlFiles& files) {
  if (context.json()) {
    fmt::print("{}\n", ResultJson(result).dump(2));
  } else {
    fmt::print("{}", ResultText(result));
  }
  bool lost = false;
  for (const IslandResult& island : result.islands) {
    lost |= island.lost;
    if (!island.lost && !island.silent) continue;
    fmt::print(stderr, "islands: island {} {}: the figures are not of a whole cluster\n", island.island,
               island.lost ? "was lost during the run" : "did not answer during a part of the run");
  }
  const bool failed = result.sum.Verdict() == kSumFailed;
  if (failed) fmt::print(stderr, "islands: the sum check failed: {}\n", result.sum.Explain());
  const bool no_knee = result.rate_search && !result.rate_search->found;
  if (no_knee) {
    fmt::print(stderr,
               "islands: no rate held for --duration: the figures are those of the last step of the search, "
               "{}\n",
               StepText(result.rate_search->steps.back()));
  }
  return Contradicts(result, files) || lost || failed || no_knee ? kExitFailed : kExitOk;
}

// The machine as the file names it, but a path that means the same from anywhere.
std::string MachineSpec(const Deployment& deployment) {
  const std::filesystem::path path = std::filesystem::path(deployment.folder) / deployment.machine;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path.lexically_normal().string()
                                                       : deployment.machine;
}

// What `run` and `load` begin with.
struct Prepared {
  Deployment deployment;
  ClusterClient client;
  control::v1::ClusterStatus status;
  RunPlan plan;
  int64_t started_us = 0;
};

absl::StatusOr<Prepared> Prepare(const CommandContext& context, const DescribedWorkload& workload,
                                 const RunOptions& asked) {
  const absl::StatusOr<RunOptions> options = CheckRunOptions(asked, workload.description);
  if (!options.ok()) return options.status();
  absl::StatusOr<Deployment> deployment = LoadDeployment(options->file);
  if (!deployment.ok()) return deployment.status();
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return files.status();
  const ClusterClient client(*files);
  absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return status.status();
  absl::Status ready = CheckAllReady(*status);
  if (!ready.ok()) return ready;
  const std::string warning = FileWarning(*status, *deployment, Resolve(*deployment));
  if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  absl::StatusOr<RunPlan> plan = PlanRun(*options, workload, status->configs(0));
  if (!plan.ok()) return plan.status();
  absl::Status fits = CheckLoad(plan->load, status->configs(0), context.binary_directory);
  if (!fits.ok()) return fits;
  const int64_t started_us = UnixMicroseconds();
  plan->run_id = static_cast<uint64_t>(started_us);
  return Prepared{*std::move(deployment), client, *std::move(status), *std::move(plan), started_us};
}

// Shows how far a load is that somebody else waits for.
class LoadWatch {
 public:
  LoadWatch(const ClusterClient& client, bool json)
      : client_(client), progress_(json, 0), thread_([this] { Watch(); }) {}
  ~LoadWatch() {
    over_.Notify();
    thread_.join();
  }
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

 private:
  void Watch() {
    const int64_t begin_ms = MonotonicMs();
    while (!over_.WaitForNotificationWithTimeout(kLookEach)) {
      const absl::StatusOr<control::v1::ClusterStatus> status = client_.Status(kLoadStatusTimeoutMs);
      if (!status.ok()) continue;
      const std::string text = load_.Text(*status, static_cast<double>(MonotonicMs() - begin_ms) / 1000);
      if (!text.empty()) progress_.ShowText(text);
    }
  }

  static constexpr int64_t kLoadStatusTimeoutMs = 2'000;
  static constexpr absl::Duration kLookEach = absl::Milliseconds(500);
  const ClusterClient& client_;
  ProgressLine progress_;
  LoadView load_;  // of the thread
  absl::Notification over_;
  std::thread thread_;
};

absl::StatusOr<bool> LoadWatched(const Prepared& prepared, RunDriver& driver, const std::string& earlier_run,
                                 bool json) {
  if (AnyRunning(prepared.status)) {
    absl::Status stopped = driver.StopStale(std::strtoull(earlier_run.c_str(), nullptr, 10));
    if (!stopped.ok()) return stopped;
  }
  const LoadWatch watch(prepared.client, json);
  return driver.Load();
}

int LoadOnly(const CommandContext& context, const DescribedWorkload& workload, const RunOptions& asked) {
  const absl::StatusOr<Prepared> prepared = Prepare(context, workload, asked);
  if (!prepared.ok()) return Fail(context, prepared.status());
  ExitOnInterrupt();
  const std::string earlier = LockNote(prepared->client.files().RunLock());
  const absl::StatusOr<FileLock> lock = LockRuns(prepared->client.files(), prepared->plan.run_id);
  if (!lock.ok()) return Fail(context, lock.status());
  const int64_t begin_ms = MonotonicMs();
  RunDriver driver(prepared->client, prepared->status, prepared->plan, {});
  const absl::StatusOr<bool> loaded = LoadWatched(*prepared, driver, earlier, context.json());
  if (!loaded.ok()) return Fail(context, loaded.status());
  const double seconds = static_cast<double>(MonotonicMs() - begin_ms) / 1000;
  const absl::StatusOr<uint64_t> rows = driver.CountRows();
  if (!rows.ok()) return Fail(context, rows.status());
  if (context.json()) {
    const nlohmann::ordered_json json{
        {"workload", workload.name}, {"loaded", *loaded}, {"rows", *rows}, {"seconds", seconds}};
    fmt::print("{}\n", json.dump(2));
  } else if (*loaded) {
    fmt::print("{}: {} rows of {}, in {:.1f} s\n", prepared->status.deployment(), Grouped(*rows),
               workload.name, seconds);
  } else {
    fmt::print("{}: the {} rows of {} are there already; {} replaces them\n", prepared->status.deployment(),
               Grouped(*rows), workload.name, kReloadFlag);
  }
  return kExitOk;
}

// Before rows are loaded: it would take that for other programs.
std::string AskDoctor(const CommandContext& context, const RunOptions& options) {
  if (options.no_doctor) return "";
  const DoctorWord::Answer answer = DoctorWord(context.binary_directory, options.file).Take();
  if (answer.problems > 0)
    fmt::print(stderr, "doctor: {}; see `islands doctor {}`\n", answer.brief, options.file);
  return answer.brief;
}

void NotePools(const control::v1::ClusterStatus& status, RunResult* result) {
  for (IslandResult& island : result->islands) {
    const auto i = static_cast<int>(island.island);
    if (i >= status.islands_size() || i >= status.configs_size()) continue;
    const control::v1::PlacementReadback& placement = status.islands(i).placement();
    if (placement.data_pages() == 0) continue;  // it is restarting
    island.pool = {.bytes = status.configs(i).pool_bytes(),
                   .data_bytes = placement.data_pages() * storage::kPageBytes,
                   .paged = placement.paged()};
  }
}

using RunWork = std::function<absl::StatusOr<RunResult>(Interrupts&)>;

absl::StatusOr<RunResult> Measure(const RunContext& context, const RunWork& run,
                                  const RunDirectory& directory, const ClusterClient& client,
                                  int64_t started_us, const std::string& doctor) {
  absl::StatusOr<RunResult> result = [&] {
    Interrupts interrupts;
    return run(interrupts);
  }();
  if (!result.ok()) return result;
  result->run_directory = directory.path();
  result->doctor = doctor;
  result->started_utc = LongUtc(started_us / 1'000'000);
  absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return status.status();
  NotePools(*status, &*result);
  absl::Status written = WriteRunDirectory(directory, *result, *status, context);
  if (!written.ok()) return written;
  return result;
}

// Returns the exit code: 1 also when an island was lost, the sum check failed or a transaction has read what
// cannot be, 130 when interrupted (the run is stopped on every island).
int Run(const CommandContext& context, const DescribedWorkload& workload, const RunOptions& asked) {
  const absl::StatusOr<Prepared> prepared = Prepare(context, workload, asked);
  if (!prepared.ok()) return Fail(context, prepared.status());
  const RunPlan& plan = prepared->plan;
  const RunOptions& options = plan.options;
  const ClusterClient& client = prepared->client;
  const control::v1::ClusterStatus& status = prepared->status;
  ExitOnInterrupt();
  const std::string earlier = LockNote(client.files().RunLock());
  absl::StatusOr<FileLock> lock = LockRuns(client.files(), plan.run_id);
  if (!lock.ok()) return Fail(context, lock.status());
  std::optional<ProgressLine> progress(std::in_place, context.json(), options.duration_s);
  const RunDriver::Progress show = [&](double elapsed_s, double committed, double aborted, size_t lost) {
    progress->Show(elapsed_s, committed, aborted, lost);
  };
  RunDriver driver(client, status, plan, show);
  const std::string doctor = AskDoctor(context, options);
  const absl::StatusOr<bool> loaded = LoadWatched(*prepared, driver, earlier, context.json());
  if (!loaded.ok()) return Fail(context, loaded.status());
  absl::StatusOr<RunDirectory> directory = RunDirectory::Create(
      options.results, fmt::format("{}-{}-{}-{}", CompactUtc(prepared->started_us / 1'000'000),
                                   status.deployment(), status.layout(), workload.name));
  if (!directory.ok()) return Fail(context, directory.status());
  const RateSearchSeams seams{
      .progress = show,
      .on_step = [&](const RateStep& step) { progress->ShowText(StepText(step)); },
      .on_id = [&](uint64_t run_id) { return lock->WriteNote(fmt::format("{}", run_id)); }};
  const RunWork run = [&](Interrupts& interrupts) {
    return options.find_rate ? FindRate(client, plan, interrupts, seams) : driver.Run(interrupts);
  };
  absl::StatusOr<RunResult> result = Measure({MachineSpec(prepared->deployment), context.command_line}, run,
                                             *directory, client, prepared->started_us, doctor);
  progress.reset();
  if (!result.ok()) return Fail(context, result.status());
  return Finish(context, *result, client.files());
}

// What `run` and `load` are told.
void AddCommonOptions(CLI::App* command, const CommandContext& context, RunOptions* options) {
  AddDeploymentFile(command, &options->file);
  command
      ->add_option(
          "WORKLOAD", options->workload,
          fmt::format(
              "One that is built: {}; or the path of an object, as ./bank.so (`islands workload new bank`)",
              NamesOfWorkloads(context.binary_directory)))
      ->required();
  command->add_flag(kReloadFlag, options->reload,
                    "Load the rows anew, even those of another load that outlive the deployment");
}

void AddOptions(CLI::App* command, const CommandContext& context, RunOptions* options) {
  AddCommonOptions(command, context, options);
  command
      ->add_option("--mpl", options->mpl,
                   "Transactions in flight per worker: as many slots, each of which draws its next "
                   "request when the one before has ended; with durability sync, when it has only its "
                   "answer to wait for")
      ->capture_default_str();
  command
      ->add_option("--clients", options->clients,
                   "Whose: each island's own, whose transactions all begin there; or the whole deployment's, "
                   "as many, which go where each transaction's first row is: a hot island has a queue then, "
                   "and the others wait for clients")
      ->check(CLI::IsMember({kClientsOfIsland, kClientsOfDeployment}))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--rate",
          [options](const std::string& text) {
            const absl::Status read = ReadRate(text, options);
            if (!read.ok()) throw CLI::ValidationError(std::string(read.message()));
          },
          "Transactions per second that become due, of the whole deployment, whatever it manages to do; 0: "
          "each client's when it has the answer to the one before; auto: finds the knee, the largest rate at "
          "which p99 is short enough and nothing piles up, in short runs, and measures that")
      ->type_name("RATE")
      ->default_str("0");
  command->add_option(
      "--p99-ms", options->p99_ms,
      "With --rate auto: p99 at most, in milliseconds. Without it, ten times the p50 at a fifth of the most "
      "that --rate 0 does, or twice the p99 there if that is more");
  command->add_flag(kEvenFlag, options->even, "With --rate: at even distances, not as a Poisson process");
  command->add_option("--duration", options->duration_s, "Seconds to measure")->capture_default_str();
  command
      ->add_flag(kNoDoctorFlag, options->no_doctor,
                 "Do not look first whether the machine makes figures doubtful (`islands doctor --brief`)")
      ->envname("ISLANDS_NO_DOCTOR");
  command->add_option("--warmup", options->warmup_s, "Seconds to run before measuring")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the generators' random numbers")
      ->check(NotNegative)
      ->capture_default_str();
  command->add_option("--results", options->results, "Where the run directory is made")
      ->capture_default_str();
}

std::string ExamplesOfRun(const std::string& workload) {
  return fmt::format(
      "  islands run my.yaml {0} --duration 10   for ten seconds\n"
      "  islands run my.yaml {0} --rate auto     the largest rate at which p99 stays short\n",
      workload);
}

std::string ExamplesOfLoad(const std::string& workload) {
  return fmt::format("  islands load my.yaml {} --reload   its rows anew\n", workload);
}

// The workload that the command line names, whose parameters become options; or what is wrong with it.
absl::StatusOr<DescribedWorkload> AddNamedWorkload(CLI::App* command, const CommandContext& context,
                                                   RunOptions* options) {
  const std::vector<std::string> words = WordsOf(context.arguments);
  if (words.size() < 3) return absl::InvalidArgumentError("WORKLOAD: found none");
  absl::StatusOr<DescribedWorkload> workload = DescribeWorkload(words[2], context.binary_directory);
  if (!workload.ok()) return workload;
  absl::Status added = AddWorkloadOptions(*workload, command, options);
  if (!added.ok()) return added;
  return workload;
}

using AddTheOptions = void (*)(CLI::App* command, const CommandContext& context, RunOptions* options);
using Examples = std::string (*)(const std::string& workload);
using WorkloadCommand = int (*)(const CommandContext& context, const DescribedWorkload& workload,
                                const RunOptions& options);

// Of a command `NAME FILE WORKLOAD`, if it is the one that was called.
void AddWorkloadCommand(CLI::App& app, CommandContext& context, CLI::App* command, AddTheOptions add,
                        Examples examples, WorkloadCommand carry_out) {
  const std::vector<std::string> words = WordsOf(context.arguments);
  if (words.empty() || words[0] != command->get_name()) return;
  auto options = std::make_shared<RunOptions>();
  add(command, context, options.get());
  auto workload =
      std::make_shared<absl::StatusOr<DescribedWorkload>>(AddNamedWorkload(command, context, options.get()));
  std::string footer = "Examples:\n" + examples(workload->ok() ? (*workload)->name : "micro");
  if (!workload->ok())
    footer += fmt::format("\nA workload's own options: `islands {} FILE WORKLOAD --help`.\n", words[0]);
  if (!workload->ok() && words.size() >= 3) {  // its options may be right, for all we know
    app.allow_extras();
    command->allow_extras();
    footer += "Here: " + std::string(workload->status().message()) + ".\n";
  }
  command->footer(footer + app.get_footer());
  OnCommand(command, context, [&context, options, workload, carry_out] {
    return workload->ok() ? carry_out(context, **workload, *options) : Fail(context, workload->status());
  });
}

}  // namespace

void AddRunCommand(CLI::App& app, CommandContext& context) {
  AddWorkloadCommand(app, context,
                     app.add_subcommand("run", "Run a workload on a running deployment and report"),
                     AddOptions, ExamplesOfRun, Run);
}

void AddLoadCommand(CLI::App& app, CommandContext& context) {
  AddWorkloadCommand(app, context,
                     app.add_subcommand("load", "Load a workload's rows into a running deployment"),
                     AddCommonOptions, ExamplesOfLoad, LoadOnly);
}

}  // namespace islands::deploy
