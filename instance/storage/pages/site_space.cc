#include "instance/storage/pages/site_space.h"

#include <cstring>
#include <new>

#include "fmt/format.h"
#include "instance/storage/pages/limits.h"

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

SiteHeader* Header(const GuardX& guard) { return reinterpret_cast<SiteHeader*>(guard.bytes()); }
const SiteHeader* Header(const GuardS& guard) { return reinterpret_cast<const SiteHeader*>(guard.bytes()); }

}  // namespace

bool SiteSpace::Format(uint32_t trees) {
  ISLANDS_CHECK(trees <= kMaxTrees);
  if (!pool_->ClaimPage()) return false;
  const GuardX guard = GuardX::FirstUse(pages_.At(0));
  SiteHeader* header = new (guard.bytes()) SiteHeader{};
  header->page = {.page_id = PageId(site_, 0).value(), .type = PageType::kSiteHeader};
  header->magic = kMagic;
  header->next_page = 1;
  header->trees = trees;
  return true;
}

void SiteSpace::SetRoot(uint32_t tree, uint64_t number) {
  const GuardX guard = ISLANDS_LATCH("site.roots", GuardX(pages_.At(0)));
  ISLANDS_CHECK(tree < Header(guard)->trees);
  Header(guard)->roots[tree] = number;
}

GuardX SiteSpace::Allocate(uint32_t tree, uint8_t level) {
  const GuardX header_guard = ISLANDS_LATCH("site.allocate", GuardX(pages_.At(0)));
  SiteHeader* header = Header(header_guard);
  GuardX page;
  uint64_t number = header->free_head;
  if (number != 0) {
    page = ISLANDS_LATCH("site.allocate", GuardX(pages_.At(number)));
    header->free_head = reinterpret_cast<FreePage*>(page.bytes())->next_free;
    --header->free_count;
  } else {
    number = header->next_page;
    if (number >= pages_.size() || !pool_->ClaimPage()) return page;
    page = GuardX::FirstUse(pages_.At(number));
    ++header->next_page;
  }
  std::memset(page.bytes(), 0, kPageBytes);
  new (page.bytes()) PageHeader{
      .page_id = PageId(site_, number).value(), .tree = tree, .type = PageType::kTree, .level = level};
  return page;
}

void SiteSpace::Free(GuardX page) {
  const GuardX header_guard = ISLANDS_LATCH("site.free", GuardX(pages_.At(0)));
  SiteHeader* header = Header(header_guard);
  auto* free_page = reinterpret_cast<FreePage*>(page.bytes());
  free_page->page.type = PageType::kFree;
  free_page->next_free = header->free_head;
  header->free_head = PageId::FromValue(free_page->page.page_id).number();
  ++header->free_count;
}

uint64_t SiteSpace::used_pages() const {
  const GuardS guard = ISLANDS_LATCH("site.usage", GuardS(pages_.At(0)));
  return Header(guard)->next_page - Header(guard)->free_count;
}

absl::Status SiteSpace::Check(uint64_t tree_pages) const {
  const GuardS guard = ISLANDS_LATCH("site.check", GuardS(pages_.At(0)));
  const SiteHeader* header = Header(guard);
  if (header->magic != kMagic || header->page.page_id != PageId(site_, 0).value()) {
    return absl::DataLossError(fmt::format("site {}: page 0 is not its site header", site_));
  }
  uint64_t free_pages = 0;
  for (uint64_t number = header->free_head; number != 0; ++free_pages) {
    if (number >= header->next_page || free_pages > header->free_count) {
      return absl::DataLossError(fmt::format("site {}: the free list leads to page {}", site_, number));
    }
    const GuardS page = ISLANDS_LATCH("site.check", GuardS(pages_.At(number)));
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
