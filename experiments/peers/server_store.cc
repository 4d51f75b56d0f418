#include "experiments/peers/server_store.h"

#include <fmt/format.h>

#include "runtime/check.h"

namespace islands::experiments {

absl::Status ServerStore::SendOnly(const Statement& statement) {
  if (sent_ >= kMostSent) {
    sent_ = 0;
    if (const auto answers = Receive(); !answers.ok()) return answers.status();
  }
  ++sent_;
  return Send(statement);
}

absl::StatusOr<std::vector<ServerStore::Answer>> ServerStore::ReceiveLast(size_t count) {
  sent_ = 0;
  auto answers = Receive();
  if (!answers.ok()) return answers;
  if (answers->size() < count)
    return absl::InternalError(fmt::format("{} answers to {} statements", answers->size(), count));
  answers->erase(answers->begin(), answers->end() - static_cast<ptrdiff_t>(count));
  return answers;
}

absl::Status ServerStore::Ask(const Statement& statement) {
  if (!expected_.empty()) {
    answer_ = std::move(expected_.front());
    expected_.pop_front();
    return absl::OkStatus();
  }
  if (absl::Status status = Send(statement); !status.ok()) return status;
  auto answers = ReceiveLast(1);
  if (!answers.ok()) return answers.status();
  answer_ = std::move(answers->back());
  return absl::OkStatus();
}

absl::Status ServerStore::Expect(std::span<const Wanted> wanted) {
  ISLANDS_CHECK(expected_.empty());
  if (wanted.empty()) return absl::OkStatus();
  for (const Wanted& each : wanted) {
    const Kind kind = each.kind == Wanted::kGet      ? Kind::kGet
                      : each.kind == Wanted::kLock   ? Kind::kLock
                      : each.kind == Wanted::kInsert ? Kind::kInsert
                      : each.reverse                 ? Kind::kScanBack
                                                     : Kind::kScan;
    if (absl::Status status = Send({kind, each.tree, each.first, each.second, each.limit}); !status.ok())
      return status;
  }
  auto answers = ReceiveLast(wanted.size());
  if (!answers.ok()) return answers.status();
  expected_.assign(std::make_move_iterator(answers->begin()), std::make_move_iterator(answers->end()));
  return absl::OkStatus();
}

absl::Status ServerStore::Begin(bool writes) {
  open_ = true;
  return SendOnly({writes ? Kind::kBegin : Kind::kBeginReading});
}

absl::Status ServerStore::Commit() {
  ISLANDS_CHECK(expected_.empty());  // or an answer would be taken for this one's
  if (absl::Status status = Ask({Kind::kCommit}); !status.ok()) return status;
  open_ = false;
  return absl::OkStatus();
}

void ServerStore::Rollback() {
  expected_.clear();
  if (!std::exchange(open_, false)) return;
  sent_ = 0;
  Receive().IgnoreError();  // whatever is on its way
  if (Send({Kind::kRollback}).ok()) Receive().IgnoreError();
}

absl::StatusOr<std::optional<RowView>> ServerStore::Get(uint32_t tree, KeyView key, bool for_update) {
  absl::Status status = Ask({for_update ? Kind::kLock : Kind::kGet, tree, key});
  if (!status.ok()) return status;
  if (answer_.rows.empty()) return std::nullopt;
  return std::as_bytes(std::span(answer_.rows[0].second));
}

absl::Status ServerStore::Put(uint32_t tree, KeyView key, RowView row) {
  return SendOnly({Kind::kPut, tree, key, row});
}

absl::StatusOr<bool> ServerStore::Insert(uint32_t tree, KeyView key, RowView row) {
  if (absl::Status status = Ask({Kind::kInsert, tree, key, row}); !status.ok()) return status;
  return answer_.rows_changed == 1;
}

absl::Status ServerStore::Delete(uint32_t tree, KeyView key) { return SendOnly({Kind::kDelete, tree, key}); }

absl::Status ServerStore::Load(uint32_t tree, KeyView key, RowView row) {
  return SendOnly({Kind::kLoad, tree, key, row});
}

absl::Status ServerStore::Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t limit,
                               Visit visit) {
  absl::Status status = Ask({reverse ? Kind::kScanBack : Kind::kScan, tree, first, end, limit});
  if (!status.ok()) return status;
  for (const auto& [key, row] : answer_.rows) {
    if (!visit(std::as_bytes(std::span(key)), std::as_bytes(std::span(row)))) break;
  }
  return absl::OkStatus();
}

}  // namespace islands::experiments
