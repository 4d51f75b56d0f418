// Connections of one transport, found by id without hashing.
//
// An id is (sequence number << 20) | slot: the slot makes the look-up an array access, the sequence number
// makes every id unique for the life of the table.
//
// Thread safety: none; owned by one transport.
//
// Invariants: 1. an id is handed out once; 2. Find of a removed id is nullptr; 3. a T does not move while it
// is in the table.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "instance/messaging/transport.h"

namespace islands::messaging {

template <typename T>
class ConnectionTable {
 public:
  ConnectionId Add(std::unique_ptr<T> connection) {
    if (free_.empty()) {
      assert(slots_.size() < kMaxSlots);
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    Slot& slot = slots_[free_.back()];
    slot.id = ++sequence_ << kSlotBits | free_.back();
    slot.connection = std::move(connection);
    free_.pop_back();
    return slot.id;
  }

  T* Find(ConnectionId id) const {
    const size_t slot = id & (kMaxSlots - 1);
    return slot < slots_.size() && slots_[slot].id == id ? slots_[slot].connection.get() : nullptr;
  }

  // The connection, or nullptr if the id is not in the table.
  std::unique_ptr<T> Remove(ConnectionId id) {
    if (Find(id) == nullptr) return nullptr;
    const auto index = static_cast<uint32_t>(id & (kMaxSlots - 1));
    slots_[index].id = 0;
    free_.push_back(index);
    return std::move(slots_[index].connection);
  }

  // Ids of all connections, for the rare walks that may change the table on their way.
  std::vector<ConnectionId> Ids() const {
    std::vector<ConnectionId> ids;
    for (const Slot& slot : slots_) {
      if (slot.id != 0) ids.push_back(slot.id);
    }
    return ids;
  }

 private:
  static constexpr int kSlotBits = 20;
  static constexpr size_t kMaxSlots = size_t{1} << kSlotBits;
  struct Slot {
    ConnectionId id = 0;  // 0 = free
    std::unique_ptr<T> connection;
  };

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t sequence_ = 0;
};

}  // namespace islands::messaging
