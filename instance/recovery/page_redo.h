// Makes the changes of log records on pages again.
//
// Records are collected in batches, for two reasons. Pages are in no cache, and in a batch it is known which
// are next: they are fetched ahead. And sites have no pages in common: each of several lanes, a thread of its
// own, makes the changes of its sites batch by batch, while the next batches are collected.
//
//   Add      the changes of one record. They may be made at any time until Finish returns
//   Flush    all of them have been made
//   Finish   all of them have been made, and threads and batches are gone until the next Add
//
// Thread safety: used by one thread.
//
// Invariants:
//  1. The changes of a page are made in the order in which they were added: a site has one lane.
//  2. Behind an error nothing is promised of any page, and Finish says it, if no Add has.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "instance/log/lsn.h"
#include "instance/log/page_changes_reader.h"
#include "instance/log/record.h"
#include "instance/storage/store.h"
#include "runtime/mutex.h"

namespace islands::recovery {

absl::Status CannotRepeat(const log::StreamId& stream, log::Lsn lsn, const absl::Status& why);

class PageRedo {
 public:
  // `store` of Store::CreateForRedo; with several lanes not one of a single thread. One lane is the caller's
  // thread.
  PageRedo(storage::Store& store, uint32_t lanes);
  ~PageRedo();
  PageRedo(const PageRedo&) = delete;
  PageRedo& operator=(const PageRedo&) = delete;

  // DATA_LOSS: `changes` are none; or those of an earlier record do not fit the pages.
  absl::Status Add(const log::StreamId& stream, log::Lsn lsn, std::span<const std::byte> changes);
  absl::Status Finish();
  // The same, and more may follow soon.
  absl::Status Flush() { return lanes_ == 1 ? HandOver() : Finish(); }

 private:
  struct Origin {
    log::StreamId stream;
    log::Lsn lsn;
  };
  struct Change {
    log::PageChangeGroup group;  // in `bytes` of its batch
    uint32_t origin;             // number in its batch
  };
  struct Batch {
    std::vector<std::byte> bytes;  // never moved while there are changes
    std::vector<Origin> origins;
    std::vector<std::vector<Change>> changes;  // by lane
    void Clear();
  };

  uint32_t LaneOf(storage::PageId page) const { return page.site() % lanes_; }
  // The batch that is being collected goes to the lanes.
  absl::Status HandOver();
  void EndLanes();
  absl::Status Make(const Batch& batch, uint32_t lane) const;
  absl::Status Make(const log::PageChangeGroup& group) const;
  absl::Status FetchAhead(std::span<const Change> changes) const;
  void RunLane(uint32_t lane, uint64_t batch);
  // False: there is no batch with that number, and none will come.
  bool Await(uint64_t batch);
  uint64_t MadeByAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  storage::Store& store_;
  const uint32_t lanes_;
  std::vector<Batch> batches_;  // batch n is in [n % size]
  uint64_t collected_ = 0;      // and handed over: their number

  runtime::Mutex mutex_;
  std::condition_variable_any moved_;
  uint64_t ready_ ABSL_GUARDED_BY(mutex_) = 0;          // batches for the lanes
  std::vector<uint64_t> made_ ABSL_GUARDED_BY(mutex_);  // by each lane
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace islands::recovery
