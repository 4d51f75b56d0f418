// Byte rings in one address space, where the sanitizers see both sides.
#include "instance/messaging/byte_ring.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace islands::messaging {
namespace {

constexpr size_t kBytes = ByteRing::kBytes;

std::span<const std::byte> AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Both {
  std::unique_ptr<ByteRing> ring = std::make_unique<ByteRing>();
  ByteRingWriter writer{*ring};
  ByteRingReader reader{*ring};

  std::string Read(size_t room) {
    std::string text(room, '\0');
    const auto count = reader.Read(std::as_writable_bytes(std::span(text)));
    EXPECT_TRUE(count.has_value());
    text.resize(count.value_or(0));
    return text;
  }
};

TEST(ByteRing, Bytes_ComeInOrderAcrossTheEnd) {
  Both both;
  EXPECT_EQ(both.Read(10), "");
  for (int round = 0; round < 5; ++round) {
    const std::string text(kBytes / 2 + 7, static_cast<char>('a' + round));
    ASSERT_EQ(both.writer.Write(AsBytes(text)), text.size());
    EXPECT_EQ(both.Read(10), text.substr(0, 10));
    EXPECT_EQ(both.Read(kBytes), text.substr(10));
  }
}

TEST(ByteRing, Write_TakesWhatThereIsRoomFor) {
  Both both;
  const std::string text(kBytes + 100, 'x');
  EXPECT_EQ(both.writer.Write(AsBytes(text)), kBytes);
  EXPECT_EQ(both.writer.Write(AsBytes(text)), 0u);
  EXPECT_EQ(both.Read(60).size(), 60u);
  EXPECT_EQ(both.writer.Write(AsBytes(text)), 60u);
  EXPECT_EQ(both.Read(2 * kBytes).size(), kBytes);
}

TEST(ByteRing, Counts_ThatCannotBeAreTold) {
  for (const uint64_t nonsense : {uint64_t{kBytes + 1}, ~uint64_t{0}}) {
    Both both;
    both.ring->written = nonsense;
    std::byte room[10];
    EXPECT_EQ(both.reader.Read(room), std::nullopt);
    both.ring->read = nonsense;
    EXPECT_EQ(both.writer.Write(AsBytes(std::string(kBytes + 1, 'x'))), std::nullopt);
  }
}

TEST(ByteRing, Sleepers_AreToldOnce) {
  Both both;
  EXPECT_FALSE(both.writer.MustWakeReader());
  EXPECT_TRUE(both.reader.MaySleep());
  both.writer.Write(AsBytes("word"));
  EXPECT_TRUE(both.writer.MustWakeReader());
  EXPECT_FALSE(both.writer.MustWakeReader());
  EXPECT_FALSE(both.reader.MaySleep()) << "something is there";
  both.reader.Awake();
  EXPECT_FALSE(both.writer.MustWakeReader());

  ASSERT_EQ(both.writer.Write(AsBytes(std::string(kBytes, 'x'))), kBytes - 4);
  EXPECT_FALSE(both.reader.MustWakeWriter());
  EXPECT_TRUE(both.writer.MaySleep());
  both.Read(4);
  EXPECT_TRUE(both.reader.MustWakeWriter());
  EXPECT_FALSE(both.reader.MustWakeWriter());
  EXPECT_FALSE(both.writer.MaySleep()) << "there is room";
}

// Both sleep whenever they may, for a minute: one lost wake and the test takes that long.
TEST(ByteRingStress, NobodySleepsOverWhatHeWaitsFor) {
#ifdef ISLANDS_TSAN
  constexpr size_t kTotal = 8 << 20;
#else
  constexpr size_t kTotal = 64 << 20;
#endif
  Both both;
  std::counting_semaphore<> reader_wakes(0), writer_wakes(0);
  const auto start = std::chrono::steady_clock::now();
  std::thread writer([&] {
    std::mt19937_64 random(1);
    std::vector<std::byte> bytes(kBytes);
    for (size_t written = 0; written < kTotal;) {
      const size_t size =
          std::min<size_t>(1 + random() % (random() % 50 == 0 ? kBytes : 300), kTotal - written);
      for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((written + i) % 251);
      std::span<const std::byte> rest(bytes.data(), size);
      while (!rest.empty()) {
        const size_t count = both.writer.Write(rest).value();
        rest = rest.subspan(count);
        if (count > 0 && both.writer.MustWakeReader()) reader_wakes.release();
        if (!rest.empty() && both.writer.MaySleep())
          (void)writer_wakes.try_acquire_for(std::chrono::minutes(1));
      }
      written += size;
    }
  });
  std::mt19937_64 random(2);
  std::vector<std::byte> room(kBytes);
  for (size_t read = 0; read < kTotal;) {
    const size_t count = both.reader.Read({room.data(), 1 + random() % (kBytes - 1)}).value();
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(room[i], static_cast<std::byte>((read + i) % 251)) << read + i;
    read += count;
    if (count > 0 && both.reader.MustWakeWriter()) writer_wakes.release();
    if (count == 0 && both.reader.MaySleep()) (void)reader_wakes.try_acquire_for(std::chrono::minutes(1));
    both.reader.Awake();
  }
  writer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

// Each waits for the other's byte, and sleeps now and then: one lost wake and both do.
TEST(ByteRingStress, NobodyIsLeftAsleep) {
#ifdef ISLANDS_TSAN
  constexpr int kRounds = 100'000;
#else
  constexpr int kRounds = 1'000'000;
#endif
  Both there, back;
  std::counting_semaphore<> wakes[] = {std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
  const auto play = [&](ByteRingWriter& out, ByteRingReader& in, int self) {
    std::mt19937_64 random(self);
    std::byte byte{};
    for (int round = 0; round < kRounds; ++round) {
      if (self == 0 || round > 0) {
        ASSERT_EQ(out.Write({&byte, 1}), 1u);
        if (out.MustWakeReader()) wakes[1 - self].release();
      }
      for (auto patience = static_cast<int>(random() % 100); in.Read({&byte, 1}) == 0u;) {
        if (patience-- > 0 || !in.MaySleep()) continue;
        ASSERT_TRUE(wakes[self].try_acquire_for(std::chrono::seconds(10))) << "nobody has woken it";
        in.Awake();
        patience = 100;
      }
      in.Awake();
    }
    if (self == 1) {
      ASSERT_EQ(out.Write({&byte, 1}), 1u);
      if (out.MustWakeReader()) wakes[0].release();
    }
  };
  std::thread other([&] { play(back.writer, there.reader, 1); });
  play(there.writer, back.reader, 0);
  other.join();
}

}  // namespace
}  // namespace islands::messaging
