// `peers`: the microbenchmark on engines that a user could pick instead of islands.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "experiments/micro/micro.h"
#include "experiments/peers/commands.h"
#include "experiments/peers/engine_options.h"
#include "experiments/peers/huge_pages.h"
#include "experiments/peers/scratch_directory.h"
#include "experiments/peers/server_process.h"

namespace islands::experiments {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr const char* kFooter = R"(
--serve: prints {"ready": true, ...} when all engines are loaded; then a line
ENGINE read|update|add SECONDS [THREADS] on stdin is answered by a line of JSON on stdout, until stdin ends.
--durability, of every engine the same: none = the fastest it has, without a log where it can do without;
lazy = a commit outlives its process, and the machine within a second or so; sync = it waits for the disk.
Exit codes: 0 ok, 1 an engine failed or lost an update, 2 usage, 130 interrupted.)";

struct Arguments {
  PeersCommand command{.driver = {.engines = DefaultPeerNames()}, .ops = {"read", "update", "add"}};
  std::string directory = DefaultScratchParent();
  std::optional<PeerDurability> durability;
  std::string format = "text";
  uint64_t cache_mib = 0;
  int cpu = -1;
  bool serve = false;
};

void AddOptions(CLI::App& app, Arguments& arguments) {
  PeersCommand& command = arguments.command;
  PeerDriverOptions& driver = command.driver;
  app.add_option("--engine", driver.engines,
                 fmt::format("engines, repeated or separated by commas: {}", fmt::join(PeerNames(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(PeerNames()))
      ->capture_default_str();
  app.add_option("--op", command.ops, "what transactions do with their rows")
      ->delimiter(',')
      ->check(CLI::IsMember({"read", "update", "add"}))
      ->capture_default_str();
  app.add_option("--rows", driver.rows, "distinct rows of a transaction")
      ->check(CLI::Range(1u, kMicroMaxRows))
      ->capture_default_str();
  app.add_option("--range", driver.range, "rows of the table: keys 0 to RANGE - 1")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--row-bytes", driver.row_bytes, "size of a row")
      ->check(CLI::Range(8u, kPeerMaxRowBytes))
      ->capture_default_str();
  app.add_option("--zipf", driver.zipf, "skew of the keys; 0 = uniform")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--seed", driver.seed, "of the transactions")->capture_default_str();
  app.add_option("--seconds", command.seconds, "of one measurement")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_option("--warmup", driver.warmup_s, "seconds before each measurement")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--repeat", command.repeat,
                 "measurements of each engine and op, in turn; medians are printed")
      ->check(CLI::Range(1u, 10'000u))
      ->capture_default_str();
  app.add_option("--threads", driver.threads,
                 "transactions in flight, each in a thread and a session of its own")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--cache-mib", arguments.cache_mib,
                 "of pages; the data may be larger; then --durability is lazy unless it is sync; 0: all data "
                 "in memory")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--durability", arguments.durability, "what a commit outlives: none, lazy, sync")
      ->transform(CLI::CheckedTransformer(Durabilities()))
      ->default_str("none");
  app.add_option(
         "--directory", arguments.directory,
         "where the engines' files go, in a directory of their own that is removed afterwards; with lazy "
         "or sync it should be on a disk")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--cpu", arguments.cpu, "run on this CPU only, the engines' background threads included");
  app.add_option("--format", arguments.format, "of the result")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--serve", arguments.serve, "measure what standard input asks for");
  app.footer(kFooter);
}

int Fail(int exit_code, const absl::Status& status) {
  fmt::print(stderr, "peers: {}\n", std::string(status.message()));
  return exit_code;
}

int Run(Arguments& arguments) {
  PeersCommand& command = arguments.command;
  DropRepeated(&command.driver.engines);
  DropRepeated(&command.ops);
  command.driver.cache_bytes = arguments.cache_mib << 20;
  command.driver.durability =
      arguments.durability.value_or(arguments.cache_mib != 0 ? PeerDurability::kLazy : PeerDurability::kNone);
  command.json = arguments.format == "json";
  if (absl::Status status = RunOnCpu(arguments.cpu); !status.ok()) return Fail(kExitUsage, status);
  const auto scratch = ScratchDirectory::Create(arguments.directory, EndServers);
  if (!scratch.ok()) return Fail(kExitFailed, scratch.status());
  command.driver.directory = (*scratch)->path();
  const auto driver = PeerDriver::Create(command.driver);
  if (!driver.ok()) return Fail(kExitFailed, driver.status());
  return arguments.serve ? RunServe(**driver) : RunTable(command, **driver);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{
      "Runs the microbenchmark's transactions on LMDB, RocksDB's TransactionDB, Berkeley DB, WiredTiger,\n"
      "SQLite, PostgreSQL, MariaDB, and as a bare loop of B+tree descents, one after the other or "
      "interleaved: the "
      "limit."};
  AddOptions(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  // Many threads' memory of small pieces, in huge pages, would be more than a limit leaves beside the cache.
  if (arguments.cache_mib == 0) {
    AskForHugePages(argv);
  } else {
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  }
  return Run(arguments);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
