// Brings copies of pages to disk, a batch at a time: into the double-write area, synced, then home, synced.
//
//   Add ... Add    copies are collected
//   Begin          they may all be written now; nothing is added until busy() is over
//   RunOnce        now and then
//
// Never waits. An error of the disk ends it: what a failed sync has not made durable may be gone, and pages
// that are half written at home need the batch that is there. A write that finds the disk full is tried again
// by RunOnce: the copies are in the double-write area all the time, or nothing is written home yet.
//
// Thread safety: owned by one thread.
//
// Invariants:
//  1. Nothing is written home before its copy is synced, and no copy is overwritten before its home is.
//  2. done() counts pages that are home, and synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/double_write.h"
#include "runtime/file_system.h"

namespace islands::storage {

class PageWriter {
 public:
  // Both outlive it. `batch_pages`: 1 to kMostBatchPages.
  PageWriter(runtime::FileSystem& files, const DataFiles& data, size_t batch_pages);

  size_t size() const { return count_; }
  bool complete() const { return count_ + 1 == pages_.size(); }
  // Where to copy page `number` of a slot to, not complete().
  PageBytes Add(size_t slot, uint64_t number);

  void Begin();
  bool busy() const { return state_ != State::kCollecting; }
  // False: nothing, until something completes.
  bool RunOnce();

  uint64_t done() const { return done_; }
  const absl::Status& failure() const { return failure_; }
  // Why the last writes have to be tried again: the disk is full. OK otherwise.
  const absl::Status& full() const { return full_; }
  // For whoever sleeps until something completes.
  runtime::FileSystem::Queue& queue() { return *queue_; }

 private:
  enum class State : uint8_t { kCollecting, kWritingCopies, kSyncingCopies, kWritingHome, kSyncingHome };
  struct Target {
    size_t slot;
    uint64_t number;
  };
  void Take(const absl::Status& status);
  void Advance();
  void WriteCopies();
  void WriteHome();
  void SyncHome();
  void Submit(const runtime::IoRequest& request, bool more = false);

  const DataFiles& data_;
  std::vector<DiskPage> pages_;  // the batch's header, then its pages
  std::vector<Target> targets_;  // where each has its home
  size_t count_ = 0;
  uint64_t number_ = 0;  // of the batch
  uint64_t done_ = 0;
  State state_ = State::kCollecting;
  size_t under_way_ = 0;
  absl::Status failure_;
  absl::Status full_;
  absl::Status found_full_;  // by what is under way
  bool again_ = false;       // the writes of this state
  std::vector<runtime::IoCompletion> completions_;
  std::unique_ptr<runtime::FileSystem::Queue> queue_;  // last: it ends before the pages that it writes
};

}  // namespace islands::storage
