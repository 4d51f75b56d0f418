// The frame: how a message lies in a byte stream between islands, between `islands` and an island, and
// between programs and a gateway.
//
//   offset  size  field
//        0     4  payload_bytes, little endian, at most kMaxFrameBytes
//        4     1  version, kFrameVersion
//        5     1  type, a FrameType
//        6     2  zero
//        8     n  payload: the protobuf message that the type names
//
// No checksum: frames never leave the machine's memory. A peer of another version is refused at its first
// frame.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace islands::messaging {

inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr size_t kMaxFrameBytes = 16u << 20;  // payload
inline constexpr uint8_t kFrameVersion = 4;

enum class FrameType : uint8_t {
  kHello = 1,
  kHelloReply = 2,
  kExecuteRequest = 3,
  kExecuteReply = 4,
  kPrepareRequest = 5,
  kVote = 6,
  kDecision = 7,
  kAcknowledge = 8,
  kCommitOnePhase = 9,
  kOnePhaseReply = 10,
  kOnePhaseConfirm = 11,
  kInquiry = 12,
  kInquiryReply = 13,
  kProbe = 14,
  kDecisionRequest = 15,
  kDecisionReply = 16,
  kClientRequest = 17,  // from a gateway, and
  kClientReply = 18,    // back to it
  kClients = 19,        // of a run, between workers of islands
  kControlRequest = 32,
  kControlReply = 33,
  kDirectCall = 48,        // from a program to a gateway,
  kDirectAnswerPart = 49,  // back to it: what does not fit into one frame, and
  kDirectAnswer = 50,      // the rest, or all
};

// What workers of islands send each other once they have been introduced.
constexpr bool IsData(FrameType type) {
  return (type >= FrameType::kExecuteRequest && type <= FrameType::kDecisionReply) ||
         type == FrameType::kClients;
}

struct FrameHeader {
  uint32_t payload_bytes = 0;
  uint8_t version = kFrameVersion;
  uint8_t type = 0;
  uint16_t zero = 0;
};
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);

enum class FrameCheck { kOk, kNeedMore, kBad };

// Looks at the start of `bytes`. kOk: `*header` is filled and the whole frame is there. kBad: not a frame of
// ours.
inline FrameCheck PeekFrame(std::span<const std::byte> bytes, FrameHeader* header) {
  if (bytes.size() < kFrameHeaderBytes) return FrameCheck::kNeedMore;
  std::memcpy(header, bytes.data(), kFrameHeaderBytes);
  if (header->version != kFrameVersion || header->zero != 0 || header->payload_bytes > kMaxFrameBytes) {
    return FrameCheck::kBad;
  }
  return bytes.size() - kFrameHeaderBytes < header->payload_bytes ? FrameCheck::kNeedMore : FrameCheck::kOk;
}

}  // namespace islands::messaging
