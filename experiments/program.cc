#include "experiments/program.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace islands::experiments {
namespace {

using nlohmann::ordered_json;

constexpr double kMaxSeconds = 3600;

ordered_json Parameters(const ProgramOptions& options, const ProgramResult& result) {
  ordered_json json = {{"seconds", options.seconds},
                       {"warmup", options.warmup_s},
                       {"seed", options.seed},
                       {"cores", options.cores}};
  for (const auto& [name, value] : result.parameters) {
    std::visit([&json, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json;
}

std::string OneLine(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

// CLI::Range lets NaN through.
CLI::Validator SecondsFrom(double least) {
  return CLI::Validator(
      [least](std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= kMaxSeconds)
          return std::string();
        return fmt::format("{}: expected seconds from {} to {}", text, least, kMaxSeconds);
      },
      "SECONDS");
}

void AddProgramOptions(CLI::App& app, ProgramOptions& options) {
  app.add_option("--seconds", options.seconds, "of the measurement")
      ->check(SecondsFrom(0.001))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup_s, "seconds before it")
      ->check(SecondsFrom(0))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of what is drawn or made up")->capture_default_str();
  app.add_option("--cores", options.cores, "all, the first N, or CPUs such as 0-5,12")->capture_default_str();
  app.add_option("--format", options.format, "of the result")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

std::optional<int> ParseArguments(CLI::App& app, std::string_view program, int argc, char** argv) {
  app.failure_message([program](const CLI::App*, const CLI::Error& error) {
    return fmt::format("{}: {}; --help lists the options\n", program, OneLine(error.what()));
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<uint32_t>> ChooseCpus(const topology::Machine& machine, std::string_view cores,
                                                 topology::WorkerOrder order) {
  topology::PlanRequest request{.islands = 1, .worker_order = order};
  const bool is_number = !cores.empty() && cores.size() <= 6 &&
                         std::all_of(cores.begin(), cores.end(),
                                     [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
  if (is_number) {
    request.core_count = static_cast<uint32_t>(std::stoul(std::string(cores)));
  } else if (cores != "all") {
    absl::StatusOr<std::vector<uint32_t>> cpus = topology::ParseCpuList(cores);
    if (!cpus.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("--cores {}: {}; expected all, a number or CPUs such as 0-5,12", cores,
                      std::string(cpus.status().message())));
    }
    request.cpus = *std::move(cpus);
  }
  const topology::Verdict verdict = topology::MakePlan(machine, request);
  if (!verdict.plan) {  // one island on a machine is possible: it can only be the cores
    return absl::InvalidArgumentError(fmt::format("--cores: {}", verdict.complaints.front().text));
  }
  return verdict.plan->islands[0].cpus;
}

const topology::Core* CoreOfCpu(const topology::Machine& machine, uint32_t cpu) {
  for (const topology::Core& core : machine.cores) {
    if (std::find(core.pus.begin(), core.pus.end(), cpu) != core.pus.end()) return &core;
  }
  return nullptr;
}

int PrintResult(std::string_view program, const ProgramOptions& options, const ProgramResult& result) {
  const ordered_json parameters = Parameters(options, result);
  if (options.format == "json") {
    ordered_json metrics = ordered_json::object();
    for (const auto& [name, value] : result.metrics) metrics[name] = value;
    const ordered_json all = {
        {"parameters", parameters}, {"metrics", metrics}, {"placement", result.placement}};
    fmt::print("{}\n", all.dump());
    return 0;
  }
  fmt::print("{}:", program);
  for (const auto& [name, value] : parameters.items()) {
    fmt::print(" {} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  fmt::print("\n");
  for (const auto& [name, value] : result.metrics) {
    fmt::print("  {:<20} {:>18.{}f}\n", name, value, value < 1000 ? 2 : 0);
  }
  fmt::print("placement: {}\n", result.placement);
  return 0;
}

int PrintSkipped(std::string_view program, const ProgramOptions& options, std::string_view reason) {
  if (options.format == "json") {
    fmt::print("{}\n", ordered_json{{"skipped", reason}}.dump());
  } else {
    fmt::print("{}: skipped: {}\n", program, reason);
  }
  return 0;
}

int PrintError(std::string_view program, const absl::Status& status) {
  fmt::print(stderr, "{}: {}\n", program, OneLine(std::string(status.message())));
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

}  // namespace islands::experiments
