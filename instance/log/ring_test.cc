#include "instance/log/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "instance/log/record.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

constexpr StreamId kStream{.life = 7, .island = 2, .worker = 1};

class Directory {
 public:
  Directory() {
    path = testing::TempDir() + "islands-ring-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// A body that says which record of its stream it is.
std::string BodyOf(uint64_t number) {
  runtime::Random random(number);
  std::string body(8 + random.Below(300), '\0');
  for (char& c : body) c = static_cast<char>(random());
  std::memcpy(body.data(), &number, sizeof(number));
  return body;
}

// Parses what lies between `at` and `tail`; expects the records from `number` on, and returns how many.
uint64_t ExpectRecords(const Ring& ring, uint64_t at, uint64_t tail, uint64_t number) {
  const uint64_t first = number;
  while (at < tail) {
    size_t taken = 0;
    const absl::StatusOr<Record> record = ParseRecord(ring.stream(), at, ring.Bytes(at, tail), &taken);
    if (!record.ok()) {
      ADD_FAILURE() << record.status();
      break;
    }
    const std::string body = BodyOf(number);
    EXPECT_EQ(record->lsn, number);
    EXPECT_TRUE(record->body.size() == body.size() &&
                std::memcmp(record->body.data(), body.data(), body.size()) == 0)
        << "record " << number;
    at += taken;
    ++number;
  }
  return number - first;
}

void AppendNumbered(RingWriter& writer, uint64_t number) {
  const std::string body = BodyOf(number);
  const std::span<const std::byte> bytes = Bytes(body);
  Append(writer, 3, number, {bytes.first(8), bytes.subspan(8)});
}

TEST(Ring, Append_CountsOnceShown) {
  const std::unique_ptr<Ring> ring = Ring::InMemory(kStream, Ring::kLeastCapacity);
  RingWriter writer(*ring);
  EXPECT_EQ(writer.Room(), Ring::kLeastCapacity);
  AppendNumbered(writer, 0);
  EXPECT_EQ(ring->tail(), 0u);
  AppendNumbered(writer, 1);
  writer.Show();
  EXPECT_EQ(ring->tail(), writer.appended());
  EXPECT_EQ(ExpectRecords(*ring, 0, ring->tail(), 0), 2u);
}

TEST(Ring, Append_GoesRoundManyTimes) {
  const std::unique_ptr<Ring> ring = Ring::InMemory(kStream, Ring::kLeastCapacity);
  RingWriter writer(*ring);
  runtime::Random random(1);
  uint64_t appended = 0, read = 0;
  while (ring->tail() < 40 * Ring::kLeastCapacity) {
    while (writer.Room() >= RecordBytes(308) && random.Below(50) != 0) AppendNumbered(writer, appended++);
    writer.Show();
    read += ExpectRecords(*ring, ring->head(), ring->tail(), read);
    EXPECT_EQ(read, appended);
    ring->SetHead(ring->tail());
  }
}

TEST(Ring, Room_ComesBackWithTheHeadOnly) {
  const std::unique_ptr<Ring> ring = Ring::InMemory(kStream, Ring::kLeastCapacity);
  RingWriter writer(*ring);
  const std::string body(1000, 'x');
  while (writer.Room() >= RecordBytes(body.size())) Append(writer, 0, 1, {Bytes(body)});
  writer.Show();
  const size_t left = writer.Room();
  EXPECT_LT(left, RecordBytes(body.size()));
  ring->SetHead(RecordBytes(body.size()));
  EXPECT_EQ(writer.Room(), left + RecordBytes(body.size()));
}

TEST(Record, Parse_AnotherPlaceOrOneBitMore_DoesNotCheck) {
  const std::unique_ptr<Ring> ring = Ring::InMemory(kStream, Ring::kLeastCapacity);
  RingWriter writer(*ring);
  AppendNumbered(writer, 5);
  writer.Show();
  const std::span<const std::byte> good = ring->Bytes(0, ring->tail());
  size_t taken = 0;
  ASSERT_TRUE(ParseRecord(kStream, 0, good, &taken).ok());
  EXPECT_EQ(taken, good.size());
  for (const StreamId& other : {StreamId{8, 2, 1}, StreamId{7, 3, 1}, StreamId{7, 2, 0}}) {
    EXPECT_EQ(ParseRecord(other, 0, good, &taken).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(ParseRecord(kStream, 8, good, &taken).ok());
  EXPECT_FALSE(ParseRecord(kStream, 0, good.first(good.size() - 8), &taken).ok());
  EXPECT_FALSE(ParseRecord(kStream, 0, {}, &taken).ok());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad(good.begin(), good.end());
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(ParseRecord(kStream, 0, bad, &taken).ok()) << "bit " << bit;
  }
}

TEST(RingFile, Open_FindsWhatWasShown) {
  const Directory directory;
  const std::string path = directory.path + "/ring";
  {
    const auto ring = Ring::Create(path, kStream, Ring::kLeastCapacity);
    ASSERT_TRUE(ring.ok()) << ring.status();
    RingWriter writer(**ring);
    for (uint64_t number = 0; number < 20; ++number) AppendNumbered(writer, number);
    writer.Show();
    (*ring)->SetHead(0);
    AppendNumbered(writer, 20);  // not shown
  }
  EXPECT_EQ(Ring::Create(path, kStream, Ring::kLeastCapacity).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto ring = Ring::Open(path);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ((*ring)->stream(), kStream);
  EXPECT_EQ(ExpectRecords(**ring, 0, (*ring)->tail(), 0), 20u);
}

TEST(RingFile, Create_LeavesNothingHalfMade) {
  const Directory directory;
  const std::string path = directory.path + "/ring";
  // Somebody was killed while creating it.
  close(open((path + ".new").c_str(), O_WRONLY | O_CREAT, 0600));
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Ring::Create(path, kStream, Ring::kLeastCapacity).ok());
  EXPECT_TRUE(Ring::Open(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST(RingFile, Open_RefusesWhatIsNone) {
  const Directory directory;
  const std::string path = directory.path + "/ring";
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Ring::Create(path, kStream, Ring::kLeastCapacity).ok());
  const auto damage = [&](off_t offset, const std::string& bytes) {
    const int file = open(path.c_str(), O_WRONLY);
    EXPECT_EQ(pwrite(file, bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
    close(file);
  };
  damage(128, std::string("\x08", 1));  // a head behind the tail
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kDataLoss);
  damage(128, std::string("\0", 1));
  damage(64, std::string("\x03", 1));  // no end of a record
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kDataLoss);
  damage(64, std::string("\0", 1));
  ASSERT_TRUE(Ring::Open(path).ok());
  damage(24, "\x01");
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_EQ(truncate(path.c_str(), 5000), 0);
  EXPECT_EQ(Ring::Open(path).status().code(), absl::StatusCode::kDataLoss);
}

// A process appends, tells how far in memory that it shares with us, and is killed at an instant of the
// kernel's choosing; as a new life would, we then go on in another ring.
TEST(RingFile, Kill_LosesNothingThatWasShown) {
  const Directory directory;
  void* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const told = static_cast<std::atomic<uint64_t>*>(shared);
  constexpr int kKills = 40;
  uint64_t records = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const std::string path = directory.path + "/ring-" + std::to_string(kill_number);
    told->store(0);
    const pid_t child = fork();
    if (child == 0) {
      const auto ring = Ring::Create(path, kStream, Ring::kLeastCapacity);
      if (!ring.ok()) _exit(1);
      RingWriter writer(**ring);
      for (uint64_t number = 0; writer.Room() >= RecordBytes(308); ++number) {
        AppendNumbered(writer, number);
        if (number % 3 != 0) continue;
        writer.Show();
        told->store(number + 1);
      }
      writer.Show();
      pause();
    }
    while (told->load() == 0) {  // it has begun
    }
    usleep(static_cast<useconds_t>(kill_number * 7));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto ring = Ring::Open(path);
    ASSERT_TRUE(ring.ok()) << ring.status();
    const uint64_t found = ExpectRecords(**ring, 0, (*ring)->tail(), 0);
    EXPECT_GE(found, told->load());
    records += found;
  }
  EXPECT_GT(records, 0u);
  munmap(shared, 4096);
}

TEST(RingStress, WriterAndReader) {
  const std::unique_ptr<Ring> ring = Ring::InMemory(kStream, Ring::kLeastCapacity);
  constexpr uint64_t kRecords = 20'000;
  std::thread worker([&] {
    RingWriter writer(*ring);
    for (uint64_t number = 0; number < kRecords; ++number) {
      while (writer.Room() < RecordBytes(308)) {
        writer.Show();
        std::this_thread::yield();
      }
      AppendNumbered(writer, number);
      if (number % 4 == 0) writer.Show();
    }
    writer.Show();
  });
  uint64_t read = 0;
  while (read < kRecords) {
    const uint64_t tail = ring->tail();
    read += ExpectRecords(*ring, ring->head(), tail, read);
    ring->SetHead(tail);
    std::this_thread::yield();
  }
  worker.join();
  EXPECT_EQ(ring->head(), ring->tail());
}

}  // namespace
}  // namespace islands::log
