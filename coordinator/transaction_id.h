// The name of a transaction, unique in the life of a cluster.
//
// It names its coordinator (island and worker), so that an answer finds its way home without a directory, and
// the coordinator's boot epoch, so that nothing said by an earlier life of that island is taken for this one.
//
// Thread safety: plain values.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace islands::coordinator {

struct TransactionId {
  uint32_t island = 0;
  uint32_t worker = 0;
  uint64_t boot_epoch = 0;
  uint64_t sequence = 0;  // 1, 2, ... per worker and boot; 0 = no transaction

  friend auto operator<=>(const TransactionId&, const TransactionId&) = default;

  bool valid() const { return sequence != 0; }
  // "2.0.7.1841": island.worker.epoch.sequence
  std::string ToString() const { return fmt::format("{}.{}.{}.{}", island, worker, boot_epoch, sequence); }

  template <typename H>
  friend H AbslHashValue(H h, const TransactionId& id) {
    return H::combine(std::move(h), id.island, id.worker, id.boot_epoch, id.sequence);
  }
};

}  // namespace islands::coordinator
