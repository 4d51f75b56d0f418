// What the files of the executor share: names of locks, and how one is taken.
//
// Thread safety: as executor.h.
#pragma once

#include "instance/execution/executor.h"
#include "runtime/work_account.h"

namespace islands::instance {

using locks::LockMode;
using locks::LockName;
using locks::LockResult;
using runtime::Work;
using runtime::WorkScope;

inline LockName NameOf(TableId table, uint32_t site) { return {table, site, 0}; }

inline LockName NameOf(TableId table, uint32_t site, KeyView key) {
  return {table, site, locks::KeyHash(key.data(), key.size())};
}

// The gap between `key` and the key before it.
inline LockName GapBelow(TableId table, uint32_t site, KeyView key) {
  return {table, site, locks::GapHash(key.data(), key.size())};
}

// The gap above the last key.
inline LockName LastGap(TableId table, uint32_t site) { return {table, site, locks::kSupremumGap}; }

// Which entries the indexes of the site have.
inline LockName IndexEntries(TableId table, uint32_t site) { return {table, site, locks::kIndexEntries}; }

// Part of every operation, in one piece with it.
[[gnu::always_inline]] inline LockResult Executor::Take(Branch& branch, const LockName& name, LockMode mode) {
  if (branch.quiet) {
    if (IsFree(name, mode)) [[likely]] {
      branch.touched.push_back({name, mode});
      return LockResult::kGranted;
    }
    // Its own, perhaps. Else it will wait.
    if (name.key_hash != 0 && locks_.TryAcquireKey(branch.locks, name, mode, /*escalates=*/true))
      return LockResult::kGranted;
    LockTouched();
  }
  return name.key_hash == 0 ? locks_.Acquire(branch.locks, name, mode)
                            : locks_.AcquireKey(branch.locks, name, mode);
}

}  // namespace islands::instance
