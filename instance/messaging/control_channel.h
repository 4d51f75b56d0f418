// The control plane's wire: one request frame, one reply frame, over a Unix-domain stream socket.
//
// Thread safety: ControlCall may be called from any thread; ControlServer's handler is called from its own
// threads, one per connection and at most 16 at a time, and must be thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::messaging {

// Connects, sends, waits for the reply. UNAVAILABLE: nobody listens there (message says so in a user's
// words). DEADLINE_EXCEEDED: no answer in time. A reply with a code other than OK is returned as that Status.
absl::StatusOr<control::v1::Reply> ControlCall(const std::string& socket_path,
                                               const control::v1::Request& request, int64_t timeout_ms);

// A reply that carries just this status.
control::v1::Reply ErrorReply(const absl::Status& status);

class ControlServer {
 public:
  using Handler = std::function<control::v1::Reply(const control::v1::Request&)>;

  // Replaces a stale socket file that nobody listens on; refuses (ALREADY_EXISTS) if somebody does. Only
  // peers of our own uid are served. `cpu` >= 0 pins the server's threads there, best effort.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& socket_path, Handler handler,
                                                              int32_t cpu = -1);
  // Stops listening, lets running handlers finish, removes the socket file.
  ~ControlServer();

 private:
  struct Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace islands::messaging
