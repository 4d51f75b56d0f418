#include "instance/storage/files/pager.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "instance/storage/btree/btree_node.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

using runtime::MutexLock;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

bool Before(const Pager::Place& a, const Pager::Place& b) {
  return a.slot != b.slot ? a.slot < b.slot : a.number < b.number;
}

const uint64_t kReadLatch = ISLANDS_PAGE_LATCH("pager.read").latch();
const uint64_t kEvictLatch = ISLANDS_PAGE_LATCH("pager.evict").latch();

// Gives memory back to the kernel; zeros are there then. In one call, and with one flush of translations,
// where the kernel lets a process do this to itself (Linux 6.13). It cannot fail but for want of memory for
// the mapping itself; then the memory stays, and costs room.
void DropMemory(std::span<const iovec> stretches) {
  static const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  static std::atomic<bool> together = self >= 0;
  if (stretches.empty()) return;
  size_t bytes = 0;
  for (const iovec& stretch : stretches) bytes += stretch.iov_len;
  if (together.load(std::memory_order_relaxed)) {
    const ssize_t done = process_madvise(self, stretches.data(), stretches.size(), MADV_DONTNEED, 0);
    if (done == static_cast<ssize_t>(bytes)) return;
    if (done < 0 && errno != EAGAIN && errno != ENOMEM) together.store(false, std::memory_order_relaxed);
  }
  for (const iovec& stretch : stretches) (void)madvise(stretch.iov_base, stretch.iov_len, MADV_DONTNEED);
}

}  // namespace

bool IsSound(ConstPageBytes page) {
  return HeaderOf(page).type != PageType::kTree || Node::At(page.data())->FindFault() == nullptr;
}

Pager::Pager(BufferPool& pool)
    : pool_(pool),
      counts_(std::make_unique<Counts[]>(pool.slots())),
      stretch_(this, pool.region(), pool.states_end()) {
  ISLANDS_CHECK(pool.paged());
  for (uint32_t slot = 0; slot < pool.slots(); ++slot) slots_.push_back(pool.Slot(slot));
  pool_.SetSource(this);
}

Pager::~Pager() { pool_.SetSource(nullptr); }

void Pager::Attach(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data) {
  ISLANDS_CHECK(data->slots() <= slots_.size());
  readers_.clear();
  files_ = &files;
  data_ = std::move(data);
}

absl::Status Pager::PutOnDisk(uint32_t slot, uint64_t end) {
  if (end == 0) return absl::OkStatus();
  if (end > pool_.pages_per_slot()) {
    return absl::ResourceExhaustedError(
        fmt::format("a site has {} pages, and there is address space for {}; raise `ulimit -v`", end,
                    pool_.pages_per_slot()));
  }
  pool_.NoteUse(slot, end - 1);
  pool_.NoteOut(static_cast<int64_t>(end));
  for (uint64_t number = 0; number < end; ++number) {
    PageState state;
    ISLANDS_CHECK(Change(StateOf({slot, number}), state,
                         state.WithResidency(Residency::kOnDisk).WithLatch(PageState::kOut)));
  }
  return absl::OkStatus();
}

Pager::Place Pager::PlaceOf(const AtomicPageState* state) const {
  const auto index = static_cast<uint64_t>(state - static_cast<const AtomicPageState*>(pool_.region()));
  return {static_cast<uint32_t>(index / pool_.pages_per_slot()), index % pool_.pages_per_slot()};
}

bool Pager::OnDisk(const Place& page) const {
  return StateOf(page)->Load().residency() == Residency::kOnDisk;
}

void Pager::Remember(const AtomicPageState* state) {
  recent_[next_recent_.fetch_add(1, std::memory_order_relaxed) % kRecent].store(state,
                                                                                std::memory_order_relaxed);
}

bool Pager::IsRecent(const AtomicPageState* state) const {
  return std::ranges::any_of(
      recent_, [&](const auto& recent) { return recent.load(std::memory_order_relaxed) == state; });
}

// ------------------------------------------------------------------------------------------------ reading

std::unique_ptr<Pager::Reader> Pager::TakeReader() {
  const MutexLock lock(readers_mutex_, ISLANDS_LATCH("pager.readers"));
  if (readers_.empty()) return std::make_unique<Reader>(*files_);
  std::unique_ptr<Reader> reader = std::move(readers_.back());
  readers_.pop_back();
  return reader;
}

void Pager::ReturnReader(std::unique_ptr<Reader> reader) {
  const MutexLock lock(readers_mutex_, ISLANDS_LATCH("pager.readers"));
  readers_.push_back(std::move(reader));
}

absl::Status Pager::Fetch(std::span<const Place> pages) {
  ISLANDS_CHECK(data_ != nullptr);
  std::unique_ptr<Reader> reader = TakeReader();
  absl::Status status;
  for (size_t first = 0; first < pages.size() && status.ok(); first += kReads)
    status = FetchSome(*reader, pages.subspan(first, std::min(kReads, pages.size() - first)));
  ReturnReader(std::move(reader));
  return status;
}

absl::Status Pager::FetchSome(Reader& reader, std::span<const Place> pages) {
  std::array<PageState, kReads> seen;
  for (size_t i = 0; i < pages.size(); ++i) {
    runtime::IoRequest request{.buffer = reader.room[i].bytes, .token = i};
    const bool repeated = std::ranges::count(pages.first(i), pages[i]) != 0;
    if (!repeated && BeginRead(pages[i], &seen[i], &request)) reader.queue.Submit(request);
  }
  absl::Status status;
  while (reader.queue.under_way() != 0) {
    for (const runtime::IoCompletion& completion : reader.queue.Wait()) {
      const size_t i = completion.token;
      status.Update(EndRead(pages[i], seen[i], completion, reader.room[i].bytes));
    }
  }
  return status;
}

bool Pager::BeginRead(const Place& place, PageState* seen, runtime::IoRequest* request) const {
  *seen = StateOf(place)->Load();
  if (seen->residency() != Residency::kOnDisk || !seen->out()) return false;
  request->kind = runtime::IoKind::kRead;
  request->file = data_->site(place.slot);
  request->offset = place.number * kPageBytes;
  return true;
}

// While it was being read somebody faster may have changed the page, and it may have gone home again: then
// what came is an older state of it, or torn, and no fault of the disk.
absl::Status Pager::EndRead(const Place& place, PageState seen, const runtime::IoCompletion& completion,
                            PageBytes room) {
  absl::Status read = completion.status;
  if (read.ok() && completion.bytes < kPageBytes)
    std::ranges::fill(room.subspan(completion.bytes), std::byte{0});
  if (read.ok()) read = Check(place, room);
  if (read.ok()) Install(place, seen, room);
  if (!read.ok() && StateOf(place)->Load() != seen) return absl::OkStatus();
  return read;
}

absl::Status Pager::Check(const Place& place, ConstPageBytes page) const {
  const PageId id(data_->SiteOf(place.slot), place.number);
  const char* what = nullptr;
  if (!IsWhole(page, id)) what = "is not whole";
  const uint64_t home = slots_[place.slot].Home(place.number).load(std::memory_order_acquire);
  if (what == nullptr && home != 0 && HeaderOf(page).lsn != home) what = "is an old state of itself";
  if (what == nullptr && !IsSound(page)) what = "is none of a tree, though its checksum is right";
  if (what == nullptr) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: page {} {}: restore data and log from a copy",
                                         data_->PathOf(place.slot), place.number, what));
}

void Pager::Install(const Place& place, PageState seen, ConstPageBytes page) {
  AtomicPageState* const state = StateOf(place);
  const PageState reading = seen.WithLatch(kReadLatch);
  ISLANDS_CHECK(pool_.ClaimPage());
  if (Planted(PlantedBug::kInstallOverOthers)) seen = state->Load();
  if (!Change(state, seen, reading)) return pool_.GiveBack(1);  // somebody was faster
  Remember(state);
  std::memcpy(BytesOf(place), page.data(), kPageBytes);
  slots_[place.slot].Home(place.number).store(HeaderOf(page).lsn, std::memory_order_release);
  counts_[place.slot].read.fetch_add(1, std::memory_order_relaxed);
  // While a load is under way nobody stamps pages that he changes: whatever is in memory counts as changed.
  if (spills_ && !swaps_) reinterpret_cast<PageHeader*>(BytesOf(place))->lsn = 0;
  PageState expected = reading;
  ISLANDS_CHECK(Change(state, expected, reading.WithResidency(Residency::kResident).WithLatch(0)));
  pool_.NoteOut(-1);
  chances_.fetch_add(1, std::memory_order_relaxed);
}

void Pager::BringIn(AtomicPageState* state, PageState seen) {
  if (seen.residency() == Residency::kMarked) {
    Remember(state);
    if (Change(state, seen, seen.WithResidency(Residency::kResident).WithLatch(0))) pool_.NoteOut(-1);
    return;
  }
  const Place place = PlaceOf(state);
  counts_[place.slot].waited.fetch_add(1, std::memory_order_relaxed);
  const absl::Status fetched = Fetch({&place, 1});
  if (fetched.ok()) return;
  std::fprintf(stderr, "%s; the island ends here\n", std::string(fetched.message()).c_str());
  std::_Exit(EXIT_FAILURE);
}

void Pager::FetchAhead(uint32_t slot, std::span<const uint64_t> numbers) {
  std::vector<Place> places;
  for (const uint64_t number : numbers) places.push_back({slot, number});
  Fetch(places).IgnoreError();  // who comes to the page hears of it
}

// ----------------------------------------------------------------------------------------------- evicting

// One way of the hand, under its mutex.
class Pager::Sweep {
 public:
  explicit Sweep(Pager& pager) : pager_(pager) {}

  // Until so many pages more are free, or nothing can be found: then false.
  bool Run(uint64_t wanted) {
    for (; !pager_.cleaned_.empty() && found_ < wanted; pager_.cleaned_.pop_back())
      TakeMarked(pager_.cleaned_.back());
    uint64_t all = 0;
    for (uint32_t slot = 0; slot < pager_.pool_.slots(); ++slot) all += pager_.pool_.End(slot);
    // Twice for leaves, to mark and to evict; twice more with inner nodes.
    for (uint64_t left = 4 * all; left > 0 && found_ < wanted && met_changed_ < kMostChanged; --left) {
      inner_too_ = left <= 2 * all;
      Next();
      Look();
    }
    WriteSpill();
    Discard();
    return found_ >= wanted;
  }
  // A page that could have gone, but for its changes.
  bool met_changed() const { return met_changed_ != 0; }

 private:
  void Next() {
    Place& hand = pager_.hand_;
    ++hand.number;
    for (uint32_t tries = 0; hand.number >= pager_.pool_.End(hand.slot) && tries <= pager_.pool_.slots();
         ++tries)
      hand = {(hand.slot + 1) % pager_.pool_.slots(), 0};
  }
  void Look() {
    const Place place = pager_.hand_;
    AtomicPageState* const state = pager_.StateOf(place);
    PageState seen = state->Load();
    if (place.number == 0) return;  // the site header
    if (seen.residency() == Residency::kResident && (seen.free() || Planted(PlantedBug::kEvictLatchedPage))) {
      const TornPage page(pager_.BytesOf(place));
      if (!inner_too_ && page.Load(&PageHeader::level) != 0) return;
      if (pager_.IsRecent(state)) return;
      pager_.pool_.NoteOut(1);  // before: who finds none out looks at no state word
      if (!pager_.Change(state, seen, seen.WithResidency(Residency::kMarked).WithLatch(PageState::kOut)))
        pager_.pool_.NoteOut(-1);
      if (!Planted(PlantedBug::kLoseClockBit)) return;
    }
    TakeMarked(place);
  }
  void TakeMarked(const Place& place) {
    AtomicPageState* const state = pager_.StateOf(place);
    PageState seen = state->Load();
    if (seen.residency() != Residency::kMarked || !seen.out() || pager_.IsRecent(state)) return;
    if (pager_.Change(state, seen, seen.WithLatch(kEvictLatch))) Take(place, state, seen);
  }
  // It is latched.
  void Take(const Place& place, AtomicPageState* state, PageState marked) {
    const auto* header = reinterpret_cast<const PageHeader*>(pager_.BytesOf(place));
    const uint64_t home = pager_.slots_[place.slot].Home(place.number).load(std::memory_order_acquire);
    const bool at_home = header->lsn != 0 && header->lsn == home;
    if (at_home || Planted(PlantedBug::kEvictDirtyPage)) {
      discards_.push_back(place);
      ++found_;
    } else if (pager_.spills_ && pager_.spill_status_.ok()) {
      spills_.push_back(place);
      ++found_;
    } else {
      ++met_changed_;
      if (pager_.victims_.size() < kMostVictims) pager_.victims_.push_back(place);
      pager_.has_victims_.store(true, std::memory_order_relaxed);
      PageState latched = marked.WithLatch(kEvictLatch);
      ISLANDS_CHECK(pager_.Change(state, latched, marked));
    }
    if (discards_.size() == kDiscards) Discard();
    if (spills_.size() == kSpills) WriteSpill();
  }

  // Calls take(first, end) for each run of neighbours.
  template <typename Take>
  static void Runs(std::vector<Place>& places, Take take) {
    std::ranges::sort(places, Before);
    for (size_t first = 0, end = 0; first < places.size(); first = end) {
      while (end < places.size() && places[end].slot == places[first].slot &&
             places[end].number == places[first].number + (end - first))
        ++end;
      take(first, end);
    }
  }

  void Discard() {
    std::vector<iovec> stretches;
    Runs(discards_, [&](size_t first, size_t end) {
      for (size_t i = first; i < end; ++i) pager_.pool_.SplitHugePage(discards_[i].slot, discards_[i].number);
      stretches.push_back({pager_.BytesOf(discards_[first]), (end - first) * kPageBytes});
    });
    DropMemory(stretches);
    for (const Place& place : discards_) {
      AtomicPageState* const state = pager_.StateOf(place);
      PageState latched = state->Load();
      PageState gone = latched.WithResidency(Residency::kOnDisk).WithLatch(PageState::kOut);
      if (!Planted(PlantedBug::kKeepVersionOfEvicted)) gone = gone.WithNextVersion();
      ISLANDS_CHECK(pager_.Change(state, latched, gone));
      pager_.counts_[place.slot].evicted.fetch_add(1, std::memory_order_relaxed);
    }
    pager_.pool_.GiveBack(discards_.size());
    discards_.clear();
  }

  // Not durable before the generation is: nothing is torn that anybody would read.
  void WriteSpill() {
    if (spills_.empty()) return;
    std::vector<DiskPage> copies(spills_.size());
    std::unique_ptr<Reader> writer = pager_.TakeReader();
    Runs(spills_, [&](size_t first, size_t end) {
      for (size_t i = first; i < end; ++i) {
        std::copy_n(pager_.BytesOf(spills_[i]), kPageBytes, copies[i].bytes.begin());
        auto* header = reinterpret_cast<PageHeader*>(copies[i].bytes.data());
        if (header->lsn == 0) header->lsn = kLoadedLsn;
        StampChecksum(copies[i].bytes);
      }
      writer->queue.Submit({.kind = runtime::IoKind::kWrite,
                            .file = pager_.data_->site(spills_[first].slot),
                            .offset = spills_[first].number * kPageBytes,
                            .buffer = AsBytes(std::span(copies).subspan(first, end - first))});
    });
    pager_.spill_status_.Update(writer->queue.WaitAll());
    pager_.ReturnReader(std::move(writer));
    for (const Place& place : spills_) {
      if (pager_.spill_status_.ok()) {
        auto* header = reinterpret_cast<PageHeader*>(pager_.BytesOf(place));
        if (header->lsn == 0) header->lsn = kLoadedLsn;
        pager_.slots_[place.slot].Home(place.number).store(header->lsn, std::memory_order_release);
        pager_.counts_[place.slot].spilled.fetch_add(1, std::memory_order_relaxed);
        discards_.push_back(place);
        continue;
      }
      AtomicPageState* const state = pager_.StateOf(place);
      PageState latched = state->Load();
      ISLANDS_CHECK(pager_.Change(state, latched, latched.WithLatch(PageState::kOut)));
    }
    spills_.clear();
    Discard();
  }

  Pager& pager_;
  uint64_t found_ = 0;
  size_t met_changed_ = 0;
  bool inner_too_ = false;
  std::vector<Place> discards_;  // latched
  std::vector<Place> spills_;    // latched
};

void Pager::MakeRoom() {
  const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
  const uint64_t capacity = pool_.capacity_pages(), resident = pool_.resident_pages();
  if (resident <= capacity) return;  // somebody else has
  RunHand(resident - capacity);
}

// A few more than asked for, so that the next ones need not come here. After a way on which it found too few,
// and pages that wait for the cleaner, the hand waits for it: there is a batch that will be written.
void Pager::RunHand(uint64_t pages) {
  const uint64_t capacity = pool_.capacity_pages();
  const uint64_t more =
      spills_ ? std::min<uint64_t>(capacity / 4, kSpills) : std::min<uint64_t>(capacity / 64, kDiscards);
  const uint64_t chances = chances_.load(std::memory_order_relaxed);
  if (chances < next_chances_ && !spills_) return;
  const absl::Status before = swaps_ ? std::exchange(spill_status_, absl::OkStatus()) : spill_status_;
  Sweep sweep(*this);
  const bool enough = sweep.Run(pages + more);
  if (swaps_) {
    if (before.ok() && !spill_status_.ok())
      std::fprintf(stderr, "%s; pages beyond the pool stay in memory\n",
                   std::string(spill_status_.message()).c_str());
  } else if (!enough && sweep.met_changed()) {
    next_chances_ = chances + 1 + capacity / 64;
    waits_for_cleaner_.store(true, std::memory_order_relaxed);
  }
}

void Pager::NoteCleaned(std::span<const Place> pages) {
  const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
  if (!pages.empty()) cleaned_.assign(pages.begin(), pages.end());
  waits_for_cleaner_.store(false, std::memory_order_relaxed);
  chances_.fetch_add(1 + pool_.capacity_pages() / 64, std::memory_order_relaxed);
}

// What others read in the meantime might be evicted, but they are about to use it.
bool Pager::HasRoom(uint64_t pages) {
  if (pool_.resident_pages() + pages <= pool_.capacity_pages()) return true;
  if (waits_for_cleaner_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
  const uint64_t wanted = pool_.resident_pages() + pages;
  if (wanted > pool_.capacity_pages()) RunHand(wanted - pool_.capacity_pages());
  return pool_.resident_pages() + pages <= pool_.capacity_pages();
}

std::vector<Pager::Place> Pager::TakeVictims() {
  std::vector<Place> victims;
  {
    const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
    victims.swap(victims_);
    has_victims_.store(false, std::memory_order_relaxed);
  }
  std::ranges::sort(victims, Before);  // and home by few writes
  victims.erase(std::ranges::unique(victims).begin(), victims.end());
  return victims;
}

absl::Status Pager::MoveTo(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data) {
  constexpr uint64_t kAtOnce = 256;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const uint64_t all = pool_.End(slot);
    for (uint64_t first = 0, end = 0; first < all; first = end) {
      const bool on_disk = OnDisk({slot, first});
      for (end = first; end < all && end - first < kAtOnce && OnDisk({slot, end}) == on_disk; ++end) {
        if (!on_disk) slots_[slot].Home(end).store(0, std::memory_order_relaxed);
      }
      absl::Status copied = on_disk ? CopyPages(slot, first, end, *data) : absl::OkStatus();
      if (!copied.ok()) return copied;
    }
  }
  Attach(files, std::move(data));
  const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
  spills_ = true;
  spill_status_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status Pager::CopyPages(uint32_t slot, uint64_t first, uint64_t end, const DataFiles& to) {
  std::vector<DiskPage> pages(end - first);
  BlockingQueue queue(*files_);
  runtime::IoRequest request{.kind = runtime::IoKind::kRead,
                             .file = data_->site(slot),
                             .offset = first * kPageBytes,
                             .buffer = AsBytes(pages)};
  if (absl::Status read = queue.Do(request); !read.ok()) return read;
  for (uint64_t number = first; number < end; ++number) {
    if (absl::Status sound = Check({slot, number}, pages[number - first].bytes); !sound.ok()) return sound;
  }
  request.kind = runtime::IoKind::kWrite;
  request.file = to.site(slot);
  return queue.Do(request);
}

absl::Status Pager::SwapTo(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data) {
  swaps_ = true;
  return MoveTo(files, std::move(data));
}

absl::Status Pager::EndSpill() {
  ISLANDS_CHECK(!swaps_);
  const MutexLock lock(mutex_, ISLANDS_LATCH("pager.hand"));
  spills_ = false;
  return std::exchange(spill_status_, absl::OkStatus());
}

Pager::Counters Pager::counters(uint32_t slot) const {
  const Counts& counts = counts_[slot];
  return {.read = counts.read.load(std::memory_order_relaxed),
          .evicted = counts.evicted.load(std::memory_order_relaxed),
          .waited = counts.waited.load(std::memory_order_relaxed),
          .spilled = counts.spilled.load(std::memory_order_relaxed),
          .missed = counts.missed.load(std::memory_order_relaxed)};
}

Pager::Counters Pager::counters() const {
  Counters all;
  for (uint32_t slot = 0; slot < pool_.slots(); ++slot) {
    const Counters of_slot = counters(slot);
    all.read += of_slot.read;
    all.evicted += of_slot.evicted;
    all.waited += of_slot.waited;
    all.spilled += of_slot.spilled;
    all.missed += of_slot.missed;
  }
  return all;
}

uint64_t Pager::looks() const {
  uint64_t rows = 0;
  for (const Looks& looks : looks_) rows += looks.rows.load(std::memory_order_relaxed);
  return rows;
}

}  // namespace islands::storage
