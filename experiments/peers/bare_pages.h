// What a disk takes of a program that does nothing but move pages of 4 KiB: the bound for data larger than
// memory, as bare descents are for data within. One thread, io_uring, past the page cache.
//
//   read     random pages, `depth` of them under way all the time
//   update   reads them as fast as there is memory for changed ones, adds 1 to a counter in each, and writes
//            them home, a batch at a time, as islands with a log does, while further ones are being read:
//              log of the batch | sync | batch into a double-write area | sync | pages home | sync
//            A page that is in memory is not read again but passed over.
//
// Thread safety: none; everything happens in the calling thread.
//
// Invariants:
//  1. A buffer is free, being read into, changed, or of the batch that is written.
//  2. No page is in two buffers, so that no change is written over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace islands::experiments {

struct BarePagesOptions {
  std::string directory;  // exists, on the disk that is meant
  uint64_t pages = 160'000;
  uint32_t depth = 128;  // reads under way
  uint32_t pool_pages =
      16384;  // memory for those that were read and are not home again; at least depth + batch
  uint32_t batch_pages = 256;
  uint32_t log_bytes = 100;  // for each changed page
  uint64_t seed = 1;
};

struct BarePagesMeasurement {
  uint64_t pages = 0;  // read; of updates, home again and synced
  double seconds = 0;  // as measured
  double PerSecond() const { return static_cast<double>(pages) / seconds; }
};

class BarePages {
 public:
  // Writes the file of pages.
  static absl::StatusOr<std::unique_ptr<BarePages>> Create(const BarePagesOptions& options);
  virtual ~BarePages() = default;

  // Error also when a change did not come home: all counters on disk are added up after updates.
  virtual absl::StatusOr<BarePagesMeasurement> Measure(bool update, double warmup_s, double seconds) = 0;
};

}  // namespace islands::experiments
