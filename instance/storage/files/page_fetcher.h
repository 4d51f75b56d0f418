// Pages on their way to memory, while the worker whose transactions wait for them does other work (pager.h).
//
// Thread safety: owned by one thread. The pager outlives it, and takes other files (Pager::Attach) only while
// nothing is under way.
//
// Invariants:
//  1. Of a page there is one read at a time; whoever wants it meanwhile waits for the same.
//  2. A wait's `left` counts the reads under way that it waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/pager.h"
#include "runtime/file_system.h"

namespace islands::storage {

// Of who waits; it stays where it is while anything is left.
struct PagesWanted {
  uint32_t left = 0;       // reads
  uint32_t rounds = 0;     // waits since he has last found all that he wanted
  uint32_t of_scan = 0;    // the same of the scan that he is at
  absl::Status status;     // the first error: Pager::Fetch
  void* waiter = nullptr;  // his own
};

class PageFetcher {
 public:
  explicit PageFetcher(Pager& pager) : pager_(pager) {}
  ~PageFetcher();
  PageFetcher(const PageFetcher&) = delete;
  PageFetcher& operator=(const PageFetcher&) = delete;

  // Begins to read what of these pages is on disk. Nothing may be left of an earlier wait.
  void Start(std::span<const Pager::Place> pages, PagesWanted* wait);
  // Puts what has come in its place. Appends the waits of which nothing is left; returns how many.
  size_t Poll(std::vector<PagesWanted*>* over);
  // Sleeps until Poll has something to do, or the time is over; not at all if nothing is under way.
  void WaitFor(int64_t timeout_ns);
  bool reading() const { return !under_way_.empty(); }

 private:
  struct Read {
    Pager::Place place;
    PageState seen;
    std::vector<PagesWanted*> waits;
  };

  Pager& pager_;
  absl::flat_hash_map<Pager::Place, size_t> under_way_;  // their numbers
  std::vector<Read> reads_;                              // by number, which is the request's token
  std::vector<std::unique_ptr<DiskPage>> room_;          // likewise
  std::vector<size_t> free_;                             // numbers
  std::vector<runtime::IoCompletion> completions_;       // scratch
  runtime::FileSystem* files_ = nullptr;                 // whose the queue is
  std::unique_ptr<runtime::FileSystem::Queue> queue_;    // last: it ends before the room that it reads into
};

}  // namespace islands::storage
