// What commands need to talk to a running cluster: calls to the supervisor and to many islands at once.
//
// Thread safety: ClusterClient is immutable and may be shared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/processes/control_files.h"
#include "proto/control.pb.h"

namespace islands::deploy {

class ClusterClient {
 public:
  using Reply = absl::StatusOr<control::v1::Reply>;

  explicit ClusterClient(ControlFiles files) : files_(std::move(files)) {}

  const ControlFiles& files() const { return files_; }
  // UNAVAILABLE with a user's words when it is not up, FAILED_PRECONDITION when another deployment is.
  absl::StatusOr<control::v1::ClusterStatus> Status(int64_t timeout_ms) const;
  // The last deployment here, if it was not taken down; empty: it was, or was killed.
  std::string WhyEnded() const;
  Reply CallSupervisor(const control::v1::Request& request, int64_t timeout_ms) const;
  Reply CallIsland(uint32_t island, const control::v1::Request& request, int64_t timeout_ms) const;
  // The same request to every island of `islands`, in parallel; replies in that order. Of several, an error
  // names its island.
  std::vector<Reply> CallIslands(const std::vector<uint32_t>& islands, const control::v1::Request& request,
                                 int64_t timeout_ms) const;
  // Whether all of `islands` could load this; nothing is loaded. While one answers ABORTED, since
  // transactions of a run that has just ended are not settled yet, it is asked again, for a few seconds.
  absl::Status MayLoad(const std::vector<uint32_t>& islands, const control::v1::LoadSpec& load,
                       int64_t timeout_ms) const;

 private:
  ControlFiles files_;
};

// The first thing that went wrong, if anything did.
absl::Status FirstError(const std::vector<ClusterClient::Reply>& replies);

}  // namespace islands::deploy
