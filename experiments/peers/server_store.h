// What stores of database servers have in common: an answer takes a round trip to another process, so as
// many statements as can be are sent together. What needs no answer - puts, deletes - goes with the next that
// does, and a batch's reads and inserts go at once (Expect).
//
// Thread safety: none; as row_store.h.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "experiments/peers/row_store.h"

namespace islands::experiments {

class ServerStore : public RowStore {
 public:
  absl::Status Begin(bool writes) override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool for_update) override;
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override;
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override;
  absl::Status Delete(uint32_t tree, KeyView key) override;
  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t limit,
                    Visit visit) override;
  absl::Status Load(uint32_t tree, KeyView key, RowView row) override;
  bool WantsToExpect() const override { return true; }
  absl::Status Expect(std::span<const Wanted> wanted) override;

 protected:
  enum class Kind : uint8_t {
    // Of no tree.
    kBegin,
    kBeginReading,
    kCommit,
    kRollback,
    // Of a key.
    kGet,
    kLock,
    kDelete,
    // Of a key and a row.
    kPut,
    kInsert,
    kLoad,
    // Of two bounds, and how many at most; 0: all.
    kScan,
    kScanBack,
  };
  struct Statement {
    Kind kind;
    uint32_t tree = 0;
    KeyView first = {};
    RowView second = {};
    uint64_t limit = 0;
  };
  struct Answer {
    uint64_t rows_changed = 0;
    std::vector<std::pair<std::string, std::string>> rows;  // of a get: without keys
  };

  // Statements are done in the order in which they were sent, and none behind one that fails. Send copies
  // what it is given.
  virtual absl::Status Send(const Statement& statement) = 0;
  // Waits for all that has been sent. An answer for each, or the first error.
  virtual absl::StatusOr<std::vector<Answer>> Receive() = 0;

 private:
  absl::Status SendOnly(const Statement& statement);
  // The answers of the last so many; a server that gives fewer is no server of ours.
  absl::StatusOr<std::vector<Answer>> ReceiveLast(size_t count);
  // The answer of what was expected first, or else of this.
  absl::Status Ask(const Statement& statement);

  static constexpr int kMostSent = 200;

  bool open_ = false;
  int sent_ = 0;                 // whose answers nobody wants
  std::deque<Answer> expected_;  // what Expect has asked for
  Answer answer_;                // the last one
};

}  // namespace islands::experiments
