// Pages of a pool that holds less than there is: which of them are in memory (vmcache, Leis et al. 2023).
//
//   untouched ---- FirstUse ----> resident <--- BringIn ---- marked
//                                  |   ^  \___ clock hand ___/  |
//                                  |   |                        | clock hand: it is at home
//                             Fetch|   |BringIn, Fetch          v
//                                  +---+------------------- on disk
//
// A page that is not untouched is at home if its LSN is the one that it has in its data file. Only such pages
// are evicted: their memory goes back to the kernel. The hand goes round all pages of the pool. It marks
// those that are in memory, and evicts what it finds still marked when it comes again: nobody has looked at
// it since. Inner nodes of trees are marked only if nothing else is left, site headers never.
//
// Of changed pages it remembers which it would have liked to evict (TakeVictims): the cleaner writes those
// home first. While a load fills the pool nothing is in the log, and nobody cleans: the hand itself writes
// changed pages to the files of the generation that will be (MoveTo).
//
// Reads. An operation looks ahead for its pages and has the missing ones fetched together (Fetch). What it
// missed all the same, because it was evicted in between, or is a neighbour that a merge wants, is read
// where it is wanted, by BringIn, and the thread waits. So nothing has to be pinned: being evicted costs time
// only. A page is read into room of the reader's and put in its place only over the state word that it had
// before the read: if anybody was faster, even one who has read, changed and evicted the page again, the word
// has another version.
//
// Where nothing is kept (durability none) the files are room for what memory has not, and no more: the hand
// writes changed pages for good (SwapTo), one copy and no sync. Nobody stamps pages there; who changes them
// marks them as changed instead (MarksChanges).
//
// What a disk has lost is an error of Fetch. BringIn has nobody to tell: it says it, and ends the process,
// as losing the disk under a memory map would.
//
// Thread safety: any thread, but for Attach, PutOnDisk, MoveTo and EndSpill, while nobody else uses pages.
//
// Invariants:
//  1. A page on disk has in its data file what it had when it was evicted.
//  2. Nothing is evicted that is latched, or not at home.
//  3. What was brought in last stays until kRecent others have been: an operation that needs several pages at
//     once gets them, however small the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/page_change.h"
#include "instance/storage/pages/page_source.h"
#include "runtime/file_system.h"
#include "runtime/mutex.h"

namespace islands::storage {

// A page that has never been in a log, and was loaded: below the LSN of every change.
inline constexpr uint64_t kLoadedLsn = 1;

// Redo and trees trust what they are given (page_changes_reader.h).
bool IsSound(ConstPageBytes page);

// A changed page of a pool that swaps is at home nowhere.
class MarksChanges final : public PageChangeSink {
 public:
  void BeforeChange(const std::byte* /*page*/, const PageChange& /*change*/) override {}
  void BeforeRelease(std::byte* page) override { reinterpret_cast<PageHeader*>(page)->lsn = 0; }
};

class Pager final : public PageSource {
 public:
  struct Place {
    uint32_t slot = 0;
    uint64_t number = 0;
    friend bool operator==(const Place&, const Place&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Place& place) {
      return H::combine(std::move(hash), place.slot, place.number);
    }
  };
  struct Counters {
    uint64_t read = 0;     // pages
    uint64_t evicted = 0;  // pages
    uint64_t waited = 0;   // of the read ones: by BringIn, where nobody had looked ahead
    uint64_t spilled = 0;  // pages
    uint64_t missed = 0;   // looks for a row whose page, or one on the way to it, was on disk
  };

  // The pool outlives it, and has no pages yet.
  explicit Pager(BufferPool& pool);
  ~Pager() override;

  // Where pages have their homes from now on. Those that are on disk stay so.
  void Attach(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data);
  // Pages [0, end) of the slot are on disk; none has been touched. RESOURCE_EXHAUSTED: there is no address
  // space for so many.
  absl::Status PutOnDisk(uint32_t slot, uint64_t end);

  // Those that are on disk come to memory; others, and repeated ones, are left alone. DATA_LOSS: one is not
  // what was written. Waits for the disk.
  absl::Status Fetch(std::span<const Place> pages);
  bool OnDisk(const Place& page) const;

  // One read of a page, by whoever has a queue and room for it (page_fetcher.h). BeginRead: false: the page
  // is not on disk. Else `request` lacks buffer and token, and `seen` is for EndRead, which checks what has
  // come, and puts it in its place if nobody was faster. DATA_LOSS as Fetch.
  bool BeginRead(const Place& place, PageState* seen, runtime::IoRequest* request) const;
  absl::Status EndRead(const Place& place, PageState seen, const runtime::IoCompletion& completion,
                       PageBytes room);
  runtime::FileSystem& files() const { return *files_; }

  // Whether so many pages more would fit, once what can be evicted has been.
  bool HasRoom(uint64_t pages);

  // Changed pages that the hand would have evicted.
  std::vector<Place> TakeVictims();
  bool HasVictims() const { return has_victims_.load(std::memory_order_relaxed); }
  // These are at home, or were found to be: the hand takes them first, if nobody has looked at them since.
  void NoteCleaned(std::span<const Place> pages);

  // Pages have their homes in these files from now on, as with Attach: those that are on disk are copied, and
  // all others are at home nowhere. Until EndSpill the hand writes changed pages there. EndSpill: the first
  // error.
  absl::Status MoveTo(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data);
  absl::Status EndSpill();
  const absl::Status& spill_status() const { return spill_status_; }
  // MoveTo, for as long as the pool lives. Whoever changes pages from then on has MarksChanges as his
  // thread's page_change_sink. What finds no room on the disk stays in memory until there is some.
  absl::Status SwapTo(runtime::FileSystem& files, std::shared_ptr<const DataFiles> data);
  bool swaps() const { return swaps_; }

  Counters counters() const;  // of all slots together
  Counters counters(uint32_t slot) const;
  // Whoever has looked for rows, found or missed: so many, by this worker. NoteMissed: one of them.
  void NoteLooks(uint32_t worker, uint64_t rows) {
    looks_[worker % looks_.size()].rows.fetch_add(rows, std::memory_order_relaxed);
  }
  void NoteMissed(uint32_t slot) { counts_[slot].missed.fetch_add(1, std::memory_order_relaxed); }
  uint64_t looks() const;

  void BringIn(AtomicPageState* state, PageState seen) override;
  void FetchAhead(uint32_t slot, std::span<const uint64_t> numbers) override;
  void MakeRoom() override;

 private:
  static constexpr size_t kReads = 16;     // at a time, of one reader
  static constexpr size_t kRecent = 16;    // invariant 3
  static constexpr size_t kDiscards = 64;  // at a time
  static constexpr size_t kSpills = 512;   // at a time
  static constexpr size_t kMostVictims = 2000;
  static constexpr size_t kMostChanged =
      1000;  // that the hand meets before it waits for the cleaner: a batch
  struct Reader {
    explicit Reader(runtime::FileSystem& files) : room(kReads), queue(files) {}
    std::vector<DiskPage> room;
    BlockingQueue queue;  // last: it ends before the pages that it reads into
  };
  class Sweep;
  struct Counts {  // of a slot
    std::atomic<uint64_t> read = 0, evicted = 0, waited = 0, spilled = 0, missed = 0;
  };
  struct alignas(64) Looks {  // of a worker, or a few
    std::atomic<uint64_t> rows = 0;
  };

  std::unique_ptr<Reader> TakeReader();
  void ReturnReader(std::unique_ptr<Reader> reader);
  absl::Status CopyPages(uint32_t slot, uint64_t first, uint64_t end, const DataFiles& to);
  absl::Status FetchSome(Reader& reader, std::span<const Place> pages);
  absl::Status Check(const Place& place, ConstPageBytes page) const;
  void Install(const Place& place, PageState seen, ConstPageBytes page);
  AtomicPageState* StateOf(const Place& place) const { return slots_[place.slot].At(place.number).state_; }
  std::byte* BytesOf(const Place& place) const { return slots_[place.slot].At(place.number).bytes_; }
  Place PlaceOf(const AtomicPageState* state) const;
  bool Change(AtomicPageState* state, PageState& expected, PageState desired) const {
    return pool_.alone() ? state->Replace(expected, desired) : state->CompareExchange(expected, desired);
  }
  void RunHand(uint64_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const AtomicPageState* state);
  bool IsRecent(const AtomicPageState* state) const;

  BufferPool& pool_;
  std::vector<PageArray> slots_;
  runtime::FileSystem* files_ = nullptr;
  std::shared_ptr<const DataFiles> data_;

  runtime::Mutex readers_mutex_;
  std::vector<std::unique_ptr<Reader>> readers_;  // nobody's

  runtime::Mutex mutex_;  // of the hand, and all that it has
  Place hand_ ABSL_GUARDED_BY(mutex_);
  std::vector<Place> victims_;
  std::vector<Place> cleaned_;  // since the hand has last looked
  uint64_t next_chances_ = 0;   // when there are as many, the hand may go again
  std::atomic<bool> has_victims_ = false;
  // The hand has met nothing but changed pages, or too few others, and no batch has gone home since.
  std::atomic<bool> waits_for_cleaner_ = false;
  bool spills_ = false;
  bool swaps_ = false;
  absl::Status spill_status_;

  std::array<std::atomic<const AtomicPageState*>, kRecent> recent_{};
  std::atomic<uint64_t> next_recent_ = 0;
  std::atomic<uint64_t> chances_ = 0;       // grows when there may be something to evict that was not before
  const std::unique_ptr<Counts[]> counts_;  // by slot
  std::array<Looks, 16> looks_;             // so that workers have lines of their own
  PageSourceStretch stretch_;               // last: when all else is there
};

}  // namespace islands::storage
