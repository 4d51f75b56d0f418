#include "experiments/peers/workload_driver.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "instance/workload/audit.h"

namespace islands::experiments {

namespace {

using Clock = std::chrono::steady_clock;
using instance::TableId;

constexpr uint64_t kRowsPerLoad = 5000;  // of a transaction
constexpr uint64_t kTransactionsPerLook = 16;
constexpr auto kSyncEvery = std::chrono::seconds(1);

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Puts a workload's rows into a store, in transactions of some thousand.
class StoreLoader final : public instance::Loader {
 public:
  StoreLoader(const storage::Catalog& catalog, RowStore& store, StoreTransaction& transaction)
      : catalog_(catalog), store_(store), transaction_(transaction) {}
  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t) const override { return true; }
  absl::Status Insert(TableId table, KeyView key, RowView row) override {
    if (rows_++ % kRowsPerLoad == 0) {
      absl::Status status = End();
      if (status.ok()) status = store_.Begin(/*writes=*/true);
      if (!status.ok()) return status;
      open_ = true;
    }
    return transaction_.Load(table, key, row);
  }
  absl::Status End() { return std::exchange(open_, false) ? store_.Commit() : absl::OkStatus(); }

 private:
  const storage::Catalog& catalog_;
  RowStore& store_;
  StoreTransaction& transaction_;
  uint64_t rows_ = 0;
  bool open_ = false;
};

// Calls Sync every second, as long as it lives.
class Syncer {
 public:
  Syncer(RowStore& store, bool wanted) : store_(store) {
    if (wanted) thread_ = std::thread([this] { Loop(); });
  }
  ~Syncer() { End().IgnoreError(); }
  absl::Status End() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kSyncEvery, [this] { return over_; })) {
      lock.unlock();
      status_.Update(store_.Sync());
      lock.lock();
    }
  }
  RowStore& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace

struct WorkloadDriver::Session {
  std::unique_ptr<RowStore> store;
  std::unique_ptr<StoreTransaction> transaction;
  std::unique_ptr<instance::Generator> generator;
  std::unique_ptr<instance::Request> request;
  runtime::Random random{0};
  int64_t audit_committed = 0;
};

struct WorkloadDriver::Loaded {
  std::unique_ptr<RowStore> store;
  std::vector<Session> sessions;
  int64_t audited = 0;  // when all was last looked at
};

WorkloadDriver::WorkloadDriver(const WorkloadDriverOptions& options, const storage::Catalog& catalog,
                               std::shared_ptr<const instance::Workload> workload)
    : options_(options), catalog_(catalog), trees_(catalog), workload_(std::move(workload)) {}

WorkloadDriver::~WorkloadDriver() = default;

absl::StatusOr<std::unique_ptr<WorkloadDriver>> WorkloadDriver::Create(
    const WorkloadDriverOptions& options, const storage::Catalog& catalog,
    std::shared_ptr<const instance::Workload> workload, Opener open) {
  if (absl::Status status = workload->CheckRun(catalog); !status.ok()) return status;
  auto driver = std::unique_ptr<WorkloadDriver>(new WorkloadDriver(options, catalog, std::move(workload)));
  for (const std::string& engine : options.engines) {
    absl::Status status = driver->Load(engine, open);
    if (!status.ok())
      return absl::Status(status.code(), fmt::format("{}: {}", engine, std::string(status.message())));
  }
  return driver;
}

absl::Status WorkloadDriver::Load(const std::string& engine, Opener open) {
  StoreOptions options{.directory = options_.directory + "/" + engine,
                       .trees = trees_.names(),
                       .cache_bytes = options_.cache_bytes,
                       .durability = options_.durability,
                       .threads = options_.threads};
  std::error_code error;
  if (std::filesystem::create_directory(options.directory, error); error)
    return absl::UnavailableError(fmt::format("cannot create '{}': {}", options.directory, error.message()));
  absl::StatusOr<std::unique_ptr<RowStore>> store = open(engine, options);
  if (!store.ok()) return store.status();
  auto loaded = std::make_unique<Loaded>();
  loaded->store = *std::move(store);
  StoreTransaction transaction(catalog_, trees_, *loaded->store, 0, options_.seed);
  StoreLoader loader(catalog_, *loaded->store, transaction);
  absl::Status status = workload_->Load(loader);
  status.Update(loader.End());
  status.Update(loaded->store->Settle());
  if (!status.ok()) return status;
  const absl::StatusOr<int64_t> audited = Audit(*loaded);
  if (!audited.ok()) return audited.status();
  loaded->audited = *audited;
  for (uint32_t thread = 0; thread < options_.threads; ++thread) {
    Session& session = loaded->sessions.emplace_back();
    auto own = loaded->store->Session();
    if (!own.ok()) return own.status();
    session.store = *std::move(own);
    session.transaction =
        std::make_unique<StoreTransaction>(catalog_, trees_, *session.store, thread, options_.seed + thread);
  }
  engines_.emplace(engine, std::move(loaded));
  return absl::OkStatus();
}

std::map<std::string, PeerFacts> WorkloadDriver::Facts() const {
  std::map<std::string, PeerFacts> facts;
  for (const auto& [engine, loaded] : engines_) facts.emplace(engine, loaded->store->Facts());
  return facts;
}

absl::StatusOr<int64_t> WorkloadDriver::Audit(Loaded& loaded) const {
  const auto* audited = dynamic_cast<const instance::AuditedWorkload*>(workload_.get());
  const std::unique_ptr<instance::RowAudit> audit =
      audited != nullptr ? audited->BeginAudit({0, catalog_.sites()}) : nullptr;
  const std::byte first{0};
  const std::vector<std::byte> beyond(partitioner::kMaxKeyBytes, std::byte{0xff});
  int64_t sum = 0;
  absl::Status status = loaded.store->Begin(/*writes=*/false);
  for (const std::string& name : workload_->tables()) {
    const storage::TableDefinition& table = *catalog_.Find(name);
    if (table.replicated() || !status.ok()) continue;
    status = loaded.store->Scan(trees_.OfTable(table.id), {&first, 1}, beyond, /*reverse=*/false, /*limit=*/0,
                                [&](KeyView key, RowView row) {
                                  if (audit != nullptr) {
                                    audit->See(table.id, key, row);
                                  } else {
                                    sum += workload_->AuditRow(table.id, key, row);
                                  }
                                  return true;
                                });
  }
  loaded.store->Rollback();
  if (!status.ok()) return status;
  return audit != nullptr ? audit->Finish() : sum;
}

absl::Status WorkloadDriver::RunPart(Session& session, double seconds, WorkloadMeasurement* measured) {
  const Clock::time_point begin = Clock::now();
  while ((measured->seconds = SecondsSince(begin)) < seconds) {
    for (uint64_t i = 0; i < kTransactionsPerLook; ++i) {
      session.generator->Next(session.random, *session.request);
      absl::Status status;
      for (;;) {
        status = session.transaction->Run(*workload_, *session.request);
        using enum coordinator::Outcome;
        session.generator->OnEnd(session.transaction->id(), *session.request,
                                 status.ok() ? kCommitted : kAborted);
        if (!absl::IsAborted(status)) break;
        ++measured->conflicts;
      }
      if (status.ok()) {
        ++measured->committed;
        session.audit_committed += session.request->audit_delta;
      } else if (absl::IsInternal(status) || absl::IsDataLoss(status)) {
        return status;
      } else {
        ++measured->aborted;
        measured->last_abort = std::move(status);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkloadMeasurement> WorkloadDriver::RunFor(Loaded& loaded, double seconds, size_t threads) {
  std::vector<WorkloadMeasurement> parts(threads);
  std::vector<absl::Status> statuses(threads);
  Syncer syncer(*loaded.store, options_.durability == PeerDurability::kLazy);
  if (threads == 1) {
    statuses[0] = RunPart(loaded.sessions[0], seconds, &parts[0]);
  } else {
    std::vector<std::thread> running;
    for (size_t i = 0; i < threads; ++i)
      running.emplace_back([&, i] { statuses[i] = RunPart(loaded.sessions[i], seconds, &parts[i]); });
    for (std::thread& thread : running) thread.join();
  }
  statuses.push_back(syncer.End());
  WorkloadMeasurement sum;
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  for (const WorkloadMeasurement& part : parts) {
    sum.committed += part.committed;
    sum.aborted += part.aborted;
    sum.conflicts += part.conflicts;
    sum.seconds = std::max(sum.seconds, part.seconds);
    sum.last_abort.Update(part.last_abort);
  }
  if (sum.committed == 0 && sum.aborted != 0) return sum.last_abort;  // the rows are not what it wants
  return sum;
}

absl::StatusOr<WorkloadMeasurement> WorkloadDriver::Measure(const std::string& engine, double seconds,
                                                            uint64_t stream, uint32_t threads) {
  const auto found = engines_.find(engine);
  if (found == engines_.end()) return absl::NotFoundError(fmt::format("engine '{}' was not loaded", engine));
  Loaded& loaded = *found->second;
  const size_t running = threads == 0 ? loaded.sessions.size() : threads;
  if (running > loaded.sessions.size())
    return absl::InvalidArgumentError(
        fmt::format("{} threads; there are {}", running, loaded.sessions.size()));
  ++runs_;
  for (size_t i = 0; i < running; ++i) {
    Session& session = loaded.sessions[i];
    session.random = runtime::Random::Stream(options_.seed + stream, i);
    auto generator = workload_->MakeGenerator({.catalog = catalog_,
                                               .worker = static_cast<uint32_t>(i),
                                               .sites = {0, catalog_.sites()},
                                               .workers = static_cast<uint32_t>(running),
                                               .run_id = runs_,
                                               .boot_epoch = 1});
    if (!generator.ok()) return generator.status();
    session.generator = *std::move(generator);
    session.request = session.generator->MakeRequest();
    session.audit_committed = 0;
  }
  absl::StatusOr<WorkloadMeasurement> measured = RunFor(loaded, options_.warmup_s, running);
  if (measured.ok()) measured = RunFor(loaded, seconds, running);
  if (!measured.ok())
    return absl::Status(measured.status().code(),
                        fmt::format("{}: {}", engine, std::string(measured.status().message())));
  int64_t expected = loaded.audited;
  for (size_t i = 0; i < running; ++i) expected += loaded.sessions[i].audit_committed;
  const absl::StatusOr<int64_t> audited = Audit(loaded);
  if (!audited.ok())
    return absl::DataLossError(fmt::format("{}: {}", engine, std::string(audited.status().message())));
  if (*audited != expected)
    return absl::DataLossError(
        fmt::format("{}: the rows add up to {}, and {} was committed", engine, *audited, expected));
  loaded.audited = *audited;
  if (absl::Status status = loaded.store->Settle(); !status.ok()) return status;
  return measured;
}

}  // namespace islands::experiments
