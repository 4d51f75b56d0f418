// Where storage can be interrupted, and who notices that it has come there: a file system and a listener to
// pages that stand between the engine and the product's. The engine has no word of it.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instance/log/entry.h"
#include "instance/log/journal.h"
#include "instance/log/ring.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/storage/pages/page.h"
#include "instance/storage/pages/page_change.h"
#include "runtime/file_system_forwarding.h"

namespace islands::recovery {

// Each *before*, when what it does cannot be found yet, and *after*: a record is in the ring, a request is
// under way, a name is there; that is not durable yet.
enum class Point : uint8_t {
  // A worker:
  kSplit,       // of a page
  kSplitRoot,   // the tree has a level more
  kMerge,       // of two pages
  kShrinkRoot,  // the tree has a level less
  kReusePage,   // that was free becomes another one
  kBury,        // a ghost
  kCommit,      // after: its ghosts are still there
  kCompensate,  // a step of an undo; more are to come
  kRingWrap,    // the ring begins again
  // The logger:
  kNewSegment,     // is made
  kSwitchSegment,  // the first records go there
  kEpoch,          // EPOCH is written
  kEpochSync,      // and synced
  kRemoveSegment,  // that no checkpoint needs
  // The cleaner:
  kPassBegins,      // it looks at EPOCH for the next checkpoint
  kPassMiddle,      // some batches are home, and there are more
  kCopies,          // a batch goes to the double-write area
  kCopiesSync,      // and is synced there
  kHome,            // the first of its pages goes home; after: the others, too, but one
  kHomeSync,        // all have gone, and are synced
  kCheckpoint,      // its block is written
  kCheckpointSync,  // and synced
  // Recovery:
  kDraining,       // what the rings have is brought to the log's files
  kRestoring,      // pages come home from the double-write area
  kReading,        // the log; nothing is repeated
  kRedoing,        // in the middle of a batch
  kLanes,          // several threads repeat batches
  kUndoing,        // between two transactions
  kCleaningAfter,  // the first pages and the first checkpoint of the new life
};
inline constexpr size_t kPoints = 29;
inline constexpr size_t kFirstOfRecovery = static_cast<size_t>(Point::kDraining);

// Why the point has no such side, or a worker alone does not come by; null: it must be reached.
struct PointRow {
  Point point;
  std::string_view name;
  const char* no_after = nullptr;
  const char* by_chance_with_one = nullptr;  // or never
};
// clang-format off
inline constexpr const char* kOnlyReads = "nothing is changed";
inline constexpr std::array<PointRow, kPoints> kPointTable = {{
    {Point::kSplit, "split"},
    {Point::kSplitRoot, "split of a root"},
    {Point::kMerge, "merge"},
    {Point::kShrinkRoot, "a root takes its last child"},
    {Point::kReusePage, "page used again"},
    {Point::kBury, "burial of a ghost"},
    {Point::kCommit, "commit"},
    {Point::kCompensate, "compensation", nullptr, "shown with the end, but for a full ring (steps_test.cc)"},
    {Point::kRingWrap, "ring wraps"},
    {Point::kNewSegment, "segment made"},
    {Point::kSwitchSegment, "segment begun"},
    {Point::kEpoch, "EPOCH written"},
    {Point::kEpochSync, "EPOCH synced"},
    {Point::kRemoveSegment, "segment removed"},
    {Point::kPassBegins, "checkpoint begins", kOnlyReads},
    {Point::kPassMiddle, "checkpoint's middle"},
    {Point::kCopies, "double write: copies"},
    {Point::kCopiesSync, "double write: copies synced"},
    {Point::kHome, "double write: home"},
    {Point::kHomeSync, "double write: home synced"},
    {Point::kCheckpoint, "master record"},
    {Point::kCheckpointSync, "master record synced"},
    {Point::kDraining, "recovery: draining"},
    {Point::kRestoring, "recovery: from double write"},
    {Point::kReading, "recovery: reading", kOnlyReads},
    {Point::kRedoing, "recovery: redo", kOnlyReads},
    {Point::kLanes, "recovery: lanes", kOnlyReads, "there is one lane"},
    {Point::kUndoing, "recovery: undo"},
    {Point::kCleaningAfter, "recovery: first cleaning"},
}};
// clang-format on
constexpr bool PointsAreInOrder() {
  for (size_t i = 0; i < kPoints; ++i) {
    if (static_cast<size_t>(kPointTable[i].point) != i) return false;
  }
  return true;
}
static_assert(PointsAreInOrder());

using Reached = std::function<void(Point point, bool before)>;

// Another file system, of which somebody is told what is done to its files, before and after.
class WatchedFiles final : public runtime::ForwardingFileSystem {
 public:
  enum class Act : uint8_t { kMake, kRemove, kRead, kWrite, kSync };
  using Look = std::function<void(Act act, const std::string& path, bool before)>;

  WatchedFiles(runtime::FileSystem& files, Look look)
      : ForwardingFileSystem(files), files_(files), look_(std::move(look)) {}

  absl::StatusOr<runtime::FileHandle> Open(const std::string& path, bool create, bool direct) override {
    const bool makes = create && !files_.Exists(path);
    if (makes) look_(Act::kMake, path, /*before=*/true);
    absl::StatusOr<runtime::FileHandle> file = files_.Open(path, create, direct);
    if (file.ok()) paths_[*file] = path;
    if (makes) look_(Act::kMake, path, /*before=*/false);
    return file;
  }
  std::unique_ptr<Queue> MakeQueue() override {
    return std::make_unique<WatchedQueue>(*this, files_.MakeQueue());
  }
  absl::Status Allocate(runtime::FileHandle file, uint64_t bytes) override {
    absl::Status allocated = files_.Allocate(file, bytes);
    look_(Act::kMake, paths_[file], /*before=*/false);
    return allocated;
  }
  absl::Status Remove(const std::string& path) override {
    look_(Act::kRemove, path, /*before=*/true);
    absl::Status removed = files_.Remove(path);
    look_(Act::kRemove, path, /*before=*/false);
    return removed;
  }

 private:
  class WatchedQueue final : public Queue {
   public:
    WatchedQueue(WatchedFiles& files, std::unique_ptr<Queue> queue)
        : files_(files), queue_(std::move(queue)) {}
    void Submit(const runtime::IoRequest& request) override {
      const Act act = request.kind == runtime::IoKind::kRead    ? Act::kRead
                      : request.kind == runtime::IoKind::kWrite ? Act::kWrite
                                                                : Act::kSync;
      const std::string path = files_.paths_[request.file];
      files_.look_(act, path, /*before=*/true);
      queue_->Submit(request);
      files_.look_(act, path, /*before=*/false);
    }
    size_t Poll(std::vector<runtime::IoCompletion>* completions) override {
      return queue_->Poll(completions);
    }
    void Wait(int64_t timeout_ns) override { queue_->Wait(timeout_ns); }

   private:
    WatchedFiles& files_;
    const std::unique_ptr<Queue> queue_;
  };

  runtime::FileSystem& files_;
  const Look look_;
  std::map<runtime::FileHandle, std::string> paths_;
};

// Between the pages and a worker's journal. A step of pages that change together is *after* once the ring
// shows its record, which of a worker alone may be long after.
class WatchedPages final : public storage::PageChangeSink {
 public:
  WatchedPages(log::Journal& journal, const log::Ring& ring, Reached reached)
      : journal_(journal), ring_(ring), reached_(std::move(reached)), tail_(ring.tail()) {}

  void BeforeChange(const std::byte* page, const storage::PageChange& change) override {
    LookAtRing();
    Note(*reinterpret_cast<const storage::PageHeader*>(page), change);
    journal_.BeforeChange(page, change);
  }
  void BeforeRelease(std::byte* page) override {
    LookAtRing();
    for (const Point point : PointsOf(std::exchange(step_, {}))) Expect(point);
    journal_.BeforeRelease(page);
    LookAtRing();
  }
  void BeforeWait() override {
    journal_.BeforeWait();
    LookAtRing();
  }

  // The next record is that of the point.
  void Expect(Point point) {
    reached_(point, /*before=*/true);
    expected_.insert(point);
  }
  // What the ring shows now and has not when it was looked at last.
  void LookAtRing() {
    const uint64_t tail = ring_.tail(), capacity = ring_.capacity();
    if (tail == tail_) return;
    bool compensates = false;
    const absl::Status whole = VisitRecords(ring_, tail_, tail, [&](const log::Record& record) {
      compensates = static_cast<log::EntryKind>(record.kind) == log::EntryKind::kCompensation;
      return absl::OkStatus();
    });
    EXPECT_TRUE(whole.ok()) << whole;
    const bool wraps = tail / capacity != tail_ / capacity;
    tail_ = tail;
    for (const Point point : std::exchange(expected_, {})) reached_(point, /*before=*/false);
    if (compensates) reached_(Point::kCompensate, /*before=*/false);
    if (wraps) {
      reached_(Point::kRingWrap, /*before=*/false);
    } else if (capacity - tail % capacity < kNear) {
      reached_(Point::kRingWrap, /*before=*/true);
    }
  }

 private:
  static constexpr uint64_t kNear = 8 << 10;
  struct Step {
    size_t taken = 0;   // pages
    size_t reused = 0;  // of them
    size_t freed = 0;
    size_t buried = 0;
  };
  void Note(const storage::PageHeader& page, const storage::PageChange& change) {
    using Kind = storage::PageChange::Kind;
    const bool whole = change.kind == Kind::kBytes && change.offset == 0;
    const bool type = change.kind == Kind::kBytes && change.offset == offsetof(storage::PageHeader, type);
    if (whole && page.type == storage::PageType::kFree) ++step_.taken;
    if (whole && page.type == storage::PageType::kFree && page.page_id != 0) ++step_.reused;
    if (type && page.type == storage::PageType::kTree) ++step_.freed;
    // Entries of an index go without having been ghosts, those of inner pages with a merge.
    if (change.kind == Kind::kRemove && page.level == 0 && page.tree == 0) ++step_.buried;
  }
  static std::vector<Point> PointsOf(const Step& step) {
    std::vector<Point> points;
    if (step.taken == 1) points.push_back(Point::kSplit);
    if (step.taken > 1) points.push_back(Point::kSplitRoot);
    if (step.reused != 0) points.push_back(Point::kReusePage);
    if (step.freed == 1) points.push_back(Point::kMerge);
    if (step.freed > 1) points.push_back(Point::kShrinkRoot);
    if (step.buried != 0) points.push_back(Point::kBury);
    return points;
  }

  log::Journal& journal_;
  const log::Ring& ring_;
  const Reached reached_;
  uint64_t tail_;
  Step step_;
  std::set<Point> expected_;
};

}  // namespace islands::recovery
