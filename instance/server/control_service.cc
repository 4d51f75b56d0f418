#include "instance/server/control_service.h"

#include <unistd.h>

#include <utility>

#include "instance/messaging/control_channel.h"

namespace islands::server {
namespace {

// Every transaction ends by its own deadline; the run is over a little later.
constexpr int64_t kStopTimeoutNs = 20 * runtime::kNsPerSecond;
// Workers come to their mailboxes thousands of times a second; who asks waits longer than this.
constexpr int64_t kListTimeoutNs = 500 * runtime::kNsPerMs;

}  // namespace

ControlService::ControlService(const control::v1::IslandConfig& config, std::function<void()> shut_down)
    : shut_down_(std::move(shut_down)) {
  const runtime::MutexLock lock(mutex_);
  beginning_.set_island(config.island());
  beginning_.set_pid(getpid());
  beginning_.set_boot_epoch(config.boot_epoch());
  beginning_.set_state(control::v1::STARTING);
}

void ControlService::Say(std::string progress) {
  const runtime::MutexLock lock(mutex_);
  beginning_.set_detail(std::move(progress));
}

void ControlService::Serve(instance::Island& island, std::string metrics_problem) {
  metrics_problem_ = std::move(metrics_problem);
  island_ = &island;
}

control::v1::Reply ControlService::HandleWithoutIsland(const control::v1::Request& request) const {
  control::v1::Reply reply;
  if (request.kind_case() == control::v1::Request::kStatus) {
    const runtime::MutexLock lock(mutex_);
    *reply.mutable_island_status() = beginning_;
    return reply;
  }
  if (request.kind_case() != control::v1::Request::kShutdown)
    return messaging::ErrorReply(absl::UnavailableError("the island is starting; see `islands status`"));
  shut_down_();
  return reply;
}

control::v1::Reply ControlService::Handle(const control::v1::Request& request) {
  using control::v1::Request;
  instance::Island* const there = island_;
  if (there == nullptr) return HandleWithoutIsland(request);
  instance::Island& island = *there;
  control::v1::Reply reply;
  switch (request.kind_case()) {
    case Request::kStatus:
      *reply.mutable_island_status() = island.Status();
      reply.mutable_island_status()->set_metrics_problem(metrics_problem_);
      return reply;
    case Request::kLoad:
      return messaging::ErrorReply(request.load().check_only()
                                       ? island.CheckLoad(request.load().load())
                                       : island.Load(request.load().load(), request.load().generation()));
    case Request::kSwitch:
      return messaging::ErrorReply(island.Switch(request.switch_().generation()));
    case Request::kTables:
      return messaging::ErrorReply(island.ChangeTables(request.tables()));
    case Request::kStartRun:
      return messaging::ErrorReply(island.StartRun(request.start_run()));
    case Request::kStopRun:
      return messaging::ErrorReply(island.StopRun(request.stop_run().run_id(), kStopTimeoutNs));
    case Request::kSnapshot:
      *reply.mutable_snapshot() = island.TakeSnapshot();
      return reply;
    case Request::kAudit: {
      absl::StatusOr<control::v1::AuditReply> audit = island.Audit(request.audit());
      if (!audit.ok()) return messaging::ErrorReply(audit.status());
      *reply.mutable_audit() = *std::move(audit);
      return reply;
    }
    case Request::kTransactions:
      *reply.mutable_transactions() = island.AskTransactions(request.transactions())->Take(kListTimeoutNs);
      return reply;
    case Request::kShutdown:
      shut_down_();
      return reply;
    case Request::kApply:  // supervisors only
    case Request::KIND_NOT_SET:
      break;
  }
  return messaging::ErrorReply(absl::UnimplementedError("an island does not know this request"));
}

}  // namespace islands::server
