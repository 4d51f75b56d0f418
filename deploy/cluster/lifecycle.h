// The commands that start, show and end a deployment: up, status, logs, txn, ps, restart, apply, down,
// verify, relayout, compact, destroy, and the hidden supervise.
//
// Thread safety: main thread only. Each returns the command's exit code and writes its own output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/observe/observer.h"

namespace islands::deploy {

struct UpOptions {
  std::string file;
  double timeout_s = 60;
  uint32_t restarts = 10;  // of one island within a minute, before it is given up
  bool observe = false;    // start Prometheus, tell Grafana
  uint16_t prometheus_port = kPrometheusPort;
  std::string targets;  // folder for Prometheus' targets, for one that is not ours; excludes observe
};
// Starts the supervisor and waits until every island is ready. On failure, timeout or interrupt nothing is
// left running.
int Up(const CommandContext& context, const UpOptions& options);

struct StatusOptions {
  std::string file;
  bool diff = false;  // only where the file differs from what runs; kExitFindings: somewhere
};
int Status(const CommandContext& context, const StatusOptions& options);

struct LogsOptions {
  std::string deployment;         // what FindDownTarget takes
  std::string source;             // supervisor, logger, gateway, an island's number; empty: all
  std::optional<uint64_t> lines;  // of the end, of all together; none: all, and the last few with `follow`
  bool follow = false;
};
// Shows what processes of a deployment say, up or not; with `follow` until it ends or somebody interrupts.
int Logs(const CommandContext& context, const LogsOptions& options);

struct TxnOptions {
  std::string file;
  bool in_doubt = false;
};
// Shows the open transactions of all islands that answer, and says which do not.
int ListTransactions(const CommandContext& context, const TxnOptions& options);

// Shows the deployments of this user that are up (root: everybody's), and once those that have died.
int ListDeployments(const CommandContext& context);

struct RestartOptions {
  std::string file;
  std::vector<uint32_t> islands;  // empty: all
  bool yes = false;               // also with durability `none`, which loses rows
  double timeout_s = 60;          // for each
};
// Ends islands in good order, one after the other, and waits for each until the supervisor has it ready again
// and connected. Stops at the first that is not. Refused while any island is not ready.
int RestartIslands(const CommandContext& context, const RestartOptions& options);

struct ApplyOptions {
  std::string file;
  bool yes = false;       // as of RestartOptions
  double timeout_s = 60;  // for each island
};
// Brings what may change while a deployment is up to what its file says now: the supervisor first, then
// island after island, as they restart. INVALID_ARGUMENT: something else differs; then nothing changes.
int Apply(const CommandContext& context, const ApplyOptions& options);

struct DownOptions {
  std::string deployment;  // what FindDownTarget takes
  double timeout_s = 30;
};
// Waits until every process is gone, also those whose supervisor has died. Nothing running is success, but
// for data that is in use by another deployment.
int Down(const CommandContext& context, const DownOptions& options);

struct DestroyOptions {
  std::string file;
  bool yes = false;
};
// Removes what Islands itself put into the data, log and control directories. Refused while anything runs.
int Destroy(const CommandContext& context, const DestroyOptions& options);

struct VerifyOptions {
  std::string file;
};
inline constexpr int kExitFindings = 3;
// Walks what a stopped deployment keeps, and says what is not sound. kExitOk: nothing; kExitFindings;
// anything else: it could not look.
int Verify(const CommandContext& context, const VerifyOptions& options);

struct RelayoutOptions {
  std::string file;
};
// Cuts the rows of a stopped deployment as the file says now: other islands, other sites. All of it is as
// before until one step at the end, whatever happens.
int Relayout(const CommandContext& context, const RelayoutOptions& options);

struct CompactOptions {
  std::string file;
};
// Makes the data files of a stopped deployment as small as its rows need. Likewise.
int Compact(const CommandContext& context, const CompactOptions& options);

struct SuperviseOptions {
  std::string file;
  int report_fd = -1;
  uint32_t restarts = 10;
  bool observe = false;
  uint16_t prometheus_port = kPrometheusPort;
  std::string targets;
};
int SuperviseFile(const CommandContext& context, const SuperviseOptions& options);

}  // namespace islands::deploy
