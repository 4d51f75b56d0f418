#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/rewrite.h"
#include "deploy/cluster/stopped_data.h"
#include "deploy/cluster/supervisor_data.h"
#include "instance/storage/files/file_size.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

using topology::FormatBytes;

struct Outcome {
  bool changed = false;
  std::vector<uint64_t> before, after;  // bytes, by island; empty: no rows have been loaded yet
  uint64_t used = 0;                    // bytes of before, as far as can be seen without the log
  uint64_t available = 0;               // bytes on the disk
  Rewritten rewritten = {};
};

uint64_t Sum(const std::vector<uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

nlohmann::ordered_json ToJson(const Outcome& outcome, bool dry_run) {
  nlohmann::ordered_json islands = nlohmann::ordered_json::array();
  for (size_t island = 0; island < outcome.before.size(); ++island) {
    nlohmann::ordered_json one{{"island", island}, {"bytes_before", outcome.before[island]}};
    if (!dry_run) one["bytes_after"] = outcome.after[island];
    islands.push_back(std::move(one));
  }
  return {{"changed", outcome.changed},          {"dry_run", dry_run},
          {"bytes_used", outcome.used},          {"bytes_available", outcome.available},
          {"islands", std::move(islands)},       {"rows", outcome.rewritten.rows},
          {"seconds", outcome.rewritten.seconds}};
}

void Print(const std::string& name, const Outcome& outcome, bool dry_run) {
  const std::string before = FormatBytes(Sum(outcome.before));
  if (outcome.before.empty()) {
    fmt::print("{}: no rows have been loaded yet that outlive their islands, nothing to do\n", name);
  } else if (dry_run) {
    fmt::print(
        "{}: would write anew about {} of {}; that much room is needed beside them until it is done, and "
        "there is {}\n",
        name, FormatBytes(outcome.used), before, FormatBytes(outcome.available));
  } else if (!outcome.changed) {
    fmt::print("{}: {}, and its rows need as much: all is as it was\n", name, before);
  } else {
    fmt::print("{}: {} instead of {}, in {:.1f} s\n", name, FormatBytes(Sum(outcome.after)), before,
               outcome.rewritten.seconds);
  }
  for (size_t island = 0; !dry_run && island < outcome.before.size(); ++island) {
    fmt::print("island {}: {} bytes before, {} bytes after\n", island, outcome.before[island],
               outcome.after[island]);
  }
}

class CompactRun {
 public:
  CompactRun(const ResolvedDeployment& resolved, runtime::FileSystem& disk)
      : resolved_(resolved), disk_(disk), rewrite_(resolved, disk, "compact") {}

  absl::StatusOr<Outcome> Run(bool dry_run) {
    const absl::StatusOr<storage::Manifest> have = rewrite_.Load(/*finishes=*/!dry_run);
    if (!have.ok()) return have.status();
    Outcome outcome;
    if (have->data_generation == 0) return outcome;
    absl::Status ready = CheckCut(*have);
    if (ready.ok()) ready = rewrite_.Check(*have);
    if (ready.ok()) ready = LookAtRoom(*have, &outcome);
    if (!ready.ok()) return ready;
    outcome.before = outcome.after = rewrite_.BytesOf(*have);
    if (dry_run) return outcome;
    absl::Status made = CheckRoom(outcome);
    if (made.ok()) made = Write(*have, &outcome);
    if (!made.ok()) return made;
    return outcome;
  }

 private:
  absl::Status CheckCut(const storage::Manifest& have) const {
    const storage::Manifest want = WantedManifest(resolved_);
    if (have.sites == want.sites && have.islands == want.islands) return absl::OkStatus();
    return absl::FailedPreconditionError(fmt::format(
        "the data has {} islands over {} sites, and the file {} over {}: `islands relayout` cuts it so, and "
        "makes it as small as `islands compact` would",
        have.islands, have.sites, want.islands, want.sites));
  }

  absl::Status LookAtRoom(const storage::Manifest& have, Outcome* outcome) {
    for (uint32_t island = 0; island < have.islands; ++island) {
      const std::string directory = fmt::format("{}/island-{}", resolved_.data_directory, island);
      const auto used = storage::UsedBytesOfSites(disk_, directory, have.data_generation);
      outcome->used += used.value_or(0);  // or who reads it all says what is wrong
    }
    std::error_code error;
    outcome->available = std::filesystem::space(resolved_.data_directory, error).available;
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(fmt::format("cannot ask how much room there is for {}: {}",
                                              resolved_.data_directory, error.message()));
  }
  absl::Status CheckRoom(const Outcome& outcome) const {
    if (outcome.used <= outcome.available) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        fmt::format("{}: there is room for {}, and about {} are to be written beside what is there; make "
                    "room, all is as it was",
                    resolved_.data_directory, FormatBytes(outcome.available), FormatBytes(outcome.used)));
  }

  absl::Status Write(const storage::Manifest& have, Outcome* outcome) {
    bool smaller = true;
    const auto is_smaller = [&]() -> absl::Status {
      storage::Manifest next = have;
      ++next.data_generation;
      std::vector<uint64_t> after = rewrite_.BytesOf(next);
      smaller = Sum(after) < Sum(outcome->before);
      if (!smaller) return absl::AlreadyExistsError("they are as small as they can be");
      outcome->after = std::move(after);
      return absl::OkStatus();
    };
    absl::StatusOr<Rewritten> done = rewrite_.Run(have, is_smaller);
    if (!smaller) return absl::OkStatus();
    if (!done.ok()) return done.status();
    outcome->changed = true;
    outcome->rewritten = *std::move(done);
    return absl::OkStatus();
  }

  const ResolvedDeployment& resolved_;
  runtime::FileSystem& disk_;
  Rewrite rewrite_;
};

}  // namespace

int Compact(const CommandContext& context, const CompactOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<StoppedLocks> locks = LockStopped(*resolved, *files, *disk, "islands compact");
  if (!locks.ok()) return Fail(context, locks.status());
  const absl::StatusOr<Outcome> outcome = CompactRun(*resolved, *disk).Run(context.dry_run);
  if (!outcome.ok()) return Fail(context, outcome.status());
  context.json() ? PrintJson(ToJson(*outcome, context.dry_run))
                 : Print(resolved->deployment.name, *outcome, context.dry_run);
  return kExitOk;
}

}  // namespace islands::deploy
