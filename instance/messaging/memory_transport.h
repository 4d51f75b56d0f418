// Frames inside one process: for tests and for the simulation of a whole cluster.
//
// A MemoryHub is the network; it makes the transports that meet in it. What a Flush sends travels as one
// packet; without a delay function it can be polled at once, with one it is due `delay` later on the hub's
// clock. A connection holds a limited number of bytes under way, like a socket: the rest waits in the
// sender's queue.
//
// An island can be dropped (its process died: what it had flushed still arrives, then its connections close,
// and a new incarnation may listen on its addresses), and pairs of islands can be partitioned (what is under
// way between them is lost, connections close, dialling fails until healed).
//
// Thread safety: MemoryHub may be used from any thread; its transports each by one thread, see transport.h.
// The delay function is called with the hub's mutex held, by one thread at a time: it must not call the hub,
// and must live as long as the transports, whose end is a packet too. The hub must outlive its transports.
//
// Invariants: 1. packets of one connection and direction arrive in order, whatever the delay function
// says; 2. a dropped transport reports nothing and sends nothing any more; 3. with one thread, one clock and
// a deterministic delay function, every run is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "instance/messaging/transport.h"
#include "runtime/clock.h"

namespace islands::messaging {

struct MemoryHubOptions {
  size_t connection_bytes = 256 << 10;  // under way per connection and direction; one packet may exceed it
  int64_t uid = -2;                     // reported for every peer; -2 = this process's
};

class MemoryHub {
 public:
  // How long a packet (or a closure, or a dial) takes, in ns. 0 = at once.
  using Delay = std::function<int64_t(Address from, Address to)>;

  // Without a clock delays are not possible.
  explicit MemoryHub(const runtime::Clock* clock = nullptr, MemoryHubOptions options = {});
  ~MemoryHub();
  MemoryHub(const MemoryHub&) = delete;
  MemoryHub& operator=(const MemoryHub&) = delete;

  void SetDelay(Delay delay);

  // Its address is taken when it listens: ALREADY_EXISTS while another, living transport has it.
  std::unique_ptr<Transport> MakeTransport(Address self);

  // The process of `island` dies: all transports made for it so far are dead.
  void Drop(uint32_t island);
  // Only the connection that `dialler` has dialled to `island` is lost, with what is under way on it; it may
  // be dialled again at once.
  void Break(Address dialler, uint32_t island);
  void Partition(uint32_t a, uint32_t b);
  void Heal(uint32_t a, uint32_t b);
  // Partitions `island` from every other, existing or not, until HealAll or Rejoin.
  void Sever(uint32_t island);
  void Rejoin(uint32_t island);
  void HealAll();

  // When the next packet is due for any transport; INT64_MAX if nothing is under way. What a simulation moves
  // its clock to. Transports with packets due at `after_ns` or before are left out: nobody polls them.
  int64_t NextDeliveryNs(int64_t after_ns = -1) const;

 private:
  friend class MemoryTransport;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace islands::messaging
