#include "instance/recovery/warm_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "instance/storage/pages/page.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace islands::recovery {
namespace {

constexpr char kMagic[] = "ISLWARM1";

struct Layout {
  char magic[8];
  uint64_t cluster, generation;
  uint32_t island, checksum;
  uint64_t pages;
};
static_assert(sizeof(Layout) == 40);

uint32_t Checksum(Layout layout, std::span<const std::byte> pages) {
  layout.checksum = 0;
  return runtime::Crc32c(pages, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))));
}

}  // namespace

std::vector<std::byte> EncodeWarmPages(const WarmPages& warm) {
  Layout layout{{}, warm.cluster, warm.generation, warm.island, 0, warm.pages.size()};
  std::memcpy(layout.magic, kMagic, sizeof(layout.magic));
  const std::span<const std::byte> pages = std::as_bytes(std::span(warm.pages));
  layout.checksum = Checksum(layout, pages);
  std::vector<std::byte> bytes(sizeof(layout) + pages.size());
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  std::ranges::copy(pages, bytes.begin() + sizeof(layout));
  return bytes;
}

std::optional<WarmPages> DecodeWarmPages(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() < sizeof(layout)) return {};
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(layout));
  if (std::memcmp(layout.magic, kMagic, sizeof(layout.magic)) != 0) return {};
  if (layout.pages > rest.size() / sizeof(uint64_t)) return {};
  const std::span<const std::byte> pages = rest.first(layout.pages * sizeof(uint64_t));
  if (layout.checksum != Checksum(layout, pages)) return {};
  WarmPages warm{layout.cluster, layout.generation, layout.island, std::vector<uint64_t>(layout.pages)};
  if (!pages.empty()) std::memcpy(warm.pages.data(), pages.data(), pages.size());
  return warm;
}

std::string WarmPagesPath(const std::string& directory, uint64_t generation) {
  return fmt::format("{}/generation-{:010}-warm-pages", directory, generation);
}

// As the clock hand has left them: one look at a state word says where a page is.
bool PagesInMemory::Look(size_t most) {
  for (; most > 0; --most, ++page_) {
    while (slot_ < store_.slots() && page_ >= store_.PagesOf(slot_)) ++slot_, page_ = 0;
    if (slot_ == store_.slots()) return false;
    const storage::SiteSpace& space = store_.space(slot_);
    const storage::PageRef page = space.At(page_);
    if (!page.touched() || page.on_disk()) continue;
    (page.marked() ? marked_ : used_).push_back(storage::PageId(space.site(), page_).value());
  }
  return true;
}

std::vector<uint64_t> PagesInMemory::Take() {
  std::vector<uint64_t> pages = std::exchange(used_, {});
  pages.insert(pages.end(), marked_.begin(), marked_.end());
  marked_ = {};
  slot_ = 0;
  page_ = 0;
  return pages;
}

absl::Status SaveWarmPages(runtime::FileSystem& files, const storage::Store& store,
                           const std::string& directory, WarmPages of) {
  PagesInMemory walk(store);
  while (walk.Look(SIZE_MAX)) continue;
  of.pages = walk.Take();
  const std::vector<std::byte> list = EncodeWarmPages(of);
  return files.ReplaceFile(WarmPagesPath(directory, of.generation),
                           std::string_view(reinterpret_cast<const char*>(list.data()), list.size()));
}

WarmUp::WarmUp(runtime::FileSystem& files, storage::Store& store, const std::string& directory, WarmPages of,
               WarmingUp* progress)
    : files_(files),
      store_(store),
      path_(WarmPagesPath(directory, of.generation)),
      of_(std::move(of)),
      progress_(progress),
      walk_(store) {
  ISLANDS_CHECK(store.pager() != nullptr);
  const absl::StatusOr<std::string> text = files.ReadFile(path_);
  std::optional<WarmPages> last;
  if (text.ok()) last = DecodeWarmPages(std::as_bytes(std::span(*text)));
  const bool ours = last && last->cluster == of_.cluster && last->generation == of_.generation &&
                    last->island == of_.island;
  if (ours) listed_ = std::move(last->pages);
  progress_->done = 0;
  progress_->listed = listed_.size();
  if (!listed_.empty()) fetcher_.emplace(*store.pager());
}

WarmUp::~WarmUp() {
  progress_->listed = 0;
  queue_.reset();  // waits for what is in flight
  if (file_ >= 0) files_.Close(file_).IgnoreError();
}

bool WarmUp::RunOnce(int64_t now_ns) {
  const bool reads = ReadSome();
  const bool saves = SaveSome(now_ns);
  return reads || saves;
}

void WarmUp::EndReading() {
  fetcher_.reset();
  listed_ = {};
  progress_->listed = 0;
}

// An error of the disk is told to who wants the page.
bool WarmUp::ReadSome() {
  if (!fetcher_) return false;
  over_.clear();
  fetcher_->Poll(&over_);
  if (fetcher_->reading()) return true;
  progress_->done = next_;
  const storage::PoolUsage pool = store_.Usage();
  const bool room = pool.resident_pages + kAtOnce <= pool.capacity_pages;
  if (next_ == listed_.size() || !room) {
    EndReading();
    return false;
  }
  std::vector<storage::Pager::Place> places;
  for (; next_ < listed_.size() && places.size() < kAtOnce; ++next_) {
    const auto id = storage::PageId::FromValue(listed_[next_]);
    const storage::Pager::Place place = store_.PlaceOf(id.site(), id.number());
    if (place.slot < store_.slots() && place.number < store_.PagesOf(place.slot)) places.push_back(place);
  }
  wanted_ = {};
  fetcher_->Start(places, &wanted_);
  return true;
}

bool WarmUp::SaveSome(int64_t now_ns) {
  if (writing_) {
    completions_.clear();
    writing_ = queue_->Poll(&completions_) == 0;
    if (!writing_) bytes_ = {};
    return writing_;
  }
  if (next_save_ns_ == 0) next_save_ns_ = now_ns + kSaveEveryNs;
  if (!looking_ && (now_ns < next_save_ns_ || fetcher_)) return false;
  looking_ = walk_.Look(kLooksAtOnce);
  if (looking_) return true;
  next_save_ns_ = now_ns + kSaveEveryNs;
  WarmPages list = of_;
  list.pages = walk_.Take();
  bytes_ = EncodeWarmPages(list);
  if (file_ < 0) {
    const absl::StatusOr<runtime::FileHandle> file = files_.Open(path_, /*create=*/true, /*direct=*/false);
    if (!file.ok()) return false;  // there is another minute
    file_ = *file;
  }
  if (queue_ == nullptr) queue_ = files_.MakeQueue();
  queue_->Submit({.kind = runtime::IoKind::kWrite, .file = file_, .buffer = std::span(bytes_)});
  writing_ = true;
  return true;
}

}  // namespace islands::recovery
