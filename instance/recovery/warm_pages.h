// Which pages a paged pool has in memory, kept so that the island's next life need not miss each of them once
// before it has them again.
//
//   file   DIRECTORY/generation-0000000001-warm-pages
//          offset   bytes
//               0       8  magic "ISLWARM1"
//               8       8  cluster
//              16       8  generation of the data files
//              24       4  island
//              28       4  CRC-32C of header and page ids, with this field zero
//              32       8  pages
//              40  8 each  page ids, in the order in which they are to be read: first those that somebody
//                          has looked at since the clock hand has marked them last (pager.h), then those
//                          that are marked; each part in the order of the files
//
// It is written when the island ends, and now and then before, over itself and without a sync: a file that is
// torn, of something else, or not there costs a cold start, and is no error. Nothing in it is trusted: pages
// are read like any other, and what is no page of this store is passed over.
//
// Reading is a little at a time, between two steps of the worker, until the pool has no room that is free:
// what transactions have brought in meanwhile is worth more than the list.
//
// Thread safety: owned by the island's worker; WarmingUp may be read by any thread.
//
// Invariant: 1. no page is evicted for one of the list.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/files/page_fetcher.h"
#include "instance/storage/store.h"
#include "runtime/clock.h"
#include "runtime/file_system.h"

namespace islands::recovery {

struct WarmPages {
  uint64_t cluster = 0;
  uint64_t generation = 0;
  uint32_t island = 0;
  std::vector<uint64_t> pages;  // PageId::value()
};

std::vector<std::byte> EncodeWarmPages(const WarmPages& warm);
// Empty: it is none, or not whole. What is behind its pages is left over from a longer one.
std::optional<WarmPages> DecodeWarmPages(std::span<const std::byte> bytes);

std::string WarmPagesPath(const std::string& directory, uint64_t generation);

// How far it is; `listed` 0: nothing is being read.
struct WarmingUp {
  std::atomic<uint64_t> done = 0;
  std::atomic<uint64_t> listed = 0;
};

// Walks the pages of a store, a little at a time.
class PagesInMemory {
 public:
  explicit PagesInMemory(const storage::Store& store) : store_(store) {}
  // Looks at so many more; false: it has seen all.
  bool Look(size_t most);
  // What it has seen, in the order of the file; it begins anew.
  std::vector<uint64_t> Take();

 private:
  const storage::Store& store_;
  uint32_t slot_ = 0;  // to look at next
  uint64_t page_ = 0;
  std::vector<uint64_t> used_, marked_;
};

// The list of now, durable; waits for the disk. `of`: whose, without pages. While nobody else uses the store.
absl::Status SaveWarmPages(runtime::FileSystem& files, const storage::Store& store,
                           const std::string& directory, WarmPages of);

class WarmUp {
 public:
  static constexpr int64_t kSaveEveryNs = 60 * runtime::kNsPerSecond;

  // Reads the list of the life before, if there is one. `of`: whose list it is, without pages. The store is
  // paged; it, the files and `progress` outlive this.
  WarmUp(runtime::FileSystem& files, storage::Store& store, const std::string& directory, WarmPages of,
         WarmingUp* progress);
  ~WarmUp();
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  // A small piece of work, between two steps of the worker: pages come to memory, and once a minute a list of
  // those that are there is written. False: there is nothing to do soon.
  bool RunOnce(int64_t now_ns);

 private:
  static constexpr size_t kAtOnce = 16;  // pages that are read together
  static constexpr size_t kLooksAtOnce = 2048;

  bool ReadSome();
  bool SaveSome(int64_t now_ns);
  void EndReading();

  runtime::FileSystem& files_;
  storage::Store& store_;
  const std::string path_;
  const WarmPages of_;
  WarmingUp* const progress_;

  std::vector<uint64_t> listed_;  // to be read
  size_t next_ = 0;
  storage::PagesWanted wanted_;
  std::vector<storage::PagesWanted*> over_;  // scratch

  int64_t next_save_ns_ = 0;  // 0: nobody has asked yet
  PagesInMemory walk_;
  bool looking_ = false;
  runtime::FileHandle file_ = -1;
  std::vector<std::byte> bytes_;  // being written
  bool writing_ = false;
  std::vector<runtime::IoCompletion> completions_;     // scratch
  std::unique_ptr<runtime::FileSystem::Queue> queue_;  // of writes; it ends before what it writes
  std::optional<storage::PageFetcher> fetcher_;        // empty: it has read all that it will
};

}  // namespace islands::recovery
