// `workload_peers`: any workload of islands, its own included, on engines that a user could pick instead of
// islands.
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/numbers.h"
#include "experiments/peers/engine_options.h"
#include "experiments/peers/huge_pages.h"
#include "experiments/peers/scratch_directory.h"
#include "experiments/peers/server_process.h"
#include "experiments/peers/workload_driver.h"
#include "experiments/program.h"
#include "instance/workload/workload_library.h"

namespace islands::experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kName = "workload_peers";
constexpr const char* kFooter = R"(
--island: the tables are those of an island that is up: run/island-0.json, beside the deployment file.
--serve: prints {"ready": true, ...} when all engines are loaded; then a line ENGINE SECONDS [THREADS] on
stdin is answered by a line of JSON on stdout, until stdin ends.
Exit codes: 0 ok, 1 an engine failed or its rows are not what was committed, 2 usage, 130 interrupted.)";

struct Arguments {
  std::string workload, island;
  std::vector<std::string> parameters;  // name=value
  WorkloadDriverOptions driver{.engines = DefaultRowStoreNames()};
  std::string directory = DefaultScratchParent();
  uint64_t cache_mib = 2048;
  double seconds = 1;
  uint32_t repeat = 3;
  int cpu = -1;
  bool serve = false;
};

void AddOptions(CLI::App& app, Arguments& arguments) {
  WorkloadDriverOptions& driver = arguments.driver;
  app.add_option("WORKLOAD", arguments.workload, "a name, as `islands run` takes it, or a shared object")
      ->required();
  app.add_option("--island", arguments.island, "file with an island's configuration, whose tables are taken")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--parameter", arguments.parameters, "NAME=VALUE, of the workload; may be repeated");
  app.add_option("--engine", driver.engines,
                 fmt::format("repeated or separated by commas: {}", fmt::join(RowStoreNames(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(RowStoreNames()))
      ->capture_default_str();
  app.add_option("--seconds", arguments.seconds, "of one measurement")
      ->check(SecondsFrom(0.001))
      ->capture_default_str();
  app.add_option("--warmup", driver.warmup_s, "seconds before each")
      ->check(SecondsFrom(0))
      ->capture_default_str();
  app.add_option("--repeat", arguments.repeat, "measurements of each engine, in turn; medians are printed")
      ->check(CLI::Range(1u, 10'000u))
      ->capture_default_str();
  app.add_option("--threads", driver.threads,
                 "transactions in flight, each in a thread and a session of its own")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--durability", driver.durability, "what a commit outlives: none, lazy, sync; as of peers")
      ->transform(CLI::CheckedTransformer(Durabilities()))
      ->default_str("none");
  app.add_option("--cache-mib", arguments.cache_mib, "of pages, at most; the data should fit")
      ->check(CLI::Range(uint64_t{64}, uint64_t{1} << 20))
      ->capture_default_str();
  app.add_option(
         "--directory", arguments.directory,
         "where the engines' files go, in a directory of their own that is removed afterwards; with lazy or "
         "sync it should be on a disk")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--seed", driver.seed, "of the transactions")->capture_default_str();
  app.add_option("--cpu", arguments.cpu, "run on this CPU only, the engines' background threads included");
  app.add_flag("--serve", arguments.serve, "measure what standard input asks for");
  app.footer(kFooter);
}

absl::StatusOr<storage::Catalog> CatalogOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  control::v1::IslandConfig config;
  if (const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &config); !parsed.ok())
    return absl::InvalidArgumentError(
        fmt::format("--island {}: not the configuration of an island: {}", path, parsed.ToString()));
  return storage::Catalog::Create(config.tables(), std::max(config.site_count(), 1u));
}

absl::StatusOr<std::shared_ptr<const instance::Workload>> OpenedWorkload(const Arguments& arguments,
                                                                         const storage::Catalog& catalog) {
  instance::Parameters parameters;
  for (const std::string& each : arguments.parameters) {
    const size_t equals = each.find('=');
    if (equals == std::string::npos)
      return absl::InvalidArgumentError(fmt::format("--parameter {}: expected NAME=VALUE", each));
    parameters[each.substr(0, equals)] = each.substr(equals + 1);
  }
  std::string object = arguments.workload;
  if (!object.ends_with(".so"))
    object =
        (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/islands" / (object + ".so"))
            .string();
  return instance::OpenWorkload(fs::absolute(object).string(), catalog, parameters);
}

json JsonOf(const std::string& engine, const WorkloadMeasurement& measured) {
  return {{"engine", engine},
          {"seconds", measured.seconds},
          {"committed", measured.committed},
          {"aborted", measured.aborted},
          {"conflicts", measured.conflicts},
          {"per_s", measured.PerSecond()},
          {"audit", "ok"}};
}

int Serve(WorkloadDriver& driver) {
  const auto say = [](const json& document) {
    fmt::print("{}\n", document.dump());
    std::fflush(stdout);
  };
  json engines = json::object();
  for (const auto& [engine, facts] : driver.Facts())
    engines[engine] = {{"version", facts.version}, {"keeps", facts.keeps}, {"isolation", facts.isolation}};
  say({{"ready", true}, {"engines", engines}});
  int exit_code = 0;
  std::string line;
  for (uint64_t stream = 0; std::getline(std::cin, line); ++stream) {
    std::istringstream words(line);
    std::string engine, more;
    double seconds = 0;
    uint32_t threads = 0;
    words >> engine >> seconds;
    const bool fits =
        !words.fail() && std::isfinite(seconds) && seconds > 0 &&
        (!(words >> more) || (absl::SimpleAtoi(more, &threads) && threads > 0 && !(words >> more)));
    if (!fits) {
      say({{"error", fmt::format("'{}': expected ENGINE SECONDS [THREADS]", line)}});
      exit_code = kExitFailed;
      continue;
    }
    const auto measured = driver.Measure(engine, seconds, stream, threads);
    if (measured.ok()) {
      say(JsonOf(engine, *measured));
      continue;
    }
    say({{"engine", engine}, {"error", std::string(measured.status().message())}});
    exit_code = kExitFailed;
  }
  return exit_code;
}

int Table(const Arguments& arguments, WorkloadDriver& driver) {
  std::map<std::string, std::vector<double>> rates;
  for (uint32_t round = 0; round < arguments.repeat; ++round) {
    for (const std::string& engine : arguments.driver.engines) {
      const auto measured = driver.Measure(engine, arguments.seconds, round);
      if (!measured.ok()) return PrintError(kName, measured.status());
      rates[engine].push_back(measured->PerSecond());
    }
  }
  fmt::print("{:<14}{:>14}{:>14}{:>14}\n", "engine", "committed/s", "min", "max");
  for (const std::string& engine : arguments.driver.engines) {
    std::vector<double>& all = rates[engine];
    std::sort(all.begin(), all.end());
    fmt::print("{:<14}{:>14.0f}{:>14.0f}{:>14.0f}\n", engine, all[all.size() / 2], all.front(), all.back());
  }
  return 0;
}

int Run(Arguments& arguments) {
  if (absl::Status status = RunOnCpu(arguments.cpu); !status.ok()) return PrintError(kName, status);
  const auto catalog = CatalogOf(arguments.island);
  if (!catalog.ok()) return PrintError(kName, catalog.status());
  const auto workload = OpenedWorkload(arguments, *catalog);
  if (!workload.ok()) return PrintError(kName, workload.status());
  DropRepeated(&arguments.driver.engines);
  const auto scratch = ScratchDirectory::Create(arguments.directory, EndServers);
  if (!scratch.ok()) return PrintError(kName, scratch.status());
  arguments.driver.directory = (*scratch)->path();
  arguments.driver.cache_bytes = arguments.cache_mib << 20;
  const auto driver = WorkloadDriver::Create(arguments.driver, *catalog, *workload);
  if (!driver.ok()) return PrintError(kName, driver.status());
  return arguments.serve ? Serve(**driver) : Table(arguments, **driver);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{
      "Runs a workload's own transactions - its rows, generators, procedures and audit - on LMDB, RocksDB's\n"
      "TransactionDB, Berkeley DB, WiredTiger and SQLite, and on PostgreSQL and MariaDB if they are named."};
  AddOptions(app, arguments);
  if (const std::optional<int> code = ParseArguments(app, kName, argc, argv)) return *code;
  AskForHugePages(argv);
  return Run(arguments);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
