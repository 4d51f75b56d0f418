#include "instance/storage/pages/site_space.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "fmt/format.h"
#include "instance/storage/pages/limits.h"
#include "instance/storage/pages/site_usage.h"

namespace islands::storage {
namespace {

constexpr uint64_t kMagic = 0x31455449534c5349;  // "ISLSITE1" in memory

struct SiteHeader {
  PageHeader page;
  uint64_t magic;
  uint64_t next_page;
  uint64_t free_head;
  uint64_t free_count;
  uint32_t trees;
  uint32_t zero;
  uint64_t roots[kMaxTrees];
};
static_assert(sizeof(SiteHeader) <= kPageBytes && offsetof(SiteHeader, roots) == 72);

struct FreePage {
  PageHeader page;
  uint64_t next_free;
};

template <typename Guard>
const SiteHeader* Header(const Guard& guard) {
  return reinterpret_cast<const SiteHeader*>(guard.bytes());
}

constexpr PageChange kWholePage{.bytes = kPageBytes};
constexpr PageChange kFreePages{
    .offset = offsetof(SiteHeader, next_page),
    .bytes = offsetof(SiteHeader, trees) - offsetof(SiteHeader, next_page)};  // all that is known of them
SiteHeader* ChangeFreePages(const GuardX& header) {
  return reinterpret_cast<SiteHeader*>(header.Change(kFreePages));
}

}  // namespace

std::optional<uint64_t> UsedPagesOf(std::span<const std::byte, kPageBytes> header) {
  SiteHeader found;
  std::memcpy(&found, header.data(), sizeof(found));
  if (found.magic != kMagic || found.free_count >= found.next_page) return std::nullopt;
  return found.next_page - found.free_count;
}

bool SiteSpace::Format() {
  if (!pool_->ClaimPage()) return false;
  const GuardX guard = FirstUse(0);
  SiteHeader* header = new (guard.Change(kWholePage)) SiteHeader{};
  header->page = {.page_id = PageId(site_, 0).value(), .type = PageType::kSiteHeader};
  header->magic = kMagic;
  header->next_page = 1;
  return true;
}

void SiteSpace::AddRoot(const GuardX& header, uint32_t tree, uint64_t number) {
  const SiteHeader* before = Header(header);
  ISLANDS_CHECK(tree >= before->trees && tree < kMaxTrees && number != 0 && number < before->next_page);
  constexpr PageChange kTrees{.offset = offsetof(SiteHeader, trees), .bytes = sizeof(before->trees)};
  reinterpret_cast<SiteHeader*>(header.Change(kTrees))->trees = tree + 1;
  const PageChange root{.offset = offsetof(SiteHeader, roots) + tree * sizeof(number),
                        .bytes = sizeof(number)};
  reinterpret_cast<SiteHeader*>(header.Change(root))->roots[tree] = number;
}

bool SiteSpace::HasHeader() const {
  if (!HasPage(0)) return false;
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.roots"));
  const SiteHeader* header = Header(guard);
  return header->magic == kMagic && header->page.page_id == PageId(site_, 0).value() &&
         header->trees <= kMaxTrees;
}

uint32_t SiteSpace::trees() const {
  if (!HasPage(0)) return 0;
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.roots"));
  return Header(guard)->trees;
}

uint64_t SiteSpace::Root(uint32_t tree) const {
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.roots"));
  const SiteHeader* header = Header(guard);
  if (header->magic != kMagic || header->page.page_id != PageId(site_, 0).value()) return 0;
  if (tree >= std::min<uint32_t>(header->trees, kMaxTrees)) return 0;
  const uint64_t root = header->roots[tree];
  return root < header->next_page && root < pages_.size() ? root : 0;
}

GuardX SiteSpace::ForRedo(uint64_t number, bool image) {
  if (number >= pages_.size()) return {};
  const PageRef page = pages_.At(number);
  if (page.touched() && !(image && page.on_disk())) return GuardX(page);
  const UndoScope whatever_room_there_is;
  ISLANDS_CHECK(pool_->ClaimPage());
  if (!page.on_disk()) return FirstUse(number);
  GuardX anew = GuardX::Anew(page);
  pool_->NoteOut(-1);
  return anew;
}

GuardX SiteSpace::Allocate(uint32_t tree, uint8_t level, GuardX* header_guard) {
  if (!*header_guard) *header_guard = GuardX(pages_.At(0), ISLANDS_PAGE_LATCH("site.allocate"));
  SiteHeader* header = ChangeFreePages(*header_guard);
  GuardX page;
  uint64_t number = header->free_head;
  ISLANDS_CHECK(header->magic == kMagic && (number == 0) == (header->free_count == 0));
  if (number != 0) {
    page = GuardX(pages_.At(number), ISLANDS_PAGE_LATCH("site.allocate"));
    const auto* free_page = reinterpret_cast<const FreePage*>(page.bytes());
    ISLANDS_CHECK(free_page->page.type == PageType::kFree &&
                  free_page->page.page_id == PageId(site_, number).value());
    header->free_head = free_page->next_free;
    --header->free_count;
  } else {
    number = header->next_page;
    if (number >= pages_.size() || !pool_->ClaimPage()) return page;
    page = FirstUse(number);
    ++header->next_page;
  }
  if (runtime::Planted(runtime::PlantedBug::kHeaderOfItsOwn)) header_guard->Release();
  std::byte* bytes = page.Change(kWholePage);
  uint64_t lsn = reinterpret_cast<const PageHeader*>(bytes)->lsn;  // of its earlier use
  if (runtime::Planted(runtime::PlantedBug::kResetLsnOnReuse)) lsn = 0;
  std::memset(bytes, 0, kPageBytes);
  new (bytes) PageHeader{.page_id = PageId(site_, number).value(),
                         .lsn = lsn,
                         .tree = tree,
                         .type = PageType::kTree,
                         .level = level};
  return page;
}

void SiteSpace::Free(const GuardX& page, GuardX* header_guard) {
  if (!*header_guard) *header_guard = GuardX(pages_.At(0), ISLANDS_PAGE_LATCH("site.free"));
  SiteHeader* header = ChangeFreePages(*header_guard);
  constexpr PageChange kFreed{.offset = offsetof(PageHeader, type),
                              .bytes = sizeof(FreePage) - offsetof(PageHeader, type)};
  auto* free_page = reinterpret_cast<FreePage*>(page.Change(kFreed));
  const PageId id = PageId::FromValue(free_page->page.page_id);
  ISLANDS_CHECK(id.site() == site_ && id.number() != 0 && id.number() < header->next_page);
  ISLANDS_CHECK(free_page->page.type == PageType::kTree);  // not freed before
  free_page->page.type = PageType::kFree;
  free_page->next_free = header->free_head;
  header->free_head = id.number();
  ++header->free_count;
}

uint64_t SiteSpace::end_page() const {
  if (!HasPage(0)) return 0;
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.usage"));
  return Header(guard)->next_page;
}

uint64_t SiteSpace::used_pages() const {
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.usage"));
  return Header(guard)->next_page - Header(guard)->free_count;
}

absl::Status SiteSpace::Check(uint64_t tree_pages) const {
  const GuardS guard(pages_.At(0), ISLANDS_LATCH("site.check"));
  const SiteHeader* header = Header(guard);
  if (header->magic != kMagic || header->page.page_id != PageId(site_, 0).value()) {
    return absl::DataLossError(fmt::format("site {}: page 0 is not its site header", site_));
  }
  uint64_t free_pages = 0;
  for (uint64_t number = header->free_head; number != 0; ++free_pages) {
    if (number >= header->next_page || free_pages > header->free_count) {
      return absl::DataLossError(fmt::format("site {}: the free list leads to page {}", site_, number));
    }
    const GuardS page(pages_.At(number), ISLANDS_LATCH("site.check"));
    const auto* free_page = reinterpret_cast<const FreePage*>(page.bytes());
    if (free_page->page.type != PageType::kFree || free_page->page.page_id != PageId(site_, number).value()) {
      return absl::DataLossError(
          fmt::format("site {}: page {} is in the free list but not free", site_, number));
    }
    number = free_page->next_free;
  }
  if (free_pages != header->free_count || 1 + tree_pages + free_pages != header->next_page) {
    return absl::DataLossError(
        fmt::format("site {}: {} pages, but 1 header, {} in trees, {} in the free list of {}", site_,
                    header->next_page, tree_pages, free_pages, header->free_count));
  }
  return absl::OkStatus();
}

}  // namespace islands::storage
