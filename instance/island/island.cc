#include "instance/island/island.h"
#include "runtime/latch_site.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "instance/recovery/checkpoint.h"
#include "instance/storage/data_size.h"
#include "instance/storage/table_specs.h"
#include "instance/workload/audit.h"
#include "runtime/check.h"
#include "topology/binding.h"

namespace islands::instance {

namespace {

// Of the lock table of a one-worker island: its branches hold some thousand locks at most at any time, and
// buckets that stay in the core's cache are worth more than short chains.
constexpr size_t kBucketsOfOneWorker = 1 << 12;
constexpr std::string_view kAutoMode = "auto", kPagedMode = "paged";
constexpr const char* kUnderWay = "transactions are under way; try again when they have ended";

Parameters ToParameters(const google::protobuf::Map<std::string, std::string>& map) {
  return Parameters(map.begin(), map.end());
}

// While a thread that is no worker changes pages of a store that may swap.
class ChangesPages {
 public:
  explicit ChangesPages(const storage::Store& store)
      : swaps_(store.pager() != nullptr && store.pager()->swaps()) {
    if (swaps_) storage::page_change_sink = &marks_;
  }
  ~ChangesPages() {
    if (swaps_) storage::page_change_sink = nullptr;
  }
  ChangesPages(const ChangesPages&) = delete;
  ChangesPages& operator=(const ChangesPages&) = delete;

 private:
  storage::MarksChanges marks_;
  const bool swaps_;
};

// Puts a workload's rows into the sites of this island.
class StoreLoader final : public Loader {
 public:
  StoreLoader(const storage::Catalog& catalog, storage::Store& store, partitioner::SiteRun own, size_t tables,
              LoadedSoFar& so_far)
      : catalog_(catalog),
        store_(store),
        own_(own),
        tables_(static_cast<double>(std::max<size_t>(1, tables))),
        so_far_(so_far) {}

  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t site) const override {
    return site == storage::kReplicatedSite || (site >= own_.first && site - own_.first < own_.count);
  }
  absl::Status Insert(TableId table, KeyView key, RowView row) override {
    absl::StatusOr<uint32_t> site = catalog_.SiteOf(table, key);
    if (!site.ok()) return site.status();
    if (!Owns(*site)) return absl::OkStatus();
    const absl::StatusCode code = store_.At(table, *site)->Insert(key, row);
    if (code == absl::StatusCode::kOk) {
      if (++rows_ % kRowsPerWord != 0) return absl::OkStatus();
      Tell(table, key);
      return store_.pager() != nullptr ? store_.pager()->spill_status() : absl::OkStatus();
    }
    const storage::TableDefinition& definition = catalog_.table(table);
    const char* advice =
        code == absl::StatusCode::kResourceExhausted
            ? "the buffer pool is full; raise storage.buffer_pool, or take storage.mode: paged"
            : "the row was refused";
    return absl::Status(code, fmt::format("table '{}', key {}: {}", definition.name,
                                          partitioner::KeyToString(definition.key, key), advice));
  }

 private:
  // Workloads load table after table, or all of them together, in the order of their first component: where
  // the last row lies between this island's first and last site, and of how many tables there have been any.
  void Tell(TableId table, KeyView key) {
    so_far_.rows.store(rows_, std::memory_order_relaxed);
    const storage::TableDefinition& definition = catalog_.table(table);
    if (definition.replicated()) return;
    const auto value = partitioner::FirstComponent(definition.key, key);
    if (!value.ok()) return;
    const int64_t begin = definition.partition->SiteBegin(own_.first);
    const int64_t end = definition.partition->SiteBegin(own_.first + own_.count);
    seen_.insert(table);
    const double in_table =  // of as many values as 64 bits have, perhaps
        (static_cast<double>(*value) - static_cast<double>(begin)) /
        std::max(1.0, static_cast<double>(end) - static_cast<double>(begin));
    const double share = (static_cast<double>(seen_.size() - 1) + in_table) / tables_;
    so_far_.share.store(std::max(share, so_far_.share.load(std::memory_order_relaxed)),
                        std::memory_order_relaxed);
  }

  static constexpr uint64_t kRowsPerWord = 1 << 12;
  const storage::Catalog& catalog_;
  storage::Store& store_;
  const partitioner::SiteRun own_;
  const double tables_;  // of the workload
  LoadedSoFar& so_far_;
  uint64_t rows_ = 0;
  std::set<TableId> seen_;
};

void RememberLoad(const control::v1::LoadSpec& load, control::v1::IslandConfig* config) {
  for (control::v1::LoadSpec& known : *config->mutable_loads()) {
    if (known.workload() != load.workload()) continue;
    known = load;
    return;
  }
  *config->add_loads() = load;
}

// One worker has nobody to guard pages and locks against, unless the deployment wants to see what that costs.
bool WorksAlone(const control::v1::IslandConfig& config) {
  return config.workers_size() == 1 && !config.always_latched();
}

// Of all islands.
double WorkersOfAll(const control::v1::IslandConfig& config) {
  uint32_t workers = 0;
  for (const control::v1::Peer& peer : config.peers()) workers += peer.workers();
  return workers;
}

}  // namespace

topology::MemoryPolicy PolicyOf(const control::v1::IslandConfig& config) {
  if (config.numa_nodes().empty()) return topology::MemoryPolicy::kDefault;
  switch (config.memory_policy()) {
    case control::v1::MEMORY_PREFERRED:
      return topology::MemoryPolicy::kPreferred;
    case control::v1::MEMORY_BIND:
      return topology::MemoryPolicy::kBind;
    default:
      return topology::MemoryPolicy::kDefault;
  }
}

Island::Island(const control::v1::IslandConfig& config, const Seams& seams, partitioner::SiteMap sites)
    : seams_(seams), sites_(sites), config_(config) {}

Island::~Island() { Stop(); }

absl::StatusOr<std::unique_ptr<Island>> Island::Create(const control::v1::IslandConfig& config,
                                                       const Seams& seams) {
  absl::StatusOr<partitioner::SiteMap> sites =
      partitioner::SiteMap::Create(config.site_count(), static_cast<uint32_t>(config.peers_size()));
  if (!sites.ok()) return sites.status();
  if (config.island() >= sites->islands() || config.workers_size() == 0) {
    return absl::InvalidArgumentError(fmt::format("configuration of island {}: {} islands, {} workers",
                                                  config.island(), sites->islands(), config.workers_size()));
  }
  const uint32_t announced = config.peers(static_cast<int>(config.island())).workers();
  if (announced != static_cast<uint32_t>(config.workers_size())) {
    return absl::InvalidArgumentError(
        fmt::format("configuration of island {}: {} workers, but its peers expect {}", config.island(),
                    config.workers_size(), announced));
  }
  std::unique_ptr<Island> island(new Island(config, seams, *sites));
  for (const control::v1::LoadSpec& load : config.loads())
    storage::ReplaceTables(load.tables(), island->config_.mutable_tables());
  if (absl::Status status = island->FillStore(); !status.ok()) return status;
  if (absl::Status status = island->CreateWorkers(); !status.ok()) return status;
  if (seams.log != nullptr) {
    for (const std::unique_ptr<Worker>& worker : island->workers_) {
      if (absl::Status status = worker->Restore(island->keeper_->unsettled()); !status.ok()) return status;
    }
    if (absl::Status status = island->StartCleaner(); !status.ok()) return status;
  }
  return island;
}

// From data files and log, or by loading anew what was loaded before.
absl::Status Island::FillStore() {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (seams_.log != nullptr) {
    keeper_ =
        std::make_unique<Keeper>(*seams_.log, *seams_.files, *seams_.clock,
                                 Keeper::Options{.island = config_.island(),
                                                 .life = config_.boot_epoch(),
                                                 .workers = static_cast<uint32_t>(config_.workers_size()),
                                                 .alone = WorksAlone(config_),
                                                 .open_workload = seams_.open_workload,
                                                 .say = seams_.say});
  }
  const bool from_files = KeepsFiles() && config_.data_generation() != 0;
  if (absl::Status status = ChooseMode(from_files); !status.ok()) return status;
  if (absl::Status status = BuildStore(config_.tables(), from_files); !status.ok()) return status;
  for (int i = 0; !KeepsFiles() && i < config_.loads_size(); ++i) {
    if (absl::Status status = LoadRows(config_.loads(i)); !status.ok()) return status;
  }
  if (from_files) OfferAllProcedures();
  if (keeper_ == nullptr) return absl::OkStatus();
  rows_of_ = config_.data_generation();
  halted_ = KeepsFiles() && rows_of_ == 0;
  return keeper_->Recover(*catalog_, *store_, config_.data_generation());
}

void Island::SetMode(bool paged, std::string reason) {
  paged_ = paged;
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  mode_reason_ = std::move(reason);
}

absl::Status Island::ChooseMode(bool from_files) {
  const bool automatic = config_.storage_mode() == kAutoMode && !LogsCommands();
  SetMode((KeepsFiles() || keeper_ == nullptr) && config_.storage_mode() == kPagedMode,
          LogsCommands()  ? "durability command keeps all rows in memory"
          : !automatic    ? "the deployment file says so"
          : !KeepsFiles() ? "with durability none it pages where the deployment file says so"
                          : "nothing loaded so far has had no room");
  if (!automatic || !from_files) return absl::OkStatus();
  const absl::StatusOr<uint64_t> pages =
      recovery::PagesAtHome(*seams_.files, seams_.log->data_directory, config_.data_generation());
  // What is wrong with a checkpoint says who reads the data.
  if (!pages.ok() && !absl::IsDataLoss(pages.status())) return pages.status();
  const bool paged = storage::ShouldPage(pages.value_or(0) * storage::kPageBytes, config_.pool_bytes());
  SetMode(paged, fmt::format("its data files have {} 7/8 of the pool", paged ? "more than" : "at most"));
  return absl::OkStatus();
}

absl::Status Island::StartCleaner() {
  const auto oldest_open = [this] {
    uint64_t oldest = UINT64_MAX;
    for (const std::unique_ptr<Worker>& worker : workers_) oldest = std::min(oldest, worker->OldestOpen());
    return oldest;
  };
  absl::StatusOr<std::unique_ptr<recovery::Cleaner>> cleaner = keeper_->TakeCleaner(*store_, oldest_open);
  if (cleaner.ok()) workers_.front()->SetCleaner(*std::move(cleaner));
  return cleaner.status();
}

bool Island::LogsCommands() const { return seams_.log != nullptr && seams_.log->commands; }

// What the worker that has just ended could still have written home is not worth it, except for commands:
// whoever looks at stopped data runs no procedures.
void Island::EndWithoutCommands() {
  constexpr int64_t kMostNs = 4 * runtime::kNsPerSecond;  // `down` kills who takes longer than 5
  if (!KeepsFiles() || halted_) return;
  SetResting(true);  // nobody takes it for hung
  workers_.front()->CleanUp(kMostNs);
}

absl::Status Island::BuildStore(const storage::Catalog::TableSpecs& tables, bool for_redo) {
  absl::StatusOr<storage::Catalog> created = storage::Catalog::Create(tables, config_.site_count());
  if (!created.ok()) return created.status();
  auto catalog = std::make_unique<storage::Catalog>(*std::move(created));
  {
    const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
    store_.reset();  // gives its memory back before the new one takes its own
  }
  const auto bind = [this](void* address, size_t bytes) { BindPool(address, bytes); };
  absl::FunctionRef<void(void*, size_t)> bind_memory = bind;
  storage::StoreOptions options;
  options.island = config_.island();
  options.sites = sites_.SitesOf(config_.island());
  options.pool_bytes = config_.pool_bytes();
  options.alone = WorksAlone(config_);
  options.paged = paged_;
  options.huge_pages = config_.without() != "huge_pages";
  options.key_hints = config_.without() != "key_hints";
  options.data_directory = config_.data_directory();
  options.bind_memory = &bind_memory;
  absl::StatusOr<std::unique_ptr<storage::Store>> store =
      for_redo ? storage::Store::CreateForRedo(*catalog, options)
               : storage::Store::Create(*catalog, options, *seams_.files);
  if (!store.ok()) return store.status();
  if (paged_ && !KeepsFiles()) {
    if (absl::Status swaps = Swap(**store); !swaps.ok()) return swaps;
  }
  {
    const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
    store_ = *std::move(store);
    std::swap(catalog_, catalog);
  }
  shared_.procedures.Clear();  // they were opened for the catalog of before
  PublishProcedures();
  shared_.catalog = catalog_.get();
  shared_.tables = recovery::TablesFingerprint(*catalog_);
  shared_.store = store_.get();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->Rebind();
  return absl::OkStatus();
}

// Into files without names: whatever becomes of the island, they are gone with it.
absl::Status Island::Swap(storage::Store& store) {
  const storage::DataFilesOptions options{
      .directory = fmt::format("{}/island-{}-swap", config_.data_directory(), config_.island()),
      .generation = config_.boot_epoch(),
      .sites = store.sites(),
      .direct = true};
  auto made = storage::DataFiles::Create(*seams_.files, options);
  if (!made.ok()) return made.status();
  absl::Status nameless = storage::RemoveOtherGenerations(*seams_.files, options.directory, 0);
  if (!nameless.ok()) return nameless;
  return store.pager()->SwapTo(*seams_.files, std::make_shared<storage::DataFiles>(*std::move(made)));
}

void Island::BindPool(void* address, size_t bytes) {
  const topology::MemoryPolicy policy = PolicyOf(config_);
  if (policy == topology::MemoryPolicy::kDefault) return;
  const std::vector<uint32_t> nodes(config_.numa_nodes().begin(), config_.numa_nodes().end());
  const absl::Status status = topology::BindMemory(address, bytes, nodes, policy);
  if (status.ok()) return;
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  binding_warning_ = std::string(status.message());
}

absl::Status Island::CreateWorkers() {
  locks::LockTableOptions locks{.latched = !WorksAlone(config_), .escalate_after = seams_.escalate_after};
  locks.inherit = config_.without() != "lock_inheritance";
  if (!locks.latched) locks.buckets = kBucketsOfOneWorker;
  shared_locks_ = std::make_unique<locks::LockTable>(locks);
  shared_.clock = seams_.clock;
  shared_.sites = &sites_;
  shared_.locks = shared_locks_.get();
  shared_.alone = WorksAlone(config_);
  shared_.look_ahead = config_.without() != "look_ahead";
  shared_.keeps = seams_.log != nullptr;
  if (shared_.keeps) {
    shared_.board = seams_.log->board;
    shared_.answers_wait = seams_.log->answers_wait;
    shared_.votes_wait = seams_.log->votes_wait;
    shared_.commands = LogsCommands() && shared_.alone && !paged_;
  }
  shared_.layout_generation = config_.layout_generation();
  shared_.proven_dead = seams_.proven_dead;
  shared_.pulses = seams_.pulses;
  if (shared_.pulses != nullptr) shared_.pulses->SetLife(config_.island(), config_.boot_epoch());
  messaging::LinksOptions links;
  links.cluster_id = config_.cluster_id();
  links.boot_epoch = config_.boot_epoch();
  links.uid = seams_.uid;
  for (const control::v1::Peer& peer : config_.peers()) links.workers_per_island.push_back(peer.workers());
  for (uint32_t index = 0; index < static_cast<uint32_t>(config_.workers_size()); ++index) {
    links.self = {config_.island(), index};
    absl::StatusOr<std::unique_ptr<messaging::Transport>> transport = seams_.make_transport(links.self);
    if (!transport.ok()) return transport.status();
    WorkerOptions options;
    options.island = config_.island();
    options.index = index;
    options.boot_epoch = config_.boot_epoch();
    options.journal = keeper_ != nullptr ? keeper_->journal(index) : nullptr;
    options.cpu = config_.workers(static_cast<int>(index)).cpu();
    options.memory_policy = PolicyOf(config_);
    options.cpus.assign(config_.cpus().begin(), config_.cpus().end());
    options.numa_nodes.assign(config_.numa_nodes().begin(), config_.numa_nodes().end());
    if (config_.transaction_timeout_ms() != 0) {
      options.transaction_timeout_ns =
          static_cast<int64_t>(config_.transaction_timeout_ms()) * runtime::kNsPerMs;
    }
    options.seed = seams_.seed;
    options.begun_in_a_row = seams_.begun_in_a_row;
    workers_.push_back(std::make_unique<Worker>(options, shared_, *std::move(transport), links));
  }
  return absl::OkStatus();
}

std::vector<runtime::Runnable*> Island::Runnables() const {
  std::vector<runtime::Runnable*> runnables;
  for (const std::unique_ptr<Worker>& worker : workers_) runnables.push_back(worker.get());
  return runnables;
}

void Island::SetResting(bool resting) {
  if (seams_.pulses == nullptr) return;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker)
    seams_.pulses->SetResting(config_.island(), worker, resting);
}

void Island::HaltWorkers() {
  SetResting(true);
  seams_.scheduler->Stop();
}

void Island::LetWorkersGoOn() {
  seams_.scheduler->Start(Runnables());
  SetResting(false);
}

absl::Status Island::Start() {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (absl::Status status = worker->Start(); !status.ok()) return status;
  }
  halted_ ? SetResting(true) : LetWorkersGoOn();
  started_ = true;
  started_ns_ = seams_.clock->NowNs();
  return absl::OkStatus();
}

void Island::Stop() {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (!started_) return;
  started_ = false;
  seams_.scheduler->Stop();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->GiveUp();
  EndWithoutCommands();
  if (KeepsFiles() && !halted_ && store_ != nullptr) keeper_->SaveWarmPages(*store_);
}

bool Island::Running() const {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->running()) return true;
  }
  return false;
}

absl::Status Island::Load(const control::v1::LoadSpec& load, uint64_t generation) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (Running()) return absl::FailedPreconditionError("a workload is running; stop it before loading");
  if (KeepsFiles() && generation <= keeper_->generation())
    return absl::FailedPreconditionError("rows that outlive the island are loaded by its supervisor");
  if (started_ && !halted_) HaltWorkers();
  bool open = false;
  for (const std::unique_ptr<Worker>& worker : workers_) open |= worker->HasUnsettled();
  loaded_.Begin();
  absl::Status status = open           ? absl::AbortedError(kUnderWay)
                        : KeepsFiles() ? LoadGeneration(load, generation)
                                       : LoadWhileStopped(load, /*generation=*/0);
  if (!status.ok() || !KeepsFiles()) loaded_.under_way = false;  // else until all islands go on
  started_ = started_ && store_ != nullptr;                      // without a store there is nothing to serve
  if (started_ && !halted_) LetWorkersGoOn();
  return status;
}

absl::Status Island::CheckLoad(const control::v1::LoadSpec& load) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (Running()) return absl::FailedPreconditionError("a workload is running; stop it before loading");
  const bool works = started_ && !halted_;
  if (works) HaltWorkers();
  absl::Status status = CheckNothingIsLost(load);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->HasUnsettled()) status.Update(absl::AbortedError(kUnderWay));
  }
  if (works) LetWorkersGoOn();
  return status;
}

// Where tables change shape all of them are built anew, and every load is repeated.
absl::Status Island::CheckNothingIsLost(const control::v1::LoadSpec& load) const {
  control::v1::IslandConfig wanted = config_;
  RememberLoad(load, &wanted);
  if (store_ == nullptr || !storage::ReplaceTables(load.tables(), wanted.mutable_tables()))
    return absl::OkStatus();
  const absl::StatusOr<storage::Catalog> catalog =
      storage::Catalog::Create(wanted.tables(), config_.site_count());
  if (!catalog.ok()) return catalog.status();
  std::set<std::string> loaded;
  for (const control::v1::LoadSpec& each : wanted.loads()) {
    if (each.workload().empty()) continue;
    const auto workload = seams_.open_workload(each.object(), *catalog, ToParameters(each.parameters()));
    if (!workload.ok()) return workload.status();
    for (const std::string& table : (*workload)->tables()) loaded.insert(table);
  }
  for (storage::TableId id = 0; id < catalog_->size(); ++id) {
    const std::string& name = catalog_->table(id).name;
    // Of those that nobody can see the rows go with what they were of.
    if (catalog_->table(id).dropped || !storage::IsTableName(name)) continue;
    if (loaded.contains(name) || !store_->HasRows(id)) continue;
    return absl::FailedPreconditionError(fmt::format(
        "table '{}' has rows that no workload brings back, and this load makes all tables anew: take them "
        "out first, or load into a deployment of its own",
        name));
  }
  return absl::OkStatus();
}

absl::Status Island::ChangeTables(const control::v1::TablesRequest& request) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (halted_ || store_ == nullptr)
    return absl::FailedPreconditionError("rows are being loaded; try again when that is over");
  if (started_) HaltWorkers();
  storage::Catalog::TableSpecs wanted = config_.tables();
  absl::Status status = CheckTables(request, &wanted);
  if (status.ok() && !request.check_only()) {
    status = TakeTables(wanted);
    if (!status.ok()) {
      halted_ = true;
      return status;
    }
  }
  if (started_) LetWorkersGoOn();
  return status;
}

// `wanted`: as the tables are now; as they will be.
absl::Status Island::CheckTables(const control::v1::TablesRequest& request,
                                 storage::Catalog::TableSpecs* wanted) const {
  if (absl::Status changed = storage::ChangeTables(request, wanted); !changed.ok()) return changed;
  const absl::StatusOr<storage::Catalog> catalog = storage::Catalog::Create(*wanted, config_.site_count());
  if (!catalog.ok()) return catalog.status();
  // Once it is to be done it is done: the manifest says so, and clients may have written meanwhile. A table
  // that is dropped takes with it what they have put there since; there is room in the pool as there is for
  // undo.
  if (!request.check_only()) return absl::OkStatus();
  if (const uint64_t pages = store_->MissingTrees(*catalog); pages > store_->FreePages()) {
    return absl::ResourceExhaustedError(fmt::format(
        "island {} has {} pages left in its buffer pool, and new tables and indexes take {}; raise "
        "storage.buffer_pool",
        config_.island(), store_->FreePages(), pages));
  }
  const storage::TableDefinition* dropped = request.drop().empty() ? nullptr : catalog_->Find(request.drop());
  if (dropped == nullptr) return absl::OkStatus();
  if (store_->HasRows(dropped->id)) {
    return absl::FailedPreconditionError(
        fmt::format("table '{}' has rows; delete them before it is dropped", dropped->name));
  }
  for (const control::v1::LoadSpec& load : config_.loads()) {
    if (load.workload().empty()) continue;
    const auto workload = seams_.open_workload(load.object(), *catalog_, ToParameters(load.parameters()));
    if (!workload.ok()) return workload.status();
    if (std::ranges::count((*workload)->tables(), dropped->name) == 0) continue;
    return absl::FailedPreconditionError(
        fmt::format("table '{}' is one of workload '{}', which was loaded", dropped->name, load.workload()));
  }
  return absl::OkStatus();
}

absl::Status Island::TakeTables(const storage::Catalog::TableSpecs& wanted) {
  for (int number = 0; number < wanted.size(); ++number) {
    const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
    const auto id = static_cast<storage::TableId>(number);
    absl::Status added = id < catalog_->size() ? absl::OkStatus() : catalog_->Add(wanted[number]);
    if (!added.ok()) return added;
    if (wanted[number].dropped() != 0) catalog_->Drop(id);
  }
  const ChangesPages changes(*store_);
  absl::Status made = keeper_ != nullptr ? keeper_->MakeTrees(*catalog_, *store_)
                                         : store_->MakeTrees(*catalog_, [] { return absl::OkStatus(); });
  if (!made.ok()) return made;
  *config_.mutable_tables() = wanted;
  shared_.tables = recovery::TablesFingerprint(*catalog_);
  for (const std::unique_ptr<Worker>& worker : workers_) worker->NoteTables();
  return absl::OkStatus();
}

// Neither the rows of before nor the new ones are anybody's until the manifest names a generation.
absl::Status Island::LoadGeneration(const control::v1::LoadSpec& load, uint64_t generation) {
  halted_ = true;
  rows_of_ = 0;
  workers_.front()->SetCleaner(nullptr);
  // A pool that pages begins empty.
  bool may_page = !paged_ && config_.storage_mode() == kAutoMode && !LogsCommands();
  for (storage::TableId id = 0; may_page && id < catalog_->size(); ++id) may_page = !store_->HasRows(id);
  absl::Status status = LoadWhileStopped(load, generation);
  if (absl::IsResourceExhausted(status) && may_page) {
    spdlog::info("the rows of workload '{}' do not fit the buffer pool: loading them into a paged one",
                 load.workload());
    SetMode(true, "a load had no room in the pool");
    status = BuildStore(config_.tables(), /*for_redo=*/false);
    if (status.ok()) status = LoadWhileStopped(load, generation);
  }
  loaded_.share = 1;
  const auto progress = [this](uint64_t done, uint64_t all) {
    loaded_.written.store(static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(1, all)),
                          std::memory_order_relaxed);
  };
  if (status.ok()) status = keeper_->WriteGeneration(*catalog_, *store_, generation, progress);
  if (status.ok()) rows_of_ = generation;
  // Some of its pages are in files that are none, and that another attempt makes anew.
  if (!status.ok() && paged_) status.Update(BuildStore(config_.tables(), /*for_redo=*/false));
  return status;
}

absl::Status Island::Switch(uint64_t generation) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (!started_ || !KeepsFiles() || generation == 0 || rows_of_ != generation) {
    return absl::FailedPreconditionError(
        fmt::format("island {} has not the rows of generation {}", config_.island(), generation));
  }
  if (!halted_) return absl::OkStatus();
  if (absl::Status switched = keeper_->Switch(); !switched.ok()) return switched;
  if (absl::Status status = StartCleaner(); !status.ok()) return status;
  halted_ = false;
  loaded_.under_way = false;
  LetWorkersGoOn();
  return absl::OkStatus();
}

// The configuration changes only when all went well; otherwise the tables are those of before, and empty.
// `generation`: that the rows will be of; 0: of none.
absl::Status Island::LoadWhileStopped(const control::v1::LoadSpec& load, uint64_t generation) {
  const auto begin = [&] {
    return paged_ && KeepsFiles() ? keeper_->BeginGeneration(*store_, generation) : absl::OkStatus();
  };
  if (load.workload().empty() && KeepsFiles()) return begin();
  control::v1::IslandConfig wanted = config_;
  RememberLoad(load, &wanted);
  absl::Status status;
  if (storage::ReplaceTables(load.tables(), wanted.mutable_tables())) {
    status = BuildStore(wanted.tables(), /*for_redo=*/false);
    if (status.ok()) status = begin();
    for (int i = 0; status.ok() && i < wanted.loads_size(); ++i) status = LoadRows(wanted.loads(i));
    if (!status.ok()) {
      const absl::Status restored = BuildStore(config_.tables(), /*for_redo=*/false);
      if (!restored.ok())
        spdlog::error("cannot go back to the old tables: {}", std::string(restored.message()));
    }
  } else {
    status = begin();
    if (status.ok()) status = LoadRows(load);
  }
  if (!status.ok()) return status;
  *config_.mutable_tables() = wanted.tables();
  *config_.mutable_loads() = wanted.loads();
  return absl::OkStatus();
}

absl::Status Island::LoadRows(const control::v1::LoadSpec& load) {
  if (load.workload().empty()) return absl::OkStatus();  // tables only
  const ChangesPages changes(*store_);
  absl::StatusOr<OpenedWorkload> workload =
      seams_.open_workload(load.object(), *catalog_, ToParameters(load.parameters()));
  if (!workload.ok()) return workload.status();
  for (const std::string& name : (*workload)->tables()) {
    const storage::TableDefinition* table = catalog_->Find(name);
    if (table == nullptr) {
      return absl::FailedPreconditionError(
          fmt::format("workload '{}' needs a table '{}', which the deployment file does not have",
                      load.workload(), name));
    }
    if (absl::Status status = store_->Truncate(table->id); !status.ok()) return status;
  }
  StoreLoader loader(*catalog_, *store_, sites_.SitesOf(config_.island()), (*workload)->tables().size(),
                     loaded_);
  if (absl::Status status = (*workload)->Load(loader); !status.ok()) return status;
  OfferProcedures(load, *workload);
  return absl::OkStatus();
}

void Island::OfferProcedures(const control::v1::LoadSpec& load, const OpenedWorkload& workload) {
  const absl::Status added = shared_.procedures.Add(
      load.workload(), workload, *catalog_,
      recovery::EncodeWorkload(load.workload(), load.object(), ToParameters(load.parameters())));
  if (!added.ok()) {
    spdlog::warn("workload '{}' can be loaded and run, and none of its procedures called: {}",
                 load.workload(), std::string(added.message()));
  }
  PublishProcedures();
}

// An island whose rows come from files needs no workload, but for this.
void Island::OfferAllProcedures() {
  for (const control::v1::LoadSpec& load : config_.loads()) {
    if (load.workload().empty()) continue;
    const absl::StatusOr<OpenedWorkload> workload =
        seams_.open_workload(load.object(), *catalog_, ToParameters(load.parameters()));
    if (workload.ok()) {
      OfferProcedures(load, *workload);
    } else {
      spdlog::warn("procedures of workload '{}' cannot be called: {}", load.workload(),
                   std::string(workload.status().message()));
    }
  }
}

void Island::PublishProcedures() {
  google::protobuf::RepeatedPtrField<control::v1::ProcedureSpec> specs;
  for (const auto& [name, entry] : shared_.procedures.entries()) {
    control::v1::ProcedureSpec* spec = specs.Add();
    spec->set_name(name);
    spec->set_about(entry.procedure->about);
    spec->set_home_table(entry.procedure->home_table);
    const auto describe = [](const NamedType& from, control::v1::ValueSpec* to) {
      to->set_name(from.name);
      to->set_type(std::string(ValueTypeName(from.type)));
    };
    for (const NamedType& argument : entry.procedure->arguments) describe(argument, spec->add_arguments());
    for (const NamedType& result : entry.procedure->results) describe(result, spec->add_results());
  }
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  procedures_.Swap(&specs);
}

absl::Status Island::StartRun(const control::v1::StartRun& request) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (!started_) return absl::FailedPreconditionError("the island is stopping");
  if (halted_) return absl::FailedPreconditionError("rows are being loaded; try again when that is over");
  if (Running()) return absl::FailedPreconditionError("another run is active");
  if (request.mpl() == 0 || request.mpl() > 10'000) {
    return absl::InvalidArgumentError(fmt::format("mpl {}: expected 1 to 10000", request.mpl()));
  }
  absl::StatusOr<OpenedWorkload> workload =
      seams_.open_workload(request.object(), *catalog_, ToParameters(request.parameters()));
  if (!workload.ok()) return workload.status();
  if (absl::Status possible = (*workload)->CheckRun(*catalog_); !possible.ok()) return possible;
  if (!std::isfinite(request.rate_per_s()) || request.rate_per_s() < 0) {
    return absl::InvalidArgumentError(
        fmt::format("rate {}: expected transactions per second", request.rate_per_s()));
  }
  std::vector<std::unique_ptr<Generator>> generators;
  for (uint32_t index = 0; index < workers_.size(); ++index) {
    const GeneratorContext context{*catalog_,
                                   config_.island(),
                                   index,
                                   sites_.SitesOf(config_.island()),
                                   static_cast<uint32_t>(workers_.size()),
                                   seams_.clock,
                                   request.began_ns(),
                                   request.run_id(),
                                   config_.boot_epoch()};
    absl::StatusOr<std::unique_ptr<Generator>> generator = (*workload)->MakeGenerator(context);
    if (!generator.ok()) return generator.status();
    runtime::Random random(0);
    if (request.anywhere() && !(*generator)->DrawSite(random)) {
      return absl::InvalidArgumentError(fmt::format(
          "workload '{}' does not say where its transactions begin: its clients cannot be the deployment's",
          request.workload()));
    }
    generators.push_back(*std::move(generator));
  }
  const std::vector<std::byte> commands_of =
      recovery::EncodeWorkload(request.workload(), request.object(), ToParameters(request.parameters()));
  const ArrivalPlan arrivals{.run_id = request.run_id(),
                             .anywhere = request.anywhere(),
                             .rate_per_s = request.rate_per_s() / WorkersOfAll(config_),
                             .even = request.even()};
  run_workload_ = *workload;
  run_id_ = request.run_id();
  {
    const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
    run_ = request;
  }
  for (uint32_t index = 0; index < workers_.size(); ++index) {
    Worker* worker = workers_[index].get();
    auto generator = std::make_shared<std::unique_ptr<Generator>>(std::move(generators[index]));
    const Workload* running = workload->get();
    worker->MarkRunning();
    worker->Post(
        [worker, running, generator, mpl = request.mpl(), seed = request.seed(), arrivals, commands_of] {
          worker->clients().BeginRun(*running, std::move(*generator), mpl, seed, arrivals, commands_of);
        });
  }
  return absl::OkStatus();
}

void Island::RequestStop() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->Post([worker = worker.get()] { worker->clients().EndRun(); });
  }
}

absl::Status Island::StopRun(uint64_t run_id, int64_t timeout_ns) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (run_id != 0 && run_id != run_id_) return absl::OkStatus();  // that run is over
  RequestStop();
  const runtime::MutexLock run_lock(shared_.run_mutex, ISLANDS_LATCH("island.run_end"));
  if (shared_.run_ended.wait_for(shared_.run_mutex, std::chrono::nanoseconds(timeout_ns),
                                 [this] { return !Running(); })) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError("transactions are still under way; they end at their own deadline");
}

absl::StatusOr<control::v1::AuditReply> Island::Audit(const control::v1::AuditRequest& request) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.control"));
  if (store_ == nullptr) return absl::FailedPreconditionError("the island has lost its tables; restart it");
  absl::StatusOr<OpenedWorkload> workload =
      seams_.open_workload(request.object(), *catalog_, ToParameters(request.parameters()));
  if (!workload.ok()) return workload.status();
  // A worker that is alone takes no latches: nobody else may look at pages while it runs.
  const bool pause = started_ && shared_.alone && !halted_;
  if (pause) HaltWorkers();
  absl::StatusOr<control::v1::AuditReply> reply = SumRows(**workload);
  if (pause) LetWorkersGoOn();
  return reply;
}

absl::StatusOr<control::v1::AuditReply> Island::SumRows(const Workload& workload) const {
  control::v1::AuditReply reply;
  uint64_t sum = 0;
  uint64_t rows = 0;
  const partitioner::SiteRun own = sites_.SitesOf(config_.island());
  const auto* audited = dynamic_cast<const AuditedWorkload*>(&workload);
  const std::unique_ptr<RowAudit> audit = audited == nullptr ? nullptr : audited->BeginAudit(own);
  for (const std::string& name : workload.tables()) {
    const storage::TableDefinition* table = catalog_->Find(name);
    if (table == nullptr || table->replicated()) continue;
    for (uint32_t site = own.first; site < own.first + own.count; ++site) {
      store_->At(table->id, site)->Scan({}, {}, false, [&](KeyView key, RowView row) {
        if (audit != nullptr) {
          audit->See(table->id, key, row);
        } else {
          sum += static_cast<uint64_t>(workload.AuditRow(table->id, key, row));
        }
        ++rows;
        return true;
      });
    }
  }
  if (audit != nullptr && rows > 0) {  // without any nothing is loaded here
    const absl::StatusOr<int64_t> found = audit->Finish();
    if (!found.ok()) return found.status();
    sum = static_cast<uint64_t>(*found);
  }
  reply.set_value(static_cast<int64_t>(sum));
  reply.set_rows(rows);
  return reply;
}

storage::PoolUsage Island::PoolUsage() const {
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  return store_ == nullptr ? storage::PoolUsage{} : store_->Usage();
}

Island::PagesMoved Island::MovedPages() const {
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  PagesMoved moved;
  if (store_ == nullptr) return moved;
  const storage::Pager* pager = store_->pager();
  if (pager != nullptr) moved.looks = pager->looks();
  const std::vector<uint32_t> sites = store_->sites();
  for (uint32_t slot = 0; slot < sites.size(); ++slot) {
    moved.sites.push_back({.site = sites[slot],
                           .pages = store_->PagesOf(slot),
                           .written = store_->space(slot).written(),
                           .paged = pager == nullptr ? storage::Pager::Counters{} : pager->counters(slot)});
  }
  return moved;
}

std::optional<control::v1::StartRun> Island::CurrentRun() const {
  if (!Running()) return std::nullopt;
  const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
  return run_;
}

}  // namespace islands::instance
