// For tests: clusters with TATP's tables that the calling thread steps, with messages that arrive at once.
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
#include "instance/testing/in_process_cluster.h"

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

instance::ClusterOptions TatpCluster(const TatpClusterOptions& options);

// By table and encoded key.
using TatpRowKey = std::pair<instance::TableId, std::string>;
using TatpRows = std::map<TatpRowKey, std::vector<std::byte>>;
TatpRows AllTatpRows(const instance::InProcessCluster& cluster);

inline std::string TextOfKey(instance::KeyView key) {
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

}  // namespace islands::experiments
