// Two byte rings, one for each direction of a connection, in one piece of memory without a name: the dialler
// makes it and passes it through the socket, with an *offer* as the first bytes there.
//
// The socket stays: it says when the other side is gone, and a byte through it, kDoorbell, wakes who sleeps.
//
// Thread safety: see byte_ring.h; the functions may be called by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "instance/messaging/byte_ring.h"
#include "runtime/shared_memory.h"

namespace islands::messaging {

inline constexpr char kDoorbell = '\a';

struct RingPair {
  RingPair(runtime::Mapping memory, ByteRing& to_peer, ByteRing& from_peer)
      : mapping(std::move(memory)), out(to_peer), in(from_peer), arrivals(&from_peer.written) {}

  runtime::Mapping mapping;
  ByteRingWriter out;
  ByteRingReader in;
  const std::atomic<uint64_t>* arrivals;  // changes whenever something has come
};

// Makes a pair and offers it to the peer of a socket through which nothing has been sent.
absl::StatusOr<std::unique_ptr<RingPair>> OfferRings(int socket);

// What an accepted socket has to say first; null: nothing yet. UNAVAILABLE: the peer has gone;
// INVALID_ARGUMENT: something else than an offer, or one of other memory than ours would be;
// RESOURCE_EXHAUSTED: this process has no descriptor left; PERMISSION_DENIED: the peer is another user's.
absl::StatusOr<std::unique_ptr<RingPair>> TakeOfferedRings(int socket);

}  // namespace islands::messaging
