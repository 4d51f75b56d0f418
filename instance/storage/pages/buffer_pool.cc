#include "instance/storage/pages/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"

namespace islands::storage {
namespace {

constexpr uint64_t kHugePageBytes = 2u << 20;
constexpr uint64_t kPagesPerHugePage = kHugePageBytes / kPageBytes;
// Shares of a slot from which on its pages, and its state words, are put into huge pages: what is lost by it
// is at most a sixteenth, or a five-hundredth.
constexpr uint64_t kHugeShareBytes = 32u << 20;
constexpr uint64_t kHugeStatesShareBytes = 1u << 30;

uint64_t RoundUp(uint64_t number, uint64_t unit) { return (number + unit - 1) / unit * unit; }

}  // namespace

absl::StatusOr<std::unique_ptr<BufferPool>> BufferPool::Create(const BufferPoolOptions& options) {
  if (options.slots == 0) return absl::InvalidArgumentError("a buffer pool needs at least one site");
  std::unique_ptr<BufferPool> pool(new BufferPool());
  pool->capacity_pages_ = options.capacity_bytes / kPageBytes;
  pool->slots_ = options.slots;
  pool->alone_ = options.alone;
  pool->paged_ = options.paged;
  pool->guarded_ = options.alone ? 0 : 1;
  pool->ends_ = std::make_unique<std::atomic<uint64_t>[]>(options.slots);
  if (pool->capacity_pages_ == 0) {
    return absl::InvalidArgumentError(fmt::format("a buffer pool of {} bytes does not hold one page of {}",
                                                  options.capacity_bytes, kPageBytes));
  }
  if (absl::Status reserved = pool->Reserve(options); !reserved.ok()) return reserved;
  if (options.bind_memory != nullptr) (*options.bind_memory)(pool->region_, pool->region_bytes_);
  if (options.key_hints) pool->key_hints_ = std::make_unique<KeyHints>(pool->hints(), pool->capacity_pages_);
  return pool;
}

// Under a limit on address space (ulimit -v) or strict overcommit the kernel grants less; a site still gets
// room for at least as many pages as the pool may hold.
absl::Status BufferPool::Reserve(const BufferPoolOptions& options) {
  const uint64_t least_bytes = capacity_pages_ * kPageBytes * slots_;
  int error = 0;
  for (uint64_t bytes = std::max(options.region_bytes, least_bytes);;
       bytes = std::max(bytes / 2, least_bytes)) {
    pages_per_slot_ = std::min(RoundUp(bytes / kPageBytes / slots_, kPagesPerHugePage),
                               (uint64_t{1} << PageId::kNumberBits) - kPagesPerHugePage);
    const uint64_t pages = pages_per_slot_ * slots_;
    region_bytes_ = RoundUp(2 * StatesBytes(), kHugePageBytes) + pages * kPageBytes + kHugePageBytes +
                    kSlackBytes + RoundUp(KeyHints::BytesFor(capacity_pages_), kHugePageBytes) +
                    kHugePageBytes;
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
  Advise(options.huge_pages);
  return absl::OkStatus();
}

// Kernels without these options do as well without them.
void BufferPool::Advise(bool huge_pages) {
  const auto huge_if = [](bool huge) { return huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE; };
  (void)madvise(region_, region_bytes_, MADV_DONTDUMP);
  (void)madvise(region_, static_cast<size_t>(pages() - region_),
                huge_if(huge_pages && ShareBytes() >= kHugeStatesShareBytes));
  (void)madvise(pages(), pages_per_slot_ * slots_ * kPageBytes,
                huge_if(huge_pages && ShareBytes() >= kHugeShareBytes));
  (void)madvise(hints(), RoundUp(KeyHints::BytesFor(capacity_pages_), kHugePageBytes),
                huge_if(huge_pages && KeyHints::BytesFor(capacity_pages_) >= kHugePageBytes));
  huge_ = huge_pages && paged_ && ShareBytes() >= kHugeShareBytes;
  split_.resize(paged_ ? slots_ : 0);
}

void BufferPool::SetEnd(uint32_t slot, uint64_t end) {
  const uint64_t before = RoundUp(ends_[slot].load(std::memory_order_relaxed), kPagesPerHugePage);
  ends_[slot].store(end, std::memory_order_release);
  if (!huge_.load(std::memory_order_relaxed)) return;
  const uint64_t more = (RoundUp(end, kPagesPerHugePage) - before) / kPagesPerHugePage;
  const uint64_t all = huge_pages_.fetch_add(more, std::memory_order_relaxed) + more;
  if (all > capacity_pages_ / kPagesPerHugePage) StopHugePages();
}

void BufferPool::StopHugePages() {
  if (!huge_.exchange(false)) return;
  (void)madvise(pages(), pages_per_slot_ * slots_ * kPageBytes, MADV_NOHUGEPAGE);
}

// Being told that a part of it is cold, the kernel takes a huge page apart. Where it does not, the memory
// goes when it needs some.
void BufferPool::SplitHugePage(uint32_t slot, uint64_t number) {
  StopHugePages();
  if (ShareBytes() < kHugeShareBytes) return;  // there are none
  std::vector<bool>& split = split_[slot];
  const uint64_t huge = number / kPagesPerHugePage;
  if (huge >= split.size()) split.resize(End(slot) / kPagesPerHugePage + 1);
  if (split[huge]) return;
  split[huge] = true;
  std::byte* const first = pages() + (slot * pages_per_slot_ + huge * kPagesPerHugePage) * kPageBytes;
  (void)madvise(first, kPageBytes, MADV_COLD);
}

std::byte* BufferPool::pages() const {
  static_assert(sizeof(PageHome) == sizeof(AtomicPageState));
  const auto address = reinterpret_cast<uintptr_t>(region_);
  return region_ + (RoundUp(address + 2 * StatesBytes(), kHugePageBytes) - address);
}

std::byte* BufferPool::hints() const {
  std::byte* const end = pages() + pages_per_slot_ * slots_ * kPageBytes + kSlackBytes;
  const auto address = reinterpret_cast<uintptr_t>(end);
  return end + (RoundUp(address, kHugePageBytes) - address);
}

BufferPool::~BufferPool() {
  if (region_ != nullptr) munmap(region_, region_bytes_);
}

PageArray BufferPool::Slot(uint32_t slot) const {
  ISLANDS_CHECK(slot < slots_);
  auto* states = reinterpret_cast<AtomicPageState*>(region_) + slot * pages_per_slot_;
  auto* homes = reinterpret_cast<PageHome*>(region_ + StatesBytes()) + slot * pages_per_slot_;
  return PageArray(states, homes, pages() + slot * pages_per_slot_ * kPageBytes, pages_per_slot_, alone_,
                   paged_, &guarded_);
}

namespace {
thread_local int undo_scopes = 0;
}  // namespace

UndoScope::UndoScope() { ++undo_scopes; }
UndoScope::~UndoScope() { --undo_scopes; }
bool UndoScope::Active() { return undo_scopes != 0; }
int UndoScope::Swap(int scopes) { return std::exchange(undo_scopes, scopes); }

bool BufferPool::ClaimPage() {
  uint64_t resident = resident_pages_.load(std::memory_order_relaxed);
  do {
    if (resident >= capacity_pages_ && undo_scopes == 0 && source_ == nullptr) return false;
  } while (!resident_pages_.compare_exchange_weak(resident, resident + 1, std::memory_order_relaxed));
  if (resident >= capacity_pages_ && source_ != nullptr) source_->MakeRoom();
  return true;
}

}  // namespace islands::storage
