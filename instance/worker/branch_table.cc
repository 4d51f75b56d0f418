#include "instance/worker/branch_table.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace islands::instance {

ParticipantEntry* BranchTable::Find(const coordinator::TransactionId& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.get();
}

ParticipantEntry& BranchTable::Add(const coordinator::TransactionId& id) {
  std::unique_ptr<ParticipantEntry> entry;
  if (spare_.empty()) {
    entry = std::make_unique<ParticipantEntry>();
  } else {
    entry = std::move(spare_.back());
    spare_.pop_back();
  }
  entry->id = id;
  const auto [place, added] = entries_.emplace(id, std::move(entry));
  ISLANDS_CHECK(added);
  return *place->second;
}

void BranchTable::Bury(ParticipantEntry& entry) {
  const auto found = entries_.find(entry.id);
  ISLANDS_CHECK(found != entries_.end() && found->second.get() == &entry && entry.machine.done());
  graveyard_.push_back(std::move(found->second));
  entries_.erase(found);
}

void BranchTable::Reap() {
  std::erase_if(graveyard_, [this](std::unique_ptr<ParticipantEntry>& entry) {
    if (!entry->task.done()) return false;
    ISLANDS_CHECK(entry->branch.locks.held() == 0 && entry->branch.undo.empty());
    entry->task = {};
    entry->machine.Reset();
    entry->batch.Clear();
    entry->operations.clear();
    entry->failure = {};
    entry->executing = entry->prepares_after = entry->ended = false;
    entry->outcome_kept = entry->restored = false;
    entry->step = 0;
    entry->fellows.clear();
    spare_.push_back(std::move(entry));
    return true;
  });
}

void BranchTable::CheckInvariants() const {
  for (const auto& [id, entry] : entries_) {
    ISLANDS_CHECK(entry->id == id && entry->branch.locks.transaction == id);
    ISLANDS_CHECK(!entry->ended && !entry->machine.done());
    ISLANDS_CHECK(!entry->machine.in_doubt() || !entry->executing);
    entry->machine.CheckInvariants();
  }
  for (const std::unique_ptr<ParticipantEntry>& entry : graveyard_)
    ISLANDS_CHECK(entry->ended && entry->machine.done() && !Listed(*entry));
  for (const std::unique_ptr<ParticipantEntry>& entry : spare_)
    ISLANDS_CHECK(entry->branch.locks.held() == 0 && entry->branch.undo.empty() && !entry->task.valid());
}

bool BranchTable::Listed(const ParticipantEntry& entry) const {
  const auto found = entries_.find(entry.id);
  return found != entries_.end() && found->second.get() == &entry;
}

std::vector<ParticipantEntry*> BranchTable::All() const {
  std::vector<ParticipantEntry*> entries;
  for (const auto& [id, entry] : entries_) entries.push_back(entry.get());
  std::sort(entries.begin(), entries.end(),
            [](const ParticipantEntry* a, const ParticipantEntry* b) { return a->id < b->id; });
  return entries;
}

}  // namespace islands::instance
