#include "deploy/cluster/client.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "deploy/processes/claim.h"
#include "instance/messaging/control_channel.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

// A transaction that waits for an island's next life is over within a second or two.
constexpr std::chrono::seconds kSettleTime{10};
constexpr std::chrono::milliseconds kSettlePoll{50};

}  // namespace

absl::StatusOr<control::v1::ClusterStatus> ClusterClient::Status(int64_t timeout_ms) const {
  control::v1::Request request;
  request.mutable_status();
  Reply reply = CallSupervisor(request, timeout_ms);
  if (!reply.ok()) return reply.status();
  if (!reply->has_cluster_status()) {
    return absl::InternalError(
        fmt::format("{} answered without a status; is it another version?", files_.SupervisorSocket()));
  }
  if (absl::Status ours = CheckWhose(files_); !ours.ok()) return ours;
  return std::move(*reply->mutable_cluster_status());
}

ClusterClient::Reply ClusterClient::CallSupervisor(const control::v1::Request& request,
                                                   int64_t timeout_ms) const {
  Reply reply = messaging::ControlCall(files_.SupervisorSocket(), request, timeout_ms);
  if (absl::IsUnavailable(reply.status())) {
    const std::string why = WhyEnded();
    return absl::UnavailableError(
        fmt::format("not up: no supervisor answers in {}; start it with `islands up FILE`{}",
                    files_.directory, why.empty() ? "" : ". It has ended by itself: " + why));
  }
  return reply;
}

std::string ClusterClient::WhyEnded() const {
  const absl::StatusOr<std::string> why = runtime::ReadPrivateFile(files_.Ended());
  return why.ok() ? *why : "";
}

ClusterClient::Reply ClusterClient::CallIsland(uint32_t island, const control::v1::Request& request,
                                               int64_t timeout_ms) const {
  Reply reply = messaging::ControlCall(files_.IslandSocket(island), request, timeout_ms);
  if (reply.ok()) return reply;
  return absl::Status(reply.status().code(),
                      fmt::format("island {}: {}", island, std::string(reply.status().message())));
}

std::vector<ClusterClient::Reply> ClusterClient::CallIslands(const std::vector<uint32_t>& islands,
                                                             const control::v1::Request& request,
                                                             int64_t timeout_ms) const {
  if (islands.size() == 1)
    return {messaging::ControlCall(files_.IslandSocket(islands[0]), request, timeout_ms)};
  std::vector<Reply> replies(islands.size(), absl::UnknownError("not called"));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < islands.size(); ++i) {
    threads.emplace_back([&, i] { replies[i] = CallIsland(islands[i], request, timeout_ms); });
  }
  if (!islands.empty()) replies[0] = CallIsland(islands[0], request, timeout_ms);
  for (std::thread& thread : threads) thread.join();
  return replies;
}

absl::Status ClusterClient::MayLoad(const std::vector<uint32_t>& islands, const control::v1::LoadSpec& load,
                                    int64_t timeout_ms) const {
  control::v1::Request request;
  *request.mutable_load()->mutable_load() = load;
  request.mutable_load()->set_check_only(true);
  const auto end = std::chrono::steady_clock::now() + kSettleTime;
  while (true) {
    absl::Status may = FirstError(CallIslands(islands, request, timeout_ms));
    if (!absl::IsAborted(may) || std::chrono::steady_clock::now() >= end) return may;
    std::this_thread::sleep_for(kSettlePoll);
  }
}

absl::Status FirstError(const std::vector<ClusterClient::Reply>& replies) {
  for (const ClusterClient::Reply& reply : replies) {
    if (!reply.ok()) return reply.status();
  }
  return absl::OkStatus();
}

}  // namespace islands::deploy
