#include "instance/server/control_service.h"

#include "instance/messaging/control_channel.h"

namespace islands::server {
namespace {

// Every transaction ends by its own deadline; the run is over a little later.
constexpr int64_t kStopTimeoutNs = 20 * runtime::kNsPerSecond;

}  // namespace

control::v1::Reply ControlService::Handle(const control::v1::Request& request) {
  using control::v1::Request;
  control::v1::Reply reply;
  switch (request.kind_case()) {
    case Request::kStatus:
      *reply.mutable_island_status() = island_.Status();
      reply.mutable_island_status()->set_metrics_problem(metrics_problem_);
      return reply;
    case Request::kLoad:
      return messaging::ErrorReply(island_.Load(request.load().load(), request.load().generation()));
    case Request::kSwitch:
      return messaging::ErrorReply(island_.Switch(request.switch_().generation()));
    case Request::kStartRun:
      return messaging::ErrorReply(island_.StartRun(request.start_run()));
    case Request::kStopRun:
      return messaging::ErrorReply(island_.StopRun(request.stop_run().run_id(), kStopTimeoutNs));
    case Request::kSnapshot:
      *reply.mutable_snapshot() = island_.TakeSnapshot();
      return reply;
    case Request::kAudit: {
      absl::StatusOr<control::v1::AuditReply> audit = island_.Audit(request.audit());
      if (!audit.ok()) return messaging::ErrorReply(audit.status());
      *reply.mutable_audit() = *std::move(audit);
      return reply;
    }
    case Request::kShutdown:
      shut_down_();
      return reply;
    case Request::KIND_NOT_SET:
      break;
  }
  return messaging::ErrorReply(absl::UnimplementedError("an island does not know this request"));
}

}  // namespace islands::server
