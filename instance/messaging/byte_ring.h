// A stream of bytes from one process to another, through memory that both have mapped: what a stream socket
// does, without a system call.
//
// Each side keeps its own count and publishes it; the other's is checked before it is used, for another
// process writes it.
//
// Sleeping: who is about to sleep says so first, and then looks once more; who has published a count looks
// afterwards whether the other side sleeps, and if so wakes it by other means. These four accesses are
// sequentially consistent. In the one order of them all either the sleeper's look is behind the count, and
// finds it, or his word is before the other's look, and is found: nobody sleeps over what he waits for.
//
// Thread safety: one thread with the ByteRingWriter, one with the ByteRingReader, of the same process or not.
//
// Invariants:
//  1. read <= written <= read + kBytes, and neither falls.
//  2. Only the writer touches the bytes from written to read + kBytes, only the reader those before.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace islands::messaging {

// As it lies in memory; all zeros is an empty one. The counts change all the time, and the words of sleepers
// only when somebody sleeps, though they are looked at after each transfer: each has a cache line of its own.
struct ByteRing {
  static constexpr size_t kBytes = 64 << 10;  // a power of two

  alignas(64) std::atomic<uint64_t> written;  // bytes, since the beginning
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> reader_sleeps;  // or is about to
  alignas(64) std::atomic<uint32_t> writer_sleeps;  // for want of room
  alignas(64) std::byte data[kBytes];               // byte n of the stream is at n mod kBytes
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class ByteRingWriter {
 public:
  explicit ByteRingWriter(ByteRing& ring) : ring_(&ring) {}

  // How many of `bytes` have found room, the first ones. Nothing: the reader's count is none.
  std::optional<size_t> Write(std::span<const std::byte> bytes) {
    if (written_ + bytes.size() > read_ + ByteRing::kBytes) {
      const uint64_t read = ring_->read.load(std::memory_order_acquire);
      if (read < read_ || read > written_) return std::nullopt;
      read_ = read;
    }
    const size_t count = std::min<size_t>(bytes.size(), read_ + ByteRing::kBytes - written_);
    const size_t at = written_ % ByteRing::kBytes;
    const size_t first = std::min(count, ByteRing::kBytes - at);
    std::memcpy(ring_->data + at, bytes.data(), first);
    if (count > first) std::memcpy(ring_->data, bytes.data() + first, count - first);
    written_ += count;
    if (count > 0) ring_->written.store(written_);
    return count;
  }
  // After Write: whether the reader sleeps. Said once for each time that it does.
  bool MustWakeReader() { return ring_->reader_sleeps.load() != 0 && ring_->reader_sleeps.exchange(0) != 0; }

  // Where Write has found too little room: whether there is no more of it, so that one may sleep until the
  // reader has made some.
  bool MaySleep() {
    ring_->writer_sleeps.store(1);
    return ring_->read.load() == read_;
  }

 private:
  ByteRing* ring_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // as last looked at
};

class ByteRingReader {
 public:
  explicit ByteRingReader(ByteRing& ring) : ring_(&ring) {}

  // How many bytes were there and are in `to` now, as far as it goes. Nothing: the writer's count is none.
  std::optional<size_t> Read(std::span<std::byte> to) {
    const uint64_t written = ring_->written.load(std::memory_order_acquire);
    if (written < read_ || written - read_ > ByteRing::kBytes) return std::nullopt;
    const size_t count = std::min<size_t>(to.size(), written - read_);
    const size_t at = read_ % ByteRing::kBytes;
    const size_t first = std::min(count, ByteRing::kBytes - at);
    std::memcpy(to.data(), ring_->data + at, first);
    if (count > first) std::memcpy(to.data() + first, ring_->data, count - first);
    read_ += count;
    if (count > 0) ring_->read.store(read_);
    return count;
  }
  // After Read: whether the writer sleeps for want of room. Said once for each time that it does.
  bool MustWakeWriter() { return ring_->writer_sleeps.load() != 0 && ring_->writer_sleeps.exchange(0) != 0; }

  uint64_t read() const { return read_; }
  // Whether nothing is there, so that one may sleep until the writer has written.
  bool MaySleep() {
    ring_->reader_sleeps.store(1);
    return ring_->written.load() == read_;
  }
  void Awake() { ring_->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  ByteRing* ring_;
  uint64_t read_ = 0;
};

}  // namespace islands::messaging
