#include "instance/gateway/tokens.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "instance/execution/abort_reason.h"
#include "instance/gateway/translate.h"
#include "instance/worker/wire.h"

namespace islands::gateway {
namespace {

using instance::Batch;
using storage::KeyView;

constexpr size_t kRowBytes = 9;
constexpr uint32_t kRowsPerStep = 512;
constexpr size_t kDeletesAtOnce = 64;  // what undoes them must have room in the log's ring
constexpr int64_t kStepTimeoutUs = 5'000'000;

KeyView KeyBytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string KeyOf(uint32_t site, const std::string& token) {
  std::string key;
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, site, &key);
  partitioner::AppendString(token, &key);
  return key;
}

std::array<std::byte, kRowBytes> RowOf(TokenOutcome outcome, int64_t now_s) {
  std::array<std::byte, kRowBytes> row;
  row[0] = static_cast<std::byte>(outcome);
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(row.data() + 1, &now_s, sizeof(now_s));
  return row;
}

int64_t TimeOf(storage::RowView row) {
  int64_t time_s = 0;
  if (row.size() == kRowBytes) std::memcpy(&time_s, row.data() + 1, sizeof(time_s));
  return time_s;
}

void Fill(const View& view, const Batch& batch, uint64_t session, int64_t deadline_us,
          data::v1::ClientRequest* request) {
  request->set_tables(view.tables);
  instance::EncodeClientOperations(batch, request->mutable_operations());
  request->set_session(session);
  request->set_begins(true);
  request->set_whole(true);
  request->set_end(data::v1::CLIENT_END_COMMIT);
  request->set_deadline_us(deadline_us);
}

// Of a whole transaction, for a thread that may wait.
class Awaited final : public Waiting {
 public:
  void OnReply(const data::v1::ClientReply& reply) override {
    if (AnswerOf(reply).ok()) results_ = reply.results();
    ended_.Notify();
  }
  void OnLost(bool, const absl::Status&) override { ended_.Notify(); }
  // Nothing: it was not committed, or nobody knows.
  std::optional<std::string> Take() {
    ended_.WaitForNotification();
    return std::move(results_);
  }

 private:
  absl::Notification ended_;
  std::optional<std::string> results_;
};

bool Execute(Channels& channels, const View& view, uint32_t site, std::vector<uint32_t> may_miss,
             Batch* batch) {
  Awaited awaited;
  data::v1::ClientRequest request;
  const uint64_t session = channels.NextSession();
  Fill(view, *batch, session, kStepTimeoutUs, &request);
  request.mutable_may_miss()->Assign(may_miss.begin(), may_miss.end());
  channels.Send(channels.WorkerFor(view.sites.IslandOf(site), session), request, &awaited);
  const std::optional<std::string> results = awaited.Take();
  return results && instance::DecodeClientResults(*results, batch).ok();
}

}  // namespace

control::v1::TableSpec TokensTable(const View& view) {
  control::v1::TableSpec table;
  table.set_name(kTokensTable);
  table.add_key("uint32");
  table.add_key("string");
  table.set_range_end(view.catalog.sites());
  table.set_row_bytes(kRowBytes);
  return table;
}

const storage::TableDefinition* FindTokensTable(const View& view) { return view.catalog.Find(kTokensTable); }

absl::Status CheckToken(const std::string& token) {
  if (!token.empty() && token.size() <= kMostTokenBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("a token of {} bytes, expected 1 to {}", token.size(), kMostTokenBytes));
}

// Of the first operation alone, and of a scan by where it begins whatever way it goes: whoever asks says
// no more than a table and a key.
uint32_t TokenSiteOf(const View& view, const Batch& batch) {
  if (batch.size() == 0) return 0;
  const Batch::Operation& first = batch.operation(0);
  if (view.catalog.table(first.table).replicated()) return 0;
  const bool by_index = first.kind == instance::OperationKind::kIndexScan;
  const auto site = view.catalog.SiteOf(first.table, batch.View(by_index ? first.site_key : first.key));
  return site.ok() ? *site : 0;
}

void InsertToken(const View& view, uint32_t site, const std::string& token, TokenOutcome outcome,
                 Batch* batch) {
  const std::string key = KeyOf(site, token);
  const auto row = RowOf(outcome, absl::ToUnixSeconds(absl::Now()));
  batch->Insert(FindTokensTable(view)->id, KeyBytes(key), row);
}

void TokenQuestion::Ask(std::shared_ptr<const View> view, uint32_t site, std::string token, bool settle,
                        int64_t deadline_us) {
  view_ = std::move(view);
  site_ = site;
  token_ = std::move(token);
  deadline_us_ = deadline_us;
  settling_ = settle;
  if (!settle) return Read();
  batch_.Clear();
  InsertToken(*view_, site_, token_, TokenOutcome::kNever, &batch_);
  Send();
}

void TokenQuestion::Read() {
  settling_ = false;
  batch_.Clear();
  const std::string key = KeyOf(site_, token_);
  batch_.Read(FindTokensTable(*view_)->id, KeyBytes(key));
  Send();
}

void TokenQuestion::Send() {
  data::v1::ClientRequest request;
  const uint64_t session = channels_.NextSession();
  Fill(*view_, batch_, session, deadline_us_, &request);
  channels_.Send(channels_.WorkerFor(view_->sites.IslandOf(site_), session), request, this);
}

void TokenQuestion::OnReply(const data::v1::ClientReply& reply) {
  const Answer answer = AnswerOf(reply);
  if (settling_) {
    if (answer.code == grpc::StatusCode::FAILED_PRECONDITION) return Read();  // there is a row
    return owner_.OnToken(answer.ok() ? std::optional(TokenOutcome::kNever) : std::nullopt, answer);
  }
  if (!answer.ok()) return owner_.OnToken(std::nullopt, answer);
  const absl::Status decoded = instance::DecodeClientResults(reply.results(), &batch_);
  if (!decoded.ok()) return owner_.OnToken(std::nullopt, LostAnswer(/*may_have_committed=*/false, decoded));
  const storage::RowView row = batch_.row(0);
  if (batch_.code(0) != absl::StatusCode::kOk || row.size() != kRowBytes)
    return owner_.OnToken(std::nullopt, {});
  owner_.OnToken(static_cast<TokenOutcome>(row[0]), {});
}

void TokenQuestion::OnLost(bool, const absl::Status& why) {
  owner_.OnToken(std::nullopt, LostAnswer(/*may_have_committed=*/false, why));
}

bool TokenSweeper::Step(const View& view, int64_t now_s) {
  const storage::TableDefinition* table = FindTokensTable(view);
  if (table == nullptr) return false;
  if (site_ >= view.catalog.sites()) site_ = 0;
  std::string end;
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, site_ + uint64_t{1}, &end);
  if (from_.empty()) partitioner::AppendUnsigned(partitioner::KeyType::kUint32, site_, &from_);
  Batch batch;
  batch.Scan(table->id, KeyBytes(from_), KeyBytes(end), kRowsPerStep);
  if (!Execute(channels_, view, site_, {}, &batch)) return false;
  const size_t rows = batch.scanned_rows(0);
  Batch old;
  std::vector<uint32_t> may_miss;
  for (size_t n = 0; n < rows; ++n) {
    if (TimeOf(batch.scanned_row(0, n)) <= now_s - kTokensKeptS) {
      may_miss.push_back(static_cast<uint32_t>(old.size()));
      old.Delete(table->id, batch.scanned_key(0, n));
    }
    if (old.size() < kDeletesAtOnce && (old.empty() || n + 1 < rows)) continue;
    if (!Execute(channels_, view, site_, may_miss, &old)) return false;
    old.Clear();
    may_miss.clear();
  }
  if (rows < kRowsPerStep) {
    from_.clear();
    return ++site_ < view.catalog.sites();
  }
  const KeyView last = batch.scanned_key(0, rows - 1);
  from_.assign(reinterpret_cast<const char*>(last.data()), last.size());
  from_.push_back('\0');  // the next key is above
  return true;
}

}  // namespace islands::gateway
