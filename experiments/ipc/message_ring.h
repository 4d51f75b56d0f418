// A queue of messages of one size from one thread to another, which may be in another process: a ring in
// memory that both have mapped.
//
//   head       how many messages were put in; written by the writer only
//   tail       how many were taken out; written by the reader only
//   sleeps     flags of a reader that waits for head to move, of a writer that waits for tail
//   slots      message i is in slot i mod capacity, each slot on cache lines of its own
//
// Both counters wrap around at 2^32; the capacity is a power of two. Who must wait raises its flag, looks at
// the counter once more, and sleeps on the flag as a futex for as long as it is raised. The other end moves
// the counter, then looks at the flag, lowers it and wakes. All of these are sequentially consistent: either
// the sleeper sees the counter moved or the other end sees the flag. Sleeping on the flag and not on the
// counter is what makes a late lowering harmless, one meant for an earlier sleep: the kernel sees it, or it
// wakes.
//
// Thread safety: one thread writes and one reads, each through an object of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "experiments/ipc/channel.h"

namespace islands::experiments {

inline constexpr size_t kRingLineBytes = 64;

// What lies at the start of the shared memory; zeroes are an empty ring. The slots follow.
struct RingHeader {
  alignas(kRingLineBytes) std::atomic<uint32_t> head{0};
  alignas(kRingLineBytes) std::atomic<uint32_t> tail{0};
  alignas(kRingLineBytes) std::atomic<uint32_t> reader_sleeps{0};
  alignas(kRingLineBytes) std::atomic<uint32_t> writer_sleeps{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

struct RingShape {
  RingShape(uint32_t messages, uint32_t bytes);  // at least so many
  uint32_t capacity = 0;
  uint32_t slot_bytes = 0;
  size_t TotalBytes() const { return sizeof(RingHeader) + size_t{capacity} * slot_bytes; }
};

class RingEnd {
 protected:
  RingEnd(RingHeader* header, RingShape shape, const ChannelOptions& options)
      : header_(header), shape_(shape), options_(options) {}
  std::byte* slot(uint32_t i) const {
    return reinterpret_cast<std::byte*>(header_ + 1) + size_t{i & (shape_.capacity - 1)} * shape_.slot_bytes;
  }
  // Returns when `counter` may have moved away from `seen`.
  void Wait(std::atomic<uint32_t>& counter, uint32_t seen, std::atomic<uint32_t>& sleeps) const;
  // Sets `counter` and wakes the other end if it sleeps on it.
  void Move(std::atomic<uint32_t>& counter, uint32_t to, std::atomic<uint32_t>& sleeps) const;

  RingHeader* const header_;
  const RingShape shape_;
  const ChannelOptions options_;
};

class RingWriter : private RingEnd {
 public:
  RingWriter(RingHeader* header, RingShape shape, const ChannelOptions& options)
      : RingEnd(header, shape, options) {}
  bool TryPush(Message message);
  void Push(Message message);

 private:
  uint32_t head_ = 0;
  uint32_t seen_tail_ = 0;  // saves looking at the reader's cache line while there is room
};

class RingReader : private RingEnd {
 public:
  RingReader(RingHeader* header, RingShape shape, const ChannelOptions& options)
      : RingEnd(header, shape, options) {}
  void Pop(MessageBuffer message);

 private:
  uint32_t tail_ = 0;
  uint32_t seen_head_ = 0;
};

}  // namespace islands::experiments
