// One island with one worker and no peers that runs the microbenchmark, stepped by the calling thread: what a
// local transaction costs, without clocks of others and without sockets.
//
// Link count_allocations.cc as well.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "instance/log/board.h"
#include "instance/log/ring.h"
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
  bool log = false;    // as with durability `lazy`: into a ring, which nobody writes to a disk
};

// Whose one island has a log, if that is asked for.
class LocalPathCluster final : public instance::InProcessCluster {
 public:
  LocalPathCluster(instance::ClusterOptions options, bool log);
  ~LocalPathCluster() override { EndIslands(); }
  // As if a logger had written and synced it all.
  void DrainRing();

 protected:
  instance::Seams SeamsOf(uint32_t island) override;

 private:
  std::shared_ptr<log::Ring> ring_;
  log::Board board_{std::vector<uint32_t>{1}};
  std::optional<instance::LogSeam> log_;
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
  LocalPathCluster cluster_;
};

}  // namespace islands::experiments
