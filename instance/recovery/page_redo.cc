#include "instance/recovery/page_redo.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

namespace islands::recovery {
namespace {

constexpr size_t kBatchBytes = 128 << 10;  // with the pages' lines no more than a core's own cache
constexpr size_t kBatches = 4;             // collected ahead of the slowest lane
constexpr size_t kAhead = 12;              // changes between fetching a page and changing it
constexpr size_t kFetched = 16;            // pages of so many changes come from disk together
constexpr size_t kEntryAhead = 6;  // between fetching what is changed on it, which the page says, and that

using log::PageChangeGroup;
using runtime::MutexLock;

}  // namespace

absl::Status CannotRepeat(const log::StreamId& stream, log::Lsn lsn, const absl::Status& why) {
  return absl::DataLossError(fmt::format("record {} of life {} of island {} cannot be repeated: {}",
                                         log::ToString(lsn), stream.life, stream.island,
                                         std::string(why.message())));
}

void PageRedo::Batch::Clear() {
  bytes.clear();
  origins.clear();
  for (std::vector<Change>& of_lane : changes) of_lane.clear();
}

PageRedo::PageRedo(storage::Store& store, uint32_t lanes)
    : store_(store), lanes_(std::max(lanes, 1u)), batches_(lanes_ > 1 ? kBatches : 1), made_(lanes_) {}

PageRedo::~PageRedo() { EndLanes(); }

// They make what has been handed over first.
void PageRedo::EndLanes() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  moved_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const MutexLock lock(mutex_);
  stop_ = false;
}

absl::Status PageRedo::Add(const log::StreamId& stream, log::Lsn lsn, std::span<const std::byte> changes) {
  if (changes.empty()) return absl::OkStatus();
  Batch* batch = &batches_[collected_ % batches_.size()];
  if (batch->bytes.capacity() - batch->bytes.size() < changes.size() && !batch->bytes.empty()) {
    if (absl::Status handed = HandOver(); !handed.ok()) return handed;
    batch = &batches_[collected_ % batches_.size()];
  }
  if (batch->origins.empty()) {
    batch->changes.resize(lanes_);
    batch->bytes.reserve(std::max(kBatchBytes, changes.size()));
  }
  const size_t begin = batch->bytes.size();
  batch->bytes.insert(batch->bytes.end(), changes.begin(), changes.end());
  const auto origin = static_cast<uint32_t>(batch->origins.size());
  batch->origins.push_back({stream, lsn});
  log::PageChangeReader reader(std::span(batch->bytes).subspan(begin));
  PageChangeGroup group;
  while (reader.Next(&group)) batch->changes[LaneOf(group.page())].push_back({group, origin});
  return reader.status().ok() ? absl::OkStatus() : CannotRepeat(stream, lsn, reader.status());
}

absl::Status PageRedo::HandOver() {
  const MutexLock lock(mutex_);
  if (!status_.ok() || batches_[collected_ % batches_.size()].origins.empty()) return status_;
  if (lanes_ == 1) {
    status_ = Make(batches_.front(), 0);
    batches_.front().Clear();
    return status_;
  }
  try {
    for (auto lane = static_cast<uint32_t>(threads_.size()); lane < lanes_; ++lane)
      threads_.emplace_back([this, lane, batch = collected_] { RunLane(lane, batch); });
  } catch (const std::system_error& error) {
    status_ = absl::ResourceExhaustedError(fmt::format(
        "cannot start thread {} of {} that repeat the log: {}; raise the limit on processes, or take "
        "fewer workers",
        threads_.size() + 1, lanes_, error.what()));
    return status_;
  }
  ready_ = ++collected_;
  moved_.notify_all();
  moved_.wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return MadeByAll() + batches_.size() > ready_;
  });
  batches_[collected_ % batches_.size()].Clear();
  return status_;
}

absl::Status PageRedo::Finish() {
  absl::Status status = HandOver();
  EndLanes();
  for (Batch& batch : batches_) batch = Batch();
  const MutexLock lock(mutex_);
  status.Update(status_);
  return status;
}

absl::Status PageRedo::Make(const Batch& batch, uint32_t lane) const {
  const std::vector<Change>& changes = batch.changes[lane];
  for (size_t i = 0; i < changes.size(); ++i) {
    if (store_.pager() != nullptr && i % kFetched == 0) {
      const size_t end = std::min(changes.size(), i + kFetched);
      if (absl::Status fetched = FetchAhead(std::span(changes).subspan(i, end - i)); !fetched.ok())
        return fetched;
    }
    if (i + kAhead < changes.size()) store_.PrefetchForRedo(changes[i + kAhead].group.page());
    if (i + kEntryAhead < changes.size()) {
      const PageChangeGroup& group = changes[i + kEntryAhead].group;
      uint32_t slot = 0;
      size_t end = 0;
      if (group.ChangesValue(&slot, &end)) store_.PrefetchEntryForRedo(group.page(), slot, end);
    }
    if (absl::Status made = Make(changes[i].group); !made.ok()) {
      const Origin& origin = batch.origins[changes[i].origin];
      return CannotRepeat(origin.stream, origin.lsn, made);
    }
  }
  return absl::OkStatus();
}

// What is not whole is an error only if it is still wanted when its turn comes: an image may come before.
absl::Status PageRedo::FetchAhead(std::span<const Change> changes) const {
  std::vector<storage::PageId> pages;
  for (const Change& change : changes) {
    if (!change.group.is_image()) pages.push_back(change.group.page());
  }
  const absl::Status fetched = store_.FetchForRedo(pages);
  return absl::IsDataLoss(fetched) ? absl::OkStatus() : fetched;
}

absl::Status PageRedo::Make(const PageChangeGroup& group) const {
  if (!group.is_image() && !store_.HasPage(group.page())) {
    return absl::DataLossError(
        fmt::format("page {} of site {} is not whole in its data file, and the log does not have all of it: "
                    "restore data and log from a copy",
                    group.page().number(), group.page().site()));
  }
  if (!group.is_image()) {
    if (absl::Status fetched = store_.FetchForRedo(group.page()); !fetched.ok()) return fetched;
  }
  const storage::GuardX page = store_.PageForRedo(group.page(), group.is_image());
  if (!page) {
    return absl::DataLossError(
        fmt::format("this island has no page {} of site {}", group.page().number(), group.page().site()));
  }
  return log::Redo(group, std::span<std::byte, storage::kPageBytes>(page.Redo(), storage::kPageBytes));
}

// A page is of no use behind an error: of that lane, nothing more is made.
void PageRedo::RunLane(uint32_t lane, uint64_t batch) {
  absl::Status status;
  for (; Await(batch); ++batch) {
    if (status.ok()) status = Make(batches_[batch % batches_.size()], lane);
    const MutexLock lock(mutex_);
    status_.Update(status);
    made_[lane] = batch + 1;
    moved_.notify_all();
  }
}

bool PageRedo::Await(uint64_t batch) {
  const MutexLock lock(mutex_);
  moved_.wait(mutex_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || batch < ready_; });
  return batch < ready_;
}

uint64_t PageRedo::MadeByAll() const { return *std::min_element(made_.begin(), made_.end()); }

}  // namespace islands::recovery
