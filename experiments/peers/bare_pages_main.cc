// `bare_pages`: what a disk takes of a program that only moves pages. Answers lines, as `peers --serve` does.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/peers/bare_pages.h"
#include "experiments/peers/scratch_directory.h"

namespace islands::experiments {
namespace {

using nlohmann::json;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

void Answer(const json& answer) {
  fmt::print("{}\n", answer.dump());
  std::fflush(stdout);
}

json AnswerTo(BarePages& pages, const std::string& line, double warmup_s) {
  std::istringstream words(line);
  std::string name, op, more;
  double seconds = 0;
  if (!(words >> name >> op >> seconds) || words >> more || name != "pages" ||
      (op != "read" && op != "update") || !(seconds > 0)) {
    return {{"error", fmt::format("'{}': expected pages read|update SECONDS", line)}};
  }
  const auto measured = pages.Measure(op == "update", warmup_s, seconds);
  if (!measured.ok()) return {{"op", op}, {"error", std::string(measured.status().message())}};
  return {{"engine", name},
          {"op", op},
          {"seconds", measured->seconds},
          {"pages", measured->pages},
          {"per_s", measured->PerSecond()},
          {"sum_check", "ok"}};
}

int Fail(const absl::Status& status) {
  fmt::print(stderr, "bare_pages: {}\n", std::string(status.message()));
  return kExitFailed;
}

int Main(int argc, char** argv) {
  BarePagesOptions options;
  std::string directory = ".";
  double warmup_s = 0.5;
  CLI::App app{
      "Reads random pages of 4 KiB by io_uring and O_DIRECT, or reads, logs and writes them back, as fast as "
      "a\n"
      "disk takes it. Prints {\"ready\": true}; then a line `pages read|update SECONDS` on stdin is answered "
      "by\n"
      "a line of JSON, with pages a second, until stdin ends."};
  app.add_option("--directory", directory,
                 "on that disk; its files go into one of their own, removed afterwards")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--pages", options.pages, "in the file")->capture_default_str();
  app.add_option("--depth", options.depth, "reads under way")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--pool-pages", options.pool_pages, "that are in memory at most")->capture_default_str();
  app.add_option("--batch-pages", options.batch_pages, "that go home together")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--log-bytes", options.log_bytes, "for each changed page")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the pages")->capture_default_str();
  app.add_option("--warmup", warmup_s, "seconds before each measurement")->capture_default_str();
  app.footer("Exit codes: 0 ok, 1 the disk failed or lost a change, 2 usage, 130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const auto scratch = ScratchDirectory::Create(directory);
  if (!scratch.ok()) return Fail(scratch.status());
  options.directory = (*scratch)->path();
  const auto pages = BarePages::Create(options);
  if (!pages.ok()) return Fail(pages.status());
  Answer({{"ready", true}});
  int exit_code = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const json answer = AnswerTo(**pages, line, warmup_s);
    if (answer.contains("error")) exit_code = kExitFailed;
    Answer(answer);
  }
  return exit_code;
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
