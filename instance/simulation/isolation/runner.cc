#include "instance/simulation/isolation/runner.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

#include "instance/simulation/isolation/session.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation::isolation {
namespace {

using runtime::kNsPerMs;
using runtime::kNsPerSecond;
using runtime::kNsPerUs;

constexpr int64_t kLookNs = 100 * kNsPerUs;
// All that waits is over by then: lock timeouts, the transactions' deadlines.
constexpr int64_t kEndNs = 10 * kNsPerSecond;

// One run.
class Driver {
 public:
  Driver(const Scenario& scenario, const Arrangement& arrangement)
      : scenario_(scenario), stage_(scenario, arrangement) {
    seen_.sessions.resize(scenario.sessions);
    SimOptions options;
    options.islands = kIslands;
    options.sites = kSites;
    options.workers = arrangement.workers;
    options.seed = arrangement.seed;
    *options.config.add_tables() = RowsTable(scenario);
    options.open = [this](const storage::Catalog& catalog) { return OpenSessions(catalog, stage_); };
    cluster_ = std::make_unique<SimCluster>(std::move(options));
  }

  Observation Run() {
    if (absl::Status status = Start(); !status.ok()) {
      seen_.steps = stage_.steps;
      seen_.amiss = std::string(status.message());
      return seen_;
    }
    for (uint32_t step = 0; step < scenario_.steps.size(); ++step) {
      Play(step);
      NoteEnds(step);
    }
    const auto all_over = [this] {
      for (const Stage::Session& session : stage_.sessions) {
        if (session.end == End::kNever) return false;
      }
      return true;
    };
    (void)RunUntil(all_over, kEndNs);
    NoteEnds(static_cast<uint32_t>(scenario_.steps.size()));
    Close();
    return seen_;
  }

 private:
  absl::Status Start() {
    if (absl::Status status = cluster_->Start(); !status.ok()) return status;
    for (uint32_t island = 0; island < kDataIslands; ++island) {
      control::v1::StartRun request;
      request.set_mpl(scenario_.sessions);
      request.set_seed(stage_.arrangement.seed);
      if (absl::Status status = cluster_->island(island).StartRun(request); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  template <typename Predicate>
  bool RunUntil(const Predicate& predicate, int64_t limit_ns) {
    for (const int64_t until_ns = cluster_->NowNs() + limit_ns; !predicate();) {
      if (cluster_->NowNs() >= until_ns) return false;
      cluster_->RunFor(kLookNs);
    }
    return true;
  }

  void Play(uint32_t number) {
    Stage::Session& session = stage_.sessions[scenario_.steps[number].session];
    if (session.dead) return;
    session.posted.push_back(number);
    const bool behind = session.posted.size() - session.next > 1;
    const Verb verb = scenario_.steps[number].verb;
    const bool ends = verb == Verb::kCommit || verb == Verb::kAbort;
    const auto returned = [&] {
      return ends ? session.end != End::kNever : session.dead || stage_.steps[number].done;
    };
    const bool blocked = !RunUntil(returned, behind ? kNsPerMs : kBlockedNs);
    stage_.steps[number].blocked = blocked && !behind;
  }

  // Whose end has become known by now, and how.
  void NoteEnds(uint32_t step) {
    for (const Stage::Session& session : stage_.sessions) {
      Observation::SessionSeen& seen = seen_.sessions[session.number];
      if (session.end == End::kNever || seen.end != End::kNever) continue;
      seen = {session.end, session.why, step};
      const bool told =
          session.next != 0 && scenario_.steps[session.posted[session.next - 1]].verb == Verb::kAbort;
      if (seen.end == End::kAborted && seen.why.empty() && !told) seen.why = "its commit was refused";
    }
  }

  void Close() {
    stage_.closing = true;
    const bool drained = cluster_->Drain(kEndNs);
    const SimCluster::Totals totals = cluster_->Sum();
    if (!drained || totals.locks_held != 0 || totals.branches_open != 0) {
      seen_.amiss = fmt::format("left over: {} locks held, {} branches open{}", totals.locks_held,
                                totals.branches_open, drained ? "" : ", or a run that does not end");
    }
    if (const uint64_t timeouts = LockTimeouts(); timeouts != 0 && seen_.amiss.empty()) {
      seen_.amiss = fmt::format("{} lock timeouts: a wake-up was lost, or a deadlock not found", timeouts);
    }
    seen_.steps = stage_.steps;
    ReadRows();
  }

  // Lock timeouts are a backstop: no script waits that long for anything.
  uint64_t LockTimeouts() {
    uint64_t timeouts = 0;
    for (uint32_t island = 0; island < kDataIslands; ++island) {
      for (const auto& worker : cluster_->island(island).workers()) {
        const auto reason = static_cast<size_t>(instance::AbortReason::kLockTimeout);
        timeouts += worker->counters().aborts[reason].Get();
      }
    }
    return timeouts;
  }

  void ReadRows() {
    for (uint32_t island = 0; island < kDataIslands; ++island) {
      const partitioner::SiteRun sites = partitioner::SiteMap::Create(kSites, kIslands)->SitesOf(island);
      for (uint32_t site = sites.first; site < sites.first + sites.count; ++site) {
        cluster_->island(island).store().At(0, site)->Scan(
            {}, {}, false, [this](instance::KeyView key, instance::RowView row) {
              uint64_t number = 0;
              for (std::byte byte : key) number = number << 8 | static_cast<uint64_t>(byte);
              int64_t value = 0;
              std::memcpy(&value, row.data(), sizeof(value));
              const uint32_t found = RowOf(stage_.arrangement.placement, number);
              if (found == kRowNames.size()) seen_.amiss = fmt::format("a row with key {}", number);
              if (found != kRowNames.size()) seen_.final_rows[found] = value;
              return true;
            });
      }
    }
  }

  const Scenario& scenario_;
  Stage stage_;
  std::unique_ptr<SimCluster> cluster_;
  Observation seen_;
};

}  // namespace

std::string ScriptResult::Text() const {
  return fmt::format("{:9} {} | {} | {}{}{}", Name(judgement.verdict), file, scenario, Name(arrangement),
                     judgement.detail.empty() ? "" : " | ", judgement.detail);
}

Observation Observe(const Scenario& scenario, const Arrangement& arrangement) {
  return Driver(scenario, arrangement).Run();
}

ScriptResult RunScript(const Scenario& scenario, const Arrangement& arrangement) {
  return {scenario.file, scenario.name, arrangement,
          Judge(scenario, arrangement.placement, Observe(scenario, arrangement))};
}

std::vector<ScriptResult> RunAllScripts(const std::vector<Scenario>& scenarios,
                                        const std::vector<Arrangement>& arrangements,
                                        const std::function<bool(const ScriptResult&)>& each) {
  std::vector<ScriptResult> results;
  for (const Scenario& scenario : scenarios) {
    for (const Arrangement& arrangement : arrangements) {
      results.push_back(RunScript(scenario, arrangement));
      if (each && !each(results.back())) return results;
    }
  }
  return results;
}

}  // namespace islands::simulation::isolation
