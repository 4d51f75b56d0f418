#include "instance/simulation/ledger.h"

#include <fmt/format.h>

#include <cstring>

#include "instance/simulation/ledger_request.h"

namespace islands::simulation {
namespace {

using instance::Batch;
using instance::KeyView;
using instance::RowView;
using instance::TableId;
using partitioner::Uint64Key;

constexpr size_t kRowBytes = 20;  // without padding
constexpr instance::IndexId kByColour = 0;

std::vector<std::byte> MakeRow(uint64_t key, Word word, int64_t amount, uint32_t padding) {
  std::vector<std::byte> row(kRowBytes + padding);
  std::memcpy(row.data(), &word, sizeof(word));
  std::memcpy(row.data() + sizeof(word), &amount, sizeof(amount));
  const uint32_t colour = ColourOf(key);
  std::memcpy(row.data() + sizeof(word) + sizeof(amount), &colour, sizeof(colour));
  return row;
}

std::string ColourKey(uint64_t colour) {
  std::string key;
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, colour, &key);
  return key;
}

int64_t Int64Of(RowView bytes) {
  int64_t value = 0;
  if (bytes.size() == sizeof(value)) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// One attempt at a request: fills its batches and records what their results say.
class Attempted {
 public:
  Attempted(LedgerContext& context, const storage::TableDefinition& table,
            const coordinator::TransactionId& id, const LedgerRequest& request)
      : context_(context),
        table_(table),
        id_(id),
        request_(request),
        history_(request.repeated ? &forgotten_ : context.history),
        attempt_(history_->Begin(id, request.asked_ns)),
        seen_(request.items.size()) {
    if (request.repeated) return;
    request.attempt = attempt_;
    request.version_step = context.version_step;
  }

  // The operations of batch number `n`; false when there are none.
  bool Fill(uint32_t n, Batch* batch);
  void Learn(const Batch& batch);
  void Finish() { history_->Finish(attempt_); }

 private:
  struct Issued {
    size_t item;
    bool second;       // step of the item
    size_t operation;  // the first of the item's in the batch
  };
  void FillFirst(size_t item, Batch* batch);
  void FillSecond(size_t item, Batch* batch);
  void LearnFirst(const Batch& batch, const Issued& issued);
  void LearnSecond(const Batch& batch, const Issued& issued);
  // What a read of the key found.
  LedgerRow LearnRead(const Batch& batch, uint64_t key, size_t operation);
  void LearnScan(const Batch& batch, const Item& item, size_t operation);
  void LearnColourScan(const Batch& batch, const Item& item, size_t operation);
  void LearnLook(uint64_t key, const LedgerRow& row);
  void LearnWrite(Access::Kind kind, uint64_t key, Word before, Word after, int64_t amount, int64_t delta);
  void Record(Access access);
  // Rows that are inserted anew have a name that was never used before.
  Word FreshWord(size_t item) const { return MakeWord(request_.attempt * 32 + item + 1, 1); }

  LedgerContext& context_;
  const storage::TableDefinition& table_;
  const coordinator::TransactionId id_;
  const LedgerRequest& request_;
  History forgotten_;
  History* const history_;
  const size_t attempt_;
  std::vector<LedgerRow> seen_;  // by item: what its first step found
  std::vector<Issued> issued_;
  std::vector<uint64_t> lives_;  // by island, when the batch was sent
};

bool Attempted::Fill(uint32_t n, Batch* batch) {
  batch->Clear();
  issued_.clear();
  for (size_t i = 0; i < request_.items.size(); ++i) {
    const Item& item = request_.items[i];
    const uint32_t second = item.act == Act::kRescan ? request_.batches - 1 : item.batch + 1;
    if (item.batch == n) FillFirst(i, batch);
    if (item.two_steps() && second == n) FillSecond(i, batch);
  }
  lives_.resize(context_.sites.islands());
  for (uint32_t island = 0; island < lives_.size(); ++island) {
    lives_[island] = context_.life_of(id_, island);
  }
  return !batch->empty();
}

void Attempted::FillFirst(size_t i, Batch* batch) {
  const Item& item = request_.items[i];
  const Uint64Key key(item.key), end_key(item.end_key);
  issued_.push_back({i, false, batch->size()});
  switch (item.act) {
    case Act::kRead:
    case Act::kUpsert:
    case Act::kDeleteLater:
      batch->Read(table_.id, key);
      break;
    case Act::kWrite:
    case Act::kReplace:
      batch->ReadForUpdate(table_.id, key);
      break;
    case Act::kAdd:
      // Half of them by copies of the row; the padding is a number that nobody else needs.
      if (item.padding % 2 == 0) {
        batch->Add(table_.id, key, 0, static_cast<int64_t>(request_.version_step));
        batch->Add(table_.id, key, sizeof(Word), item.amount);
      } else {
        batch->Update(table_.id, key, 0, static_cast<int64_t>(request_.version_step));
        batch->Update(table_.id, key, sizeof(Word), item.amount);
      }
      break;
    case Act::kInsert:
      batch->Insert(table_.id, key, MakeRow(item.key, FreshWord(i), item.amount, item.padding));
      batch->Read(table_.id, key);
      break;
    case Act::kDelete:
      batch->ReadForUpdate(table_.id, key);
      batch->Delete(table_.id, key);
      break;
    case Act::kScan:
    case Act::kRescan:
      batch->Scan(table_.id, key, end_key, item.limit, item.reverse);
      break;
    case Act::kColourScan: {
      const std::string first = ColourKey(item.key), end = ColourKey(item.end_key);
      batch->IndexScan(table_.id, kByColour, Uint64Key(item.site_key), std::as_bytes(std::span(first)),
                       std::as_bytes(std::span(end)), item.limit, item.reverse);
      break;
    }
  }
}

void Attempted::FillSecond(size_t i, Batch* batch) {
  const Item& item = request_.items[i];
  const Uint64Key key(item.key), end_key(item.end_key);
  const LedgerRow& seen = seen_[i];
  const bool present = seen.word != kAbsent;
  if (!present && (item.act == Act::kWrite || item.act == Act::kReplace || item.act == Act::kDeleteLater))
    return;
  issued_.push_back({i, true, batch->size()});
  const std::vector<std::byte> changed =
      MakeRow(item.key, seen.word + request_.version_step, seen.amount + item.amount, item.padding);
  switch (item.act) {
    case Act::kUpsert:
      if (!present) {
        batch->Insert(table_.id, key, MakeRow(item.key, FreshWord(i), item.amount, item.padding));
        break;
      }
      [[fallthrough]];
    case Act::kWrite:
      batch->Write(table_.id, key, 0, RowView(changed).first(kRowBytes));
      break;
    case Act::kReplace:
      batch->Replace(table_.id, key, changed);
      break;
    case Act::kDeleteLater:
      batch->Delete(table_.id, key);
      break;
    default:
      batch->Scan(table_.id, key, end_key, item.limit, item.reverse);
      break;
  }
}

void Attempted::Learn(const Batch& batch) {
  for (const Issued& issued : issued_) {
    if (issued.second) {
      LearnSecond(batch, issued);
    } else {
      LearnFirst(batch, issued);
    }
  }
}

void Attempted::LearnFirst(const Batch& batch, const Issued& issued) {
  const Item& item = request_.items[issued.item];
  const size_t operation = issued.operation;
  const bool ok = batch.code(operation) == absl::StatusCode::kOk;
  switch (item.act) {
    case Act::kAdd: {
      if (!ok) {
        LearnRead(batch, item.key, operation);
        break;
      }
      const auto word = static_cast<Word>(Int64Of(batch.row(operation)));
      const int64_t amount = Int64Of(batch.row(operation + 1));
      LearnWrite(Access::kUpdate, item.key, word - request_.version_step, word, amount, item.amount);
      break;
    }
    case Act::kInsert:
      if (ok)
        LearnWrite(Access::kInsert, item.key, kAbsent, FreshWord(issued.item), item.amount, item.amount);
      LearnRead(batch, item.key, operation + 1);
      break;
    case Act::kDelete: {
      const LedgerRow row = LearnRead(batch, item.key, operation);
      if (batch.code(operation + 1) == absl::StatusCode::kOk)
        LearnWrite(Access::kDelete, item.key, row.word, kAbsent, 0, -row.amount);
      break;
    }
    case Act::kScan:
    case Act::kRescan:
      LearnScan(batch, item, operation);
      break;
    case Act::kColourScan:
      LearnColourScan(batch, item, operation);
      break;
    default:
      seen_[issued.item] = LearnRead(batch, item.key, operation);
      break;
  }
}

void Attempted::LearnSecond(const Batch& batch, const Issued& issued) {
  const Item& item = request_.items[issued.item];
  const LedgerRow& seen = seen_[issued.item];
  if (item.act == Act::kRescan) return LearnScan(batch, item, issued.operation);
  if (batch.code(issued.operation) != absl::StatusCode::kOk) {
    // The row was locked since the first step: it cannot have come or gone.
    history_->Complain(fmt::format("{}: key {} was {} and changed under its lock", id_.ToString(), item.key,
                                   seen.word == kAbsent ? "absent" : "present"));
    return;
  }
  if (item.act == Act::kDeleteLater) {
    LearnWrite(Access::kDelete, item.key, seen.word, kAbsent, 0, -seen.amount);
  } else if (seen.word == kAbsent) {
    LearnWrite(Access::kInsert, item.key, kAbsent, FreshWord(issued.item), item.amount, item.amount);
  } else {
    LearnWrite(Access::kUpdate, item.key, seen.word, seen.word + request_.version_step,
               seen.amount + item.amount, item.amount);
  }
}

void Attempted::Record(Access access) {
  access.island = context_.sites.IslandOf(*table_.partition->SiteOf(static_cast<int64_t>(access.key)));
  access.life = lives_[access.island];
  history_->Learn(attempt_, access);
}

LedgerRow Attempted::LearnRead(const Batch& batch, uint64_t key, size_t operation) {
  LedgerRow row;
  if (batch.code(operation) == absl::StatusCode::kOk) row = ParseLedgerRow(batch.row(operation));
  Access access{.kind = Access::kRead, .key = key, .before = row.word, .after = row.word};
  access.has_amount = row.word != kAbsent;
  access.amount = row.amount;
  Record(access);
  return row;
}

void Attempted::LearnWrite(Access::Kind kind, uint64_t key, Word before, Word after, int64_t amount,
                           int64_t delta) {
  Access access{.kind = kind, .key = key, .before = before, .after = after};
  access.has_amount = after != kAbsent;
  access.amount = amount;
  access.delta = delta;
  Record(access);
}

// A scan has read every key of its range, up to where its limit stopped it.
void Attempted::LearnScan(const Batch& batch, const Item& item, size_t operation) {
  uint64_t begin = item.key, end = item.end_key;
  std::map<uint64_t, LedgerRow> rows;
  uint64_t before = 0;
  const size_t count = batch.scanned_rows(operation);
  for (size_t n = 0; n < count; ++n) {
    const uint64_t key = LedgerKey(batch.scanned_key(operation, n));
    const bool in_order = n == 0 || (item.reverse ? key < before : key > before);
    if (!in_order || key < begin || key >= end) {
      history_->Complain(fmt::format("{}: a scan of [{}, {}){} has key {} after {}", id_.ToString(), begin,
                                     end, item.reverse ? " in reverse" : "", key, before));
    }
    before = key;
    rows[key] = ParseLedgerRow(batch.scanned_row(operation, n));
  }
  if (item.limit != 0 && count > item.limit) {
    history_->Complain(
        fmt::format("{}: a scan has {} rows, its limit is {}", id_.ToString(), count, item.limit));
  }
  if (item.limit != 0 && count >= item.limit)
    (item.reverse ? begin : end) = item.reverse ? before : before + 1;
  for (uint64_t key = begin; key < end; ++key) {
    const auto found = rows.find(key);
    LearnLook(key, found == rows.end() ? LedgerRow() : found->second);
  }
}

// A scan of the index has read every key of its colours in its site, up to where its limit stopped it.
void Attempted::LearnColourScan(const Batch& batch, const Item& item, size_t operation) {
  using Entry = std::pair<uint32_t, uint64_t>;  // colour, key
  const uint32_t site = *table_.partition->SiteOf(static_cast<int64_t>(item.site_key));
  const auto begin = static_cast<uint64_t>(table_.partition->SiteBegin(site));
  const auto end = static_cast<uint64_t>(table_.partition->SiteBegin(site + 1));
  std::map<Entry, LedgerRow> rows;
  std::optional<Entry> last;
  const size_t count = batch.scanned_rows(operation);
  for (size_t n = 0; n < count; ++n) {
    const uint64_t key = LedgerKey(batch.scanned_key(operation, n));
    const Entry entry(ColourOf(key), key);
    const bool in_order = !last || (item.reverse ? entry < *last : entry > *last);
    const bool in_range = key >= begin && key < end && entry.first >= item.key && entry.first < item.end_key;
    if (!in_order || !in_range) {
      history_->Complain(fmt::format("{}: a scan of colours [{}, {}) of site {}{} has key {} at {}",
                                     id_.ToString(), item.key, item.end_key, site,
                                     item.reverse ? " in reverse" : "", key, n));
    }
    last = entry;
    rows[entry] = ParseLedgerRow(batch.scanned_row(operation, n));
  }
  const bool limited = item.limit != 0 && count >= item.limit;
  for (uint64_t key = begin; key < end; ++key) {
    const Entry entry(ColourOf(key), key);
    if (entry.first < item.key || entry.first >= item.end_key) continue;
    if (limited && (item.reverse ? entry < *last : entry > *last)) continue;
    const auto found = rows.find(entry);
    LearnLook(key, found == rows.end() ? LedgerRow() : found->second);
  }
}

void Attempted::LearnLook(uint64_t key, const LedgerRow& row) {
  Access access{.kind = Access::kPredicateRead, .key = key, .before = row.word, .after = row.word};
  access.has_amount = row.word != kAbsent;
  access.amount = row.amount;
  Record(access);
}

class Ledger final : public instance::Workload {
 public:
  Ledger(const storage::TableDefinition& table, std::shared_ptr<LedgerContext> context)
      : table_(table), context_(std::move(context)) {}
  const char* name() const override { return "ledger"; }
  std::vector<std::string> tables() const override { return {"ledger"}; }

  absl::Status Load(instance::Loader& loader) const override {
    for (uint64_t number = 0; number < context_->keys; ++number) {
      if (!IsLoadedKey(number)) continue;
      const Uint64Key key(number);
      const auto padding = static_cast<uint32_t>(number * 37 % kMostPadding);
      const std::vector<std::byte> row =
          MakeRow(number, LoadedWord(context_->booting_life), kLoadedAmount, padding);
      if (absl::Status status = loader.Insert(table_.id, key, row); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& where) const override {
    return MakeLedgerGenerator(context_, *table_.partition, where.island);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& asked) const override {
    const auto& request = static_cast<const LedgerRequest&>(asked);
    Attempted run(*context_, table_, transaction.id(), request);
    Batch& batch = transaction.batch();
    for (uint32_t n = 0; n < request.batches; ++n) {
      if (!run.Fill(n, &batch)) continue;
      if (n == request.last_elsewhere) batch.LastElsewhere();
      runtime::Task<absl::Status> execute = transaction.Execute(batch);
      absl::Status status = co_await execute;
      if (!status.ok()) co_return status;
      run.Learn(batch);
    }
    if (request.fails) co_return absl::CancelledError("made to fail");
    run.Finish();
    co_return absl::OkStatus();
  }

  std::unique_ptr<instance::Request> MakeRequest() const override {
    return std::make_unique<LedgerRequest>();
  }

  int64_t AuditRow(TableId, KeyView, RowView row) const override { return ParseLedgerRow(row).amount; }

 private:
  const storage::TableDefinition& table_;
  const std::shared_ptr<LedgerContext> context_;
};

}  // namespace

control::v1::TableSpec LedgerTable(uint64_t keys, bool indexed) {
  control::v1::TableSpec table;
  table.set_name("ledger");
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(static_cast<int64_t>(keys));
  if (indexed) {
    control::v1::IndexSpec* index = table.add_indexes();
    index->set_name("by_colour");
    index->add_key("row:16:uint32");
  }
  return table;
}

std::shared_ptr<const instance::Workload> OpenLedger(const storage::Catalog& catalog,
                                                     const std::shared_ptr<LedgerContext>& context) {
  return std::make_shared<Ledger>(*catalog.Find("ledger"), context);
}

uint64_t LedgerKey(KeyView key) {
  uint64_t value = 0;
  for (const std::byte byte : key) value = value << 8 | static_cast<uint64_t>(byte);
  return value;
}

LedgerRow ParseLedgerRow(RowView bytes) {
  LedgerRow row;
  if (bytes.size() < kRowBytes) return row;
  std::memcpy(&row.word, bytes.data(), sizeof(row.word));
  std::memcpy(&row.amount, bytes.data() + sizeof(row.word), sizeof(row.amount));
  return row;
}

}  // namespace islands::simulation
