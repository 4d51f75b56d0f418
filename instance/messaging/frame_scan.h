// Writing frames into a buffer and handing whole ones out of it: shared by all transports.
//
// Thread safety: plain functions and values.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "instance/messaging/frame.h"

namespace islands::messaging {

inline void AppendFrame(std::vector<std::byte>* out, FrameType type, std::span<const std::byte> payload) {
  assert(payload.size() <= kMaxFrameBytes);
  FrameHeader header;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  const auto* header_bytes = reinterpret_cast<const std::byte*>(&header);
  out->insert(out->end(), header_bytes, header_bytes + kFrameHeaderBytes);
  out->insert(out->end(), payload.begin(), payload.end());
}

struct ScanResult {
  FrameCheck end = FrameCheck::kNeedMore;  // kOk: `on_frame` asked to stop
  size_t frames = 0;
  size_t consumed = 0;    // bytes of whole frames
  size_t next_bytes = 0;  // kNeedMore: size of the frame that is not whole yet, as far as known
};

// Calls on_frame(type, payload) -> bool for each whole frame at the start of `bytes`, until it returns false.
template <typename OnFrame>
ScanResult ScanFrames(std::span<const std::byte> bytes, OnFrame&& on_frame) {
  ScanResult result;
  while (true) {
    FrameHeader header;
    const std::span<const std::byte> rest = bytes.subspan(result.consumed);
    result.end = PeekFrame(rest, &header);
    if (result.end != FrameCheck::kOk) {
      const bool header_known = rest.size() >= kFrameHeaderBytes;
      result.next_bytes = kFrameHeaderBytes + (header_known ? header.payload_bytes : 0);
      return result;
    }
    result.consumed += kFrameHeaderBytes + header.payload_bytes;
    ++result.frames;
    const auto payload = rest.subspan(kFrameHeaderBytes, header.payload_bytes);
    if (!on_frame(static_cast<FrameType>(header.type), payload)) return result;
  }
}

// What was received and not handed out yet. Bytes are read into Room() and scanned in Unread(), without being
// moved, as long as frames come whole; a frame that has come in part is moved to the front when it would not
// fit. The buffer grows with what has come, not with what a header announces: eight bytes from a stranger
// must not cost sixteen million.
class InputBuffer {
 public:
  std::span<std::byte> Room() {
    if (capacity_ == 0) Reallocate(kUsualBytes);
    return {bytes_.get() + end_, capacity_ - end_};
  }
  std::span<const std::byte> Unread() const { return {bytes_.get() + begin_, end_ - begin_}; }
  void Received(size_t bytes) { end_ += bytes; }
  size_t capacity() const { return capacity_; }

  // After a scan: forgets `consumed` bytes and makes room for `next_bytes` from the new beginning.
  void Consumed(size_t consumed, size_t next_bytes) {
    begin_ += consumed;
    if (begin_ == end_) {
      begin_ = end_ = 0;
      if (capacity_ > kKeptBytes) Reallocate(kUsualBytes);
    }
    if (begin_ + next_bytes <= capacity_ && end_ < capacity_) return;
    if (next_bytes > capacity_ && end_ - begin_ == capacity_) {
      Reallocate(std::min(next_bytes, 2 * capacity_));
    } else if (begin_ > 0) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
  }

 private:
  static constexpr size_t kUsualBytes = 64 << 10;
  static constexpr size_t kKeptBytes = 1 << 20;  // larger buffers are given back when they run empty

  void Reallocate(size_t capacity) {
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(capacity);
    if (end_ > begin_) std::memcpy(bytes.get(), bytes_.get() + begin_, end_ - begin_);
    bytes_ = std::move(bytes);
    end_ -= begin_;
    begin_ = 0;
    capacity_ = capacity;
  }

  std::unique_ptr<std::byte[]> bytes_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// Frames on their way out, oldest first.
class OutputBuffer {
 public:
  void Append(FrameType type, std::span<const std::byte> payload) { AppendFrame(&bytes_, type, payload); }
  std::span<const std::byte> Unsent() const { return std::span(bytes_).subspan(begin_); }
  size_t size() const { return bytes_.size() - begin_; }
  bool empty() const { return size() == 0; }

  void Sent(size_t bytes) {
    begin_ += bytes;
    if (begin_ == bytes_.size()) {
      Clear();
    } else if (begin_ > kCompactBytes && begin_ > bytes_.size() / 2) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(begin_));
      begin_ = 0;
    }
  }
  void Clear() {
    bytes_.clear();
    begin_ = 0;
    if (bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
  }

 private:
  static constexpr size_t kCompactBytes = 64 << 10;
  static constexpr size_t kKeptBytes = 1 << 20;

  std::vector<std::byte> bytes_;
  size_t begin_ = 0;
};

}  // namespace islands::messaging
