// Programs on this machine that speak frames to the gateway, without gRPC: DirectCall and DirectAnswer of
// proto/client.proto, on a socket beside gRPC's. The client libraries do.
//
// gRPC takes several threads of the gateway's for a call, and wakes each of them, whatever the call carries.
// Here the channels' own thread reads it, sends what it asks to an island, and writes the answer
// (channels.h).
//
// Thread safety: made and destroyed on one thread; all else happens on the channels' thread.
//
// Invariants:
//  1. On each connection calls and answers take turns. A client that says anything out of turn, or what is no
//     call, loses its connection.
//  2. A transaction that is open when its connection ends is rolled back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "instance/gateway/admission.h"
#include "instance/gateway/direct_socket.h"
#include "instance/gateway/service.h"
#include "instance/messaging/transport.h"
#include "runtime/mutex.h"

namespace islands::gateway {

class DirectServer final : private messaging::TransportHandler {
 public:
  // The transport of the service's channels listens from now on.
  static absl::StatusOr<std::unique_ptr<DirectServer>> Start(Service& service, Admission& admission,
                                                             uint64_t most_message_bytes);
  // All lose their connections; waits for what islands are carrying out.
  ~DirectServer() override;

 private:
  class Connection;

  DirectServer(Service& service, Admission& admission, uint64_t most_message_bytes);
  void OnAccepted(messaging::ConnectionId id, int64_t peer_uid) override;
  void OnFrame(messaging::ConnectionId id, messaging::FrameType type,
               std::span<const std::byte> payload) override;
  void OnClosed(messaging::ConnectionId id, const absl::Status& why) override;
  void HangUp(messaging::ConnectionId id, const char* why);

  Service& service_;
  Admission& admission_;
  Channels& channels_;
  const uint64_t most_message_bytes_;
  absl::flat_hash_map<messaging::ConnectionId, std::shared_ptr<Connection>> connections_;
  std::string buffer_;

  // Connections that are there, or have a call under way.
  runtime::Mutex mutex_;
  std::condition_variable_any gone_;
  size_t alive_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace islands::gateway
