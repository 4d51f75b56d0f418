// Frames that wait for the next Flush: what every transport does with one before it sends anything.
//
// Thread safety: none; owned by one transport.
//
// Invariants:
//  1. A connection is listed for Flush at most once, and QueuedOutput::flush_due tells whether it is.
//  2. A connection that was closed in between is skipped.
//  3. What was appended since the last Flush is not among what may be sent: it speaks of what the worker has
//     not shown in its log yet, and a full connection that has room again must not take it along.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "instance/messaging/connection_table.h"
#include "instance/messaging/frame.h"
#include "instance/messaging/transport.h"
#include "runtime/check.h"

namespace islands::messaging {

// What a transport's connection has to be, for its SendQueue.
struct QueuedOutput {
  OutputBuffer out;
  size_t released = 0;  // bytes of `out`, the first ones, that a Flush has let go
  bool flush_due = false;

  std::span<const std::byte> Released() const { return out.Unsent().first(released); }
  void Sent(size_t bytes) {
    out.Sent(bytes);
    released -= bytes;
  }
  void Drop() {
    out.Clear();
    released = 0;
  }
};

template <typename Connection>
class SendQueue {
 public:
  explicit SendQueue(const ConnectionTable<Connection>& connections) : connections_(connections) {}

  void Append(ConnectionId id, Connection& connection, FrameType type, std::span<const std::byte> payload) {
    ISLANDS_CHECK(payload.size() <= kMaxFrameBytes);
    connection.out.Append(type, payload);
    if (connection.flush_due) return;
    connection.flush_due = true;
    due_.push_back(id);
  }

  // Of frames appended and not yet sent; 0 for a connection that is gone.
  size_t QueuedBytes(ConnectionId id) const {
    const Connection* connection = connections_.Find(id);
    return connection == nullptr ? 0 : connection->out.size();
  }

  bool empty() const { return due_.empty(); }

  // Calls send(id, connection) for each that was listed: what it has may be sent now. It appends nothing.
  template <typename Send>
  void Flush(Send send) {
    for (const ConnectionId id : due_) {
      Connection* connection = connections_.Find(id);
      if (connection == nullptr) continue;
      ISLANDS_CHECK(connection->flush_due);
      connection->flush_due = false;
      connection->released = connection->out.size();
      send(id, *connection);
    }
    due_.clear();
  }

 private:
  const ConnectionTable<Connection>& connections_;
  std::vector<ConnectionId> due_;
};

}  // namespace islands::messaging
