#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "deploy/cli/output.h"
#include "deploy/cluster/data_walk.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/stopped_data.h"
#include "deploy/processes/interrupts.h"

namespace islands::deploy {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};

absl::StatusOr<verify::Report> LookPatiently(const ResolvedDeployment& resolved, runtime::FileSystem& disk) {
  const int64_t until_ms = MonotonicMs() + kStoppedPatienceMs;
  for (;;) {
    absl::StatusOr<verify::Report> report = WalkData(resolved, disk);
    if (!absl::IsUnavailable(report.status()) || MonotonicMs() >= until_ms) return report;
    std::this_thread::sleep_for(kPollInterval);
  }
}

nlohmann::ordered_json ToJson(const verify::Report& report) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array(), islands = findings;
  for (const verify::Finding& finding : report.findings)
    findings.push_back({{"path", finding.path}, {"text", finding.text}});
  for (const verify::IslandFigures& island : report.islands) {
    islands.push_back({{"island", island.island},
                       {"pages", island.pages},
                       {"records", island.records},
                       {"dropped", island.dropped},
                       {"undone", island.undone},
                       {"in_doubt", island.in_doubt},
                       {"decisions", island.decisions}});
  }
  return {{"sound", report.sound()}, {"findings", findings}, {"notes", report.notes}, {"islands", islands}};
}

void Print(const verify::Report& report) {
  for (const verify::IslandFigures& island : report.islands) {
    fmt::print(
        "island {}: {} pages of 4 KiB, {} records of the log and {} that cuts drop; transactions: {} undone, "
        "{} in doubt, {} decided that not all have heard of\n",
        island.island, island.pages, island.records, island.dropped, island.undone, island.in_doubt,
        island.decisions);
  }
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  for (const verify::Finding& finding : report.findings) fmt::print("finding: {}\n", finding.text);
  if (report.sound()) fmt::print("sound\n");
}

}  // namespace

int Verify(const CommandContext& context, const VerifyOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<StoppedLocks> lock = LockStopped(*resolved, *files, *disk, "islands verify");
  if (!lock.ok()) return Fail(context, lock.status());
  const absl::StatusOr<verify::Report> report = LookPatiently(*resolved, *disk);
  if (!report.ok()) return Fail(context, report.status());
  context.json() ? PrintJson(ToJson(*report)) : Print(*report);
  return report->sound() ? kExitOk : kExitFindings;
}

}  // namespace islands::deploy
