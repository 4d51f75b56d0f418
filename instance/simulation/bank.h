// The simulation's workload: accounts, transfers between them in two steps, and deposits.
//
// A transfer reads both accounts for update, then moves money only if there is enough: the sum over all
// accounts changes by deposits alone, and no balance ever falls below zero. Both are what the tests check.
//
// Thread safety: any thread; the workload is immutable.
#pragma once

#include <memory>

#include "instance/workload/workload.h"

namespace islands::simulation {

inline constexpr int64_t kAccounts = 240;
inline constexpr int64_t kOpeningBalance = 100;

control::v1::TableSpec BankTable();
std::shared_ptr<const instance::Workload> OpenBank(const storage::Catalog& catalog);

}  // namespace islands::simulation
