// One island's rows: a buffer pool, and a SiteTable for every table and site of the island.
//
// Thread safety: At and what it gives from every worker (site_table.h); Truncate, CountRows, HasRows and
// Check only while no other call is active.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"
#include "instance/storage/files/pager.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/site_space.h"
#include "instance/storage/site_table.h"
#include "runtime/file_system.h"

namespace islands::storage {

struct StoreOptions {
  uint32_t island = 0;
  partitioner::SiteRun sites;  // the island's own
  uint64_t pool_bytes = 64u << 20;
  bool alone = false;  // one thread at a time calls the store: no latches
  bool paged = false;  // the pool may be smaller than the data (files/pager.h)
  bool huge_pages = true;
  bool key_hints = true;  // 1/32 of the pool on top of it (pages/key_hints.h)
  std::string data_directory;
  // Called once with the pool's reserved region before any page is touched: where the island binds memory to
  // its nodes.
  absl::FunctionRef<void(void* address, size_t bytes)>* bind_memory = nullptr;
};

struct PoolUsage {
  uint64_t resident_pages = 0;
  uint64_t capacity_pages = 0;
  const void* region = nullptr;
  uint64_t region_bytes = 0;
};

class Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Create(const Catalog& catalog, const StoreOptions& options,
                                                       runtime::FileSystem& files);  // `catalog` outlives it

  // As after a crash, in three steps: pages that nobody has touched; redo; trees where the site headers say.
  // Until the last one only PageForRedo may be called.
  static absl::StatusOr<std::unique_ptr<Store>> CreateForRedo(const Catalog& catalog,
                                                              const StoreOptions& options);
  // The same with pages that are there: redo goes on over them.
  void BeginRedo() {
    tables_.clear();
    redo_goes_on_ = false;
  }
  // Once trees have been found: pages may be redone beneath them, while nobody uses them. Roots stay where
  // they are; of sites that get more trees they have to be found again.
  void LetRedoGoOn() { redo_goes_on_ = true; }
  uint64_t CountTrees() const;  // that site headers know
  // Empty: no site of this island has such a page. `image` as SiteSpace::ForRedo.
  GuardX PageForRedo(PageId page, bool image = false);
  // Before: pages come from disk, those that are there. DATA_LOSS: one is not what was written.
  absl::Status FetchForRedo(std::span<const PageId> pages) const;
  absl::Status FetchForRedo(PageId page) const { return FetchForRedo(std::span(&page, 1)); }
  // Before PageForRedo: starts loading the page, of whatever site.
  [[gnu::always_inline]] void PrefetchForRedo(PageId page) const {
    const uint32_t slot = SlotOf(page.site());
    if (slot < spaces_.size()) spaces_[slot]->Prefetch(page.number());
  }
  // When that has come: starts loading the first `bytes` of the value in `entry`, as far as can be seen now.
  [[gnu::always_inline]] void PrefetchEntryForRedo(PageId page, uint32_t entry, size_t bytes) const {
    const uint32_t slot = SlotOf(page.site());
    if (slot >= spaces_.size() || !spaces_[slot]->HasPage(page.number())) return;
    const GuardO guard(spaces_[slot]->At(page.number()));
    const TornNode node(guard.page());
    if (entry < node.count()) node.PrefetchEntry(entry, bytes);
  }
  bool HasPage(PageId page) const {
    const uint32_t slot = SlotOf(page.site());
    return slot < spaces_.size() && spaces_[slot]->HasPage(page.number());
  }
  // DATA_LOSS: a page in use is missing, or a tree that a site header knows. Tables whose trees the header
  // does not know were added to the catalog when they could not be made yet: MakeTrees does.
  absl::Status FindTrees(const Catalog& catalog);
  // How many pages MakeTrees will take for those that are missing; what the pool has left.
  uint64_t MissingTrees(const Catalog& catalog) const;
  uint64_t FreePages() const {
    if (pager_ != nullptr) return UINT64_MAX;  // others leave
    return pool_->capacity_pages() - std::min(pool_->capacity_pages(), pool_->resident_pages());
  }
  // The tables of the catalog that are missing, empty, whatever room there is in the pool, while no other
  // call is active; those that are there stay where they are. `before_each`: called before each tree is
  // made; if it does not say OK there are no more. RESOURCE_EXHAUSTED: a site has no pages left.
  absl::Status MakeTrees(const Catalog& catalog, absl::FunctionRef<absl::Status()> before_each);

  // Null: there is no such table, or the island does not have it on that site.
  SiteTable* At(TableId table, uint32_t site) const {
    const uint32_t slot = SlotOf(site);
    if (table >= table_count_ || slot >= spaces_.size()) return nullptr;
    return tables_[slot * table_count_ + table].get();
  }

  // The island's sites, by slot, the replicated one last; for who moves pages.
  size_t slots() const { return spaces_.size(); }
  SiteSpace& space(size_t slot) { return *spaces_[slot]; }
  const SiteSpace& space(size_t slot) const { return *spaces_[slot]; }
  std::vector<uint32_t> sites() const;
  // The same of a store that would be made for these sites.
  static std::vector<uint32_t> SitesBySlot(const Catalog& catalog, const partitioner::SiteRun& sites);

  // Empties a table on all sites of this island.
  absl::Status Truncate(TableId table);
  uint64_t CountRows(TableId table) const;
  bool HasRows(TableId table) const;  // ends at the first

  PoolUsage Usage() const;
  // Of its data, in memory or not, free ones of sites included.
  uint64_t DataPages() const;
  uint64_t PagesOf(uint32_t slot) const { return pool_->End(slot); }  // the same of a site
  // Of a site of this island.
  Pager::Place PlaceOf(uint32_t site, uint64_t number) const { return {SlotOf(site), number}; }
  // Null: all pages are in memory.
  Pager* pager() const { return pager_.get(); }
  // Walks every tree and checks order, fill, links and index agreement; for tests.
  absl::Status Check() const;

 private:
  explicit Store(partitioner::SiteRun sites) : sites_(sites) {}
  // Makes tables_ of what make(table, space, number of its first tree, what is there already) puts in its
  // place, for every table of every site that it belongs to, until it does not say OK.
  template <typename Make>
  absl::Status PlaceTables(const Catalog& catalog, Make make);
  // Own sites, then the replicated one. A number that is no slot for sites of other islands.
  uint32_t SlotOf(uint32_t site) const {
    if (site == kReplicatedSite) return sites_.count;
    return site - sites_.first < sites_.count ? site - sites_.first : UINT32_MAX;
  }

  const partitioner::SiteRun sites_;
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<Pager> pager_;                    // null: it is a resident pool
  std::vector<std::unique_ptr<SiteSpace>> spaces_;  // by slot
  bool redo_goes_on_ = false;
  size_t table_count_ = 0;
  std::vector<std::unique_ptr<SiteTable>>
      tables_;  // slot * table_count_ + table; null where it is not, or not yet
};

}  // namespace islands::storage
