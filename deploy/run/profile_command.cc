#include "deploy/run/profile_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/client.h"
#include "deploy/file/deployment.h"
#include "deploy/processes/interrupts.h"
#include "deploy/run/counters.h"
#include "deploy/run/result.h"

namespace islands::deploy {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kLookTimeoutMs = 5'000;
constexpr double kLeastSeconds = 0.5;
constexpr double kMostSeconds = 3600;
constexpr double kLookEveryS = 1;

struct ProfileOptions {
  std::string file;
  double seconds = 10;
};

// What one core did from look to look.
struct Core {
  uint32_t island = 0;
  uint32_t worker = 0;
  double busy_s = -1;  // as last read
  double quiet_s = 0;
  std::vector<double> busy_shares;

  void Look(const control::v1::WorkerCounters& counters, bool begins_anew) {
    const double busy = counters.busy_seconds() - busy_s;
    const double quiet = counters.idle_seconds() - quiet_s;
    if (busy_s >= 0 && !begins_anew && busy + quiet > 0)
      busy_shares.push_back(std::clamp(busy / (busy + quiet), 0.0, 1.0));
    busy_s = counters.busy_seconds();
    quiet_s = counters.idle_seconds();
  }
};

class Profiler {
 public:
  Profiler(const ClusterClient& client, const control::v1::ClusterStatus& status)
      : client_(client), status_(status), meters_(static_cast<size_t>(status.configs_size())) {
    for (const control::v1::IslandConfig& config : status.configs()) {
      for (int worker = 0; worker < config.workers_size(); ++worker)
        cores_.push_back({config.island(), static_cast<uint32_t>(worker)});
    }
  }

  // An island that does not answer, or begins anew, is left out of this look, and named.
  void Look() {
    std::vector<uint32_t> all(meters_.size());
    std::iota(all.begin(), all.end(), 0u);
    control::v1::Request request;
    request.mutable_snapshot();
    const std::vector<ClusterClient::Reply> replies = client_.CallIslands(all, request, kLookTimeoutMs);
    for (size_t island = 0; island < replies.size(); ++island) {
      if (!replies[island].ok() || !replies[island]->has_snapshot()) {
        missed_.insert(island);
        continue;
      }
      const control::v1::Snapshot& snapshot = replies[island]->snapshot();
      const IslandMeter::Step step = meters_[island].Observe(snapshot);
      if (step.restarted) missed_.insert(island);
      sums_.Add(step.sums);
      seconds_of_[island] += step.seconds;
      uint32_t number = 0;
      for (const control::v1::WorkerCounters& worker : snapshot.workers()) {
        for (Core& core : cores_) {
          if (core.island == island && core.worker == number) core.Look(worker, step.restarted);
        }
        ++number;
      }
    }
  }
  // How long it was looked at: as long as the island that was there longest says.
  double Seconds() const {
    double most = 0;
    for (const auto& [island, seconds] : seconds_of_) most = std::max(most, seconds);
    return most;
  }
  // That have been away, in words; empty: all have been there.
  std::string Missed() const {
    return missed_.empty() ? ""
                           : fmt::format("island {} did not answer, or began anew, during a part of this",
                                         fmt::join(missed_, ", "));
  }

  json Json() const {
    json document = {{"deployment", status_.deployment()},
                     {"layout", status_.layout()},
                     {"seconds", std::round(Seconds() * 1000) / 1000},
                     {"committed", sums_.committed()},
                     {"aborted", sums_.aborted()},
                     {"missed_islands", missed_}};
    document.update(ProfileJson(sums_));
    document["cores"] = json::array();
    for (const Core& core : cores_) {
      json busy = json::array();
      for (const double share : core.busy_shares) busy.push_back(std::round(share * 1000) / 1000);
      document["cores"].push_back({{"island", core.island}, {"worker", core.worker}, {"busy", busy}});
    }
    return document;
  }

  std::string Text() const {
    std::string text = fmt::format(
        "{}, {}: {:.1f} s, {} committed = {}/s\n\n", status_.deployment(), status_.layout(), Seconds(),
        Grouped(sums_.committed()),
        Grouped(
            static_cast<uint64_t>(Seconds() > 0 ? static_cast<double>(sums_.committed()) / Seconds() : 0)));
    return text + ProfileText(sums_) + "\n" + CoresText();
  }

 private:
  std::string CoresText() const {
    TextTable table;
    table.AddColumn("island", TextTable::Align::kRight);
    table.AddColumn("worker", TextTable::Align::kRight);
    table.AddColumn("busy", TextTable::Align::kRight);
    table.AddColumn("from second to second, in %");
    for (const Core& core : cores_) {
      const std::vector<double>& shares = core.busy_shares;
      const double mean = shares.empty() ? 0
                                         : std::accumulate(shares.begin(), shares.end(), 0.0) /
                                               static_cast<double>(shares.size());
      std::string series;
      constexpr size_t kMostColumns = 20;
      for (size_t i = 0; i < std::min(shares.size(), kMostColumns); ++i)
        series += fmt::format("{:>4.0f}", 100 * shares[i]);
      if (shares.size() > kMostColumns) series += " ...";
      table.AddRow({fmt::format("{}", core.island), fmt::format("{}", core.worker),
                    fmt::format("{:.0f} %", 100 * mean), series});
    }
    return table.Render();
  }

  const ClusterClient& client_;
  const control::v1::ClusterStatus& status_;
  std::vector<IslandMeter> meters_;
  std::vector<Core> cores_;
  Sums sums_;
  std::map<size_t, double> seconds_of_;  // of each island, by its clock: without those of its restarts
  std::set<size_t> missed_;
};

int ShowProfile(const CommandContext& context, const ProfileOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  const ClusterClient client(*files);
  const absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kLookTimeoutMs);
  if (!status.ok()) return Fail(context, status.status());
  Profiler profiler(client, *status);
  Interrupts interrupts;
  bool interrupted = false;  // what is known by then is shown
  {
    TerminalLine line(TerminalLine::End::kGoes);
    for (double left_s = options.seconds;; left_s -= kLookEveryS) {
      profiler.Look();
      if (left_s <= 0 || interrupted) break;
      line.Show(fmt::format("{:.0f} s to go", left_s));
      const auto wait_ms = static_cast<int64_t>(1000 * std::min(left_s, kLookEveryS));
      interrupted = interrupts.Sleep(wait_ms) == Interrupts::Wake::kInterrupted;
    }
  }
  if (context.json()) {
    PrintJson(profiler.Json());
  } else {
    fmt::print("{}", profiler.Text());
  }
  if (!profiler.Missed().empty()) fmt::print(stderr, "islands: {}\n", profiler.Missed());
  if (interrupted) return kExitInterrupted;
  return profiler.Missed().empty() ? kExitOk : kExitFailed;
}

}  // namespace

void AddProfileCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("profile", "Show where the time of cores and transactions goes, over some seconds");
  auto options = std::make_shared<ProfileOptions>();
  AddDeploymentFile(command, &options->file);
  command->add_option("--seconds", options->seconds, "For so long")
      ->check(CLI::Range(kLeastSeconds, kMostSeconds))
      ->check([](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "found nan, expected a number" : "";
      })
      ->capture_default_str();
  command->footer(
      "Start a load first (`islands run`, or clients of the gateway). Always measured, at a cost of about 1 "
      "%;\n"
      "`islands run` has the same for its measured time under `profile` in summary.json.");
  OnCommand(command, context, [&context, options] { return ShowProfile(context, *options); });
}

}  // namespace islands::deploy
