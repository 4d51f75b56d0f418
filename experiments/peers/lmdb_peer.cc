// LMDB: integer keys; one read transaction per session that is reset and renewed. In memory without sync,
// with a write map in huge pages; on a disk without one: a page of the map that is written to would be read
// first.
#include <fmt/format.h>
#include <lmdb.h>

#include <algorithm>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/huge_pages.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {
namespace {

// A write transaction of LMDB cannot hold more than 131,071 dirty pages with MDB_WRITEMAP.
constexpr uint64_t kRowsPerLoad = 50'000;
constexpr unsigned kMostReaders = 1100;  // sessions, and who loads

absl::Status Check(int code, const char* what) {
  if (code == MDB_SUCCESS) return absl::OkStatus();
  const std::string message = fmt::format("lmdb: {}: {}", what, mdb_strerror(code));
  return code == MDB_NOTFOUND ? absl::NotFoundError(message) : absl::InternalError(message);
}

const char* Keeps(PeerDurability durability) {
  switch (durability) {
    case PeerDurability::kNone:
      return "a commit outlives the process, in pages of a file, but not the machine: no sync";
    case PeerDurability::kLazy:
      return "a commit outlives the process; synced once a second, but power that is lost before may leave "
             "the "
             "whole file torn: no log";
    case PeerDurability::kSync:
      break;
  }
  return "a commit outlives the machine: its pages are synced, then the one that refers to them";
}

class LmdbPeer final : public Peer {
 public:
  explicit LmdbPeer(const PeerOptions& options) : options_(options), row_(options.row_bytes) {}

  ~LmdbPeer() override {
    if (reader_ != nullptr) mdb_txn_abort(reader_);
    if (environment_ != nullptr && !is_session_) mdb_env_close(environment_);
  }

  PeerFacts Facts() const override { return LmdbFacts(options_.durability); }

  absl::Status Load() override {
    if (absl::Status status = Open(); !status.ok()) return status;
    for (uint64_t begin = 0; begin < options_.range; begin += kRowsPerLoad) {
      absl::Status status = LoadRows(begin, std::min(options_.range, begin + kRowsPerLoad));
      if (!status.ok()) return status;
    }
    if (absl::Status status = BeginReader(); !status.ok()) return status;
    if (absl::Status status = LookWhatReserveLeaves(); !status.ok()) return status;
    return Settle();
  }

  absl::StatusOr<std::unique_ptr<Peer>> Session() override {
    auto session = std::make_unique<LmdbPeer>(options_);
    session->environment_ = environment_;
    session->is_session_ = true;
    session->table_ = table_;
    session->reserve_keeps_ = reserve_keeps_;
    if (absl::Status status = session->BeginReader(); !status.ok()) return status;
    return session;
  }

  absl::Status Sync() override { return Check(mdb_env_sync(environment_, /*force=*/1), "sync"); }

  // mdb_get is a little faster here than a cursor that is renewed with the transaction.
  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    int code = mdb_txn_renew(reader_);
    if (code != 0) return Check(code, "renew");
    for (size_t i = 0; i < keys.size() && code == 0; ++i) {
      MDB_val key = KeyOf(keys[i]);
      MDB_val value;
      code = mdb_get(reader_, table_, &key, &value);
      if (code == 0) std::memcpy(rows + i * options_.row_bytes, value.mv_data, options_.row_bytes);
    }
    mdb_txn_reset(reader_);
    return Check(code, "read");
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return Write("update", [&](MDB_cursor* cursor) {
      int code = 0;
      for (size_t i = 0; i < keys.size() && code == 0; ++i) code = UpdateRow(cursor, keys[i]);
      return code;
    });
  }

  absl::Status Add(std::span<const uint64_t> keys) override {
    if (!reserve_keeps_) return Update(keys);
    return Write("add", [&](MDB_cursor* cursor) {
      int code = 0;
      for (size_t i = 0; i < keys.size() && code == 0; ++i) {
        std::byte* row = nullptr;
        code = ReserveRow(cursor, keys[i], &row);
        if (code == 0) AddToCounter(row);
      }
      return code;
    });
  }

  // The file grows by small pages.
  absl::Status Settle() override {
    if (on_disk()) return absl::OkStatus();
    MDB_envinfo info;
    MDB_stat statistics;
    int code = mdb_env_info(environment_, &info);
    if (code == 0) code = mdb_env_stat(environment_, &statistics);
    if (code != 0) return Check(code, "ask for the size");
    CollapseMapping(options_.directory + "/data.mdb", (info.me_last_pgno + 1) * statistics.ms_psize);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> SumCounters() override {
    MDB_cursor* cursor = nullptr;
    int code = mdb_txn_renew(reader_);
    if (code == 0) code = mdb_cursor_open(reader_, table_, &cursor);
    int64_t sum = 0;
    while (code == 0) {
      MDB_val key;
      MDB_val value;
      code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
      if (code == 0) sum += CounterOf(value.mv_data);
    }
    if (cursor != nullptr) mdb_cursor_close(cursor);
    mdb_txn_reset(reader_);
    if (code != MDB_NOTFOUND) return Check(code, "scan");
    return sum;
  }

 private:
  bool on_disk() const { return options_.durability != PeerDurability::kNone; }

  absl::Status BeginReader() {
    const int code = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &reader_);
    if (code == 0) mdb_txn_reset(reader_);
    return Check(code, "begin a read transaction");
  }

  static MDB_val KeyOf(const uint64_t& key) { return {sizeof(key), const_cast<uint64_t*>(&key)}; }

  absl::Status Open() {
    int code = mdb_env_create(&environment_);
    const bool syncs = options_.durability == PeerDurability::kSync;
    const unsigned flags = (on_disk() ? 0 : MDB_WRITEMAP) | (syncs ? 0 : MDB_NOSYNC | MDB_NOMETASYNC) |
                           MDB_NORDAHEAD | MDB_NOTLS;
    if (code == 0) code = mdb_env_set_maxreaders(environment_, kMostReaders);
    if (code == 0) code = mdb_env_open(environment_, options_.directory.c_str(), flags, 0600);
    // Maps the file anew. Address space, not memory: room for pages that updates replace.
    MakeGapForMapping(MapBytes());
    if (code == 0) code = mdb_env_set_mapsize(environment_, MapBytes());
    MDB_txn* transaction = nullptr;
    if (code == 0) code = mdb_txn_begin(environment_, nullptr, 0, &transaction);
    if (code == 0) code = mdb_dbi_open(transaction, nullptr, MDB_INTEGERKEY, &table_);
    if (code == 0) {
      code = mdb_txn_commit(transaction);
    } else if (transaction != nullptr) {
      mdb_txn_abort(transaction);
    }
    return Check(code, "open");
  }

  size_t MapBytes() const {
    const uint64_t bytes = options_.range * (options_.row_bytes + 64) * 4 + (1 << 28);
    return (bytes / kHugePageBytes + 1) * kHugePageBytes;
  }

  absl::Status LoadRows(uint64_t begin, uint64_t end) {
    return Write("load", [&](MDB_cursor* cursor) {
      int code = 0;
      for (uint64_t row = begin; row < end && code == 0; ++row) {
        FillMicroRow(row, row_);
        MDB_val key = KeyOf(row);
        MDB_val value{row_.size(), row_.data()};
        code = mdb_cursor_put(cursor, &key, &value, MDB_APPEND);
      }
      return code;
    });
  }

  // `change` in a write transaction, with a cursor.
  template <typename Change>
  absl::Status Write(const char* what, const Change& change) {
    MDB_txn* transaction = nullptr;
    MDB_cursor* cursor = nullptr;
    int code = mdb_txn_begin(environment_, nullptr, 0, &transaction);
    if (code != 0) return Check(code, what);
    code = mdb_cursor_open(transaction, table_, &cursor);
    if (code == 0) {
      code = change(cursor);
      mdb_cursor_close(cursor);
    }
    if (code == 0) return Check(mdb_txn_commit(transaction), what);
    mdb_txn_abort(transaction);
    return Check(code, what);
  }

  // LMDB has no operation on a part of a row. But a row that is replaced by one of the same length keeps its
  // place in the page, which has been copied already if it had to be; MDB_RESERVE tells that place, and
  // changes nothing.
  int ReserveRow(MDB_cursor* cursor, uint64_t row, std::byte** place) {
    MDB_val key = KeyOf(row);
    MDB_val value;
    if (const int code = mdb_cursor_get(cursor, &key, &value, MDB_SET); code != 0) return code;
    value = {row_.size(), nullptr};
    const int code = mdb_cursor_put(cursor, &key, &value, MDB_CURRENT | MDB_RESERVE);
    *place = static_cast<std::byte*>(value.mv_data);
    return code;
  }

  // The manual does not promise that the old bytes are still there, and for rows of half a page and more they
  // are not. Looks at the first row and puts it back as it was.
  absl::Status LookWhatReserveLeaves() {
    FillMicroRow(0, row_);
    return Write("look", [&](MDB_cursor* cursor) {
      std::byte* row = nullptr;
      if (const int code = ReserveRow(cursor, 0, &row); code != 0) return code;
      reserve_keeps_ = std::equal(row_.begin(), row_.end(), row);
      std::copy(row_.begin(), row_.end(), row);
      return 0;
    });
  }

  // One search: the cursor stays at the row it has read.
  int UpdateRow(MDB_cursor* cursor, uint64_t row) {
    MDB_val key = KeyOf(row);
    MDB_val value;
    if (const int code = mdb_cursor_get(cursor, &key, &value, MDB_SET); code != 0) return code;
    std::memcpy(row_.data(), value.mv_data, row_.size());
    AddToCounter(row_.data());
    value = {row_.size(), row_.data()};
    return mdb_cursor_put(cursor, &key, &value, MDB_CURRENT);
  }

  const PeerOptions options_;
  std::vector<std::byte> row_;
  MDB_env* environment_ = nullptr;  // of the peer, if this is a session
  bool is_session_ = false;
  MDB_dbi table_ = 0;
  MDB_txn* reader_ = nullptr;   // reset unless a read or scan is going on
  bool reserve_keeps_ = false;  // MDB_RESERVE leaves the row's bytes in place
};

}  // namespace

PeerFacts LmdbFacts(PeerDurability durability) {
  int major = 0, minor = 0, patch = 0;
  mdb_version(&major, &minor, &patch);
  return {.version = fmt::format("LMDB {}.{}.{}", major, minor, patch),
          .keeps = Keeps(durability),
          .isolation = "serializable: one writer at a time, readers see a snapshot",
          .rolls_back = true};
}

std::unique_ptr<Peer> MakeLmdbPeer(const PeerOptions& options) { return std::make_unique<LmdbPeer>(options); }

}  // namespace islands::experiments
