#include "deploy/top/command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "deploy/cluster/client.h"
#include "deploy/file/deployment.h"
#include "deploy/processes/interrupts.h"
#include "deploy/top/keys.h"
#include "deploy/top/sample.h"
#include "deploy/top/screen.h"
#include "deploy/top/terminal.h"

namespace islands::deploy {
namespace {

constexpr double kMinIntervalS = 0.1;
constexpr double kMaxIntervalS = 3600;

struct TopOptions {
  std::string file;
  bool once = false;  // one table, over one interval; also where stdout is no terminal, or a dumb one
  TopSort sort = TopSort::kIsland;
  double interval_s = 1;
};

// Of each call: whoever waits longer is not answering, and keys wait as long.
constexpr int64_t kLiveTimeoutMs = 900;
constexpr int64_t kOnceTimeoutMs = 5'000;  // of the supervisor, which asks islands itself
// After the first look, which only knows where counters stand: nobody wants to wait for numbers.
constexpr int64_t kFirstWaitMs = 250;

std::string Clock() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:%H:%M:%S}", local);
}

absl::StatusOr<GatewayCounts> LookAtGateway(const control::v1::ClusterStatus* status) {
  if (status == nullptr || status->gateway().metrics_port() == 0)
    return absl::UnavailableError("there is no page");
  const auto page = ReadMetricsPage(status->gateway().metrics_port(), kLiveTimeoutMs);
  return page.ok() ? ParseGatewayPage(*page) : page.status();
}

// Asks all islands, and the gateway. OK: the supervisor answered; islands that did not are rows without
// numbers.
absl::Status Look(const ClusterClient& client, int64_t supervisor_timeout_ms, TopSampler* sampler) {
  absl::StatusOr<control::v1::ClusterStatus> status = client.Status(supervisor_timeout_ms);
  const size_t islands =
      status.ok() ? static_cast<size_t>(status->islands_size()) : sampler->sample().rows.size();
  std::vector<uint32_t> all(islands);
  std::iota(all.begin(), all.end(), 0u);
  control::v1::Request request;
  request.mutable_snapshot();
  const control::v1::ClusterStatus* known = status.ok() ? &*status : nullptr;
  sampler->Add(known, client.CallIslands(all, request, kLiveTimeoutMs));
  const absl::StatusOr<GatewayCounts> counts = LookAtGateway(known);
  sampler->AddGateway(known, counts, MonotonicMs());
  return status.status();
}

int Once(const CommandContext& context, const ClusterClient& client, const TopOptions& options) {
  Interrupts interrupts;
  TopSampler sampler;
  for (const bool first : {true, false}) {
    absl::Status looked = Look(client, kOnceTimeoutMs, &sampler);
    if (!looked.ok()) return Fail(context, looked);
    if (first &&
        interrupts.Sleep(static_cast<int64_t>(options.interval_s * 1000)) == Interrupts::Wake::kInterrupted) {
      return kExitInterrupted;
    }
  }
  TopSample sample = sampler.sample();
  SortRows(&sample.rows, options.sort, false);
  fmt::print("{}", context.json() ? TopJson(sample)
                                  : RenderTopTable(sample, TopView{.sort = options.sort}, Utf8Terminal()));
  return kExitOk;
}

// The live screen, from its first look to the key that ends it.
class LiveTop {
 public:
  LiveTop(const ClusterClient& client, const TopOptions& options) : client_(client) {
    view_.sort = options.sort;
    screen_.interval_s = options.interval_s;
    screen_.utf8 = Utf8Terminal();
  }

  absl::Status LookOnce() {
    absl::Status looked = Look(client_, kLiveTimeoutMs, &sampler_);
    if (looked.ok()) {
      answered_ms_ = MonotonicMs();
      screen_.trouble.clear();
    } else {
      screen_.trouble = fmt::format("no answer from the supervisor for {} s; trying on, q quits",
                                    (MonotonicMs() - answered_ms_) / 1000);
    }
    // Histories go on while the screen is held.
    if (!view_.paused) {
      shown_ = sampler_.sample();
      screen_.clock = Clock();
    }
    return looked;
  }

  // Exit code; the terminal is as before when it returns.
  int Watch() {
    Interrupts interrupts;
    TopTerminal terminal;
    const auto interval_ms = static_cast<int64_t>(screen_.interval_s * 1000);
    int64_t next_ms = MonotonicMs() + std::min(interval_ms, kFirstWaitMs);
    for (;;) {
      if (!Draw(&terminal)) return kExitFailed;
      switch (interrupts.Sleep(next_ms - MonotonicMs(), terminal.input())) {
        case Interrupts::Wake::kInterrupted:
          return kExitInterrupted;
        case Interrupts::Wake::kReadable:
          if (!TakeKeys(&terminal)) return kExitOk;
          break;
        case Interrupts::Wake::kTimeout:
          lost_ = LookOnce();
          next_ms = std::max(next_ms + interval_ms, MonotonicMs());
          break;
      }
    }
  }

  // OK unless the supervisor did not answer at the end.
  absl::Status lost() const {
    if (lost_.ok()) return lost_;
    return absl::UnavailableError(
        fmt::format("the supervisor does not answer any more: {}", std::string(lost_.message())));
  }

 private:
  bool Draw(TopTerminal* terminal) {
    TopTerminal::Measure(&screen_);
    return terminal->Draw(RenderTop(shown_, view_, screen_), screen_);
  }

  // False: quit.
  bool TakeKeys(TopTerminal* terminal) {
    const std::optional<std::string> typed = terminal->Read();
    if (!typed) return false;
    for (char key : keys_.Feed(*typed)) {
      switch (PressTopKey(key, shown_.rows.size(), TopRoom(shown_, screen_), &view_)) {
        case TopAction::kQuit:
          return false;
        case TopAction::kRedraw:
          terminal->Forget();
          break;
        case TopAction::kSuspend:
          terminal->Suspend();
          break;
        case TopAction::kNone:
          break;
      }
    }
    return true;
  }

  const ClusterClient& client_;
  TopSampler sampler_;
  TopSample shown_;  // of a while ago, while paused
  TopView view_;
  TopScreen screen_;
  TopKeyReader keys_;
  absl::Status lost_;
  int64_t answered_ms_ = 0;
};

// Live, until q (0), Ctrl-C or SIGTERM (130). A cluster that is not up at the start is an error; one whose
// supervisor stops answering meanwhile is waited for, and is an error only if it has not come back by then.
int Top(const CommandContext& context, const TopOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  const ClusterClient client(*files);
  if (options.once || context.json() || !OnTerminal()) return Once(context, client, options);
  LiveTop live(client, options);
  if (absl::Status looked = live.LookOnce(); !looked.ok()) return Fail(context, looked);
  const int code = live.Watch();
  return live.lost().ok() ? code : Fail(context, live.lost());
}

}  // namespace

void AddTopCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("top", "Watch what every island does, live");
  auto options = std::make_shared<TopOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_flag("--once", options->once,
                    "Print one table, over one interval, and end; also where stdout is no terminal");
  auto sort = std::make_shared<std::string>(NameOf(options->sort));
  std::vector<std::string> names;
  for (const TopSortName& each : kTopSorts) names.push_back(each.name);
  command->add_option("--sort", *sort, "What the islands are sorted by")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--interval", options->interval_s, "Seconds from one look to the next")
      ->check(CLI::Range(kMinIntervalS, kMaxIntervalS))
      ->capture_default_str();
  command->footer(
      "Keys: i s t a b w m l sort by island, state, transactions, aborts, busy, wait, messages, latency;\n"
      "the same key again reverses. j k scroll, p pauses, ? shows the keys, q quits.");
  OnCommand(command, context, [&context, options, sort] {
    options->sort = TopSortOf(*sort);
    return Top(context, *options);
  });
}

}  // namespace islands::deploy
