#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "experiments/peers/commands.h"
#include "experiments/peers/engine_options.h"

namespace islands::experiments {
namespace {

using nlohmann::json;

using Rates = std::map<std::pair<std::string, std::string>, std::vector<double>>;  // by (engine, op)

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

json ResultJson(const Rates& rates, const std::string& engine, const std::string& op) {
  const std::vector<double>& all = rates.at({engine, op});
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  json result = {{"engine", engine},  {"op", op},           {"median_per_s", Median(all)},
                 {"min_per_s", *low}, {"max_per_s", *high}, {"per_s", all},
                 {"sum_check", "ok"}};
  if (const auto base = rates.find({"lmdb", op}); base != rates.end()) {
    result["ratio_to_lmdb"] = Median(all) / Median(base->second);
  }
  return result;
}

json ReportJson(const PeersCommand& command, const PeerDriver& driver, const Rates& rates) {
  const PeerDriverOptions& options = command.driver;
  json report = {{"range", options.range},
                 {"row_bytes", options.row_bytes},
                 {"rows", options.rows},
                 {"zipf", options.zipf},
                 {"seed", options.seed},
                 {"seconds", command.seconds},
                 {"warmup_s", options.warmup_s},
                 {"repeat", command.repeat},
                 {"threads", options.threads},
                 {"cache_mib", options.cache_bytes >> 20},
                 {"durability", NameOf(options.durability)},
                 {"engines", EnginesJson(driver)},
                 {"results", json::array()}};
  for (const std::string& op : command.ops) {
    for (const std::string& engine : options.engines) {
      report["results"].push_back(ResultJson(rates, engine, op));
    }
  }
  return report;
}

void PrintText(const PeersCommand& command, const json& report) {
  const PeerDriverOptions& options = command.driver;
  fmt::print("{} rows of {} bytes, {} per transaction, Zipf {}; {}, transactions/s, {} x {} s\n\n",
             options.range, options.row_bytes, options.rows, options.zipf,
             options.threads == 1 ? "one thread" : fmt::format("{} threads", options.threads), command.repeat,
             command.seconds);
  fmt::print("{:<12} {:<7} {:>12} {:>12} {:>12} {:>8}\n", "engine", "op", "median", "min", "max", "x LMDB");
  for (const json& row : report["results"]) {
    const std::string ratio =
        row.contains("ratio_to_lmdb") ? fmt::format("{:.2f}", row["ratio_to_lmdb"].get<double>()) : "-";
    fmt::print("{:<12} {:<7} {:>12.0f} {:>12.0f} {:>12.0f} {:>8}\n", row["engine"].get<std::string>(),
               row["op"].get<std::string>(), row["median_per_s"].get<double>(),
               row["min_per_s"].get<double>(), row["max_per_s"].get<double>(), ratio);
  }
  fmt::print("\n");
  for (const auto& [engine, about] : report["engines"].items()) {
    fmt::print("{:<12} {}; {} of {} MiB in huge pages\n", engine, about["version"].get<std::string>(),
               about["huge_mib"].get<uint64_t>(), about["memory_mib"].get<uint64_t>());
    fmt::print("{:<12} {}; {}\n", "", about["isolation"].get<std::string>(),
               about["keeps"].get<std::string>());
  }
}

}  // namespace

json EnginesJson(const PeerDriver& driver) {
  json engines = json::object();
  for (const auto& [engine, about] : driver.Describe()) {
    engines[engine] = {{"version", about.facts.version},         {"isolation", about.facts.isolation},
                       {"rolls_back", about.facts.rolls_back},   {"keeps", about.facts.keeps},
                       {"memory_mib", about.memory.bytes >> 20}, {"huge_mib", about.memory.huge_bytes >> 20}};
  }
  return engines;
}

int RunTable(const PeersCommand& command, PeerDriver& driver) {
  Rates rates;
  for (uint32_t round = 0; round < command.repeat; ++round) {
    for (const std::string& op : command.ops) {
      for (const std::string& engine : command.driver.engines) {
        const auto measured = driver.Measure(engine, *MicroOpOf(op), command.seconds, round);
        if (!measured.ok()) {
          fmt::print(stderr, "peers: {} {}: {}\n", engine, op, std::string(measured.status().message()));
          return 1;
        }
        rates[{engine, op}].push_back(measured->PerSecond());
      }
    }
  }
  const json report = ReportJson(command, driver, rates);
  if (command.json) {
    fmt::print("{}\n", report.dump(2));
  } else {
    PrintText(command, report);
  }
  return 0;
}

}  // namespace islands::experiments
