// Log files of an island: segments, one after the other, each with frames, each frame with whole records of
// one stream.
//
//   segment   offset   bytes
//                  0       8  magic "ISLSEGM3"
//                  8       8  cluster: fingerprint of the data's cluster id; files of another one are refused
//                 16       8  number of this segment, from 1 on; no two that EPOCH ever reached have the same
//                 24       8  bytes of this file
//                 32       8  number of the segment before it, 0: none
//                 40       8  offset in that one where it stopped to count: what is behind was never durable
//                 48       4  island
//                 52       4  CRC-32C of the 64 bytes with this field zero
//                 56       8  zero
//               4096          frames
//   frame          0       4  magic "FRAM"
//                  4       4  CRC-32C of (island, segment number, offset of the frame), 16 + 8 bytes, and of
//                             this header with this field zero
//                  8       8  life of the stream
//                 16       4  worker of the stream
//                 20       4  bytes of records, a multiple of 8
//                 24       8  stream offset of the first
//                 32       4  CRC-32C of the records
//                 36       4  zero
//                 40       8  settled: an epoch; the island's records of it, and of those before it, lie
//                             before this frame: EPOCH said so when it was written
//                 48          records
//
// A position in an island's log is (segment number, offset). Which part of the files counts is not to be seen
// in them: EPOCH says where each island's log ends (epoch_file.h), and from there every segment names the one
// before it. What EPOCH does not reach may be anything, and is never looked at; in a file that was an earlier
// segment, which nobody needed any more, it is that one's.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "instance/log/ring.h"

namespace islands::log {

inline constexpr size_t kSegmentHeaderBytes = 4096;
inline constexpr size_t kFrameHeaderBytes = 48;
inline constexpr uint64_t kLeastSegmentBytes = 1 << 20;
inline constexpr uint64_t kMostSegmentBytes = uint64_t{1} << 30;

struct LogPosition {
  uint64_t segment = 0;  // 0: nothing was ever written
  uint64_t offset = 0;
  friend auto operator<=>(const LogPosition&, const LogPosition&) = default;
};

struct SegmentHeader {
  uint64_t cluster = 0;
  uint32_t island = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
  LogPosition previous;
};

// kSegmentHeaderBytes.
std::vector<std::byte> EncodeSegmentHeader(const SegmentHeader& header);
// DATA_LOSS: it is none.
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes);

struct Frame {
  StreamId stream;
  uint64_t offset = 0;  // in the stream
  uint64_t settled = 0;
  std::span<const std::byte> records;
};

// Appends it to `out`, for this place in the island's log.
void EncodeFrame(const Frame& frame, const LogPosition& at, std::vector<std::byte>* out);
// The frame at the beginning of `bytes`, which are at `at`, of `island`. `*taken`: its length. DATA_LOSS: no
// whole frame is there; says why.
absl::StatusOr<Frame> DecodeFrame(uint32_t island, const LogPosition& at, std::span<const std::byte> bytes,
                                  size_t* taken);

}  // namespace islands::log
