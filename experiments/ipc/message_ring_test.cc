#include "experiments/ipc/message_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace islands::experiments {
namespace {

// Memory for a ring, on a cache line's border.
class RingMemory {
 public:
  explicit RingMemory(RingShape shape) : lines_(shape.TotalBytes() / kRingLineBytes) {}
  RingHeader* header() { return std::construct_at(reinterpret_cast<RingHeader*>(lines_.data())); }

 private:
  struct alignas(kRingLineBytes) Line {
    std::byte bytes[kRingLineBytes];
  };
  std::vector<Line> lines_;
};

TEST(RingShape, RoundsUp) {
  EXPECT_EQ(RingShape(1, 16).capacity, 2);
  EXPECT_EQ(RingShape(33, 16).capacity, 64);
  EXPECT_EQ(RingShape(2, 64).slot_bytes, 64);
  EXPECT_EQ(RingShape(2, 65).slot_bytes, 128);
}

struct Load {
  const char* name;
  uint32_t capacity;
  bool spin;
  uint64_t messages;  // few where each may cost a time slice of a busy machine: both ends yield
};

class MessageRingTest : public testing::TestWithParam<Load> {};

TEST_P(MessageRingTest, WriterAndReader_EveryMessageOnceInOrder) {
  const uint64_t messages = GetParam().messages;
  const RingShape shape(GetParam().capacity, 72);
  const ChannelOptions options{.spin = GetParam().spin, .yield = true};
  RingMemory memory(shape);
  RingHeader* const header = memory.header();
  std::thread writing([&] {
    RingWriter writer(header, shape, options);
    std::vector<std::byte> message(72);
    for (uint64_t i = 0; i < messages; ++i) {
      std::memcpy(message.data(), &i, sizeof(i));
      std::memcpy(message.data() + 64, &i, sizeof(i));
      writer.Push(message);
    }
  });
  RingReader reader(header, shape, options);
  std::vector<std::byte> message(72);
  for (uint64_t i = 0; i < messages; ++i) {
    reader.Pop(message);
    uint64_t first = 0, last = 0;
    std::memcpy(&first, message.data(), sizeof(first));
    std::memcpy(&last, message.data() + 64, sizeof(last));
    ASSERT_EQ(first, i);
    ASSERT_EQ(last, i);
  }
  writing.join();
}

INSTANTIATE_TEST_SUITE_P(Loads, MessageRingTest,
                         testing::Values(Load{"Small", 2, false, 20'000}, Load{"Large", 1024, false, 50'000},
                                         Load{"SmallSpinning", 2, true, 1000},
                                         Load{"LargeSpinning", 1024, true, 50'000}),
                         [](const auto& info) { return info.param.name; });

TEST(MessageRing, Full_TryPushRefuses) {
  const RingShape shape(4, 64);
  RingMemory memory(shape);
  RingHeader* const header = memory.header();
  RingWriter writer(header, shape, {});
  RingReader reader(header, shape, {});
  std::vector<std::byte> message(64);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(writer.TryPush(message));
  EXPECT_FALSE(writer.TryPush(message));
  reader.Pop(message);
  EXPECT_TRUE(writer.TryPush(message));
  EXPECT_FALSE(writer.TryPush(message));
}

}  // namespace
}  // namespace islands::experiments
