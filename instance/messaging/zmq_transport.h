// Frames over ZeroMQ (ipc://): for comparing its cost with the default transport.
//
// One ROUTER per worker, bound to ipc://DIR/island-<i>.w<k>.zmq; one DEALER per dialled connection, which
// connects once and is thrown away with the connection. The frames of a round travel as one ZeroMQ message:
// frames laid one after another. Messages of one byte are the transport's own:
//
//   'O'  dialler -> acceptor   open: the first message of a connection
//   'P'  acceptor -> dialler   probe: sent only to learn whether ROUTER still knows the peer
//   'B'  acceptor -> dialler   bye: the acceptor closed this connection (a ROUTER cannot hang up on one peer)
//
// How the end of a connection is found. DEALER: its monitor reports it. ROUTER: its monitor reports a file
// descriptor; the connection that used it is probed (ZMQ_ROUTER_MANDATORY) until ZeroMQ says that the host is
// unreachable, which orders the end after everything received. A DEALER never reconnects (ZMQ_RECONNECT_IVL =
// -1) and ROUTER gives every connection a new routing id, so nothing that was sent to one incarnation can
// reach a later one.
//
// Unlike uds, ZeroMQ moves bytes on an I/O thread of its own, one per transport; what it holds (at most some
// MiB per connection) is not in QueuedBytes, and is lost when the transport is destroyed or the connection
// closed. A worker that finds nothing yields its core to that thread now and then: spinning, it would hold up
// the very frames that it waits for.
//
// Peers of another user are refused at both ends: by ZMQ_IPC_FILTER_UID at the listener; and the dialler's
// monitor names the descriptor that was connected, whose SO_PEERCRED is asked before the first message goes
// out or is read.
//
// Thread safety: see transport.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/messaging/transport.h"

namespace islands::messaging {

std::string ZmqSocketPath(const std::string& directory, Address address);

// INVALID_ARGUMENT if the socket path would be too long.
absl::StatusOr<std::unique_ptr<Transport>> MakeZmqTransport(const std::string& directory, Address self);

}  // namespace islands::messaging
