// What the journals of an island's workers share.
//
// Thread safety: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "instance/log/lsn.h"

namespace islands::log {

// The epoch of the last record of an island that ended a transaction for good, at least: whoever has seen
// what it did depends on it. A new life begins with that of the last record it has recovered: an answer that
// depends on no more must not wait for an epoch in which nothing was ever appended, since the logger sleeps.
class CommitEpoch {
 public:
  explicit CommitEpoch(uint64_t epoch) : epoch_(epoch) {}
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void Raise(uint64_t epoch) {
    uint64_t now = epoch_.load(std::memory_order_relaxed);
    while (now < epoch && !epoch_.compare_exchange_weak(now, epoch, std::memory_order_acq_rel)) {
    }
  }

 private:
  std::atomic<uint64_t> epoch_;
};

// Of an island with several workers.
class IslandLog {
 public:
  // `last`: the highest LSN of any page.
  IslandLog(size_t workers, uint64_t commit_epoch, Lsn last)
      : commits_(commit_epoch), shown_(std::make_unique<Shown[]>(workers)), workers_(workers) {
    for (size_t worker = 0; worker < workers; ++worker) SetShown(worker, last);
  }

  CommitEpoch& commits() { return commits_; }
  const CommitEpoch& commits() const { return commits_; }
  size_t workers() const { return workers_; }
  // The LSN of the last record that the worker has shown: every change that it has stamped with no more is
  // in the log, in this record or one before.
  Lsn shown(size_t worker) const {
    return Lsn::FromValue(shown_[worker].lsn.load(std::memory_order_acquire));
  }
  void SetShown(size_t worker, Lsn lsn) { shown_[worker].lsn.store(lsn.value(), std::memory_order_release); }

 private:
  struct alignas(64) Shown {
    std::atomic<uint64_t> lsn;
  };
  CommitEpoch commits_;
  std::unique_ptr<Shown[]> shown_;
  size_t workers_;
};

}  // namespace islands::log
