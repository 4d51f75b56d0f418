// For tests: a server that is none, so that what ServerStore sends together is tested where no server is.
// LMDB does what a real one would, when it is waited for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/peers/server_store.h"

namespace islands::experiments {

inline constexpr char kFakeServer[] = "fake_server";

class FakeServer final : public ServerStore {
 public:
  explicit FakeServer(std::unique_ptr<RowStore> rows) : rows_(std::move(rows)) {}
  PeerFacts Facts() const override { return rows_->Facts(); }
  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    auto rows = rows_->Session();
    if (!rows.ok()) return rows.status();
    return std::make_unique<FakeServer>(*std::move(rows));
  }
  absl::Status Settle() override { return rows_->Settle(); }
  absl::Status Sync() override { return rows_->Sync(); }

 private:
  struct Sent {
    Statement statement;
    std::string first, second;
  };
  static RowView View(const std::string& text) { return std::as_bytes(std::span(text)); }
  static std::string Text(RowView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  absl::Status Send(const Statement& statement) override {
    sent_.push_back({statement, Text(statement.first), Text(statement.second)});
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Answer>> Receive() override {
    std::vector<Answer> answers;
    for (const Sent& each : std::exchange(sent_, {})) {
      Answer& answer = answers.emplace_back();
      if (absl::Status status = Do(each, &answer); !status.ok()) return status;
    }
    return answers;
  }
  absl::Status Do(const Sent& sent, Answer* answer) {
    const uint32_t tree = sent.statement.tree;
    const KeyView first = View(sent.first), second = View(sent.second);
    switch (const Kind kind = sent.statement.kind) {
      case Kind::kBegin:
      case Kind::kBeginReading:
        return rows_->Begin(kind == Kind::kBegin);
      case Kind::kCommit:
        return rows_->Commit();
      case Kind::kRollback:
        rows_->Rollback();
        return absl::OkStatus();
      case Kind::kGet:
      case Kind::kLock: {
        const auto row = rows_->Get(tree, first, kind == Kind::kLock);
        if (row.ok() && *row) answer->rows.emplace_back("", Text(**row));
        return row.status();
      }
      case Kind::kDelete:
        return rows_->Delete(tree, first);
      case Kind::kPut:
        return rows_->Put(tree, first, second);
      case Kind::kInsert: {
        const auto inserted = rows_->Insert(tree, first, second);
        answer->rows_changed = inserted.ok() && *inserted ? 1 : 0;
        return inserted.status();
      }
      case Kind::kLoad:
        return rows_->Load(tree, first, second);
      case Kind::kScan:
      case Kind::kScanBack:
        break;
    }
    const uint64_t limit = sent.statement.limit;
    return rows_->Scan(tree, first, second, sent.statement.kind == Kind::kScanBack, limit,
                       [&](KeyView key, RowView row) {
                         answer->rows.emplace_back(Text(key), Text(row));
                         return answer->rows.size() != limit;
                       });
  }

  const std::unique_ptr<RowStore> rows_;
  std::vector<Sent> sent_;
};

// RowStoreNames, and the one above.
inline std::vector<std::string> TestedStoreNames() {
  std::vector<std::string> names = RowStoreNames();
  names.emplace_back(kFakeServer);
  return names;
}
inline absl::StatusOr<std::unique_ptr<RowStore>> OpenTestedStore(std::string_view name,
                                                                 const StoreOptions& options) {
  if (name != kFakeServer) return OpenRowStore(name, options);
  auto rows = OpenLmdbStore(options);
  if (!rows.ok()) return rows.status();
  return std::make_unique<FakeServer>(*std::move(rows));
}

}  // namespace islands::experiments
