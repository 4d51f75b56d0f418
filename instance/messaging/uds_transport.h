// Frames over Unix-domain stream sockets, or, of connections that have *rings*, over memory that both sides
// share: the transports uds and shm.
//
// One listening socket per worker, DIR/island-<i>.w<k>.sock; one epoll set per worker. Frames are gathered
// per connection and leave with one send() per Flush; what the socket does not take waits in the connection's
// buffer until EPOLLOUT. Input is received into one buffer per connection and frames are handed out in place.
// A round with nothing to do costs one epoll_wait, however many sockets there are.
//
// Hot connections: one on which frames arrive round after round, while the worker does not sleep, is taken
// out of the epoll set and asked directly, by the recv that fetches its next frames. That spares the receiver
// the epoll_wait before it and the sender the kernel's notification of the epoll set; epoll is then asked
// only every few rounds. A connection cools down when nothing has come for a while, when its socket is full,
// and before the worker sleeps. There are few hot ones at a time: among many connections epoll is cheaper.
//
// A connection with rings (ring_pair.h) carries its frames through them, without a system call while both
// sides are awake. Its socket says that the peer is gone, and wakes who sleeps. While there are such
// connections epoll is asked only every few rounds, and after a sleep; their counts are looked at in each.
//
// Peers of another user are refused at both ends: the dialler looks at SO_PEERCRED itself, the acceptor
// reports it upwards, and takes no rings of theirs.
//
// Thread safety: see transport.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/messaging/transport.h"

namespace islands::messaging {

std::string UdsSocketPath(const std::string& directory, Address address);

// Which connections have rings. Who accepts such ones is not spoken to by others.
struct WithRings {
  bool dialled = false;
  bool accepted = false;
};

// INVALID_ARGUMENT if the socket path would be too long. `path`: where it would listen, unless it is the
// usual name.
absl::StatusOr<std::unique_ptr<Transport>> MakeUdsTransport(const std::string& directory, Address self,
                                                            std::string path = {}, WithRings rings = {});

}  // namespace islands::messaging
