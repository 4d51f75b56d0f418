#include "instance/worker/commit_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace islands::instance {

using coordinator::TransactionId;

Ended WhatEnded(uint64_t below, std::vector<uint64_t> overdue) {
  std::sort(overdue.begin(), overdue.end());
  if (overdue.size() > Ended::kMostNamed) {
    below = std::min(below, overdue[Ended::kMostNamed]);
    overdue.resize(Ended::kMostNamed);
  }
  ISLANDS_CHECK(overdue.size() <= Ended::kMostNamed && std::is_sorted(overdue.begin(), overdue.end()));
  return {below, std::move(overdue)};
}

bool CommitMemory::Knows(const TransactionId& id) const {
  const auto found = of_.find(KeyOf(id));
  if (found == of_.end()) return false;
  const std::vector<uint64_t>& committed = found->second.committed;
  return std::find(committed.begin(), committed.end(), id.sequence) != committed.end();
}

void CommitMemory::EndedBelow(const TransactionId& id, uint64_t sequence, std::span<const uint64_t> open) {
  const auto found = of_.find(KeyOf(id));
  if (found == of_.end()) return;
  Share& share = found->second;
  if (share.committed.size() < share.clean_at) return;
  std::erase_if(share.committed, [&](uint64_t committed) {
    return committed < sequence && std::find(open.begin(), open.end(), committed) == open.end();
  });
  share.clean_at = std::max(kLeast, kGrowth * share.committed.size());
}

size_t CommitMemory::size() const {
  size_t size = 0;
  for (const auto& [key, share] : of_) size += share.committed.size();
  return size;
}

}  // namespace islands::instance
