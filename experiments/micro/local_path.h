// One island with one worker and no peers that runs the microbenchmark, stepped by the calling thread: what a
// local transaction costs, without clocks of others and without sockets.
//
// Link count_allocations.cc as well.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {

struct LocalPathOptions {
  std::string op = "read";  // or update, or add
  uint32_t rows = 10;
  uint64_t range = 240'000;
  uint32_t sites = 1;
  uint32_t mpl = 32;
  double zipf = 0;
  bool locks = false;  // and latches, as with several workers
};

class LocalPath {
 public:
  explicit LocalPath(const LocalPathOptions& options);

  // Loads the rows and begins a run.
  absl::Status Open();

  struct Measured {
    double per_second;   // of the thread's own time
    double allocations;  // from the heap, per transaction
  };
  Measured Run(uint64_t transactions);

 private:
  const uint32_t mpl_;
  instance::InProcessCluster cluster_;
};

}  // namespace islands::experiments
