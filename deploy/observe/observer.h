// What `--observe` runs beside clusters: a Prometheus on loopback that finds its targets in files, and what
// the Grafana of this machine needs to show it (dashboards/README.md).
//
// Files below ObserverOptions::directory: targets/DEPLOYMENT.json, which the supervisor of each cluster
// writes (file_sd: Prometheus notices); prometheus.yml and rules.yml, copied from dashboards/ at every
// start; prometheus/, its database, kept until `destroy`; prometheus.log; LOCK, held while a Prometheus may
// run.
//
// Clusters run on whatever happens here: a missing program or a port in use is a note for people, no error.
//
// Thread safety: Describe may be called from any thread; the rest belongs to the main thread (Spawn's rule).
//
// Invariants:
//  1. A Prometheus is signalled by its pid only, and only while it has not been reaped.
//  2. After Stop, no Prometheus started here is alive; it dies with this process, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/restart.h"
#include "proto/control.pb.h"
#include "runtime/mutex.h"

namespace islands::deploy {

inline constexpr uint16_t kPrometheusPort = 9090;
inline constexpr const char* kObserveFolder = "observe";  // below the data directory

struct ObserverOptions {
  std::string directory;   // absolute
  std::string dashboards;  // absolute: rules, dashboards, what Grafana is told
  std::string tools = {};  // where else than in PATH the program may be
  uint16_t port = kPrometheusPort;
  std::vector<uint32_t> cpus = {};  // where Prometheus may run; empty: anywhere
  RestartLimits restarts = {.budget = 3};

  std::string Targets() const { return directory + "/targets"; }
  std::string Log() const { return directory + "/prometheus.log"; }
};

class Observer {
 public:
  explicit Observer(ObserverOptions options);
  ~Observer() { Stop(); }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  void Start();
  // To be called again and again: notices that Prometheus is ready or gone, and restarts it.
  void Step();
  // Prometheus answers, or will not within a time that a person waits.
  bool settled() const { return state_ != State::kStarting; }
  // It does not run, and will not.
  bool gone() const { return state_ == State::kGone; }
  // Asks Prometheus to end, kills it when it does not, returns when it is gone.
  void Stop();
  control::v1::Observation Describe() const;

 private:
  // kSlow: still starting, but nobody waits any more. kLost: to be restarted at restart_at_ms_.
  enum class State { kStarting, kReady, kSlow, kLost, kGone };

  std::string Url() const;
  absl::Status Prepare();
  absl::Status Launch();
  void OnExit(int wait_status);
  void GiveUp(const std::string& why);
  void SetState(State state, std::string prometheus_note);

  const ObserverOptions options_;
  RestartPolicy policy_;
  std::string program_;
  std::optional<FileLock> lock_;  // of the directory: Prometheus itself takes none
  State state_ = State::kGone;
  bool was_ready_ = false;
  pid_t pid_ = 0;  // 0: no process
  int64_t started_ms_ = 0;
  int64_t restart_at_ms_ = 0;
  uint64_t log_begin_ = 0;

  mutable runtime::Mutex mutex_;
  control::v1::Observation described_ ABSL_GUARDED_BY(mutex_);  // without notes
  std::string prometheus_note_ ABSL_GUARDED_BY(mutex_);         // why it does not run, if so
  std::string grafana_note_ ABSL_GUARDED_BY(mutex_);
};

// Targets of one deployment for Prometheus, in folder/NAME.json, replaced in one step; the control directory
// remembers where. The job is islands-NAME; the labels island and gateway are for `up`, which Prometheus
// itself makes. The port of the gateway is 0 where there is none to read.
// ALREADY_EXISTS: they are there for another deployment of that name, which is up.
absl::Status WriteTargets(const std::string& folder, const std::string& deployment,
                          const std::string& control_directory,
                          const std::vector<control::v1::IslandConfig>& configs,
                          uint32_t gateway_metrics_port = 0);
// Takes back what was written for this control directory: Prometheus forgets the islands, and no alert fires
// for them. After a clean stop by the supervisor, after a crash by `down` and `destroy`.
void RemoveTargets(const std::string& control_directory);

// Where the Grafana of this machine looks at its start: $GF_PATHS_PROVISIONING, or its package's folder.
// Empty: there is none.
std::string FindGrafanaProvisioning();
// Puts data source and dashboards there. What to tell the user, in one line.
std::string ProvisionGrafana(const std::string& provisioning, const std::string& dashboards,
                             const std::string& prometheus_url);

}  // namespace islands::deploy
