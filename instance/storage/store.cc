#include "instance/storage/store.h"

#include <utility>

#include "fmt/format.h"

namespace islands::storage {
namespace {

KeyView AsKey(const std::string& bytes) { return std::as_bytes(std::span(bytes.data(), bytes.size())); }

// The smallest key of a site, or of the one behind the last; empty if the key type ends before it.
std::string SiteBound(const TableDefinition& table, uint32_t site) {
  std::string bound;
  const partitioner::KeyType type = table.key[0];
  const int64_t begin = table.partition->SiteBegin(site);
  const size_t bits = 8 * partitioner::KeyTypeBytes(type);
  if (partitioner::IsSigned(type)) {
    if (bits == 64 || begin < int64_t{1} << (bits - 1)) partitioner::AppendSigned(type, begin, &bound);
  } else if (bits == 64 || begin < int64_t{1} << bits) {
    partitioner::AppendUnsigned(type, static_cast<uint64_t>(begin), &bound);
  }
  return bound;
}

// A table's trees are its rows' and its indexes'.
uint32_t TreesOf(const TableDefinition& table) { return 1 + static_cast<uint32_t>(table.indexes.size()); }

uint32_t TreesOf(const Catalog& catalog) {
  uint32_t trees = 0;
  for (TableId id = 0; id < catalog.size(); ++id) trees += TreesOf(catalog.table(id));
  return trees;
}

// The trees that the site's header does not know are made.
absl::Status BuildTable(const TableDefinition& table, SiteSpace* space, uint32_t first_tree,
                        absl::FunctionRef<absl::Status()> before_each, std::unique_ptr<SiteTable>* built) {
  std::string lower, upper;
  if (!table.replicated()) {
    lower = SiteBound(table, space->site());
    upper = SiteBound(table, space->site() + 1);
    if (lower == upper) lower.clear(), upper.clear();  // a site without keys
  }
  std::vector<SiteTable::Tree> trees;
  for (uint32_t id = first_tree; id < first_tree + TreesOf(table); ++id) {
    if (id < space->trees()) {
      trees.push_back({id, space->Root(id)});
      continue;
    }
    if (absl::Status may = before_each(); !may.ok()) return may;
    const bool rows = id == first_tree;
    trees.push_back(
        {id, rows ? BTree::MakeRoot(space, id, AsKey(lower), AsKey(upper)) : BTree::MakeRoot(space, id)});
    if (trees.back().root == 0)
      return absl::ResourceExhaustedError(
          fmt::format("there is no room for table '{}' on site {}", table.name, space->site()));
  }
  const SiteTable::Tree rows = trees.front();
  trees.erase(trees.begin());
  *built = std::make_unique<SiteTable>(table, space, rows, trees);
  return absl::OkStatus();
}

absl::Status LostTable(const TableDefinition& table, const SiteSpace& space) {
  return absl::DataLossError(fmt::format(
      "table '{}' on site {} has lost its pages: log and data do not go together", table.name, space.site()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::CreateForRedo(const Catalog& catalog,
                                                            const StoreOptions& options) {
  std::unique_ptr<Store> store(new Store(options.sites));
  absl::StatusOr<std::unique_ptr<BufferPool>> pool = BufferPool::Create({.capacity_bytes = options.pool_bytes,
                                                                         .slots = options.sites.count + 1,
                                                                         .bind_memory = options.bind_memory,
                                                                         .alone = options.alone,
                                                                         .paged = options.paged,
                                                                         .huge_pages = options.huge_pages,
                                                                         .key_hints = options.key_hints});
  if (!pool.ok()) return pool.status();
  store->pool_ = *std::move(pool);
  if (options.paged) store->pager_ = std::make_unique<Pager>(*store->pool_);
  store->table_count_ = catalog.size();
  for (const uint32_t site : SitesBySlot(catalog, options.sites)) {
    const auto slot = static_cast<uint32_t>(store->spaces_.size());
    store->spaces_.push_back(std::make_unique<SiteSpace>(store->pool_.get(), slot, site));
  }
  return store;
}

std::vector<uint32_t> Store::SitesBySlot(const Catalog& catalog, const partitioner::SiteRun& sites) {
  std::vector<uint32_t> by_slot;
  for (uint32_t i = 0; i < sites.count; ++i) by_slot.push_back(sites.first + i);
  bool any_replicated = false;
  for (TableId id = 0; id < catalog.size(); ++id) any_replicated |= catalog.table(id).replicated();
  if (any_replicated) by_slot.push_back(kReplicatedSite);
  return by_slot;
}

template <typename Make>
absl::Status Store::PlaceTables(const Catalog& catalog, Make make) {
  std::vector<std::unique_ptr<SiteTable>> before =
      std::exchange(tables_, std::vector<std::unique_ptr<SiteTable>>(spaces_.size() * catalog.size()));
  const size_t count_before = std::exchange(table_count_, catalog.size());
  absl::Status status;
  for (size_t slot = 0; slot < spaces_.size(); ++slot) {
    // Tree ids count all trees of the catalog, so that they mean the same on every site.
    uint32_t first_tree = 0;
    for (TableId id = 0; id < catalog.size(); ++id) {
      const TableDefinition& table = catalog.table(id);
      std::unique_ptr<SiteTable>& place = tables_[slot * table_count_ + id];
      if (!before.empty() && id < count_before) place = std::move(before[slot * count_before + id]);
      const bool here = table.replicated() == (spaces_[slot]->site() == kReplicatedSite);
      if (here && status.ok() && place == nullptr)
        status = make(table, spaces_[slot].get(), first_tree, &place);
      first_tree += TreesOf(table);
    }
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Create(const Catalog& catalog, const StoreOptions& options,
                                                     runtime::FileSystem& files) {
  (void)files;  // nothing is on disk yet
  absl::StatusOr<std::unique_ptr<Store>> store = CreateForRedo(catalog, options);
  if (!store.ok()) return store.status();
  bool room = true;
  for (const std::unique_ptr<SiteSpace>& space : (*store)->spaces_) room = room && space->Format();
  const auto make = [](const TableDefinition& table, SiteSpace* space, uint32_t first_tree,
                       std::unique_ptr<SiteTable>* place) {
    return BuildTable(
        table, space, first_tree, [] { return absl::OkStatus(); }, place);
  };
  if (room && (*store)->PlaceTables(catalog, make).ok()) return store;
  return absl::ResourceExhaustedError(fmt::format(
      "a buffer pool of {} pages has no room for empty trees: {} sites x {} tables and indexes; raise "
      "storage.buffer_pool",
      (*store)->pool_->capacity_pages(), options.sites.count, TreesOf(catalog)));
}

absl::Status Store::MakeTrees(const Catalog& catalog, absl::FunctionRef<absl::Status()> before_each) {
  const UndoScope whatever_room_there_is;
  return PlaceTables(catalog, [&](const TableDefinition& table, SiteSpace* space, uint32_t first_tree,
                                  std::unique_ptr<SiteTable>* place) {
    return BuildTable(table, space, first_tree, before_each, place);
  });
}

uint64_t Store::MissingTrees(const Catalog& catalog) const {
  uint64_t missing = 0;
  for (const std::unique_ptr<SiteSpace>& space : spaces_) {
    uint32_t first_tree = 0;
    for (TableId id = 0; id < catalog.size(); ++id) {
      const TableDefinition& table = catalog.table(id);
      const uint32_t known = std::max(space->trees(), first_tree);
      first_tree += TreesOf(table);
      if (table.replicated() == (space->site() == kReplicatedSite))
        missing += first_tree - std::min(known, first_tree);
    }
  }
  return missing;
}

GuardX Store::PageForRedo(PageId page, bool image) {
  ISLANDS_CHECK(tables_.empty() || redo_goes_on_);
  const uint32_t slot = SlotOf(page.site());
  return slot < spaces_.size() ? spaces_[slot]->ForRedo(page.number(), image) : GuardX();
}

absl::Status Store::FetchForRedo(std::span<const PageId> pages) const {
  if (pager_ == nullptr) return absl::OkStatus();
  std::vector<Pager::Place> places;
  for (const PageId page : pages) {
    const uint32_t slot = SlotOf(page.site());
    if (slot < spaces_.size() && spaces_[slot]->OnDisk(page.number()))
      places.push_back({slot, page.number()});
  }
  return pager_->Fetch(places);
}

uint64_t Store::CountTrees() const {
  uint64_t trees = 0;
  for (const std::unique_ptr<SiteSpace>& space : spaces_) trees += space->trees();
  return trees;
}

std::vector<uint32_t> Store::sites() const {
  std::vector<uint32_t> sites;
  for (const std::unique_ptr<SiteSpace>& space : spaces_) sites.push_back(space->site());
  return sites;
}

absl::Status Store::FindTrees(const Catalog& catalog) {
  ISLANDS_CHECK(tables_.empty());
  for (const std::unique_ptr<SiteSpace>& space : spaces_) {
    if (absl::Status header = FetchForRedo({space->site(), 0}); !header.ok()) return header;
    for (uint32_t tree = 0; space->HasHeader() && tree < space->trees(); ++tree) {
      absl::Status root = FetchForRedo({space->site(), space->Root(tree)});
      if (!root.ok()) return root;
    }
    for (uint64_t number = 0; number < space->end_page(); ++number) {
      if (space->HasPage(number)) continue;
      return absl::DataLossError(fmt::format(
          "page {} of site {} is in use, and neither whole in its data file nor in the log: restore data and "
          "log from a copy",
          number, space->site()));
    }
  }
  const auto find = [&](const TableDefinition& table, SiteSpace* space, uint32_t first_tree,
                        std::unique_ptr<SiteTable>* place) {
    const auto is_lost = [&](uint32_t id) {
      const uint64_t root = space->Root(id);
      return root == 0 || !space->HasPage(root);
    };
    if (!space->HasHeader()) return LostTable(table, *space);
    const uint32_t end = first_tree + TreesOf(table), known = std::min(end, space->trees());
    for (uint32_t id = first_tree; id < std::max(known, first_tree); ++id) {
      if (is_lost(id)) return LostTable(table, *space);
    }
    if (known < end) return absl::OkStatus();  // not yet
    return BuildTable(
        table, space, first_tree, [] { return absl::OkStatus(); }, place);
  };
  return PlaceTables(catalog, find);
}

absl::Status Store::Truncate(TableId table) {
  // No log has room for that: it begins anew with what is left.
  ISLANDS_CHECK(page_change_sink == nullptr || (pager_ != nullptr && pager_->swaps()));
  if (table >= table_count_) {
    return absl::InvalidArgumentError(fmt::format("no table {}; there are {}", table, table_count_));
  }
  for (size_t i = table; i < tables_.size(); i += table_count_) {
    if (tables_[i]) tables_[i]->Clear();
  }
  return absl::OkStatus();
}

uint64_t Store::CountRows(TableId table) const {
  uint64_t rows = 0;
  for (size_t i = table; table < table_count_ && i < tables_.size(); i += table_count_) {
    if (tables_[i]) rows += tables_[i]->Count();
  }
  return rows;
}

bool Store::HasRows(TableId table) const {
  bool found = false;
  for (size_t i = table; table < table_count_ && i < tables_.size() && !found; i += table_count_) {
    const auto see = [&](KeyView, RowView) { return !(found = true); };
    if (tables_[i]) tables_[i]->Scan({}, {}, /*reverse=*/false, see);
  }
  return found;
}

PoolUsage Store::Usage() const {
  return {.resident_pages = pool_->resident_pages(),
          .capacity_pages = pool_->capacity_pages(),
          .region = pool_->region(),
          .region_bytes = pool_->region_bytes()};
}

uint64_t Store::DataPages() const {
  uint64_t pages = 0;
  for (uint32_t slot = 0; slot < pool_->slots(); ++slot) pages += PagesOf(slot);
  return pages;
}

absl::Status Store::Check() const {
  for (size_t slot = 0; slot < spaces_.size(); ++slot) {
    uint64_t tree_pages = 0;
    for (size_t table = 0; table < table_count_; ++table) {
      const SiteTable* site_table = tables_[slot * table_count_ + table].get();
      if (site_table == nullptr) continue;
      const absl::StatusOr<uint64_t> pages = site_table->Check();
      if (!pages.ok()) return pages.status();
      tree_pages += *pages;
    }
    if (absl::Status status = spaces_[slot]->Check(tree_pages); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace islands::storage
