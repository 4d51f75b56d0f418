// One file of the simulated disk: what readers see, what the disk has, and the changes in between.
//
// The unit is a sector: the disk writes one whole or not at all. A change keeps the sectors that it touched
// as they were right after it, so that whatever survives of a sector is something that the file once held.
//
// Thread safety: none; MemoryFileSystem guards its files.
//
// Invariants:
//  1. content() is the disk's bytes with all changes applied, but for changes that were lost or dropped:
//     those show in content() alone, until power is lost - or until a later change of the same sector takes
//     them along, as a page cache does.
//  2. Changes reach the disk in their order when they are synced, in any order and in part when power is
//     lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "runtime/random.h"

namespace islands::runtime {

class SimulatedFile {
 public:
  explicit SimulatedFile(uint32_t sector_bytes) : sector_bytes_(sector_bytes) {}

  const std::string& content() const { return content_; }

  // `lost`: shows, but no sync will find it.
  void Write(uint64_t offset, std::span<const std::byte> bytes, bool lost);
  void Resize(uint64_t bytes, bool lost);

  // How many changes there have been: what a sync that is submitted now covers.
  uint64_t changes() const { return changes_; }
  void Sync(uint64_t changes);
  // After a failed sync: what was not on disk never gets there, and the next sync does not know.
  void DropUnsynced() { unsynced_.clear(); }
  // The file is what the disk has, and what `random` lets survive of the changes; without it none.
  void LosePower(Random* random);

 private:
  struct Change {
    uint64_t number = 0;
    uint64_t end = 0;     // the file is at least this long afterwards; of a cut exactly
    uint64_t offset = 0;  // of its first sector
    std::string sectors;  // as they were after it
    bool cut = false;     // the file became shorter
  };

  // Of the present content.
  Change TakeSectors(uint64_t first, uint64_t last) const;
  void Apply(const Change& change);
  void ApplyInPart(const Change& change, Random* random);
  void CopySectors(const Change& change, size_t first_byte, size_t bytes);

  const uint32_t sector_bytes_;
  std::string content_;
  std::string disk_;
  std::deque<Change> unsynced_;
  uint64_t changes_ = 0;
};

using SimulatedFilePtr = std::shared_ptr<SimulatedFile>;

}  // namespace islands::runtime
