#include "instance/storage/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"

namespace islands::storage {
namespace {

uint64_t RoundUpToPage(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

absl::StatusOr<std::unique_ptr<BufferPool>> BufferPool::Create(const BufferPoolOptions& options) {
  if (options.slots == 0) return absl::InvalidArgumentError("a buffer pool needs at least one site");
  std::unique_ptr<BufferPool> pool(new BufferPool());
  pool->capacity_pages_ = options.capacity_bytes / kPageBytes;
  pool->slots_ = options.slots;
  pool->alone_ = options.alone;
  if (pool->capacity_pages_ == 0) {
    return absl::InvalidArgumentError(fmt::format("a buffer pool of {} bytes does not hold one page of {}",
                                                  options.capacity_bytes, kPageBytes));
  }
  if (absl::Status reserved = pool->Reserve(options); !reserved.ok()) return reserved;
  if (options.bind_memory != nullptr) (*options.bind_memory)(pool->region_, pool->region_bytes_);
  return pool;
}

// Under a limit on address space (ulimit -v) or strict overcommit the kernel grants less; a site still gets
// room for at least as many pages as the pool may hold.
absl::Status BufferPool::Reserve(const BufferPoolOptions& options) {
  const uint64_t least_bytes = capacity_pages_ * kPageBytes * slots_;
  int error = 0;
  for (uint64_t bytes = std::max(options.region_bytes, least_bytes);;
       bytes = std::max(bytes / 2, least_bytes)) {
    pages_per_slot_ = std::min(bytes / kPageBytes / slots_, (uint64_t{1} << PageId::kNumberBits) - 1);
    const uint64_t pages = pages_per_slot_ * slots_;
    region_bytes_ = RoundUpToPage(pages * sizeof(AtomicPageState)) + pages * kPageBytes + kSlackBytes;
    void* region = mmap(nullptr, region_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region != MAP_FAILED) {
      region_ = static_cast<std::byte*>(region);
      break;
    }
    error = errno;
    if (bytes == least_bytes) {
      return absl::ResourceExhaustedError(
          fmt::format("cannot reserve {} bytes of address space for the buffer pool (errno {}); raise "
                      "`ulimit -v`, or make the "
                      "pool smaller",
                      region_bytes_, error));
    }
  }
  // Kernels without these options do as well without them.
  (void)madvise(region_, region_bytes_, MADV_NOHUGEPAGE);
  (void)madvise(region_, region_bytes_, MADV_DONTDUMP);
  return absl::OkStatus();
}

BufferPool::~BufferPool() {
  if (region_ != nullptr) munmap(region_, region_bytes_);
}

PageArray BufferPool::Slot(uint32_t slot) const {
  ISLANDS_CHECK(slot < slots_);
  const uint64_t all_pages = pages_per_slot_ * slots_;
  auto* states = reinterpret_cast<AtomicPageState*>(region_) + slot * pages_per_slot_;
  std::byte* pages = region_ + RoundUpToPage(all_pages * sizeof(AtomicPageState));
  return PageArray(states, pages + slot * pages_per_slot_ * kPageBytes, pages_per_slot_, alone_);
}

namespace {
thread_local int undo_scopes = 0;
}  // namespace

UndoScope::UndoScope() { ++undo_scopes; }
UndoScope::~UndoScope() { --undo_scopes; }

bool BufferPool::ClaimPage() {
  uint64_t resident = resident_pages_.load(std::memory_order_relaxed);
  do {
    if (resident >= capacity_pages_ && undo_scopes == 0) return false;
  } while (!resident_pages_.compare_exchange_weak(resident, resident + 1, std::memory_order_relaxed));
  return true;
}

}  // namespace islands::storage
