// What a local transaction of the microbenchmark costs: one island with one worker, stepped by this thread,
// no peers. Prints transactions per second and heap allocations per transaction after warm-up.
//
//   local_path_bench [--op read|update|add] [--rows N] [--range N] [--sites N] [--mpl N] [--zipf S] [--locks]
//                    [--log] [--transactions N] [--warmup N] [--repeat N] [--json]
//
// For instruction counts: valgrind --tool=callgrind --toggle-collect='*Worker::RunOnce*' with a fixed number
// of transactions.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "experiments/micro/local_path.h"

namespace islands::experiments {
namespace {

struct Options {
  LocalPathOptions path;
  uint64_t transactions = 500'000;
  uint64_t warmup = 20'000;
  uint32_t repeat = 3;
  bool json = false;
};

int Main(const Options& options) {
  LocalPath path(options.path);
  if (absl::Status status = path.Open(); !status.ok()) {
    fmt::print(stderr, "local_path_bench: {}\n", std::string(status.message()));
    return 1;
  }
  path.Run(options.warmup);
  std::vector<double> rates;
  double allocated = 0;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    const LocalPath::Measured measured = path.Run(options.transactions);
    rates.push_back(measured.per_second);
    allocated = std::max(allocated, measured.allocations);
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  if (options.json) {
    const nlohmann::json result = {{"op", options.path.op},
                                   {"rows", options.path.rows},
                                   {"per_second", median},
                                   {"allocations", allocated}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}-{}: {:.0f} transactions/s (from {:.0f} to {:.0f}), {:.4f} allocations per transaction\n",
               options.path.op, options.path.rows, median, rates.front(), rates.back(), allocated);
  }
  return 0;
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) {
  islands::experiments::Options options;
  CLI::App app("What a local transaction of the microbenchmark costs on one worker");
  app.add_option("--op", options.path.op, "read, update or add")
      ->check(CLI::IsMember({"read", "update", "add"}));
  app.add_option("--rows", options.path.rows, "rows per transaction")->capture_default_str();
  app.add_option("--range", options.path.range, "rows of the table")->capture_default_str();
  app.add_option("--sites", options.path.sites, "sites of the table")->capture_default_str();
  app.add_option("--mpl", options.path.mpl, "transactions in flight")->capture_default_str();
  app.add_option("--zipf", options.path.zipf, "skew")->capture_default_str();
  app.add_flag("--locks", options.path.locks, "take locks and latches as with several workers");
  app.add_flag("--log", options.path.log, "append to a log ring, as with durability lazy");
  app.add_option("--transactions", options.transactions, "measured each time")->capture_default_str();
  app.add_option("--warmup", options.warmup, "transactions before")->capture_default_str();
  app.add_option("--repeat", options.repeat, "how often to measure")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON document");
  CLI11_PARSE(app, argc, argv);
  return islands::experiments::Main(options);
}
