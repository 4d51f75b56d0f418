// WiredTiger: a table for each tree, with a cursor of each session that stays open; snapshot isolation.
#include <fmt/format.h>
#include <wiredtiger.h>

#include "experiments/peers/row_store.h"

namespace islands::experiments {
namespace {

constexpr int kMostSessions = 1200;
constexpr const char* kTableConfiguration =
    "key_format=u,value_format=u,allocation_size=4KB,leaf_page_max=4KB,internal_page_max=4KB";

absl::Status Check(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  const std::string message = fmt::format("wiredtiger: {}: {}", what, wiredtiger_strerror(code));
  return code == WT_ROLLBACK ? absl::AbortedError(message) : absl::InternalError(message);
}

WT_ITEM ItemOf(RowView bytes) { return {bytes.data(), bytes.size()}; }
RowView ViewOf(const WT_ITEM& item) { return {static_cast<const std::byte*>(item.data), item.size}; }
bool Less(RowView left, RowView right) {
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

struct Database {
  ~Database() {
    if (connection != nullptr) connection->close(connection, nullptr);
  }
  WT_CONNECTION* connection = nullptr;
};

class WiredTigerStore final : public RowStore {
 public:
  WiredTigerStore(const StoreOptions& options, std::shared_ptr<Database> database)
      : options_(options), database_(std::move(database)) {}
  ~WiredTigerStore() override {
    if (session_ != nullptr) session_->close(session_, nullptr);
  }
  // `creates`: the first of all.
  absl::Status Open(bool creates) {
    int code = database_->connection->open_session(database_->connection, nullptr, nullptr, &session_);
    for (const std::string& tree : options_.trees) {
      const std::string name = "table:" + tree;
      if (code == 0 && creates) code = session_->create(session_, name.c_str(), kTableConfiguration);
      WT_CURSOR* cursor = nullptr;
      if (code == 0) code = session_->open_cursor(session_, name.c_str(), nullptr, nullptr, &cursor);
      cursors_.push_back(cursor);
    }
    return Check(code, "open");
  }

  PeerFacts Facts() const override { return WiredTigerFacts(options_.durability); }

  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    auto session = std::make_unique<WiredTigerStore>(options_, database_);
    if (absl::Status status = session->Open(/*creates=*/false); !status.ok()) return status;
    return session;
  }

  absl::Status Begin(bool) override {
    open_ = true;
    return Check(session_->begin_transaction(session_, "isolation=snapshot"), "begin");
  }
  absl::Status Commit() override {
    open_ = false;  // whatever it says, it is over
    return Check(session_->commit_transaction(session_, nullptr), "commit");
  }
  void Rollback() override {
    if (std::exchange(open_, false)) session_->rollback_transaction(session_, nullptr);
  }

  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool) override {
    WT_CURSOR* const cursor = At(tree, key);
    WT_ITEM row;
    int code = cursor->search(cursor);
    if (code == WT_NOTFOUND) return std::nullopt;
    if (code == 0) code = cursor->get_value(cursor, &row);
    if (code != 0) return Check(code, "get");
    return ViewOf(row);
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    WT_CURSOR* const cursor = At(tree, key);
    const WT_ITEM item = ItemOf(row);
    cursor->set_value(cursor, &item);
    return Check(cursor->insert(cursor), "put");  // a cursor overwrites unless it is told not to
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    const auto found = Get(tree, key, true);
    if (!found.ok()) return found.status();
    if (*found) return false;
    if (absl::Status status = Put(tree, key, row); !status.ok()) return status;
    return true;
  }
  absl::Status Delete(uint32_t tree, KeyView key) override {
    WT_CURSOR* const cursor = At(tree, key);
    return Check(cursor->remove(cursor), "delete");
  }

  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t /*limit*/,
                    Visit visit) override {
    WT_CURSOR* const cursor = At(tree, reverse ? end : first);
    int side = 0;  // of what was asked for
    int code = cursor->search_near(cursor, &side);
    if (code == 0 && !reverse && side < 0) code = cursor->next(cursor);
    if (code == 0 && reverse && side >= 0) code = cursor->prev(cursor);
    while (code == 0) {
      WT_ITEM key, row;
      code = cursor->get_key(cursor, &key);
      if (code == 0) code = cursor->get_value(cursor, &row);
      if (code != 0 || (reverse ? Less(ViewOf(key), first) : !Less(ViewOf(key), end))) break;
      if (!visit(ViewOf(key), ViewOf(row))) break;
      code = reverse ? cursor->prev(cursor) : cursor->next(cursor);
    }
    if (const int reset = cursor->reset(cursor); code == 0) code = reset;
    return code == WT_NOTFOUND ? absl::OkStatus() : Check(code, "scan");
  }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    return Check(session_->log_flush(session_, "sync=on"), "sync");
  }
  absl::Status Settle() override { return Check(session_->checkpoint(session_, nullptr), "checkpoint"); }

 private:
  WT_CURSOR* At(uint32_t tree, KeyView key) {
    WT_CURSOR* const cursor = cursors_[tree];
    const WT_ITEM item = ItemOf(key);
    cursor->set_key(cursor, &item);
    return cursor;
  }

  const StoreOptions options_;
  const std::shared_ptr<Database> database_;
  WT_SESSION* session_ = nullptr;
  std::vector<WT_CURSOR*> cursors_;  // by tree; closed with the session
  bool open_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowStore>> OpenWiredTigerStore(const StoreOptions& options) {
  auto database = std::make_shared<Database>();
  const bool has_log = options.durability != PeerDurability::kNone;
  const std::string configuration = fmt::format(
      "create,cache_size={},session_max={},log=(enabled={}),transaction_sync=(enabled={},method=fsync),"
      "checkpoint=(wait={})",
      options.cache_bytes, kMostSessions, has_log, options.durability == PeerDurability::kSync,
      has_log ? 60 : 0);
  const int code =
      wiredtiger_open(options.directory.c_str(), nullptr, configuration.c_str(), &database->connection);
  if (absl::Status status = Check(code, "open"); !status.ok()) return status;
  auto store = std::make_unique<WiredTigerStore>(options, std::move(database));
  if (absl::Status status = store->Open(/*creates=*/true); !status.ok()) return status;
  return store;
}

}  // namespace islands::experiments
