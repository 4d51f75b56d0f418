#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/report.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/registry.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStatusTimeoutMs = 2'000;  // above what a supervisor waits for its islands

// Of one that is alive and this user's.
std::string AskForState(const Registered& entry) {
  const ControlFiles files{entry.claim.control_directory};
  const bool there = runtime::CheckPrivateDirectory(files.directory).ok();
  const auto holder = there ? LockHolder(files.SupervisorLock()) : std::nullopt;
  if (!holder.ok() || *holder != entry.pid) return "cut_off";
  const auto status = ClusterClient(files).Status(kStatusTimeoutMs);
  if (!status.ok()) return "silent";
  if (status->stopping()) return "stopping";
  size_t ready = 0, starting = 0;
  for (const control::v1::IslandStatus& island : status->islands()) {
    ready += StateName(island) == StateName(control::v1::READY);
    starting += island.state() == control::v1::STARTING && island.restarts() == 0;
  }
  const size_t islands = status->islands_size();
  if (ready == islands) return AllWork(*status) ? "up" : "degraded";
  return ready + starting == islands ? "starting" : "degraded";
}

std::string StateOf(const Registered& entry) {
  if (!entry.alive) return "gone";
  // Another user's socket is not dialled; nor can a process be asked that is not seen from here.
  return entry.owner == geteuid() && entry.pid > 0 ? AskForState(entry) : "alive";
}

// Of all at the same time: each may take its while.
std::vector<std::string> StatesOf(const std::vector<Registered>& entries) {
  std::vector<std::string> states(entries.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].owner != geteuid() || !entries[i].alive) {
      states[i] = StateOf(entries[i]);
    } else {
      threads.emplace_back([&, i] { states[i] = StateOf(entries[i]); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return states;
}

std::string Since(const Claim& claim) {
  // What somebody else has written may be no time at all.
  constexpr int64_t kYear10000 = 253'402'300'800;
  if (claim.since_s < 0 || claim.since_s >= kYear10000) return "?";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<time_t>(claim.since_s)));
}

std::string Text(const std::vector<Registered>& entries) {
  if (entries.empty())
    return fmt::format("no deployments {}are up\n",
                       geteuid() == 0 ? "" : fmt::format("of {} ", runtime::UserName(geteuid())));
  TextTable table;
  for (const char* title : {"name", "state"}) table.AddColumn(title);
  for (const char* title : {"islands", "supervisor"}) table.AddColumn(title, TextTable::Align::kRight);
  for (const char* title : {"user", "since", "control directory", "file"}) table.AddColumn(title);
  const std::vector<std::string> states = StatesOf(entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Registered& entry = entries[i];
    const Claim& claim = entry.claim;
    table.AddRow({OneLine(claim.name), states[i], std::to_string(claim.islands),
                  entry.pid > 0 ? std::to_string(entry.pid) : "-", runtime::UserName(entry.owner),
                  Since(claim), OneLine(claim.control_directory), OneLine(claim.file)});
  }
  return table.Render();
}

nlohmann::ordered_json Json(const std::vector<Registered>& entries) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const std::vector<std::string> states = StatesOf(entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Registered& entry = entries[i];
    const Claim& claim = entry.claim;
    list.push_back({{"name", claim.name},
                    {"state", states[i]},
                    {"islands", claim.islands},
                    {"pid", entry.pid > 0 ? nlohmann::ordered_json(entry.pid) : nlohmann::ordered_json()},
                    {"user", runtime::UserName(entry.owner)},
                    {"uid", entry.owner},
                    {"since", Since(claim)},
                    {"control_directory", claim.control_directory},
                    {"file", claim.file}});
  }
  return {{"deployments", list}};
}

}  // namespace

int ListDeployments(const CommandContext& context) {
  const Registry registry = ReadRegistry();
  if (registry.entries.empty() && !registry.problems.empty()) return Fail(context, registry.problems[0]);
  if (context.json()) {
    PrintJson(Json(registry.entries));
  } else {
    fmt::print("{}", Text(registry.entries));
  }
  for (const Registered& entry : registry.entries) Sweep(entry);  // those that are gone
  for (const absl::Status& problem : registry.problems)
    fmt::print(stderr, "islands: there may be others: {}\n", std::string(problem.message()));
  return registry.problems.empty() ? kExitOk : kExitFailed;
}

}  // namespace islands::deploy
