#include <fmt/format.h>

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

namespace islands::deploy {
namespace {

struct Outcome {
  bool changed = false;
  storage::Manifest have, want;  // of the latter sites and islands
  uint64_t bytes = 0;            // of the files of before
  Rewritten rewritten = {};      // no rows: nothing was copied
};

std::string Plural(uint64_t n, const char* one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); }

std::string CutOf(const storage::Manifest& manifest) {
  return fmt::format("{} over {}", Plural(manifest.islands, "island"), Plural(manifest.sites, "site"));
}

nlohmann::ordered_json ToJson(const Outcome& outcome, bool dry_run) {
  const auto cut = [](const storage::Manifest& manifest) {
    return nlohmann::ordered_json{{"islands", manifest.islands}, {"sites", manifest.sites}};
  };
  nlohmann::ordered_json json{{"changed", outcome.changed},
                              {"dry_run", dry_run},
                              {"from", cut(outcome.have)},
                              {"to", cut(outcome.want)},
                              {"bytes", outcome.bytes},
                              {"rows", outcome.rewritten.rows},
                              {"seconds", outcome.rewritten.seconds}};
  return json;
}

void Print(const std::string& name, const Outcome& outcome, bool dry_run) {
  const std::vector<uint64_t>& rows = outcome.rewritten.rows;
  if (!outcome.changed && !dry_run) {
    fmt::print("{}: the data has {} already, nothing to do\n", name, CutOf(outcome.want));
  } else if (dry_run) {
    fmt::print("{}: would cut {} MiB of {} into {}; as much room is needed beside them until it is done\n",
               name, outcome.bytes >> 20, CutOf(outcome.have), CutOf(outcome.want));
  } else {
    fmt::print("{}: {} are now {}, in {:.1f} s\n", name, CutOf(outcome.have), CutOf(outcome.want),
               outcome.rewritten.seconds);
    for (size_t island = 0; island < rows.size(); ++island)
      fmt::print("island {}: {} rows\n", island, rows[island]);
  }
}

absl::StatusOr<Outcome> Recut(const ResolvedDeployment& resolved, runtime::FileSystem& disk, bool dry_run) {
  Rewrite rewrite(resolved, disk, "relayout");
  const absl::StatusOr<storage::Manifest> have = rewrite.Load(/*finishes=*/!dry_run);
  if (!have.ok()) return have.status();
  Outcome outcome{.have = *have, .want = WantedManifest(resolved)};
  if (have->data_generation == 0 ||
      (have->sites == outcome.want.sites && have->islands == outcome.want.islands))
    return outcome;
  const std::vector<uint64_t> bytes = rewrite.BytesOf(*have);
  outcome.bytes = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  if (absl::Status ready = rewrite.Check(*have); !ready.ok()) return ready;
  if (dry_run) return outcome;
  absl::StatusOr<Rewritten> done = rewrite.Run(*have, [] { return absl::OkStatus(); });
  if (!done.ok()) return done.status();
  outcome.changed = true;
  outcome.rewritten = *std::move(done);
  return outcome;
}

}  // namespace

int Relayout(const CommandContext& context, const RelayoutOptions& options) {
  const absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<StoppedLocks> locks = LockStopped(*resolved, *files, *disk, "islands relayout");
  if (!locks.ok()) return Fail(context, locks.status());
  const absl::StatusOr<Outcome> outcome = Recut(*resolved, *disk, context.dry_run);
  if (!outcome.ok()) return Fail(context, outcome.status());
  context.json() ? PrintJson(ToJson(*outcome, context.dry_run))
                 : Print(resolved->deployment.name, *outcome, context.dry_run);
  return kExitOk;
}

}  // namespace islands::deploy
