// A gRPC server that does nothing but answer islands.client.v1, with responses of the sizes that a gateway
// would send: what gRPC itself costs.
//
// It has what the gateway has of gRPC: the callback API, the same messages, no encryption, a Unix-domain
// socket. It answers a call on the thread that has read it, which no server can do that has to ask somebody.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace islands::experiments {

struct EchoOptions {
  std::string socket;
  uint32_t row_bytes = 250;
};

// Prints "ready" to stdout when it listens, and serves until SIGINT or SIGTERM. It is called before there are
// other threads, which could take the signals.
absl::Status RunEcho(const EchoOptions& options);

}  // namespace islands::experiments
