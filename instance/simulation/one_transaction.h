// A workload of a single transaction: one row per island, and what the transaction does with each is said
// beforehand. What became of it is told to whoever looks at what it left.
//
// Thread safety: none; of a cluster that is stepped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/transaction_id.h"
#include "instance/workload/workload.h"

namespace islands::simulation {

enum class Role : uint8_t { kNone, kReads, kWrites };

struct OneTransaction {
  std::vector<Role> roles;  // by island: of its row; who writes adds 1
  // Of the transaction that was begun last; what an island begins when there is one does nothing. Reset for
  // another one.
  std::optional<coordinator::TransactionId> id;
  // What its client has been told. Nothing: nothing yet, or that nobody knows.
  std::optional<coordinator::Outcome> answer;

  // The workload has as many sites as islands, and adds up what was added to an island's row.
  static control::v1::TableSpec Table(uint32_t islands);
  static std::shared_ptr<const instance::Workload> Open(const storage::Catalog& catalog,
                                                        std::shared_ptr<OneTransaction> transaction);
};

}  // namespace islands::simulation
