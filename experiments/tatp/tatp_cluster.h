// For tests: islands with TATP's tables, in this process, stepped by the calling thread, with messages
// between them that arrive at once. Everything is the product's; only nobody but the caller runs it.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/tatp/tatp.h"
#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"

namespace islands::experiments {

inline constexpr uint32_t kTatpTestSites = 4;

// With by_number; s_id from 1.
storage::Catalog::TableSpecs TatpTableSpecs(int64_t subscribers);

struct TatpClusterOptions {
  uint32_t islands = 1;
  uint32_t workers = 1;  // per island
  int64_t subscribers = 1000;
  instance::Parameters parameters;
  // Makes the generators, if set, instead of the workload itself.
  std::function<std::unique_ptr<instance::Generator>(std::unique_ptr<instance::Generator>)> wrap_generator;
};

class TatpCluster {
 public:
  explicit TatpCluster(TatpClusterOptions options);
  ~TatpCluster();
  TatpCluster(const TatpCluster&) = delete;
  TatpCluster& operator=(const TatpCluster&) = delete;

  // Loads the rows and waits until all links are up.
  absl::Status Start();
  absl::Status BeginRun(uint32_t mpl);
  // A round of every worker.
  void Step();
  // False if something is still open after a long time.
  bool EndRun();

  // By table and encoded key.
  using Key = std::pair<instance::TableId, std::string>;
  using Rows = std::map<Key, std::vector<std::byte>>;
  Rows AllRows();
  static std::string TextOf(instance::KeyView key) {
    return std::string(reinterpret_cast<const char*>(key.data()), key.size());
  }

  struct Totals {
    int64_t audit_sum = 0;
    int64_t audit_committed = 0;
    uint64_t committed = 0;
    uint64_t distributed = 0;  // of these
    uint64_t aborted = 0;
    uint64_t unknown = 0;
  };
  Totals Sum();
  uint64_t Committed() const;

  const TatpTables& tables() const { return tables_; }

 private:
  struct Node;
  control::v1::IslandConfig ConfigOf(uint32_t island) const;

  const TatpClusterOptions options_;
  TatpTables tables_;
  const runtime::MonotonicClock clock_;
  const std::unique_ptr<runtime::FileSystem> files_;
  messaging::MemoryHub hub_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace islands::experiments
