// Unix-domain stream sockets: the few calls that the uds transport, the zmq transport and the control channel
// share.
//
// Thread safety: plain functions.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace islands::messaging {

using runtime::UniqueFd;

inline constexpr size_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;  // 107 and a zero

// INVALID_ARGUMENT if the path does not fit.
absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path);

// Removes a socket file that nobody listens on; of one's own name, once one's own listener is closed.
// ALREADY_EXISTS if somebody does, or if the file is no socket.
absl::Status RemoveStaleSocket(const std::string& path);

// A non-blocking listening socket, mode 0600, in place of a stale file.
absl::StatusOr<UniqueFd> ListenOn(const std::string& path);

// A non-blocking connected socket. Nobody there: UNAVAILABLE. Somebody, but with a full backlog:
// RESOURCE_EXHAUSTED. Somebody of another user: PERMISSION_DENIED.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path);

// The kernel's word for who is at the other end; -1 if it does not say.
int64_t PeerUid(int fd);

// Of a connected socket: PERMISSION_DENIED if another user serves it, UNAVAILABLE if it is none (any more).
absl::Status CheckServer(int fd, const std::string& name);

}  // namespace islands::messaging
