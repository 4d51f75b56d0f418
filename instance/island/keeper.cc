#include "instance/island/keeper.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "instance/execution/executor.h"
#include "instance/log/epoch_file.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/check.h"

namespace islands::instance {
namespace {

constexpr int64_t kLockWaitNs = 10 * runtime::kNsPerSecond;
constexpr int64_t kDurableWaitNs = 60 * runtime::kNsPerSecond;
constexpr uint64_t kRecordsPerWord = 1 << 14;  // on progress

double SecondsSince(const runtime::Clock& clock, int64_t begin_ns) {
  return static_cast<double>(clock.NowNs() - begin_ns) / runtime::kNsPerSecond;
}

void Pause() { poll(nullptr, 0, /*timeout=*/1); }

}  // namespace

void Keeper::Say(std::string progress) const {
  if (options_.say) options_.say(std::move(progress));
}

// A paged store is its own cache.
recovery::IslandDataOptions Keeper::DataOptions(const storage::Store& store, uint64_t generation) const {
  return {.directory = log_.data_directory,
          .cluster = log_.cluster,
          .island = options_.island,
          .generation = generation,
          .direct = store.pager() != nullptr};
}

// Behind commands only a snapshot may follow: a life that can take none ends before it repeats the first.
recovery::WorkloadOpener Keeper::OpenerFor(const storage::Store& store) const {
  if (!has_files() || TakesSnapshots(store)) return options_.open_workload;
  return [](const std::string&, const storage::Catalog&, const Parameters&) {
    return absl::FailedPreconditionError(
        "that takes an island of one worker whose pool is resident: `up` and `down` with the deployment file "
        "as "
        "it was, which leaves none");
  };
}

absl::Status Keeper::Recover(const storage::Catalog& catalog, storage::Store& store, uint64_t generation) {
  generation_ = generation;
  const bool several = !options_.alone && has_files();  // threads, which simulations do without
  recovery_.emplace(catalog, store, log_.cuts, several ? options_.workers : 1, OpenerFor(store));
  const int64_t begin_ns = clock_.NowNs();
  const bool has_rows = generation != 0 || !has_files();
  if (has_rows) {
    if (absl::Status repeated = Repeat(catalog, store, generation); !repeated.ok()) return repeated;
  }
  if (absl::Status made = MakeJournals(); !made.ok()) return made;
  if (!has_rows) return absl::OkStatus();
  if (absl::Status trees = MakeTrees(catalog, store); !trees.ok()) return trees;
  const size_t losers = recovery_->losers();
  Undo(catalog, store);
  recovered_ = {SecondsSince(clock_, begin_ns), recovery_->records(), losers};
  if (has_files()) {
    spdlog::info(
        "recovered generation {} in {:.2f} s: {} records of the log repeated, {} of them commands, "
        "{} dropped, {} transactions undone, {} in doubt",
        generation, recovered_.seconds, recovered_.records, recovery_->commands(), recovery_->dropped(),
        losers, unsettled().prepared.size());
  }
  return absl::OkStatus();
}

// What the life before had in flight when it was killed is waited for.
absl::StatusOr<recovery::IslandData> Keeper::ReadFiles(const storage::Catalog& catalog, storage::Store& store,
                                                       uint64_t generation) {
  const auto progress = [this](uint64_t done, uint64_t all) {
    Say(fmt::format("reading data files: {} of {} pages", done, all));
  };
  const int64_t give_up_ns = clock_.NowNs() + kLockWaitNs;
  for (;;) {
    absl::StatusOr<recovery::IslandData> data =
        recovery::ReadGeneration(files_, catalog, DataOptions(store, generation), store, progress);
    if (!absl::IsUnavailable(data.status()) || clock_.NowNs() >= give_up_ns) return data;
    Pause();
  }
}

absl::Status Keeper::Repeat(const storage::Catalog& catalog, storage::Store& store, uint64_t generation) {
  store.BeginRedo();
  log::LogPosition begin;
  if (has_files()) {
    absl::StatusOr<recovery::IslandData> data = ReadFiles(catalog, store, generation);
    if (!data.ok()) return data.status();
    recovery_->BeginFrom(data->checkpoint);
    begin = data->checkpoint.position;
    data_ = *std::move(data);
    // Of a load that has failed, or that another life has not got to the end of.
    absl::Status removed = storage::RemoveOtherGenerations(files_, log_.data_directory, generation);
    if (!removed.ok()) return removed;
  }
  recovery::StreamMerge merge;
  uint64_t records = 0;
  const auto redo = [&](const log::StreamId& stream, const log::Record& record) {
    if (++records % kRecordsPerWord == 0) Say(fmt::format("repeating the log: {} records", records));
    return recovery_->Redo(stream, record);
  };
  const auto take = [&](const log::StreamId& stream, const log::Record& record) {
    return merge.Add(stream, record, redo);
  };
  absl::Status status = log_.read(options_.island, begin, take);
  if (status.ok()) status = merge.Finish(redo);
  if (status.ok()) status = recovery_->FindTrees();
  if (status.ok()) status = recovery_->CheckUndo();
  return status;
}

absl::Status Keeper::MakeJournals() {
  shared_.emplace(options_.workers, recovery_->last().epoch(), recovery_->last());
  for (uint32_t worker = 0; worker < options_.workers; ++worker) {
    absl::StatusOr<std::shared_ptr<log::Ring>> ring =
        log_.make_ring({options_.life, options_.island, worker});
    if (!ring.ok()) return ring.status();
    rings_.push_back(*std::move(ring));
    journals_.push_back(std::make_unique<log::Journal>(*log_.board, *rings_.back(), recovery_->last(),
                                                       options_.alone ? nullptr : &*shared_));
  }
  return absl::OkStatus();
}

void Keeper::Undo(const storage::Catalog& catalog, storage::Store& store) {
  constexpr size_t kBuckets = 1 << 12;
  locks::LockTable locks({.buckets = kBuckets, .latched = false});  // nobody else is here
  log::Journal& journal = *journals_.front();
  Executor executor(catalog, store, locks, {.alone = options_.alone, .journal = &journal});
  journal.Listen();
  ISLANDS_CHECK(recovery_->UndoLosers(executor, [] { return true; }));
  journal.EndStep();
  journal.EndListening();
}

// A record for each tree.
absl::Status Keeper::MakeTrees(const storage::Catalog& catalog, storage::Store& store) {
  constexpr size_t kRoom = log::RecordBytes(log::kMostStepBytes + log::Journal::kMostHeadBytes);
  if (store.MissingTrees(catalog) == 0) return store.MakeTrees(catalog, [] { return absl::OkStatus(); });
  log::Journal& journal = *journals_.front();
  const int64_t give_up_ns = clock_.NowNs() + kDurableWaitNs;
  const auto append = [&] {
    journal.AppendRedoOnly();
    journal.EndStep();
  };
  const auto before_each = [&]() -> absl::Status {
    for (append(); journal.room() < kRoom; Pause()) {
      if (clock_.NowNs() >= give_up_ns)
        return absl::DeadlineExceededError(
            "the log does not make room for a new table's pages; see logger.log");
    }
    return absl::OkStatus();
  };
  log::Journal::Publisher* const publisher = journal.SetPublisher(nullptr);
  journal.Listen();
  absl::Status made = store.MakeTrees(catalog, before_each);
  append();
  journal.EndListening();
  journal.SetPublisher(publisher);
  return made;
}

// Everything that was appended, by this life and those before it.
absl::StatusOr<recovery::LogBegin> Keeper::WaitUntilDurable() {
  const uint64_t epoch = log_.board->epoch();  // nobody has stamped with a later one
  log_.board->Want(epoch);
  const int64_t give_up_ns = clock_.NowNs() + kDurableWaitNs;
  while (log_.board->durable() < epoch) {
    if (clock_.NowNs() >= give_up_ns) {
      return absl::DeadlineExceededError(
          fmt::format("epoch {} has not become durable within {} s: the log does not go on; see logger.log",
                      epoch, kDurableWaitNs / runtime::kNsPerSecond));
    }
    Pause();
  }
  const absl::StatusOr<log::EpochBlock> block =
      log::ReadLiveEpochFile(files_, fmt::format("{}/{}", log_.log_directory, log::kEpochFileName),
                             log_.cluster, log_.board->islands(), *log_.board);
  if (!block.ok()) return block.status();
  return recovery::LogBegin{epoch + 1, block->ends[options_.island]};
}

absl::Status Keeper::BeginGeneration(storage::Store& store, uint64_t generation) {
  data_.reset();
  begun_.reset();  // of another attempt
  auto begun = recovery::BeginGeneration(files_, DataOptions(store, generation), store);
  if (begun.ok()) begun_ = *std::move(begun);
  return begun.status();
}

absl::Status Keeper::WriteGeneration(const storage::Catalog& catalog, storage::Store& store,
                                     uint64_t generation, recovery::Progress progress) {
  ISLANDS_CHECK(has_files() && generation > generation_);
  const absl::StatusOr<recovery::LogBegin> begin = WaitUntilDurable();
  if (!begin.ok()) return begin.status();
  data_.reset();  // of another attempt: its files are made anew
  absl::StatusOr<recovery::IslandData> data =
      recovery::WriteGeneration(files_, catalog, DataOptions(store, generation), store, *begin, progress,
                                std::exchange(begun_, nullptr));
  if (!data.ok()) return data.status();
  data_ = *std::move(data);
  written_ = generation;
  return absl::OkStatus();
}

absl::Status Keeper::Switch() {
  generation_ = written_;
  return storage::RemoveOtherGenerations(files_, log_.data_directory, generation_);
}

absl::StatusOr<std::unique_ptr<recovery::Cleaner>> Keeper::TakeCleaner(
    storage::Store& store, recovery::Cleaner::OldestOpen oldest_open) {
  if (!data_) return std::unique_ptr<recovery::Cleaner>();
  recovery::IslandData data = *std::move(data_);
  data_.reset();
  recovery::Cleaner::Options options{.log_directory = log_.log_directory};
  // Whoever waits for room in a pool waits for a batch: as many pages as go home together.
  if (store.pager() != nullptr)
    options.batch_pages = std::clamp<size_t>(store.Usage().capacity_pages / 4, 16, storage::kMostBatchPages);
  if (TakesSnapshots(store) && (log_.commands || recovery_->commands() != 0)) {
    options.snapshots = journals_.front().get();
    options.first_only = !log_.commands;
  }
  const uint64_t generation = data.files->options().generation;
  auto cleaner = recovery::Cleaner::Create(files_, store, *log_.board, std::move(data), std::move(options),
                                           std::move(oldest_open));
  if (cleaner.ok() && store.pager() != nullptr) {
    (*cleaner)->SetWarmUp(std::make_unique<recovery::WarmUp>(files_, store, log_.data_directory,
                                                             WarmPagesOf(generation), &warming_up_));
  }
  return cleaner;
}

recovery::WarmPages Keeper::WarmPagesOf(uint64_t generation) const {
  return {.cluster = log_.cluster, .generation = generation, .island = options_.island};
}

void Keeper::SaveWarmPages(const storage::Store& store) {
  if (store.pager() == nullptr || generation_ == 0 || warming_up_.listed != 0) return;
  const absl::Status saved =
      recovery::SaveWarmPages(files_, store, log_.data_directory, WarmPagesOf(generation_));
  if (!saved.ok()) spdlog::warn("the next start will be a cold one: {}", std::string(saved.message()));
}

}  // namespace islands::instance
