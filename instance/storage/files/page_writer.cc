#include "instance/storage/files/page_writer.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

using runtime::IoKind;
using runtime::IoRequest;
using runtime::Planted;
using runtime::PlantedBug;

PageWriter::PageWriter(runtime::FileSystem& files, const DataFiles& data, size_t batch_pages)
    : data_(data), pages_(1 + batch_pages), targets_(batch_pages), queue_(files.MakeQueue()) {
  ISLANDS_CHECK(batch_pages >= 1 && batch_pages <= kMostBatchPages);
}

PageBytes PageWriter::Add(size_t slot, uint64_t number) {
  ISLANDS_CHECK(!busy() && !complete() && failure_.ok());
  targets_[count_] = {slot, number};
  return pages_[++count_].bytes;
}

void PageWriter::Begin() {
  ISLANDS_CHECK(!busy() && count_ != 0);
  const std::span<DiskPage> batch(pages_.data() + 1, count_);
  for (DiskPage& page : batch) StampChecksum(page.bytes);
  EncodeBatchHeader(++number_, batch, &pages_[0]);
  Planted(PlantedBug::kSkipDoubleWrite) ? WriteHome() : WriteCopies();
}

// `more` follow in the same go.
void PageWriter::Submit(const IoRequest& request, bool more) {
  more ? queue_->Enqueue(request) : queue_->Submit(request);
  ++under_way_;
}

void PageWriter::WriteCopies() {
  state_ = State::kWritingCopies;
  Submit({.kind = IoKind::kWrite,
          .file = data_.double_write(),
          .buffer = AsBytes(std::span(pages_.data(), 1 + count_))});
}

// Neighbours by one request.
void PageWriter::WriteHome() {
  state_ = State::kWritingHome;
  for (size_t first = 0, end = 0; first < count_; first = end) {
    const Target& begin = targets_[first];
    while (end < count_ && targets_[end].slot == begin.slot &&
           targets_[end].number == begin.number + (end - first)) {
      ++end;
    }
    Submit({.kind = IoKind::kWrite,
            .file = data_.site(begin.slot),
            .offset = begin.number * kPageBytes,
            .buffer = AsBytes(std::span(pages_.data() + 1 + first, end - first))},
           /*more=*/end < count_);
  }
}

void PageWriter::SyncHome() {
  state_ = State::kSyncingHome;
  std::vector<bool> touched(data_.slots());
  for (size_t i = 0; i < count_; ++i) touched[targets_[i].slot] = true;
  for (size_t slot = 0; slot < touched.size(); ++slot) {
    if (touched[slot]) Submit({.kind = IoKind::kSync, .file = data_.site(slot)});
  }
}

bool PageWriter::RunOnce() {
  if (!busy() || !failure_.ok()) return false;
  if (std::exchange(again_, false)) {
    state_ == State::kWritingCopies ? WriteCopies() : WriteHome();
    return false;
  }
  completions_.clear();
  const bool some = queue_->Poll(&completions_) != 0;
  for (const runtime::IoCompletion& completion : completions_) Take(completion.status);
  under_way_ -= completions_.size();
  if (!failure_.ok() || under_way_ != 0) return some;
  again_ = !found_full_.ok();
  full_ = std::exchange(found_full_, absl::OkStatus());
  if (!again_) Advance();
  return !again_;
}

// A failed sync says nothing of what is on disk, so it is not tried again.
void PageWriter::Take(const absl::Status& status) {
  const bool writing = state_ == State::kWritingCopies || state_ == State::kWritingHome;
  if (!writing && Planted(PlantedBug::kIgnorePageSyncError)) return;
  (writing && absl::IsResourceExhausted(status) ? found_full_ : failure_).Update(status);
}

void PageWriter::Advance() {
  switch (state_) {
    case State::kCollecting:
      return;
    case State::kWritingCopies:
      state_ = State::kSyncingCopies;
      return Submit({.kind = IoKind::kSync, .file = data_.double_write()});
    case State::kSyncingCopies:
      return WriteHome();
    case State::kWritingHome:
      return SyncHome();
    case State::kSyncingHome:
      state_ = State::kCollecting;
      done_ += count_;
      count_ = 0;
  }
}

}  // namespace islands::storage
