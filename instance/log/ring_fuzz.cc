// A ring's file as a process left it that has died, or one that had no business there: refused, or read for
// what its worker has appended. By what opens rings, by what checks them, and by a logger that drains them.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "instance/log/ring_check.h"
#include "instance/log/ring_directory.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/file_system_memory.h"
#include "runtime/fuzz_input_testing.h"

namespace islands::log {
namespace {

constexpr StreamId kStream{.life = 7, .island = 0, .worker = 0};
constexpr size_t kCapacity = Ring::kLeastCapacity;
constexpr size_t kTailAt = 64, kHeadAt = 128;

// A record, without where it is.
struct Written {
  uint64_t lsn = 0;
  uint8_t kind = 0;
  std::vector<std::byte> body;
  friend bool operator==(const Written&, const Written&) = default;
};
using Records = std::map<uint64_t, Written>;  // by offset in the stream

// The directory of one run of the target.
class Place {
 public:
  Place() {
    const std::filesystem::path memory = "/dev/shm";  // where rings are, if it is there
    const bool there = access(memory.c_str(), W_OK) == 0;
    path_ = (there ? memory : std::filesystem::temp_directory_path()) / "islands-ring-fuzz-XXXXXX";
    ISLANDS_CHECK(mkdtemp(path_.data()) != nullptr);
    rings_ = RingDirectory::Make(path_, path_).value();
  }
  ~Place() { std::filesystem::remove_all(path_); }
  const RingDirectory& rings() const { return *rings_; }
  std::string RingPath() const { return path_ + "/" + RingName(kStream); }

 private:
  std::string path_;
  std::unique_ptr<RingDirectory> rings_;
};

// What a worker does, and what happens to its file then.
class RingFile {
 public:
  explicit RingFile(const Place& place) : path_(place.RingPath()) {
    unlink(path_.c_str());
    ring_ = *place.rings().MakeRing(kStream, kCapacity);
    file_.Reset(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    ISLANDS_CHECK(file_);
  }

  void Work(runtime::FuzzInput& input) {
    RingWriter writer(*ring_);
    // Four of these fill the ring: what follows lies over its end.
    for (int left = input.Byte() % 8; left > 0; --left) {
      Append(writer, std::vector<std::byte>(kMostRecordBytes - kRecordHeaderBytes), 1, 1);
      writer.Show();
      ring_->SetHead(ring_->tail());
      records_.clear();
    }
    for (int left = input.Byte() % 16; left > 0; --left) {
      const uint8_t what = input.Byte();
      const size_t bytes = what % 16 == 15 ? 5000 : what % 16 * 3;
      const std::span<const std::byte> said = input.Take(4);
      std::vector<std::byte> body(bytes, std::byte{what});
      std::copy_n(said.begin(), std::min(said.size(), bytes), body.begin());
      Append(writer, std::move(body), what, Lsn::Of(1 + what, 5).value());
      if (what < 0xc0) writer.Show();
      if (what < 0x20) ring_->SetHead(ring_->tail());
    }
  }

  // Bytes of the file are others.
  void Scribble(runtime::FuzzInput& input) {
    while (!input.empty()) {
      const uint8_t what = input.Byte();
      const size_t bytes = 1 + what / 16 % 8;
      switch (what % 8) {
        case 0:
          WriteAt(input.Byte(), input.Take(bytes));  // magic to head
          break;
        case 1:
          WriteAt(what < 0x80 ? kTailAt : kHeadAt, input.Take(bytes));
          break;
        case 2:
          WriteAt(Ring::kHeaderBytes + input.Number(3) % kCapacity, input.Take(bytes));
          break;
        case 3:
          touched_ = true;
          ISLANDS_CHECK(ftruncate(file_.get(), static_cast<off_t>(input.Number(3))) == 0);
          return;
        case 4:
          MoveTail(input.Byte());
          break;
        default:
          ScribbleOnRecord(input, bytes, /*stamp=*/what % 8 == 7);
      }
    }
  }

  const Records& records() const { return records_; }
  uint64_t head() const { return ring_->head(); }
  uint64_t tail() const { return ring_->tail(); }
  bool touched() const { return touched_; }
  bool stamped() const { return stamped_; }

 private:
  void Append(RingWriter& writer, std::vector<std::byte> body, uint8_t kind, uint64_t lsn) {
    if (writer.Room() < RecordBytes(body.size())) return;
    const uint64_t at = writer.appended();
    log::Append(writer, kind, lsn, {std::span<const std::byte>(body)});
    records_[at] = {lsn, kind, std::move(body)};
  }
  void WriteAt(uint64_t at, std::span<const std::byte> bytes) {
    touched_ = true;
    const auto offset = static_cast<off_t>(at);
    ISLANDS_CHECK(pwrite(file_.get(), bytes.data(), bytes.size(), offset) ==
                  static_cast<ssize_t>(bytes.size()));
  }
  void MoveTail(uint8_t by) {
    const uint64_t tail = ring_->tail() + 8 * by - 64;
    WriteAt(kTailAt, std::as_bytes(std::span(&tail, 1)));
  }
  // `stamp`: with a checksum that is right, as if a worker had written that.
  void ScribbleOnRecord(runtime::FuzzInput& input, size_t bytes, bool stamp) {
    if (records_.empty()) return;
    auto record = records_.begin();
    std::advance(record, static_cast<ptrdiff_t>(input.Byte() % records_.size()));
    const uint64_t at = record->first;
    const size_t whole = RecordBytes(record->second.body.size());
    const auto place = [&](uint64_t offset) { return Ring::kHeaderBytes + (at + offset) % kCapacity; };
    const size_t offset = input.Byte() % whole;
    for (const std::byte byte : input.Take(bytes)) WriteAt(place(offset), {&byte, 1});
    if (!stamp) return;
    stamped_ = true;
    const std::span<const std::byte> now = ring_->Bytes(at, at + whole);
    const StreamId& stream = kStream;
    struct {
      uint64_t life;
      uint32_t island, worker;
      uint64_t offset;
    } const address{stream.life, stream.island, stream.worker, at};
    const uint32_t checksum =
        runtime::Crc32c(now.subspan(8), runtime::Crc32c(std::as_bytes(std::span(&address, 1))));
    const auto stamp_bytes = std::as_bytes(std::span(&checksum, 1));
    for (size_t i = 0; i < stamp_bytes.size(); ++i) WriteAt(place(4 + i), stamp_bytes.subspan(i, 1));
  }

  const std::string path_;
  std::shared_ptr<Ring> ring_;
  runtime::UniqueFd file_;
  Records records_;  // shown or not
  bool touched_ = false;
  bool stamped_ = false;
};

Records RecordsOf(const Ring& ring) {
  Records records;
  for (uint64_t at = ring.head(), taken = 0; at < ring.tail(); at += taken) {
    const auto record = ParseRecord(ring.stream(), at, ring.Bytes(at, ring.tail()), &taken);
    ISLANDS_CHECK(record.ok() && taken >= kRecordHeaderBytes && taken % kRecordAlignment == 0);
    records[at] = {record->lsn, record->kind, {record->body.begin(), record->body.end()}};
  }
  return records;
}

// A logger brings to disk what is in the ring, and nothing else.
void Drain(const std::shared_ptr<Ring>& ring) {
  const Records expected = RecordsOf(*ring);
  runtime::MemoryFileSystem files;
  runtime::ManualClock clock;
  Board board(std::vector<uint32_t>{1});
  auto logger = Logger::Open(files, clock, board, {.directory = "/log", .segment_bytes = kLeastSegmentBytes});
  ISLANDS_CHECK(logger.ok());
  const absl::Status added = (*logger)->Add(ring);
  if (ring->epoch_block() > (*logger)->epoch_block().number) {
    ISLANDS_CHECK(absl::IsDataLoss(added));  // this EPOCH looks like an old copy
    return;
  }
  ISLANDS_CHECK(added.ok() && (*logger)->Start().ok());
  (*logger)->OnIslandDead(kStream.island, kStream.life);
  for (int i = 0; !(*logger)->ReleaseDrained(kStream.island); ++i) {
    ISLANDS_CHECK(i < 10'000 && (*logger)->failure().ok());
    clock.AdvanceNs(runtime::kNsPerMs);
    (*logger)->RunOnce();
  }
  const auto block = ReadEpochFile(files, "/log/EPOCH", 0, 1);
  ISLANDS_CHECK(block.ok());
  Records found;
  LogReader reader(files, {.directory = IslandDirectory("/log", 0)}, block->ends[0]);
  const absl::Status read = reader.Read([&](const StreamId& stream, const Record& record) {
    ISLANDS_CHECK(stream == kStream && Lsn::FromValue(record.lsn).epoch() <= block->epoch);
    const uint64_t at = found.empty()
                            ? expected.begin()->first
                            : found.rbegin()->first + RecordBytes(found.rbegin()->second.body.size());
    found[at] = {record.lsn, record.kind, {record.body.begin(), record.body.end()}};
    return absl::OkStatus();
  });
  ISLANDS_CHECK(read.ok() && found == expected);
}

void Try(runtime::FuzzInput input) {
  static const Place place;
  const bool drains = input.Byte() < 0x40;  // which takes longest
  RingFile file(place);
  file.Work(input);
  const uint64_t head = file.head(), tail = file.tail();
  file.Scribble(input);
  const absl::StatusOr<std::unique_ptr<Ring>> alone = Ring::Open(place.RingPath());
  ISLANDS_CHECK(alone.ok() || absl::IsDataLoss(alone.status()));
  const absl::StatusOr<std::shared_ptr<Ring>> ring = place.rings().OpenRing(kStream);
  ISLANDS_CHECK(ring.ok() || absl::IsDataLoss(ring.status()));
  if (alone.ok()) {
    const absl::StatusOr<uint64_t> lsn = HighestLsn(**alone, (*alone)->tail());
    ISLANDS_CHECK(lsn.ok() || absl::IsDataLoss(lsn.status()));
    ISLANDS_CHECK(ring.ok() == (lsn.ok() && (*alone)->stream() == kStream));
  }
  ISLANDS_CHECK(ring.ok() || file.touched());
  if (!ring.ok()) return;
  const Records found = RecordsOf(**ring);
  for (const auto& [at, record] : found) {
    const auto written = file.records().find(at);
    ISLANDS_CHECK(file.stamped() || (written != file.records().end() && written->second == record));
  }
  if (!file.touched()) {
    ISLANDS_CHECK((*ring)->head() == head && (*ring)->tail() == tail);
    const auto shown = file.records().lower_bound(tail);
    ISLANDS_CHECK(found == Records(file.records().lower_bound(head), shown));
  }
  if (drains) Drain(*ring);
}

}  // namespace
}  // namespace islands::log

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  islands::log::Try({data, size});
  return 0;
}
