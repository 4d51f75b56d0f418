// Turns the changes that storage names (page_change.h) into the body of a log record, and stamps pages with
// LSNs. The worker that owns a collector makes it this thread's page_change_sink.
//
//   Begin            a record begins: an empty body, and the epoch for what follows
//   BeforeChange     remembered
//   BeforeRelease    the new bytes of all changed pages are there and nobody else has seen them: their LSN is
//                    set, and a group for each is appended to the body (page_changes_format.h has the layout)
//
// A page that is new, is in the log for the first time (LSN 0), or has mostly changed, is written as an
// image.
//
// Thread safety: none; one thread's.
//
// Invariants:
//  1. LSN of a step = max(last LSN given here, its pages', epoch << 24) + 1, and its pages have it when the
//     first of their latches goes. So it is above that of every step that this one builds on, on any page. A
//     page's LSN never falls, whatever happens to its bytes.
//  2. A group tells of the page as it is released; pages without changes leave nothing in the body.
//  3. The body ends with a whole group, whenever the thread is not within BeforeRelease.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "instance/log/lsn.h"
#include "instance/log/page_changes_buffer.h"
#include "instance/log/page_changes_format.h"
#include "instance/storage/pages/page_change.h"

namespace islands::log {

// What a step (page_change.h) leaves in a body at most: a split of the root changes four pages, among them
// the site header; a merge likewise. Written as an image a page takes no more than its bytes and a head, and
// it is written as one when its changes would take more.
inline constexpr size_t kMostPagesOfAStep = 4;
inline constexpr size_t kMostGroupBytes = storage::kPageBytes + 512;
inline constexpr size_t kMostStepBytes = kMostPagesOfAStep * kMostGroupBytes;

class PageChangeCollector final : public storage::PageChangeSink {
 public:
  // A page that is latched and about to change. More changes than there is room for make an image.
  struct ChangedPage {
    static constexpr uint32_t kMostChanges = 12;
    const std::byte* page = nullptr;
    // At its first change.
    uint64_t lsn = 0;
    uint16_t stamper = 0;
    size_t bytes = 0;  // of all changes
    uint32_t count = 0;
    std::array<storage::PageChange, kMostChanges> changes;
  };

  // What follows is above `last`. Pages get `stamper` with their LSNs.
  explicit PageChangeCollector(Lsn last = {}, uint16_t stamper = 0) : stamper_(stamper), last_(last) {}

  // Groups are appended to `body` from now on, as a body of their own; those of a step under way too.
  void Begin(uint64_t epoch, RecordBuffer* body);
  // The box's epoch as read later, within a record; an earlier one than before changes nothing.
  void RaiseEpoch(uint64_t epoch) { floor_ = std::max(floor_, Lsn::Of(epoch, 0)); }

  // The first change of a step is the commonest, and often the only one.
  void BeforeChange(const std::byte* page, const storage::PageChange& change) override {
    if (changed_pages_ != 0 || room_ == 0) return AddChange(page, change);
    Begin(&pages_.front(), page);
    pages_.front().bytes = change.bytes;
    pages_.front().count = 1;
    pages_.front().changes[0] = change;
    changed_pages_ = 1;
  }
  void BeforeRelease(std::byte* page) override {
    if (changed_pages_ != 0) Release(page);
  }
  // Pages are latched and have changes of which the body does not tell yet.
  bool within_step() const { return changed_pages_ != 0; }
  std::span<const ChangedPage> step() const { return {pages_.data(), changed_pages_}; }
  bool InStep(const std::byte* page);
  // Bytes within values of one page, and not all of it as an image: whatever else happens to the page
  // meanwhile, but for an image of it, may be done again with or without them.
  bool LightStep() const;
  // The LSN of the step, if its first latch went now. Above `lsn`: it, and whatever follows.
  Lsn NextStamp() const;
  void StampAbove(Lsn lsn) { last_ = std::max(last_, lsn); }

  // An LSN for what is no change of a page: a COMMIT, a PREPARE.
  Lsn Stamp() { return last_ = std::max(last_, floor_).Next(); }
  // The highest LSN given so far.
  Lsn last() const { return last_; }
  // Whether it lies in a later epoch than the one told: a page brought it from there, or the counter was
  // full. The caller raises the box's epoch to last().epoch(), if it is not there yet, before any lock goes.
  bool AheadOfEpoch() const { return last_.epoch() > floor_.epoch(); }

 private:
  static_assert(ChangedPage::kMostChanges <= kMostGroupChanges);

  static void Begin(ChangedPage* changed, const std::byte* page) {
    const auto& header = *reinterpret_cast<const storage::PageHeader*>(page);
    changed->page = page;
    changed->lsn = header.lsn;
    changed->stamper = header.stamper;
  }
  void AddChange(const std::byte* page, const storage::PageChange& change);
  ChangedPage* Find(const std::byte* page);
  ChangedPage* Add(const std::byte* page);
  void GrowPages();
  void Release(const std::byte* page);
  void Stamp(const ChangedPage& changed);
  void WriteGroup(const ChangedPage& changed, uint32_t count, bool image);
  void WriteAnyGroup(const ChangedPage& changed);
  static bool MostlyChanged(const ChangedPage& changed);
  static std::byte* PutChange(std::byte* to, const std::byte* page, const storage::PageChange& change);
  static std::byte* PutEntry(std::byte* to, const std::byte* page, const storage::PageChange& change);

  const uint16_t stamper_;
  // Of this record.
  RecordBuffer* body_ = nullptr;
  storage::PageId before_page_;  // of the last group
  Lsn before_lsn_;
  // Of this thread, over all records.
  Lsn last_;
  Lsn floor_;
  // As many pages as were ever latched at once; the first `changed_pages_` are now, in any order.
  std::vector<ChangedPage> pages_;
  size_t changed_pages_ = 0;
  size_t room_ = 0;  // for them: pages_.size(), without a division
};

}  // namespace islands::log
