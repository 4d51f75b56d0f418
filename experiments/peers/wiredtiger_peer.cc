// WiredTiger: a row store of 4 KiB pages, snapshot isolation. In memory without log; on a disk with one,
// written in the background and synced now and then.
#include <fmt/format.h>
#include <wiredtiger.h>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/peer.h"
#include "partitioner/key_codec.h"

namespace islands::experiments {
namespace {

using partitioner::Uint64Key;

constexpr char kTable[] = "table:micro";
constexpr int kMostSessions = 1200;  // those of 1000 threads, and its own

absl::Status Check(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  const std::string message = fmt::format("wiredtiger: {}: {}", what, wiredtiger_strerror(code));
  if (code == WT_NOTFOUND) return absl::NotFoundError(message);
  return code == WT_ROLLBACK ? absl::AbortedError(message) : absl::InternalError(message);
}

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit outlives the process after a checkpoint: no log";
    case PeerDurability::kLazy:
      return "a commit outlives the process when its log buffer has been written, and the machine, once "
             "the log "
             "is synced: every second";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: the log is synced, for several at a time";
}

class WiredTigerPeer final : public Peer {
 public:
  explicit WiredTigerPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {}

  ~WiredTigerPeer() override {
    if (session_ != nullptr) session_->close(session_, nullptr);
    if (connection_ != nullptr && !is_session_) connection_->close(connection_, nullptr);
  }

  PeerFacts Facts() const override { return WiredTigerFacts(options_.durability); }

  absl::Status Load() override {
    int code = wiredtiger_open(options_.directory.c_str(), nullptr, Configuration().c_str(), &connection_);
    if (code == 0) code = connection_->open_session(connection_, nullptr, nullptr, &session_);
    if (code == 0) code = session_->create(session_, kTable, kTableConfiguration);
    if (code == 0) code = LoadRows();
    if (absl::Status status = Check(code, "load"); !status.ok()) return status;
    if (absl::Status status = OpenCursor(); !status.ok()) return status;
    return Settle();
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<WiredTigerPeer>(options_);
    session->connection_ = connection_;
    session->is_session_ = true;
    const int code = connection_->open_session(connection_, nullptr, nullptr, &session->session_);
    if (absl::Status status = Check(code, "open a session"); !status.ok()) return status;
    if (absl::Status status = session->OpenCursor(); !status.ok()) return status;
    return session;
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    return Run("read", keys, [&](size_t i) {
      WT_ITEM row;
      const int code = Find(keys[i], &row);
      if (code == 0) std::memcpy(rows + i * options_.row_bytes, row.data, options_.row_bytes);
      return code;
    });
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Run("update", keys, [&](size_t i) {
      WT_ITEM row;
      if (const int code = Find(keys[i], &row); code != 0) return code;
      std::memcpy(row_.data(), row.data, row_.size());
      AddToCounter(row_.data());
      row.data = row_.data();
      row.size = row_.size();
      cursor_->set_value(cursor_, &row);
      return cursor_->update(cursor_);
    });
  }

  // WT_CURSOR::modify would change eight bytes, but what they are to be has to be read first, and later
  // readers put a row together from its changes.
  absl::Status Add(std::span<const uint64_t> keys) override { return Update(keys); }

  absl::Status Settle() override { return Check(session_->checkpoint(session_, nullptr), "checkpoint"); }

  absl::Status Sync() override {
    if (options_.durability != PeerDurability::kLazy) return absl::OkStatus();
    return Check(session_->log_flush(session_, "sync=on"), "sync");
  }

  absl::StatusOr<int64_t> SumCounters() override {
    int64_t sum = 0;
    int code = cursor_->reset(cursor_);
    while (code == 0) {
      WT_ITEM row;
      code = cursor_->next(cursor_);
      if (code == 0) code = cursor_->get_value(cursor_, &row);
      if (code == 0) sum += CounterOf(row.data);
    }
    cursor_->reset(cursor_);
    if (code != WT_NOTFOUND) return Check(code, "scan");
    return sum;
  }

 private:
  static constexpr const char* kTableConfiguration =
      "key_format=u,value_format=u,access_pattern_hint=random,allocation_size=4KB,leaf_page_max=4KB,"
      "internal_page_max=4KB";

  std::string Configuration() const {
    const uint64_t in_memory = options_.range * (options_.row_bytes + 64) * 2 + (256 << 20);
    const bool has_log = options_.durability != PeerDurability::kNone;
    return fmt::format(
        "create,cache_size={},session_max={},log=(enabled={}),transaction_sync=(enabled={},method=fsync),"
        "checkpoint=(wait={})",
        options_.cache_bytes != 0 ? options_.cache_bytes : in_memory, kMostSessions, has_log,
        options_.durability == PeerDurability::kSync, has_log ? 60 : 0);
  }

  // Pages full, in key order.
  int LoadRows() {
    WT_CURSOR* load = nullptr;
    int code = session_->open_cursor(session_, kTable, nullptr, "bulk", &load);
    for (uint64_t number = 0; number < options_.range && code == 0; ++number) {
      FillMicroRow(number, row_);
      const Uint64Key key(number);
      const WT_ITEM key_item{key.bytes, sizeof(key.bytes)};
      const WT_ITEM row{row_.data(), row_.size()};
      load->set_key(load, &key_item);
      load->set_value(load, &row);
      code = load->insert(load);
    }
    if (load != nullptr) {
      const int closed = load->close(load);
      if (code == 0) code = closed;
    }
    return code;
  }

  absl::Status OpenCursor() {
    return Check(session_->open_cursor(session_, kTable, nullptr, nullptr, &cursor_), "open a cursor");
  }

  int Find(uint64_t number, WT_ITEM* row) {
    const Uint64Key key(number);
    const WT_ITEM item{key.bytes, sizeof(key.bytes)};
    cursor_->set_key(cursor_, &item);
    const int code = cursor_->search(cursor_);
    return code != 0 ? code : cursor_->get_value(cursor_, row);
  }

  // One transaction: `step` for each key.
  template <typename Step>
  absl::Status Run(const char* what, std::span<const uint64_t> keys, const Step& step) {
    int code = session_->begin_transaction(session_, "isolation=snapshot");
    if (code != 0) return Check(code, what);
    for (size_t i = 0; i < keys.size() && code == 0; ++i) code = step(i);
    if (code == 0)
      return Check(session_->commit_transaction(session_, nullptr), what);  // resets the cursor, too
    session_->rollback_transaction(session_, nullptr);
    return Check(code, what);
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  WT_CONNECTION* connection_ = nullptr;  // of the peer, if this is a session
  bool is_session_ = false;
  WT_SESSION* session_ = nullptr;
  WT_CURSOR* cursor_ = nullptr;  // closed with its session
};

}  // namespace

PeerFacts WiredTigerFacts(PeerDurability durability) {
  int major = 0, minor = 0, patch = 0;
  wiredtiger_version(&major, &minor, &patch);
  return {.version = fmt::format("WiredTiger {}.{}.{}", major, minor, patch),
          .keeps = Keeps(durability),
          .isolation = "snapshot: of two that write a row one is rolled back; write skew goes unnoticed",
          .rolls_back = true};
}

std::unique_ptr<Peer> MakeWiredTigerPeer(const PeerOptions& options) {
  return std::make_unique<WiredTigerPeer>(options);
}

}  // namespace islands::experiments
