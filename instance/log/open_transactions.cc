#include "instance/log/open_transactions.h"

#include <utility>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::log {

using runtime::Planted;
using runtime::PlantedBug;

void OpenTransactions::Note(EntryKind kind, const Id& id, uint64_t epoch) {
  switch (kind) {
    case EntryKind::kUpdate:
    case EntryKind::kCompensation:
      return Begin(id, epoch);
    case EntryKind::kPrepare:
      return Planted(PlantedBug::kPassInDoubt) ? End(id) : Begin(id, epoch);
    case EntryKind::kDecision:
    case EntryKind::kDecided:
      return Planted(PlantedBug::kPassDecisions) ? End(id) : Begin(id, epoch);
    case EntryKind::kCommit:
    case EntryKind::kAborted:
    case EntryKind::kEnd:
      return End(id);
    case EntryKind::kDone:
    case EntryKind::kCommand:
    case EntryKind::kCall:
      return;
  }
}

void OpenTransactions::Begin(const Id& id, uint64_t epoch) {
  if (!first_.try_emplace(id, epoch).second) return;
  if (++epochs_[epoch] == 1 && epochs_.begin()->first == epoch) Publish();
}

void OpenTransactions::End(const Id& id) {
  const auto found = first_.find(id);
  if (found == first_.end()) return;  // it has left nothing but its end
  const uint64_t epoch = found->second;
  first_.erase(found);
  Leave(epoch);
}

void OpenTransactions::Renew(const Id& id, uint64_t epoch) {
  const auto found = first_.find(id);
  if (found == first_.end() || found->second >= epoch) return;
  ++epochs_[epoch];
  Leave(std::exchange(found->second, epoch));
}

void OpenTransactions::Leave(uint64_t epoch) {
  const auto found = epochs_.find(epoch);
  ISLANDS_CHECK(found != epochs_.end());
  if (--found->second != 0) return;
  const bool oldest = found == epochs_.begin();
  epochs_.erase(found);
  if (oldest) Publish();
}

}  // namespace islands::log
