#include "runtime/file_system_memory_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace islands::runtime {

void SimulatedFile::Write(uint64_t offset, std::span<const std::byte> bytes, bool lost) {
  if (bytes.empty()) return;
  const uint64_t end = offset + bytes.size();
  if (content_.size() < end) content_.resize(end);
  std::memcpy(content_.data() + offset, bytes.data(), bytes.size());
  if (lost) return;
  const uint64_t first = offset / sector_bytes_ * sector_bytes_;
  const uint64_t last = (end + sector_bytes_ - 1) / sector_bytes_ * sector_bytes_;
  Change change = TakeSectors(first, last);
  change.number = ++changes_;
  unsynced_.push_back(std::move(change));
}

void SimulatedFile::Resize(uint64_t bytes, bool lost) {
  const bool cut = bytes < content_.size();
  content_.resize(bytes);
  if (lost) return;
  // A sector that is cut is written again; growing changes none.
  const uint64_t first = bytes / sector_bytes_ * sector_bytes_;
  Change change = TakeSectors(first, cut && first < bytes ? first + sector_bytes_ : first);
  change.number = ++changes_;
  change.end = bytes;
  change.cut = cut;
  unsynced_.push_back(std::move(change));
}

SimulatedFile::Change SimulatedFile::TakeSectors(uint64_t first, uint64_t last) const {
  Change change{.end = std::min<uint64_t>(content_.size(), last), .offset = first};
  if (first < content_.size()) change.sectors = content_.substr(first, last - first);
  change.sectors.resize(last - first);  // zeros beyond the end, as in the page cache
  return change;
}

void SimulatedFile::Sync(uint64_t changes) {
  while (!unsynced_.empty() && unsynced_.front().number <= changes) {
    Apply(unsynced_.front());
    unsynced_.pop_front();
  }
}

void SimulatedFile::LosePower(Random* random) {
  if (random != nullptr) {
    for (size_t left = unsynced_.size(); left > 1; --left) {
      std::swap(unsynced_[left - 1], unsynced_[random->Below(left)]);
    }
    for (const Change& change : unsynced_) {
      enum { kNothing, kAll, kPart, kFates };
      const uint64_t fate = random->Below(kFates);
      if (fate == kAll) Apply(change);
      if (fate == kPart) ApplyInPart(change, random);
    }
  }
  unsynced_.clear();
  content_ = disk_;
}

void SimulatedFile::Apply(const Change& change) {
  if (change.cut || disk_.size() < change.end) disk_.resize(change.end);
  CopySectors(change, 0, change.sectors.size());
}

// Each sector by itself; the file's length follows the last of them, or was noted before the data.
void SimulatedFile::ApplyInPart(const Change& change, Random* random) {
  if (change.cut) return Apply(change);  // whole or not at all
  const bool length_noted = random->Below(2) == 0;
  if (length_noted && disk_.size() < change.end) disk_.resize(change.end);
  for (size_t at = 0; at < change.sectors.size(); at += sector_bytes_) {
    if (random->Below(2) == 0) continue;
    const uint64_t end = std::min<uint64_t>(change.end, change.offset + at + sector_bytes_);
    if (disk_.size() < end) disk_.resize(end);
    CopySectors(change, at, sector_bytes_);
  }
}

// Not beyond the disk's end of the file: what a sector has there belongs to changes that have not survived.
void SimulatedFile::CopySectors(const Change& change, size_t first_byte, size_t bytes) {
  const uint64_t to = change.offset + first_byte;
  if (to >= disk_.size()) return;
  std::memcpy(disk_.data() + to, change.sectors.data() + first_byte,
              std::min<uint64_t>(bytes, disk_.size() - to));
}

}  // namespace islands::runtime
