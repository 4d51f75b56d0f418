#include "experiments/peers/bare_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "runtime/check.h"
#include "runtime/random.h"

namespace islands::experiments {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPageBytes = 4096;
constexpr size_t kChunkPages = 256;           // at a time, when all of the file is written or read
constexpr uint64_t kLogFileBytes = 64 << 20;  // allocated at once, and then written over, as segments are

struct File {
  File() = default;
  File(const File&) = delete;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
  absl::Status Open(const std::string& path, int flags, uint64_t bytes) {
    descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);
    if (descriptor < 0) return absl::ErrnoToStatus(errno, path);
    const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
    return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, path);
  }
  int descriptor = -1;
};

// Memory at a page's boundary, as O_DIRECT wants it.
class Buffers {
 public:
  explicit Buffers(size_t pages) : bytes_(pages * kPageBytes) {
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    memory_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  Buffers(const Buffers&) = delete;
  ~Buffers() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  bool ok() const { return memory_ != nullptr; }
  std::byte* at(size_t page) { return memory_ + page * kPageBytes; }

 private:
  const size_t bytes_;
  std::byte* memory_;
};

int64_t CounterOf(const std::byte* page) {
  int64_t counter;
  std::memcpy(&counter, page, sizeof(counter));
  return counter;
}

void AddToCounter(std::byte* page) {
  const int64_t counter = CounterOf(page) + 1;
  std::memcpy(page, &counter, sizeof(counter));
}

class Loop final : public BarePages {
 public:
  explicit Loop(const BarePagesOptions& options)
      : options_(options),
        random_(options.seed),
        buffers_(options.pool_pages),
        double_(options.batch_pages),
        pages_(options.pool_pages),
        present_(options.pages),
        log_(static_cast<size_t>(options.batch_pages) * options.log_bytes, std::byte{'l'}) {
    for (uint32_t buffer = 0; buffer < options.pool_pages; ++buffer) free_.push_back(buffer);
  }

  ~Loop() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }

  absl::Status Open() {
    if (options_.pool_pages < options_.depth + options_.batch_pages ||
        options_.pages < 2ull * options_.pool_pages)
      return absl::InvalidArgumentError(
          "the pool holds less than the reads and a batch, or half of the pages");
    if (!buffers_.ok() || !double_.ok()) return absl::ResourceExhaustedError("no memory for the pages");
    absl::Status status = data_.Open(options_.directory + "/pages", O_DIRECT, options_.pages * kPageBytes);
    if (status.ok()) {
      status = double_file_.Open(options_.directory + "/double-write", O_DIRECT,
                                 options_.batch_pages * kPageBytes);
    }
    if (status.ok()) status = log_file_.Open(options_.directory + "/log", 0, kLogFileBytes);
    if (!status.ok()) return status;
    // What is at once under way: reads, and the pages of a batch.
    const int made = io_uring_queue_init(options_.depth + options_.batch_pages, &ring_, 0);
    if (made < 0) return absl::ErrnoToStatus(-made, "io_uring_queue_init");
    ready_ = true;
    return WriteFile();
  }

  absl::StatusOr<BarePagesMeasurement> Measure(bool update, double warmup_s, double seconds) override {
    update_ = update;
    absl::Status status = RunFor(warmup_s);
    const uint64_t before = done_;
    const Clock::time_point begin = Clock::now();
    if (status.ok()) status = RunFor(seconds);
    const std::chrono::duration<double> measured = Clock::now() - begin;
    const BarePagesMeasurement result{done_ - before, measured.count()};
    if (status.ok()) status = BringHome();
    if (status.ok() && update) status = CheckSum();
    if (!status.ok()) return status;
    return result;
  }

 private:
  enum Kind : uint64_t { kRead, kLog, kLogSync, kDouble, kDoubleSync, kHome, kHomeSync };

  absl::Status RunFor(double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) {
      while (reading_ < options_.depth && !free_.empty()) StartRead();
      if (absl::Status status = Step(options_.batch_pages); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Nothing is under way or changed afterwards.
  absl::Status BringHome() {
    while (reading_ > 0 || under_way_ > 0 || !changed_.empty()) {
      if (absl::Status status = Step(1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Waits for something to be over. A batch begins with `least` changed pages.
  absl::Status Step(size_t least) {
    if (under_way_ == 0 && changed_.size() >= least) BeginBatch();
    const int submitted = io_uring_submit_and_wait(&ring_, 1);
    if (submitted < 0 && submitted != -EINTR) return absl::ErrnoToStatus(-submitted, "io_uring_enter");
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const uint64_t data = entry->user_data;
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (result < 0) return absl::ErrnoToStatus(-result, fmt::format("request of kind {}", data >> 32));
      Over(static_cast<Kind>(data >> 32), static_cast<uint32_t>(data));
    }
    return absl::OkStatus();
  }

  // There are as many as can be under way.
  io_uring_sqe* Next() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    ISLANDS_CHECK(entry != nullptr);
    return entry;
  }

  void StartRead() {
    const uint32_t buffer = free_.back();
    free_.pop_back();
    do pages_[buffer] = random_.Below(options_.pages);
    while (present_[pages_[buffer]]);
    present_[pages_[buffer]] = true;
    io_uring_sqe* const entry = Next();
    io_uring_prep_read(entry, data_.descriptor, buffers_.at(buffer), kPageBytes, pages_[buffer] * kPageBytes);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(kRead) << 32 | buffer);
    ++reading_;
  }

  void BeginBatch() {
    const size_t count = std::min<size_t>(changed_.size(), options_.batch_pages);
    batch_.assign(changed_.begin(), changed_.begin() + static_cast<ptrdiff_t>(count));
    changed_.erase(changed_.begin(), changed_.begin() + static_cast<ptrdiff_t>(count));
    const size_t bytes = count * options_.log_bytes;
    if (log_end_ + bytes > kLogFileBytes) log_end_ = 0;
    Write(kLog, log_file_, log_.data(), bytes, log_end_);
    log_end_ += bytes;
  }

  void Over(Kind kind, uint32_t buffer) {
    if (kind == kRead) return ReadOver(buffer);
    if (--under_way_ > 0) return;
    switch (kind) {
      case kLog:
        return Sync(kLogSync, log_file_);
      case kLogSync:
        for (size_t i = 0; i < batch_.size(); ++i)
          std::memcpy(double_.at(i), buffers_.at(batch_[i]), kPageBytes);
        return Write(kDouble, double_file_, double_.at(0), batch_.size() * kPageBytes, 0);
      case kDouble:
        return Sync(kDoubleSync, double_file_);
      case kDoubleSync:
        for (const uint32_t page : batch_)
          Write(kHome, data_, buffers_.at(page), kPageBytes, pages_[page] * kPageBytes);
        return;
      case kHome:
        return Sync(kHomeSync, data_);
      default:
        done_ += batch_.size();
        for (const uint32_t page : batch_) Free(page);
        batch_.clear();
    }
  }

  void ReadOver(uint32_t buffer) {
    --reading_;
    if (update_) {
      AddToCounter(buffers_.at(buffer));
      ++sum_;
      changed_.push_back(buffer);
    } else {
      ++done_;
      Free(buffer);
    }
  }

  void Free(uint32_t buffer) {
    present_[pages_[buffer]] = false;
    free_.push_back(buffer);
  }

  void Write(Kind kind, const File& file, const std::byte* bytes, size_t count, uint64_t offset) {
    io_uring_sqe* const entry = Next();
    io_uring_prep_write(entry, file.descriptor, bytes, static_cast<unsigned>(count), offset);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(kind) << 32);
    ++under_way_;
  }

  void Sync(Kind kind, const File& file) {
    io_uring_sqe* const entry = Next();
    io_uring_prep_fsync(entry, file.descriptor, IORING_FSYNC_DATASYNC);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(kind) << 32);
    ++under_way_;
  }

  // `call`, pread or pwrite, of every chunk of the file.
  template <typename Call, typename Look>
  absl::Status ForAll(const Call& call, Buffers& chunk, const Look& look) {
    if (!chunk.ok()) return absl::ResourceExhaustedError("no memory for a part of the file");
    for (uint64_t page = 0; page < options_.pages; page += kChunkPages) {
      const size_t pages = std::min<uint64_t>(kChunkPages, options_.pages - page);
      const ssize_t moved =
          call(data_.descriptor, chunk.at(0), pages * kPageBytes, static_cast<off_t>(page * kPageBytes));
      if (moved != static_cast<ssize_t>(pages * kPageBytes))
        return absl::ErrnoToStatus(errno, "the file of pages");
      for (size_t i = 0; i < pages; ++i) look(chunk.at(i));
    }
    return absl::OkStatus();
  }

  // What is only allocated would be read without the disk.
  absl::Status WriteFile() {
    Buffers chunk(kChunkPages);
    if (chunk.ok()) std::memset(chunk.at(0), 'p', kChunkPages * kPageBytes);
    for (size_t i = 0; chunk.ok() && i < kChunkPages; ++i) std::memset(chunk.at(i), 0, sizeof(int64_t));
    absl::Status status = ForAll(pwrite, chunk, [](const std::byte*) {});
    if (status.ok() && fdatasync(data_.descriptor) != 0) status = absl::ErrnoToStatus(errno, "fdatasync");
    return status;
  }

  absl::Status CheckSum() {
    int64_t sum = 0;
    Buffers chunk(kChunkPages);
    absl::Status status = ForAll(pread, chunk, [&sum](const std::byte* page) { sum += CounterOf(page); });
    if (!status.ok() || sum == sum_) return status;
    return absl::DataLossError(
        fmt::format("{} changes were made, but the pages' counters say {}", sum_, sum));
  }

  const BarePagesOptions options_;
  runtime::Random random_;
  File data_, double_file_, log_file_;
  Buffers buffers_, double_;
  io_uring ring_{};
  bool ready_ = false;
  bool update_ = false;
  std::vector<uint64_t> pages_;  // in each buffer
  std::vector<bool> present_;    // by page: in a buffer that is not free
  std::vector<uint32_t> free_, changed_, batch_;
  std::vector<std::byte> log_;
  uint64_t log_end_ = 0;
  uint32_t reading_ = 0;
  size_t under_way_ = 0;  // requests of the batch
  uint64_t done_ = 0;
  int64_t sum_ = 0;  // of all counters
};

}  // namespace

absl::StatusOr<std::unique_ptr<BarePages>> BarePages::Create(const BarePagesOptions& options) {
  auto loop = std::make_unique<Loop>(options);
  if (absl::Status status = loop->Open(); !status.ok()) return status;
  return loop;
}

}  // namespace islands::experiments
