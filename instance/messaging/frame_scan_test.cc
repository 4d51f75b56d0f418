#include "instance/messaging/frame_scan.h"

#include <gtest/gtest.h>

#include <string>

namespace islands::messaging {
namespace {

std::vector<std::byte> FrameOf(size_t payload_bytes) {
  const std::string payload(payload_bytes, 'x');
  std::vector<std::byte> bytes;
  AppendFrame(&bytes, FrameType::kHello, std::as_bytes(std::span(payload)));
  return bytes;
}

// Feeds at most `bytes` at once. Returns the payload sizes of the frames that came whole.
std::vector<size_t> Feed(InputBuffer* in, std::span<const std::byte> bytes, size_t at_once) {
  std::vector<size_t> frames;
  while (!bytes.empty()) {
    const std::span<std::byte> room = in->Room();
    const size_t taken = std::min({room.size(), bytes.size(), at_once});
    EXPECT_GT(taken, 0u) << "no room";
    if (taken == 0) return frames;
    std::memcpy(room.data(), bytes.data(), taken);
    in->Received(taken);
    bytes = bytes.subspan(taken);
    const ScanResult scan = ScanFrames(in->Unread(), [&](FrameType, std::span<const std::byte> payload) {
      frames.push_back(payload.size());
      return true;
    });
    in->Consumed(scan.consumed, scan.next_bytes);
  }
  return frames;
}

TEST(InputBuffer, Consumed_AHeaderAloneReservesNothing) {
  InputBuffer in;
  const std::vector<std::byte> frame = FrameOf(kMaxFrameBytes);
  EXPECT_TRUE(Feed(&in, std::span(frame).first(kFrameHeaderBytes), kFrameHeaderBytes).empty());
  EXPECT_LE(in.capacity(), 64u << 10);
  // It grows with what comes, at most to twice as much.
  size_t fed = kFrameHeaderBytes;
  for (const size_t until : {100'000u, 1'000'000u, 10'000'000u}) {
    EXPECT_TRUE(Feed(&in, std::span(frame).subspan(fed, until - fed), 32 << 10).empty());
    fed = until;
    EXPECT_LE(in.capacity(), 2 * fed);
  }
  const std::vector<size_t> frames = Feed(&in, std::span(frame).subspan(fed), 1 << 20);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0], kMaxFrameBytes);
}

TEST(InputBuffer, Consumed_FramesOfAllSizesInPiecesOfAllSizes) {
  for (const size_t at_once : {1u, 7u, 8u, 4096u, 65'535u, 65'536u, 1'000'000u}) {
    InputBuffer in;
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
    for (const size_t size : {0u, 1u, 65'528u, 65'529u, 65'536u, 10u, 200'000u, 131'064u, 3u}) {
      if (at_once < 8 && size > 70'000) continue;  // takes long
      const std::vector<std::byte> frame = FrameOf(size);
      bytes.insert(bytes.end(), frame.begin(), frame.end());
      sizes.push_back(size);
    }
    EXPECT_EQ(Feed(&in, bytes, at_once), sizes) << at_once;
  }
}

}  // namespace
}  // namespace islands::messaging
