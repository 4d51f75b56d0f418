#include "instance/recovery/island_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/double_write.h"
#include "instance/storage/files/page_reader.h"
#include "instance/storage/files/pager.h"
#include "runtime/check.h"

namespace islands::recovery {
namespace {

using runtime::IoKind;
using storage::DiskPage;
using storage::kLoadedLsn;
using storage::kPageBytes;
using storage::PageId;

constexpr size_t kPagesPerWrite = 256;
constexpr size_t kWritesAtOnce = 4;
constexpr uint64_t kPagesPerWord = 1 << 12;  // on progress
constexpr uint64_t kUndoPages = 256;         // that undo may have taken beyond the pool's capacity

storage::DataFilesOptions FilesOf(const IslandDataOptions& options, const std::vector<uint32_t>& sites) {
  return {.directory = options.directory,
          .generation = options.generation,
          .sites = sites,
          .direct = options.direct};
}

Checkpoint Describe(const storage::Catalog& catalog, const IslandDataOptions& options,
                    const std::vector<uint32_t>& sites) {
  Checkpoint checkpoint{.number = 1,
                        .cluster = options.cluster,
                        .generation = options.generation,
                        .schema = SchemaFingerprint(catalog),
                        .island = options.island};
  for (const uint32_t site : sites) checkpoint.sites.push_back({site, 0});
  return checkpoint;
}

// A copy of the page, as it is to be on disk.
uint64_t CopyLoaded(const storage::SiteSpace& space, uint64_t number, DiskPage* copy) {
  const storage::GuardX page(space.At(number), ISLANDS_PAGE_LATCH("data.load"));
  auto* header = reinterpret_cast<storage::PageHeader*>(page.Redo());
  if (header->lsn == 0) header->lsn = kLoadedLsn;
  std::copy_n(page.bytes(), kPageBytes, copy->bytes.begin());
  storage::StampChecksum(copy->bytes);
  return header->lsn;
}

class Loader {
 public:
  Loader(runtime::FileSystem& files, storage::Store& store, IslandData& data, Progress progress)
      : files_(files),
        store_(store),
        data_(data),
        progress_(progress),
        room_(kPagesPerWrite * kWritesAtOnce),
        queue_(files) {}

  absl::Status Write() {
    for (size_t slot = 0; slot < store_.slots(); ++slot) all_ += store_.space(slot).end_page();
    absl::Status status;
    for (size_t slot = 0; slot < store_.slots() && status.ok(); ++slot) status = WriteSite(slot);
    for (size_t slot = 0; slot < store_.slots() && status.ok(); ++slot)
      status = queue_.Do({.kind = IoKind::kSync, .file = data_.files->site(slot)});
    return status;
  }

 private:
  absl::Status WriteSite(size_t slot) {
    const uint64_t pages = store_.space(slot).end_page();
    data_.checkpoint.sites[slot].pages = pages;
    // In one go, and no longer: whoever changes it makes it grow by extents (file_size.h).
    absl::Status status = files_.Allocate(data_.files->site(slot), pages * kPageBytes);
    for (uint64_t first = 0; first < pages && status.ok(); first += room_.size()) {
      for (uint64_t part = first; part < std::min<uint64_t>(pages, first + room_.size());
           part += kPagesPerWrite) {
        WritePart(slot, part, std::min<uint64_t>(pages, part + kPagesPerWrite), part - first);
      }
      status = queue_.WaitAll();
      progress_(done_, all_);
    }
    return status;
  }
  // Of a paged store: what has had to leave memory while it was filled.
  bool IsThere(size_t slot, uint64_t number) const { return store_.space(slot).OnDisk(number); }
  void WritePart(size_t slot, uint64_t first, uint64_t end, size_t at) {
    const std::span<DiskPage> part = std::span(room_).subspan(at, end - first);
    done_ += part.size();
    for (uint64_t begin = first; begin < end;) {
      // Runs of pages that are not there already.
      while (begin < end && IsThere(slot, begin)) ++begin;
      uint64_t stop = begin;
      for (; stop < end && !IsThere(slot, stop); ++stop)
        store_.space(slot).SetHome(stop, CopyLoaded(store_.space(slot), stop, &part[stop - first]));
      if (stop == begin) continue;
      queue_.Submit({.kind = IoKind::kWrite,
                     .file = data_.files->site(slot),
                     .offset = begin * kPageBytes,
                     .buffer = storage::AsBytes(part.subspan(begin - first, stop - begin))});
      begin = stop;
    }
  }

  runtime::FileSystem& files_;
  storage::Store& store_;
  IslandData& data_;
  const Progress progress_;
  std::vector<DiskPage> room_;
  uint64_t done_ = 0;
  uint64_t all_ = 0;
  storage::BlockingQueue queue_;  // last: it ends before the pages that it writes
};

// `progress`: how many pages of the site have been read.
absl::Status ReadSite(runtime::FileSystem& files, storage::Store& store, size_t slot, IslandData* data,
                      absl::FunctionRef<void(uint64_t pages)> progress) {
  const Checkpoint::Site& site = data->checkpoint.sites[slot];
  const auto visit = [&](uint64_t number, storage::ConstPageBytes page) {
    if (number % kPagesPerWord == 0) progress(number);
    const PageId id(static_cast<uint32_t>(site.site), number);
    if (!storage::IsWhole(page, id) || !storage::IsSound(page)) return;
    const storage::GuardX there = store.PageForRedo(id);
    if (!there) return;  // beyond the site's room; redo will miss it
    std::copy(page.begin(), page.end(), there.Redo());
    store.space(slot).SetHome(number, storage::HeaderOf(page).lsn);
  };
  return storage::ReadPages(files, data->files->site(slot), site.pages, visit);
}

// A checkpoint counts pages that were at home before it was written.
absl::Status CheckSize(runtime::FileSystem& files, const IslandData& data, size_t slot) {
  const absl::StatusOr<uint64_t> bytes = files.Size(data.files->site(slot));
  if (!bytes.ok()) return bytes.status();
  const uint64_t pages = data.checkpoint.sites[slot].pages;
  if (*bytes / kPageBytes >= pages) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{} has {} bytes, and had {} pages: restore data and log from a copy",
                  data.files->PathOf(slot), *bytes, pages));
}

absl::Status CheckRoom(const Checkpoint& checkpoint, const storage::PoolUsage& pool) {
  uint64_t pages = 0;
  for (const Checkpoint::Site& site : checkpoint.sites) pages += std::min(site.pages, UINT64_MAX - pages);
  if (pages <= pool.capacity_pages + kUndoPages) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "island {} has {} pages of data, and its buffer pool room for {}; raise storage.buffer_pool",
      checkpoint.island, pages, pool.capacity_pages));
}

}  // namespace

absl::StatusOr<std::shared_ptr<storage::DataFiles>> BeginGeneration(runtime::FileSystem& files,
                                                                    const IslandDataOptions& options,
                                                                    storage::Store& store) {
  auto made = storage::DataFiles::Create(files, FilesOf(options, store.sites()));
  if (!made.ok()) return made.status();
  auto data = std::make_shared<storage::DataFiles>(*std::move(made));
  if (absl::Status copied = store.pager()->MoveTo(files, data); !copied.ok()) return copied;
  return data;
}

absl::StatusOr<IslandData> WriteGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                           const IslandDataOptions& options, storage::Store& store,
                                           const LogBegin& begin, Progress progress,
                                           std::shared_ptr<storage::DataFiles> begun) {
  ISLANDS_CHECK((begun != nullptr) == (store.pager() != nullptr));
  if (begun != nullptr) {
    if (absl::Status spilled = store.pager()->EndSpill(); !spilled.ok()) return spilled;
  } else {
    auto made = storage::DataFiles::Create(files, FilesOf(options, store.sites()));
    if (!made.ok()) return made.status();
    begun = std::make_shared<storage::DataFiles>(*std::move(made));
  }
  IslandData data{std::move(begun), Describe(catalog, options, store.sites())};
  data.checkpoint.bound = begin.bound;
  data.checkpoint.position = begin.position;
  absl::Status status = Loader(files, store, data, progress).Write();
  if (status.ok()) status = WriteFirstCheckpoint(files, *data.files, data.checkpoint);
  if (!status.ok()) return status;
  return data;
}

absl::StatusOr<IslandData> OpenGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                          const IslandDataOptions& options,
                                          const std::vector<uint32_t>& sites) {
  absl::StatusOr<storage::DataFiles> opened = storage::DataFiles::Open(files, FilesOf(options, sites));
  if (!opened.ok()) return opened.status();
  absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(files, *opened);
  if (!checkpoint.ok()) return checkpoint.status();
  IslandData data{std::make_shared<storage::DataFiles>(*std::move(opened)), *std::move(checkpoint)};
  const std::string path = storage::CheckpointPath(options.directory, options.generation);
  Checkpoint expected = Describe(catalog, options, sites);
  if (IsSchemaOf(data.checkpoint.schema, catalog)) expected.schema = data.checkpoint.schema;
  absl::Status status = CheckSameData(data.checkpoint, expected, path);
  if (status.ok()) status = data.files->UseSet(data.checkpoint.set);
  for (size_t slot = 0; slot < sites.size() && status.ok(); ++slot) status = CheckSize(files, data, slot);
  if (!status.ok()) return status;
  return data;
}

absl::StatusOr<IslandData> ReadGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                          const IslandDataOptions& options, storage::Store& store,
                                          Progress progress) {
  absl::StatusOr<IslandData> opened = OpenGeneration(files, catalog, options, store.sites());
  if (!opened.ok()) return opened.status();
  IslandData data = *std::move(opened);
  storage::Pager* const pager = store.pager();
  absl::Status status = pager != nullptr ? absl::OkStatus() : CheckRoom(data.checkpoint, store.Usage());
  if (status.ok()) status = storage::RestoreFromDoubleWrite(files, *data.files);
  if (status.ok() && pager != nullptr) {
    pager->Attach(files, data.files);
    for (uint32_t slot = 0; slot < store.slots() && status.ok(); ++slot)
      status = pager->PutOnDisk(slot, data.checkpoint.sites[slot].pages);
    if (!status.ok()) return status;
    return data;
  }
  uint64_t all = 0, done = 0;
  for (const Checkpoint::Site& site : data.checkpoint.sites) all += site.pages;
  for (size_t slot = 0; slot < store.slots() && status.ok(); ++slot) {
    status = ReadSite(files, store, slot, &data, [&](uint64_t pages) { progress(done + pages, all); });
    done += data.checkpoint.sites[slot].pages;
  }
  if (!status.ok()) return status;
  return data;
}

}  // namespace islands::recovery
