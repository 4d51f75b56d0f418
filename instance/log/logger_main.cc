// islands-logger: brings what all islands of a box have appended to disk. Started by the supervisor.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/board.h"
#include "instance/log/logger_process.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/file_system.h"

namespace islands::log {
namespace {

// Of so few the files are written and synced one after the other, by the logger itself. Side by side it
// takes a wake-up or two for each write and sync, of 50 us in a virtual machine, and with two islands that
// was as much as the disk's own.
constexpr size_t kFewIslands = 4;

struct Arguments {
  int board = -1;
  int commands = -1;
  LoggerProcess::Options options;
  uint64_t segment_mib = 64;
  int64_t interval_us = 1000, lock_wait_ms = 10'000, stop_wait_ms = 10'000;
  std::string engine = "auto";
};

void Declare(CLI::App& app, Arguments* arguments) {
  app.add_option("--board", arguments->board, "Descriptor of the memory with the epochs, inherited")
      ->required();
  app.add_option("--commands", arguments->commands,
                 "Descriptor of a stream socket, inherited: what islands live")
      ->required();
  app.add_option("--workers", arguments->options.workers, "Workers of every island, as 2,1,1")
      ->required()
      ->delimiter(',');
  app.add_option("--log-directory", arguments->options.log.directory, "Where EPOCH and the islands' logs are")
      ->required();
  app.add_option("--ring-directory", arguments->options.ring_directory, "Where the rings are")->required();
  app.add_option("--cluster", arguments->options.log.cluster, "Fingerprint of the cluster's id")->required();
  app.add_option("--first-epoch", arguments->options.log.first_epoch,
                 "With which the box went on after a cut");
  app.add_option("--segment-mib", arguments->segment_mib, "Size of a log file")->check(CLI::Range(1, 1024));
  app.add_option("--interval-us", arguments->interval_us, "From the beginning of a round to the next")
      ->check(CLI::Range(100, 10'000'000));
  app.add_option("--engine", arguments->engine,
                 "How it writes; auto: one after the other for few islands, else at once")
      ->check(CLI::IsMember({"auto", "io_uring", "threads", "caller"}));
  app.add_option("--lock-wait-ms", arguments->lock_wait_ms,
                 "How long for the locks of a logger that has died");
  app.add_option("--stop-wait-ms", arguments->stop_wait_ms, "How long for what is held when it shall end");
}

// As islandd's.
void SetUpLog() {
  auto logger = spdlog::stderr_logger_st("islands-logger");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ logger %l %v", spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

// Blocked before any thread exists, so that all threads inherit it.
absl::StatusOr<runtime::UniqueFd> TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  runtime::UniqueFd descriptor(signalfd(-1, &signals, SFD_CLOEXEC));
  if (descriptor) return descriptor;
  return absl::ErrnoToStatus(errno, "cannot take signals");
}

absl::Status Log(Arguments arguments) {
  const absl::StatusOr<runtime::UniqueFd> signals = TakeSignals();
  if (!signals.ok()) return signals.status();
  LoggerProcess::Options& options = arguments.options;
  const absl::StatusOr<std::unique_ptr<Board>> board = Board::Map(arguments.board, options.workers);
  if (!board.ok()) return board.status();
  const std::map<std::string, runtime::PosixOptions::Engine> engines = {
      {"auto", runtime::PosixOptions::Engine::kAuto},
      {"io_uring", runtime::PosixOptions::Engine::kIoUring},
      {"threads", runtime::PosixOptions::Engine::kThreads},
      {"caller", runtime::PosixOptions::Engine::kCaller}};
  const bool one_by_one = arguments.engine == "auto" && options.workers.size() <= kFewIslands;
  const std::unique_ptr<runtime::FileSystem> files =
      runtime::MakePosixFileSystem({.engine = engines.at(one_by_one ? "caller" : arguments.engine)});
  const runtime::MonotonicClock clock;
  options.log.segment_bytes = arguments.segment_mib << 20;
  options.log.interval_ns = arguments.interval_us * 1000;
  options.lock_wait_ns = arguments.lock_wait_ms * runtime::kNsPerMs;
  options.stop_wait_ns = arguments.stop_wait_ms * runtime::kNsPerMs;
  const absl::StatusOr<std::unique_ptr<LoggerProcess>> process =
      LoggerProcess::Open(*files, clock, **board, std::move(options));
  if (!process.ok()) return process.status();
  return (*process)->Run(arguments.commands, signals->get());
}

}  // namespace
}  // namespace islands::log

int main(int argc, char** argv) {
  CLI::App app("Brings what all islands of a box have appended to disk.");
  islands::log::Arguments arguments;
  islands::log::Declare(app, &arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  islands::log::SetUpLog();
  const absl::Status status = islands::log::Log(std::move(arguments));
  if (status.ok()) return 0;
  spdlog::error("{}", std::string(status.message()));
  return 1;
}
