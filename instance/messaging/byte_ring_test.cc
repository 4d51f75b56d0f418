// Byte rings in one address space, where the sanitizers see both sides.
#include "instance/messaging/byte_ring.h"

#include <gtest/gtest.h>

#include <atomic>
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

#ifdef ISLANDS_TSAN
constexpr int kParts = 10;  // of what is done without it
#else
constexpr int kParts = 1;
#endif
// Beside busy processes every sleep costs a turn of theirs: there is less to do then.
constexpr std::chrono::seconds kLongEnough{10};
constexpr std::chrono::seconds kNotWoken{30};

// Both sleep whenever they may.
TEST(ByteRingStress, NobodySleepsOverWhatHeWaitsFor) {
  constexpr size_t kMost = (64 << 20) / kParts;
  Both both;
  std::counting_semaphore<> reader_wakes(0), writer_wakes(0);
  std::atomic<bool> lost = false;
  const auto sleep = [&](std::counting_semaphore<>& wakes) {
    if (!wakes.try_acquire_for(kNotWoken)) lost = true;
  };
  std::atomic<size_t> total = kMost;
  std::thread writer([&] {
    const auto end = std::chrono::steady_clock::now() + kLongEnough;
    std::mt19937_64 random(1);
    std::vector<std::byte> bytes(kBytes);
    size_t written = 0;
    while (written < kMost && !lost && std::chrono::steady_clock::now() < end) {
      const size_t size =
          std::min<size_t>(1 + random() % (random() % 50 == 0 ? kBytes : 300), kMost - written);
      for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((written + i) % 251);
      std::span<const std::byte> rest(bytes.data(), size);
      while (!rest.empty()) {
        const size_t count = both.writer.Write(rest).value();
        rest = rest.subspan(count);
        if (count > 0 && both.writer.MustWakeReader()) reader_wakes.release();
        if (!rest.empty() && both.writer.MaySleep()) sleep(writer_wakes);
      }
      written += size;
    }
    total = written;
    reader_wakes.release();
  });
  std::mt19937_64 random(2);
  std::vector<std::byte> room(kBytes);
  for (size_t read = 0; read < total;) {
    const size_t count = both.reader.Read({room.data(), 1 + random() % (kBytes - 1)}).value();
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(room[i], static_cast<std::byte>((read + i) % 251)) << read + i;
    read += count;
    if (count > 0 && both.reader.MustWakeWriter()) writer_wakes.release();
    if (count == 0 && read < total && both.reader.MaySleep()) sleep(reader_wakes);
    both.reader.Awake();
  }
  writer.join();
  EXPECT_FALSE(lost) << "somebody was not woken";
}

// Each waits for the other's byte, and sleeps now and then: one lost wake and both do.
TEST(ByteRingStress, NobodyIsLeftAsleep) {
  constexpr int kMostRounds = 1'000'000 / kParts;
  constexpr std::byte kLast{1};
  Both there, back;
  std::counting_semaphore<> wakes[] = {std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
  const auto say = [&](ByteRingWriter& out, int self, std::byte byte) {
    ASSERT_EQ(out.Write({&byte, 1}), 1u);
    if (out.MustWakeReader()) wakes[1 - self].release();
  };
  const auto hear = [&](ByteRingReader& in, int self, std::mt19937_64& random, std::byte* byte) {
    for (auto patience = static_cast<int>(random() % 100); in.Read({byte, 1}) == 0u;) {
      if (patience-- > 0 || !in.MaySleep()) continue;
      ASSERT_TRUE(wakes[self].try_acquire_for(kNotWoken)) << "nobody has woken it";
      in.Awake();
      patience = 100;
    }
    in.Awake();
  };
  std::thread other([&] {
    std::mt19937_64 random(1);
    for (std::byte byte{}; byte != kLast;) {
      ASSERT_NO_FATAL_FAILURE(hear(there.reader, 1, random, &byte));
      ASSERT_NO_FATAL_FAILURE(say(back.writer, 1, byte));
    }
  });
  const auto end = std::chrono::steady_clock::now() + kLongEnough;
  std::mt19937_64 random(0);
  std::byte byte{};
  for (int round = 1; byte != kLast && !HasFatalFailure(); ++round) {
    const bool last = round == kMostRounds || std::chrono::steady_clock::now() >= end;
    say(there.writer, 0, last ? kLast : std::byte{0});
    hear(back.reader, 0, random, &byte);
  }
  other.join();
}

// A full ring that is emptied at once, while the writer is about to sleep: there is no second wake.
TEST(ByteRingStress, NobodyIsLeftAsleepAtAFullRing) {
  constexpr int kMostRounds = 100'000 / kParts;
  Both both;
  std::counting_semaphore<> reader_wakes(0), writer_wakes(0);
  std::atomic<int> rounds = kMostRounds;
  std::thread writer([&] {
    const auto end = std::chrono::steady_clock::now() + kLongEnough;
    std::mt19937_64 random(1);
    const std::vector<std::byte> bytes(kBytes + 1);
    int round = 0;
    while (round < kMostRounds && std::chrono::steady_clock::now() < end && !HasFatalFailure()) {
      auto patience = static_cast<int>(random() % 2000);
      for (std::span<const std::byte> rest = bytes; !rest.empty();) {
        const size_t count = both.writer.Write(rest).value();
        rest = rest.subspan(count);
        if (count > 0 && both.writer.MustWakeReader()) reader_wakes.release();
        if (count > 0 || patience-- > 0 || !both.writer.MaySleep()) continue;
        ASSERT_TRUE(writer_wakes.try_acquire_for(kNotWoken)) << "nobody has woken the writer";
      }
      ++round;
    }
    rounds = round;
    reader_wakes.release();
  });
  std::vector<std::byte> room(kBytes);
  for (size_t read = 0; read < size_t(rounds) * (kBytes + 1) && !HasFatalFailure();) {
    const size_t count = both.reader.Read(room).value();
    read += count;
    if (count > 0 && both.reader.MustWakeWriter()) writer_wakes.release();
    if (count == 0 && both.reader.MaySleep()) (void)reader_wakes.try_acquire_for(kNotWoken);
    both.reader.Awake();
  }
  writer.join();
}

}  // namespace
}  // namespace islands::messaging
