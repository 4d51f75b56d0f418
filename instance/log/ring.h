// A worker's log on its way to disk: a stream of records in memory that outlives its process, so that kill -9
// of anything loses nothing and an append costs no system call (design: "Log").
//
//   ring file   offset   bytes
//                    0       8  magic "ISLRING2"
//                    8       8  life: boot epoch of the island
//                   16       4  island
//                   20       4  worker
//                   24       8  capacity in bytes: a power of two, at least 512 KiB
//                   32       8  number of the block of EPOCH that was synced before head was raised last; 0:
//                               never. An EPOCH that is not as far is an old copy, and has not what is before
//                               head
//                   40      24  zero
//                   64       8  tail: stream offset up to which records are there, written by the worker
//                  128       8  head: stream offset up to which they are synced in log files, written by the
//                               logger
//                 4096          capacity bytes: byte x of the stream is at x mod capacity
//
// The data is mapped twice, one mapping behind the other, so that no record is ever in two parts.
//
// A *stream* is what one worker has appended in one life of its island; it begins at offset 0. The address of
// a record, (life, island, worker, offset), goes into its checksum (record.h): old bytes never pass for new
// ones.
//
// Thread safety: RingWriter belongs to the worker, SetHead to the logger; the rest may be called by both.
//
// Invariants:
//  1. head <= tail <= head + capacity; neither falls.
//  2. What is between head and tail does not change.
//  3. Both are multiples of kRecordAlignment, at ends of records.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/check.h"
#include "runtime/shared_memory.h"

namespace islands::log {

// Whose records, of which life.
struct StreamId {
  uint64_t life = 0;
  uint32_t island = 0;
  uint32_t worker = 0;
  friend auto operator<=>(const StreamId&, const StreamId&) = default;
};

class Ring {
 public:
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kAlignment = 8;  // of records
  static constexpr size_t kLeastCapacity = 512 << 10;
  static constexpr size_t kMostCapacity = size_t{1} << 32;

  // A new file with all its room on disk or in memory, so that no store into it can fail later.
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED: say where, and what to do.
  static absl::StatusOr<std::unique_ptr<Ring>> Create(const std::string& path, const StreamId& stream,
                                                      size_t capacity);
  // DATA_LOSS: it is no ring, or not whole.
  static absl::StatusOr<std::unique_ptr<Ring>> Open(const std::string& path);
  // Without a file: for tests and simulations.
  static std::unique_ptr<Ring> InMemory(const StreamId& stream, size_t capacity);

  const StreamId& stream() const { return stream_; }
  size_t capacity() const { return capacity_; }
  uint64_t head() const { return header_->head.load(std::memory_order_acquire); }
  uint64_t tail() const { return header_->tail.load(std::memory_order_acquire); }
  // Invariants 1 and 3, as far as they can be seen: other processes write there.
  bool IsSound(uint64_t head, uint64_t tail) const {
    return head <= tail && tail - head <= capacity_ && (head | tail) % kAlignment == 0;
  }
  // Of the stream, between head and tail.
  std::span<const std::byte> Bytes(uint64_t begin, uint64_t end) const {
    ISLANDS_CHECK(begin <= end && end - begin <= capacity_);
    return {data_ + (begin & (capacity_ - 1)), end - begin};
  }
  // Of EPOCH, which has at least this one.
  uint64_t epoch_block() const { return header_->epoch_block.load(std::memory_order_acquire); }
  // The logger: everything before `head` is on disk, as that block of EPOCH says, and its room is free.
  void SetHead(uint64_t head, uint64_t epoch_block = 0) {
    ISLANDS_CHECK(head >= this->head() && head <= tail());
    if (epoch_block != 0) header_->epoch_block.store(epoch_block, std::memory_order_release);
    header_->head.store(head, std::memory_order_release);
  }

 private:
  friend class RingWriter;
  struct Header {
    char magic[8];
    uint64_t life;
    uint32_t island;
    uint32_t worker;
    uint64_t capacity;
    std::atomic<uint64_t> epoch_block;
    alignas(64) std::atomic<uint64_t> tail;
    alignas(64) std::atomic<uint64_t> head;
  };
  static absl::StatusOr<std::unique_ptr<Ring>> MapFile(int file, size_t capacity, const std::string& path);
  static absl::StatusOr<std::unique_ptr<Ring>> Begin(int file, const StreamId& stream, size_t capacity,
                                                     const std::string& path);

  runtime::Mapping mapping_;
  Header* header_ = nullptr;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  StreamId stream_;
};

// The worker's side.
//
// Invariant: 4. nothing beyond the shown tail counts for anybody: a process that dies there has not appended.
class RingWriter {
 public:
  explicit RingWriter(Ring& ring) : ring_(ring), appended_(ring.tail()), head_(ring.head()) {}

  // Bytes that can be appended without waiting for the logger.
  size_t Room() {
    if (ring_.capacity_ - (appended_ - head_) <= ring_.capacity_ / 2) head_ = ring_.head();
    return ring_.capacity_ - (appended_ - head_);
  }
  // Where the next bytes go; as many as Room has said may be written there.
  std::byte* Next(size_t bytes) {
    ISLANDS_CHECK(bytes <= Room());
    return ring_.data_ + (appended_ & (ring_.capacity_ - 1));
  }
  // They have been written.
  void Advance(size_t bytes) { appended_ += bytes; }
  uint64_t appended() const { return appended_; }
  size_t capacity() const { return ring_.capacity_; }
  const StreamId& stream() const { return ring_.stream_; }
  // From now on they are appended.
  void Show() { ring_.header_->tail.store(appended_, std::memory_order_release); }

 private:
  Ring& ring_;
  uint64_t appended_;
  uint64_t head_;  // as last looked at
};

}  // namespace islands::log
