#include "instance/verify/island.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "instance/execution/executor.h"
#include "instance/locks/lock_table.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/segment_file.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/stream_merge.h"
#include "instance/recovery/unsettled.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/page_reader.h"
#include "instance/storage/files/pager.h"
#include "instance/storage/pages/page_change.h"
#include "instance/verify/pages.h"
#include "instance/verify/streams.h"

namespace islands::verify {
namespace {

constexpr uint64_t kRecordsPerProgress = 1 << 14;
constexpr uint64_t kPagesPerProgress = 1 << 12;

class IslandLook {
 public:
  IslandLook(runtime::OverlayFileSystem& files, const IslandOptions& options, const Box& box, Report* report)
      : files_(files),
        box_(box),
        report_(*report),
        island_(options.island),
        log_(log::IslandDirectory(options.log_directory, options.island)),
        checkpoint_(storage::CheckpointPath(options.data_directory, options.generation)) {}

  const std::string& log() const { return log_; }

  absl::Status CheckCheckpoint(const recovery::Checkpoint& checkpoint) {
    const absl::StatusOr<std::string> content = files_.ReadFile(checkpoint_);
    if (!content.ok()) return content.status();
    const bool whole = OtherBlockIsWhole(*content, checkpoint.number, [](const std::string& file) {
      return recovery::DecodeCheckpointFile(std::as_bytes(std::span(file))).ok();
    });
    if (!whole && box_.closed) {
      // Where that was the newer one, and needed less of the log than there is, the log says so.
      report_.findings.push_back(
          {checkpoint_,
           fmt::format(
               "{}: one of its two blocks is damaged, and nobody was writing it; `up` goes on from number "
               "{}, which is left, and writes the other anew: look at the disk",
               checkpoint_, checkpoint.number),
           /*stops=*/false});
    } else if (!whole) {
      report_.notes.push_back(
          fmt::format("{}: one of its two blocks is not whole, as whoever dies while it is "
                      "written leaves it; number {} counts",
                      checkpoint_, checkpoint.number));
    }
    const uint64_t durable = box_.synced.epoch;
    if (checkpoint.bound > durable + 1 || checkpoint.taken > durable) {
      report_.findings.push_back(
          {checkpoint_,
           fmt::format(
               "{}: it relies on epochs up to {}, and EPOCH says that only {} is durable: one of both "
               "is an old copy; restore data and log from one time",
               checkpoint_, std::max(checkpoint.bound, checkpoint.taken), durable)});
    }
    return absl::OkStatus();
  }

  // DATA_LOSS: a checkpoint that goes on from nowhere needs all of the log, whose first segment has none
  // before it.
  absl::Status CheckOldest(const log::LogReader::Options& where) {
    if (where.begin.segment != 0) return absl::OkStatus();
    log::LogReader reader(files_, where, box_.block.ends[island_]);
    const auto segments = reader.Segments();
    if (!segments.ok() || segments->empty()) return absl::OkStatus();  // who reads it says so
    const std::string path = log_ + "/" + log::SegmentName(segments->front().segment);
    uint64_t bytes = 0;
    const auto header = log::ReadSegmentHeader(files_, *files_.MakeQueue(), path, &bytes);
    if (!header.ok()) return header.status();
    if (header->previous.segment == 0) return absl::OkStatus();
    return absl::DataLossError(fmt::format(
        "{}/{} is gone, and the checkpoint needs the log from its beginning on: restore it from a copy", log_,
        log::SegmentName(header->previous.segment)));
  }

 private:
  runtime::OverlayFileSystem& files_;
  const Box& box_;
  Report& report_;
  const uint32_t island_;
  const std::string log_;  // of the island
  const std::string checkpoint_;
};

recovery::IslandDataOptions DataOf(const IslandOptions& options) {
  return {.directory = options.data_directory,
          .cluster = options.cluster,
          .island = options.island,
          .generation = options.generation};
}

// Instead of a log: what undo changes must not look as it does at home, or a pager could let go of it.
class StampsChanges final : public storage::PageChangeSink {
 public:
  StampsChanges() { storage::page_change_sink = this; }
  ~StampsChanges() override { storage::page_change_sink = nullptr; }
  StampsChanges(const StampsChanges&) = delete;
  StampsChanges& operator=(const StampsChanges&) = delete;

  void BeforeChange(const std::byte* page, const storage::PageChange& /*change*/) override {
    changed_.insert(page);
  }
  void BeforeRelease(std::byte* page) override {
    if (changed_.erase(page) != 0) ++reinterpret_cast<storage::PageHeader*>(page)->lsn;
  }

 private:
  std::set<const std::byte*> changed_;  // and latched
};

class IslandWalk {
 public:
  IslandWalk(runtime::OverlayFileSystem& files, const storage::Catalog& catalog, const IslandOptions& options,
             const Box& box, Progress progress, Report* report)
      : files_(files),
        catalog_(catalog),
        options_(options),
        box_(box),
        progress_(progress),
        report_(*report),
        look_(files, options, box, report),
        log_(look_.log()) {
    figures_.island = options.island;
  }

  absl::Status Run() {
    auto store = storage::Store::CreateForRedo(catalog_, {.island = options_.island,
                                                          .sites = options_.sites,
                                                          .pool_bytes = options_.pool_bytes,
                                                          .alone = true,
                                                          .paged = options_.paged});
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    if (absl::Status read = ReadFiles(); !read.ok()) return read;
    if (!going_on_.ok()) return going_on_;
    if (absl::Status repeated = Repeat(); !repeated.ok()) return repeated;
    if (!whole_) return absl::OkStatus();
    if (absl::Status finished = Finish(); !finished.ok()) return finished;
    if (!going_on_.ok()) return going_on_;
    report_.islands.push_back(figures_);
    return absl::OkStatus();
  }
  // Null: it is not whole.
  std::unique_ptr<storage::Store> TakeStore() { return whole_ ? std::move(store_) : nullptr; }

 private:
  // What makes that the island cannot be recovered: there is no further.
  absl::Status Stop(const absl::Status& status, const std::string& path) {
    whole_ = false;
    return report_.Take(status, path);
  }
  // Not OK: somebody wants an end, and it comes where it can.
  const absl::Status& GoOn(const std::string& what, uint64_t done, uint64_t all) {
    if (going_on_.ok()) going_on_ = progress_(what, done, all);
    return going_on_;
  }
  void Find(const std::string& path, const std::string& what) {
    report_.findings.push_back({path, fmt::format("{}: {}", path, what)});
  }

  absl::Status ReadFiles() {
    const std::string what = fmt::format("island {}: pages", options_.island);
    absl::StatusOr<recovery::IslandData> data =
        recovery::ReadGeneration(files_, catalog_, DataOf(options_), *store_,
                                 [&](uint64_t done, uint64_t all) { GoOn(what, done, all).IgnoreError(); });
    if (!data.ok()) return Stop(data.status(), options_.data_directory);
    data_ = *std::move(data);
    for (const auto& site : data_->checkpoint.sites) figures_.pages += site.pages;
    const absl::Status looked = store_->pager() == nullptr ? absl::OkStatus() : LookAtPages(what);
    return looked.ok() ? look_.CheckCheckpoint(data_->checkpoint) : looked;
  }

  // What has come to a resident pool without being asked for: of which pages there is a whole one at home.
  absl::Status LookAtPages(const std::string& what) {
    uint64_t done = 0;
    for (size_t slot = 0; slot < store_->slots() && going_on_.ok(); ++slot) {
      const auto look = [&](uint64_t number, storage::ConstPageBytes page) {
        if (done++ % kPagesPerProgress == 0) GoOn(what, done, figures_.pages).IgnoreError();
        if (storage::IsWhole(page, {data_->files->SiteOf(slot), number}) && storage::IsSound(page))
          store_->space(slot).SetHome(number, storage::HeaderOf(page).lsn);
      };
      const uint64_t pages = data_->checkpoint.sites[slot].pages;
      const absl::Status read = storage::ReadPages(files_, data_->files->site(slot), pages, look);
      if (!read.ok()) return Stop(read, data_->files->PathOf(slot));
    }
    return going_on_;
  }

  // The log is read to its end, whatever becomes of redo. Without data files it is read all the same.
  absl::Status Repeat() {
    recovery_.emplace(catalog_, *store_, box_.cuts);
    log::LogPosition begin;
    if (data_) {
      recovery_->BeginFrom(data_->checkpoint);
      begin = data_->checkpoint.position;
    }
    log::LogReader::Options where{log_, options_.cluster, options_.island, begin};
    if (data_) {
      const absl::Status oldest = look_.CheckOldest(where);
      if (!oldest.ok()) return Stop(oldest, log_);
    }
    recovery::StreamMerge merge;
    const auto redo = [&](const log::StreamId& stream, const log::Record& record) {
      return recovery_->Redo(stream, record);
    };
    StreamCheck streams(box_.lives[options_.island], box_.block.reaches);
    absl::Status redone, in_order;
    uint64_t records = 0;
    const std::string what = fmt::format("island {}: records of the log", options_.island);
    const auto take = [&](const log::StreamId& stream, const log::Record& record) {
      if (++records % kRecordsPerProgress == 0 && !GoOn(what, records, 0).ok()) return going_on_;
      if (in_order.ok()) in_order = streams.Take(stream, record);
      if (data_ && redone.ok()) redone = merge.Add(stream, record, redo);
      return absl::OkStatus();
    };
    const absl::Status read = log::LogReader(files_, where, box_.block.ends[options_.island]).Read(take);
    if (!going_on_.ok()) return going_on_;
    if (data_ && redone.ok() && read.ok()) redone = merge.Finish(redo);
    figures_.records = recovery_->records();
    figures_.dropped = recovery_->dropped();
    for (const absl::Status& status : {in_order, read}) {
      if (status.ok()) continue;
      if (absl::Status taken = Stop(status, log_); !taken.ok()) return taken;
    }
    return data_ ? JudgeRedo(redone, read.ok()) : absl::OkStatus();
  }

  absl::Status JudgeRedo(const absl::Status& redone, bool log_read) {
    uint64_t missing = 0;
    // Where the log ends is known only of one that could be read.
    const log::Lsn last = log_read && redone.ok() ? recovery_->last() : log::Lsn::FromValue(UINT64_MAX);
    const PageBounds bounds{box_.synced.epoch, last};
    if (absl::Status pages = CheckPages(files_, *data_, *store_, bounds, &report_, &missing); !pages.ok())
      return pages;
    if (missing != 0) whole_ = false;
    if (redone.ok()) return absl::OkStatus();
    if (missing == 0) return Stop(redone, log_);
    report_.notes.push_back(fmt::format("{}: recovery ends there: {}", log_, std::string(redone.message())));
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (absl::Status found = recovery_->FindTrees(); !found.ok()) return Stop(found, options_.data_directory);
    const recovery::Unsettled& unsettled = recovery_->unsettled();
    figures_.in_doubt = unsettled.prepared.size();
    figures_.decisions = unsettled.decisions.size() + unsettled.decided.size();
    const absl::Status known = recovery::CheckDeployment(unsettled, options_.next_life, options_.workers);
    if (absl::Status taken = report_.Take(known, log_); !taken.ok()) return taken;
    figures_.undone = recovery_->losers();
    if (absl::Status ends = GoOn(Trees(), 0, 0); !ends.ok()) return ends;
    if (figures_.undone + figures_.in_doubt != 0) {
      if (!CheckSites(/*undone=*/false)) return absl::OkStatus();
      if (absl::Status rows = recovery_->CheckUndo(); !rows.ok()) return Stop(rows, options_.data_directory);
      Undo();
    }
    CheckSites(/*undone=*/true);
    return absl::OkStatus();
  }

  std::string Trees() const { return fmt::format("island {}: trees", options_.island); }

  // Of every site: its trees, and that each of its pages is in one of them or free.
  bool CheckSites(bool undone) {
    for (size_t slot = 0; slot < store_->slots(); ++slot) {
      const absl::Status checked = CheckSite(slot, undone);
      if (checked.ok()) continue;
      whole_ = false;
      Find(data_->files->PathOf(slot), fmt::format("{}; {}", std::string(checked.message()), kRestore));
    }
    return whole_;
  }

  // Undo goes down trees, and trusts them. Rows and their indexes need not agree before it.
  absl::Status CheckSite(size_t slot, bool undone) {
    uint64_t pages = 0;
    bool agree = true;
    for (storage::TableId table = 0; table < catalog_.size(); ++table) {
      const storage::SiteTable* rows = store_->At(table, store_->space(slot).site());
      if (rows == nullptr) continue;
      if (!GoOn(Trees(), 0, 0).ok()) return absl::OkStatus();
      const absl::StatusOr<uint64_t> checked = rows->Check();
      if (!undone && absl::IsFailedPrecondition(checked.status())) {
        agree = false;
        continue;
      }
      if (!checked.ok()) return checked.status();
      pages += *checked;
    }
    return agree && going_on_.ok() ? store_->space(slot).Check(pages) : absl::OkStatus();
  }

  // Nothing is logged.
  void Undo() {
    std::optional<StampsChanges> stamps;
    if (options_.paged) stamps.emplace();
    constexpr size_t kBuckets = 1 << 12;
    locks::LockTable locks({.buckets = kBuckets, .latched = false});  // nobody else is here
    instance::Executor executor(catalog_, *store_, locks, {.alone = true});
    ISLANDS_CHECK(recovery_->UndoLosers(executor, [] { return true; }));
  }

  runtime::OverlayFileSystem& files_;
  const storage::Catalog& catalog_;
  const IslandOptions& options_;
  const Box& box_;
  const Progress progress_;
  Report& report_;
  IslandLook look_;
  const std::string log_;  // of the island
  IslandFigures figures_;
  std::unique_ptr<storage::Store> store_;
  std::optional<recovery::IslandData> data_;
  std::optional<recovery::Recovery> recovery_;
  bool whole_ = true;  // so far: recovery would go on
  absl::Status going_on_;
};

}  // namespace

absl::Status LookAtIsland(runtime::OverlayFileSystem& files, const storage::Catalog& catalog,
                          const IslandOptions& options, const Box& box, Report* report) {
  IslandLook look(files, options, box, report);
  const std::vector<uint32_t> sites = storage::Store::SitesBySlot(catalog, options.sites);
  const auto data = recovery::OpenGeneration(files, catalog, DataOf(options), sites);
  if (!data.ok()) return report->Take(data.status(), options.data_directory);
  if (absl::Status checked = look.CheckCheckpoint(data->checkpoint); !checked.ok()) return checked;
  const log::LogReader::Options where{look.log(), options.cluster, options.island, data->checkpoint.position};
  const auto segments = log::LogReader(files, where, box.block.ends[options.island]).Segments();
  if (!segments.ok()) return report->Take(segments.status(), look.log());
  return report->Take(look.CheckOldest(where), look.log());
}

absl::Status VerifyIsland(runtime::OverlayFileSystem& files, const storage::Catalog& catalog,
                          const IslandOptions& options, const Box& box, Progress progress, Report* report,
                          std::unique_ptr<storage::Store>* recovered) {
  IslandWalk walk(files, catalog, options, box, progress, report);
  absl::Status status = walk.Run();
  if (status.ok() && recovered != nullptr) *recovered = walk.TakeStore();
  return status;
}

}  // namespace islands::verify
