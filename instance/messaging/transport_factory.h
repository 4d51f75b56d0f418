// From a deployment file's `messaging.transport` to a Transport.
//
// Thread safety: any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/messaging/transport.h"

namespace islands::messaging {

// `kind` is "shm", "uds" or "zmq". Sockets lie in `directory`, which must exist. INVALID_ARGUMENT: another
// kind, or a directory whose name is too long for a socket path.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const std::string& kind,
                                                         const std::string& directory, Address self);

}  // namespace islands::messaging
