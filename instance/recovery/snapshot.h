// All pages of an island as they were at one moment, in the set of data files that does not count: where
// commands are in the log (command_replay.h) pages of several moments would be of no use. Transactions go on
// meanwhile; a page that changes before it was visited is copied first (as in H-Store's successor: copy on
// write, at the first change).
//
//   Begin     between two steps of the worker. Every record so far is of epoch() at most, every later one of
//             a later epoch
//   RunOnce   a small piece of work: visits pages, writes some, in the end syncs all
//   done      the other set of files has the pages. Who keeps the checkpoint may say so
//
// Only pages are written that this set does not have: those that have changed since it was written last in
// this life, all at first. The set that counts is not touched.
//
// Thread safety: owned by the island's one worker.
//
// Invariants:
//  1. What is in the file of a page is the page as Begin has found it: before-images come first.
//  2. Between Begin and the end of the visit every change of a page comes to Keep before it is made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "instance/log/journal.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/store.h"
#include "runtime/file_system.h"

namespace islands::recovery {

class Snapshot final : private log::Journal::BeforeImages {
 public:
  // All outlive it.
  Snapshot(runtime::FileSystem& files, storage::Store& store, storage::DataFiles& data,
           log::Journal& journal);
  ~Snapshot() override;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  absl::Status Begin();
  // False: nothing, until something completes.
  bool RunOnce(size_t pages);
  bool done() const { return state_ == State::kDone; }
  // Of the disk, or of a page that was there; nothing more is done.
  const absl::Status& failure() const { return failure_; }
  // Why it goes on later: the disk is full. OK otherwise.
  const absl::Status& full() const { return full_; }

  uint64_t epoch() const { return epoch_; }
  // By slot: how many pages there were.
  const std::vector<uint64_t>& ends() const { return ends_; }
  uint64_t written() const { return written_; }  // pages, in all
  size_t kept() const { return kept_.size(); }   // before-images that are still to be written

 private:
  enum class State : uint8_t { kIdle, kVisiting, kWriting, kSyncing, kDone };
  using Place = std::pair<uint32_t, uint64_t>;  // slot and number

  void Keep(const std::byte* page) override;
  void Visit();
  void WriteBatch();
  void SyncAll();
  void Take();
  void Refuse(const Place& place, uint64_t lsn);
  void Abandon();
  bool Visited(const Place& place) const { return place < Place{slot_, page_}; }

  static constexpr size_t kBatchPages = 256;

  runtime::FileSystem& files_;
  storage::Store& store_;
  storage::DataFiles& data_;
  log::Journal& journal_;
  State state_ = State::kIdle;
  uint64_t epoch_ = 0;
  std::array<uint64_t, 2> written_at_{};  // by set: everything up to this epoch is in it, by this life
  std::vector<uint64_t> ends_;
  uint32_t slot_ = 0;  // to visit next
  uint64_t page_ = 0;
  absl::flat_hash_map<Place, std::unique_ptr<storage::DiskPage>> kept_;
  std::vector<storage::DiskPage> batch_;
  std::vector<Place> places_;  // of those in the batch
  std::vector<uint64_t> lsns_;
  size_t under_way_ = 0;
  bool again_ = false;  // the writes of the batch
  uint64_t written_ = 0;
  absl::Status failure_;
  absl::Status full_;
  std::vector<runtime::IoCompletion> completions_;
  std::unique_ptr<runtime::FileSystem::Queue> queue_;  // last: it ends before the pages that it writes
};

}  // namespace islands::recovery
