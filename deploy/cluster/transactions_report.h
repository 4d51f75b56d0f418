// Open transactions of a running cluster as people and programs see them: `islands txn FILE list`.
//
// A line is what one transaction has on one island. Lines of a transaction stand together, its coordinator's
// first; the transaction of the oldest line is the first. What a line waits for is said together with how
// those are whom it waits for, as the supervisor and the island itself see them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// What an island has answered, or why it has not.
struct IslandTransactions {
  uint32_t island = 0;
  absl::StatusOr<control::v1::Transactions> answer;
};

// `in_doubt`: only what is in doubt was asked for.
std::string TransactionsText(const control::v1::ClusterStatus& status,
                             const std::vector<IslandTransactions>& islands, bool in_doubt);
// One JSON document with a final newline.
std::string TransactionsJson(const control::v1::ClusterStatus& status,
                             const std::vector<IslandTransactions>& islands, bool in_doubt);

}  // namespace islands::deploy
