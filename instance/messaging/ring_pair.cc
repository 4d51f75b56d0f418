#include "instance/messaging/ring_pair.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "instance/messaging/unix_socket.h"
#include "runtime/descriptor.h"

namespace islands::messaging {
namespace {

constexpr const char* kWhat = "the memory of a connection's rings";

// Of the same build on both sides, as frames; the magic is no frame of any version.
struct Offer {
  char magic[12] = {'I', 'S', 'L', 'A', 'N', 'D', 'S', ' ', 'R', 'I', 'N', 'G'};
  uint32_t ring_bytes = ByteRing::kBytes;
  friend bool operator==(const Offer& a, const Offer& b) { return std::memcmp(&a, &b, sizeof(Offer)) == 0; }
};
static_assert(sizeof(Offer) == 16);

using Memory = std::array<ByteRing, 2>;  // to the acceptor, and back

// An offer on its way, with room for one descriptor; alignment makes it room for two.
struct Message {
  Message() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  Message(const Message&) = delete;  // it points into itself
  Message& operator=(const Message&) = delete;

  Offer offer;
  iovec bytes{&offer, sizeof(offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

absl::Status NoOffer(const char* what) {
  return absl::InvalidArgumentError(std::string("the peer sent ") + what + " instead of an offer of rings");
}

// All that came with a message: they are ours now, whatever the peer meant by them.
std::vector<runtime::UniqueFd> DescriptorsOf(msghdr& message) {
  std::vector<runtime::UniqueFd> found;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= control->cmsg_len; at += sizeof(int)) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(control) + at, sizeof(descriptor));
      found.emplace_back(descriptor);
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingPair>> OfferRings(int socket) {
  const absl::StatusOr<int> made = runtime::MakeSharedMemory(sizeof(Memory), kWhat);
  if (!made.ok()) return made.status();
  const runtime::UniqueFd file(*made);
  absl::StatusOr<runtime::Mapping> mapping = runtime::Mapping::OfSharedMemory(*made, sizeof(Memory), kWhat);
  if (!mapping.ok()) return mapping.status();
  auto& [there, back] = *static_cast<Memory*>(mapping->address());

  Message message;
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  *control = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  std::memcpy(CMSG_DATA(control), &*made, sizeof(int));
  const ssize_t sent =
      runtime::Uninterrupted([&] { return sendmsg(socket, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT); });
  if (sent != sizeof(Offer)) return absl::ErrnoToStatus(errno, "cannot offer rings to a peer");
  return std::make_unique<RingPair>(*std::move(mapping), there, back);
}

absl::StatusOr<std::unique_ptr<RingPair>> TakeOfferedRings(int socket) {
  Message message;
  const ssize_t received = runtime::Uninterrupted(
      [&] { return recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT); });
  if (received < 0 && errno == EAGAIN) return nullptr;
  if (received < 0) return absl::ErrnoToStatus(errno, "cannot receive a peer's rings");
  if (received == 0) return absl::UnavailableError("the peer closed the connection");
  const std::vector<runtime::UniqueFd> files = DescriptorsOf(message.header);
  if (PeerUid(socket) != static_cast<int64_t>(geteuid()))
    return absl::PermissionDeniedError("the peer is another user's");
  if (received != sizeof(Offer) || message.offer != Offer{} || files.size() > 1) return NoOffer("something");
  if (files.empty() && (message.header.msg_flags & MSG_CTRUNC) != 0)
    return absl::ResourceExhaustedError("no descriptor is left for a peer's rings");
  if (files.empty()) return NoOffer("no memory");
  // Who could make it smaller later would end us with a signal.
  const int file = files[0].get();
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return NoOffer("memory that may shrink");
  absl::StatusOr<runtime::Mapping> mapping = runtime::Mapping::OfSharedMemory(file, sizeof(Memory), kWhat);
  if (!mapping.ok()) {
    return absl::InvalidArgumentError("the peer offers what cannot be used: " +
                                      std::string(mapping.status().message()));
  }
  auto& [there, back] = *static_cast<Memory*>(mapping->address());
  return std::make_unique<RingPair>(*std::move(mapping), back, there);
}

}  // namespace islands::messaging
