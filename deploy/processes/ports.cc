#include "deploy/processes/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "runtime/descriptor.h"

namespace islands::deploy {

absl::Status CheckPortFree(uint16_t port) {
  const runtime::UniqueFd file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(file.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(file.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, fmt::format("cannot listen on 127.0.0.1:{}", port));
}

}  // namespace islands::deploy
