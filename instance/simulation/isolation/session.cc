#include "instance/simulation/isolation/session.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace islands::simulation::isolation {
namespace {

using instance::Batch;
using instance::KeyView;
using instance::RowView;
using instance::TableId;
using partitioner::Uint64Key;

constexpr const char* kTable = "rows";

struct Part final : instance::Request {
  Stage::Session* session = nullptr;  // null: the slot has nothing to do
};

End EndOf(coordinator::Outcome outcome) {
  switch (outcome) {
    case coordinator::Outcome::kCommitted:
      return End::kCommitted;
    case coordinator::Outcome::kAborted:
      return End::kAborted;
    default:
      return End::kUnknown;
  }
}

// Hands the sessions that live on this worker to its slots.
class Casting final : public instance::Generator {
 public:
  Casting(Stage& stage, uint32_t island, uint32_t worker) : stage_(stage), island_(island), worker_(worker) {}

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Part>(); }
  void Next(runtime::Random&, instance::Request& request) override {
    static_cast<Part&>(request).session = Claim();
  }
  void OnEnd(const coordinator::TransactionId&, const instance::Request& request,
             coordinator::Outcome outcome) override {
    Stage::Session* session = static_cast<const Part&>(request).session;
    if (session != nullptr && session->end == End::kNever) session->end = EndOf(outcome);
  }

 private:
  Stage::Session* Claim() {
    for (Stage::Session& session : stage_.sessions) {
      const bool here = HomeIsland(stage_.arrangement, session.number) == island_ &&
                        HomeWorker(stage_.arrangement, session.number) == worker_;
      if (!here || session.claimed || session.posted.empty()) continue;
      session.claimed = true;
      return &session;
    }
    return nullptr;
  }

  Stage& stage_;
  const uint32_t island_;
  const uint32_t worker_;
};

int64_t ValueOf(RowView row) {
  int64_t value = 0;
  std::memcpy(&value, row.data(), sizeof(value));
  return value;
}

uint64_t KeyNumber(KeyView key) {
  uint64_t number = 0;
  for (std::byte byte : key) number = number << 8 | static_cast<uint64_t>(byte);
  return number;
}

class Sessions final : public instance::Workload {
 public:
  Sessions(TableId table, Stage& stage) : table_(table), stage_(stage) {}
  const char* name() const override { return "isolation"; }
  std::vector<std::string> tables() const override { return {kTable}; }

  absl::Status Load(instance::Loader& loader) const override {
    for (const auto& [row, value] : stage_.scenario.rows) {
      const Uint64Key key(KeyOf(stage_.arrangement.placement, row));
      absl::Status status = loader.Insert(table_, key, std::as_bytes(std::span(&value, 1)));
      if (!status.ok()) return status;
    }
    const int64_t idle = -1;
    for (uint32_t session = 0; session < stage_.scenario.sessions; ++session) {
      const Uint64Key key(kIdleKey + session);
      absl::Status status = loader.Insert(table_, key, std::as_bytes(std::span(&idle, 1)));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Casting>(stage_, context.island, context.worker);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    Stage::Session* session = static_cast<const Part&>(request).session;
    if (session == nullptr || std::exchange(session->attempted, true)) {
      co_return absl::CancelledError("nothing to do");
    }
    runtime::Task<absl::Status> play = Play(transaction, *session);
    const absl::Status status = co_await play;
    session->dead = true;
    co_return status;
  }

 private:
  // Steps as they come, until one ends the session.
  runtime::Task<absl::Status> Play(instance::Transaction& transaction, Stage::Session& session) const {
    while (!stage_.closing) {
      const bool idle = session.next == session.posted.size();
      runtime::Task<absl::Status> work = idle ? Wait(transaction, session) : Perform(transaction, session);
      absl::Status status = co_await work;
      if (!status.ok()) {
        session.why = std::string(status.message());
        co_return status;
      }
      if (idle) continue;
      const Verb verb = stage_.scenario.steps[session.posted[session.next++]].verb;
      if (verb == Verb::kCommit) co_return absl::OkStatus();
      if (verb == Verb::kAbort) co_return absl::CancelledError("the script says so");
    }
    co_return absl::CancelledError("the run was given up");
  }

  runtime::Task<absl::Status> Wait(instance::Transaction& transaction, Stage::Session& session) const {
    Batch& batch = transaction.batch();
    batch.Clear();
    const Uint64Key key(kIdleKey + session.number);
    batch.Read(table_, key);
    runtime::Task<absl::Status> read = transaction.Execute(batch);
    co_return co_await read;
  }

  runtime::Task<absl::Status> Perform(instance::Transaction& transaction, Stage::Session& session) const {
    const uint32_t number = session.posted[session.next];
    const Step& step = stage_.scenario.steps[number];
    Batch& batch = transaction.batch();
    batch.Clear();
    Fill(step, &batch);
    if (!batch.empty()) {
      runtime::Task<absl::Status> first = transaction.Execute(batch);
      absl::Status status = co_await first;
      if (!status.ok()) co_return status;
    }
    Rows found;
    if (step.range && step.verb != Verb::kScan) {
      found = Matching(step, batch);
      batch.Clear();
      FillEach(step, found, &batch);
      runtime::Task<absl::Status> second = transaction.Execute(batch);
      absl::Status status = co_await second;
      if (!status.ok()) co_return status;
    }
    stage_.steps[number].result = Result(step, batch, found);
    stage_.steps[number].done = true;
    co_return absl::OkStatus();
  }

  // The operation of a step; of a range that is written, the scan that comes first.
  void Fill(const Step& step, Batch* batch) const {
    const Uint64Key key(KeyOf(stage_.arrangement.placement, step.first));
    const int64_t longer[2] = {step.value, 0};
    const RowView row = std::as_bytes(std::span(longer, 1));
    if (step.range) {
      const Uint64Key end(KeyOf(stage_.arrangement.placement, step.last) + 1);
      batch->Scan(table_, key, end, step.limit, step.reverse);
      return;
    }
    switch (step.verb) {
      case Verb::kRead:
        batch->Read(table_, key);
        break;
      case Verb::kLock:
        batch->ReadForUpdate(table_, key);
        break;
      case Verb::kWrite:
        batch->Write(table_, key, 0, row);
        break;
      case Verb::kAdd:
        batch->Add(table_, key, 0, step.value);
        break;
      case Verb::kUpdate:
        batch->Update(table_, key, 0, step.value);
        break;
      case Verb::kReplace:
        batch->Replace(table_, key, std::as_bytes(std::span(longer)));
        break;
      case Verb::kInsert:
        batch->Insert(table_, key, row);
        break;
      case Verb::kDelete:
        batch->Delete(table_, key);
        break;
      case Verb::kFind: {
        std::string first, end;
        partitioner::AppendSigned(partitioner::KeyType::kInt64, step.value, &first);
        partitioner::AppendSigned(partitioner::KeyType::kInt64, step.value + 1, &end);
        batch->IndexScan(table_, 0, key, std::as_bytes(std::span(first)), std::as_bytes(std::span(end)));
        break;
      }
      default:
        break;
    }
  }

  Rows Matching(const Step& step, const Batch& batch) const {
    Rows found;
    for (size_t i = 0; i < batch.scanned_rows(0); ++i) {
      const int64_t value = ValueOf(batch.scanned_row(0, i));
      if (step.filter && *step.filter != value) continue;
      found[RowOf(stage_.arrangement.placement, KeyNumber(batch.scanned_key(0, i)))] = value;
    }
    return found;
  }

  void FillEach(const Step& step, const Rows& found, Batch* batch) const {
    for (const auto& [row, value] : found) {
      const Uint64Key key(KeyOf(stage_.arrangement.placement, row));
      if (step.verb == Verb::kDelete) {
        batch->Delete(table_, key);
      } else {
        batch->Add(table_, key, 0, step.value);
      }
    }
  }

  // In the words of Apply (judge.h).
  std::string Result(const Step& step, const Batch& batch, const Rows& found) const {
    if (batch.empty() && !step.range) return "done";
    if (step.verb == Verb::kScan || step.verb == Verb::kFind) return ScanResult(step, batch);
    if (step.range) return RangeResult(step, batch, found);
    switch (batch.code(0)) {
      case absl::StatusCode::kNotFound:
        return "absent";
      case absl::StatusCode::kAlreadyExists:
        return "exists";
      default:
        break;
    }
    const bool returns = step.verb == Verb::kRead || step.verb == Verb::kLock || step.verb == Verb::kAdd ||
                         step.verb == Verb::kUpdate;
    return returns ? fmt::format("{}", ValueOf(batch.row(0))) : "done";
  }

  std::string ScanResult(const Step& step, const Batch& batch) const {
    std::string text;
    for (size_t i = 0; i < batch.scanned_rows(0); ++i) {
      const int64_t value = ValueOf(batch.scanned_row(0, i));
      if (step.filter && *step.filter != value) continue;
      text += RowText(RowOf(stage_.arrangement.placement, KeyNumber(batch.scanned_key(0, i))), value,
                      text.empty());
    }
    return text.empty() ? "nothing" : text;
  }

  // A row that was scanned and is gone when it is written shows as lost: no model ever answers that.
  std::string RangeResult(const Step& step, const Batch& batch, const Rows& found) const {
    std::string text;
    size_t i = 0;
    for (const auto& [row, value] : found) {
      const bool ok = batch.code(i) == absl::StatusCode::kOk;
      const int64_t after = ok && step.verb == Verb::kAdd ? ValueOf(batch.row(i)) : value;
      text += RowText(row, after, text.empty()) + (ok ? "" : "(lost)");
      ++i;
    }
    return text.empty() ? "nothing" : text;
  }

  static std::string RowText(uint32_t row, int64_t value, bool first) {
    const std::string_view name = row < kRowNames.size() ? kRowNames[row] : "a-stranger";
    return fmt::format("{}{}={}", first ? "" : " ", name, value);
  }

  const TableId table_;
  Stage& stage_;
};

}  // namespace

Stage::Stage(const Scenario& script, const Arrangement& where)
    : scenario(script), arrangement(where), sessions(script.sessions), steps(script.steps.size()) {
  for (uint32_t number = 0; number < script.sessions; ++number) sessions[number].number = number;
}

control::v1::TableSpec RowsTable(const Scenario& scenario) {
  control::v1::TableSpec table;
  table.set_name(kTable);
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(kSites * kKeysPerSite);
  if (scenario.UsesIndex()) {
    control::v1::IndexSpec* index = table.add_indexes();
    index->set_name("by_value");
    index->add_key("row:0:int64");
  }
  return table;
}

std::shared_ptr<const instance::Workload> OpenSessions(const storage::Catalog& catalog, Stage& stage) {
  return std::make_shared<Sessions>(catalog.Find(kTable)->id, stage);
}

}  // namespace islands::simulation::isolation
