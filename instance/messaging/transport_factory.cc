#include "instance/messaging/transport_factory.h"

#include <fmt/format.h>

#include "instance/messaging/uds_transport.h"
#include "instance/messaging/zmq_transport.h"

namespace islands::messaging {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const std::string& kind,
                                                         const std::string& directory, Address self) {
  if (kind == "uds") return MakeUdsTransport(directory, self);
  if (kind == "shm") return MakeUdsTransport(directory, self, {}, {.dialled = true, .accepted = true});
  if (kind == "zmq") return MakeZmqTransport(directory, self);
  return absl::InvalidArgumentError(fmt::format("unknown transport '{}': expected shm, uds or zmq", kind));
}

}  // namespace islands::messaging
