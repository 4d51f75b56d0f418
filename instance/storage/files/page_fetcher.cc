#include "instance/storage/files/page_fetcher.h"

#include <utility>

#include "runtime/check.h"

namespace islands::storage {

PageFetcher::~PageFetcher() = default;

void PageFetcher::Start(std::span<const Pager::Place> pages, PagesWanted* wait) {
  ISLANDS_CHECK(wait->left == 0);
  if (files_ != &pager_.files()) {
    ISLANDS_CHECK(!reading());
    files_ = &pager_.files();
    queue_ = files_->MakeQueue();
  }
  for (const Pager::Place& place : pages) {
    const auto found = under_way_.find(place);
    if (found != under_way_.end()) {
      std::vector<PagesWanted*>& waits = reads_[found->second].waits;
      if (waits.back() != wait) waits.push_back(wait), ++wait->left;  // else it has asked twice
      continue;
    }
    if (free_.empty()) {
      free_.push_back(reads_.size());
      reads_.emplace_back();
      room_.push_back(std::make_unique<DiskPage>());
    }
    const size_t number = free_.back();
    Read& read = reads_[number];
    runtime::IoRequest request{.buffer = room_[number]->bytes, .token = number};
    if (!pager_.BeginRead(place, &read.seen, &request)) continue;
    free_.pop_back();
    read.place = place;
    read.waits.push_back(wait);
    ++wait->left;
    under_way_.emplace(place, number);
    queue_->Enqueue(request);
  }
}

size_t PageFetcher::Poll(std::vector<PagesWanted*>* over) {
  if (!reading()) return 0;
  completions_.clear();
  queue_->Poll(&completions_);
  size_t count = 0;
  for (const runtime::IoCompletion& completion : completions_) {
    Read& read = reads_[completion.token];
    const absl::Status status =
        pager_.EndRead(read.place, read.seen, completion, room_[completion.token]->bytes);
    under_way_.erase(read.place);
    for (PagesWanted* wait : read.waits) {
      wait->status.Update(status);
      ISLANDS_CHECK(wait->left > 0);
      if (--wait->left == 0) over->push_back(wait), ++count;
    }
    read.waits.clear();
    free_.push_back(completion.token);
  }
  return count;
}

void PageFetcher::WaitFor(int64_t timeout_ns) {
  if (reading()) queue_->Wait(timeout_ns);
}

}  // namespace islands::storage
