#include "instance/storage/store.h"

#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "instance/storage/btree/btree.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/site_space.h"
#include "runtime/planted_bug.h"

namespace islands::storage {
namespace {

using absl::StatusCode;
using runtime::Planted;
using runtime::PlantedBug;

KeyView AsKey(const std::string& bytes) { return std::as_bytes(std::span(bytes.data(), bytes.size())); }

// The row of an index entry says where its primary key begins.
using IndexKeyBytes = uint16_t;

RowView AsRow(const IndexKeyBytes& bytes) { return std::as_bytes(std::span(&bytes, 1)); }

KeyView PrimaryKeyOf(KeyView entry, RowView row) {
  IndexKeyBytes index_bytes = 0;
  ISLANDS_CHECK(row.size() == sizeof(index_bytes));
  std::memcpy(&index_bytes, row.data(), sizeof(index_bytes));
  return entry.subspan(index_bytes);
}

bool IsKey(KeyView key) { return !key.empty() && key.size() <= partitioner::kMaxKeyBytes; }
bool IsBound(KeyView key) { return key.size() <= kMaxTreeKeyBytes; }

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

// The entries of one row, in the order of the table's indexes.
using Entries = std::vector<std::string>;

}  // namespace

struct Store::Impl {
  // A table's or index's trees, by slot; empty where the table has none.
  struct TableTrees {
    const TableDefinition* definition = nullptr;
    std::vector<std::unique_ptr<BTree>> rows;
    std::vector<std::vector<std::unique_ptr<BTree>>> indexes;
    bool FitsRow(RowView row) const {
      return row.size() <= kMaxRowBytes &&
             (definition->row_bytes == 0 || row.size() == definition->row_bytes);
    }
  };

  const Catalog* catalog = nullptr;
  partitioner::SiteRun sites;
  std::unique_ptr<BufferPool> pool;
  std::vector<std::unique_ptr<SiteSpace>> spaces;  // by slot: own sites, then the replicated one
  std::vector<TableTrees> tables;

  absl::Status Build();
  absl::Status BuildSlot(uint32_t slot, uint32_t site, uint32_t trees);
  // A number that is no slot for sites of other islands.
  uint32_t SlotOf(uint32_t site) const {
    if (site == kReplicatedSite) return sites.count;
    return site - sites.first < sites.count ? site - sites.first : UINT32_MAX;
  }
  BTree* Find(TableId table, uint32_t site) const {
    const uint32_t slot = SlotOf(site);
    if (table >= tables.size() || slot >= spaces.size()) return nullptr;
    return tables[table].rows[slot].get();
  }
  BTree& Index(TableId table, size_t index, uint32_t site) {
    return *tables[table].indexes[index][SlotOf(site)];
  }
  bool HasIndexes(TableId table) const { return !tables[table].indexes.empty(); }

  StatusCode MakeEntries(TableId table, KeyView key, RowView row, Entries* entries) const;
  StatusCode InsertEntry(TableId table, size_t index, uint32_t site, const std::string& entry,
                         size_t key_bytes);
  // All entries of `after` that differ from `before` (empty: none are there yet), or nothing.
  StatusCode InsertEntries(TableId table, uint32_t site, const Entries& before, const Entries& after,
                           size_t key_bytes);
  void RemoveEntries(TableId table, uint32_t site, const Entries& entries, const Entries& but_not);

  StatusCode ReplaceIndexed(TableId table, uint32_t site, BTree* tree, KeyView key, RowView before,
                            RowView after);
  absl::Status CheckSlot(uint32_t slot);
  absl::Status CheckIndexes(const TableTrees& table, uint32_t slot, uint64_t rows);
};

absl::Status Store::Impl::Build() {
  uint32_t trees = 0;
  bool any_replicated = false;
  tables.resize(catalog->size());
  for (TableId id = 0; id < catalog->size(); ++id) {
    tables[id].definition = &catalog->table(id);
    tables[id].indexes.resize(tables[id].definition->indexes.size());
    any_replicated |= tables[id].definition->replicated();
    trees += 1 + static_cast<uint32_t>(tables[id].indexes.size());
  }
  for (uint32_t slot = 0; slot < sites.count; ++slot) {
    if (absl::Status built = BuildSlot(slot, sites.first + slot, trees); !built.ok()) return built;
  }
  return any_replicated ? BuildSlot(sites.count, kReplicatedSite, trees) : absl::OkStatus();
}

absl::Status Store::Impl::BuildSlot(uint32_t slot, uint32_t site, uint32_t trees) {
  const auto full = [&] {
    return absl::ResourceExhaustedError(fmt::format(
        "a buffer pool of {} pages has no room for empty trees: {} sites x {} tables and indexes; raise "
        "storage.buffer_pool",
        pool->capacity_pages(), sites.count, trees));
  };
  spaces.push_back(std::make_unique<SiteSpace>(pool.get(), slot, site));
  SiteSpace* space = spaces.back().get();
  if (!space->Format(trees)) return full();
  uint32_t tree = 0;
  // Tree ids count all trees of the catalog, so that they mean the same on every site.
  const auto make_tree = [&](bool here, const std::string& lower, const std::string& upper,
                             std::vector<std::unique_ptr<BTree>>* by_slot) {
    by_slot->resize(slot + 1);
    const uint32_t id = tree++;
    if (!here) return true;
    const uint64_t root = BTree::MakeRoot(space, id, AsKey(lower), AsKey(upper));
    if (root == 0) return false;
    space->SetRoot(id, root);
    by_slot->back() = std::make_unique<BTree>(space, id, root);
    return true;
  };
  for (TableTrees& table : tables) {
    const bool here = table.definition->replicated() == (site == kReplicatedSite);
    std::string lower, upper;
    if (here && site != kReplicatedSite) {
      lower = SiteBound(*table.definition, site);
      upper = SiteBound(*table.definition, site + 1);
      if (lower == upper) lower.clear(), upper.clear();  // a site without keys
    }
    if (!make_tree(here, lower, upper, &table.rows)) return full();
    for (auto& index : table.indexes) {
      if (!make_tree(here, {}, {}, &index)) return full();
    }
  }
  return absl::OkStatus();
}

StatusCode Store::Impl::MakeEntries(TableId table, KeyView key, RowView row, Entries* entries) const {
  for (const IndexDefinition& index : tables[table].definition->indexes) {
    absl::StatusOr<std::string> entry = IndexEntry(*tables[table].definition, index, key, row);
    if (!entry.ok()) return entry.status().code();
    entries->push_back(*std::move(entry));
  }
  return StatusCode::kOk;
}

StatusCode Store::Impl::InsertEntry(TableId table, size_t index, uint32_t site, const std::string& entry,
                                    size_t key_bytes) {
  const auto index_bytes = static_cast<IndexKeyBytes>(entry.size() - key_bytes);
  const StatusCode code = Index(table, index, site).Insert(AsKey(entry), AsRow(index_bytes));
  // An entry names its row: one that is there without it breaks invariant 1 of the store.
  ISLANDS_CHECK(code != StatusCode::kAlreadyExists);
  return code;
}

StatusCode Store::Impl::InsertEntries(TableId table, uint32_t site, const Entries& before,
                                      const Entries& after, size_t key_bytes) {
  for (size_t i = 0; i < after.size(); ++i) {
    if (!before.empty() && before[i] == after[i]) continue;
    const StatusCode code = InsertEntry(table, i, site, after[i], key_bytes);
    if (code == StatusCode::kOk) continue;
    RemoveEntries(table, site, Entries(after.begin(), after.begin() + static_cast<ptrdiff_t>(i)), before);
    return code;
  }
  return StatusCode::kOk;
}

void Store::Impl::RemoveEntries(TableId table, uint32_t site, const Entries& entries,
                                const Entries& but_not) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!but_not.empty() && but_not[i] == entries[i]) continue;
    ISLANDS_CHECK(Index(table, i, site).Remove(AsKey(entries[i])) == StatusCode::kOk);
  }
}

// New entries first: they are what can fail for want of pages. Removing old ones cannot.
StatusCode Store::Impl::ReplaceIndexed(TableId table, uint32_t site, BTree* tree, KeyView key, RowView before,
                                       RowView after) {
  Entries old_entries, new_entries;
  StatusCode code = MakeEntries(table, key, before, &old_entries);
  if (code == StatusCode::kOk) code = MakeEntries(table, key, after, &new_entries);
  if (code == StatusCode::kOk) code = InsertEntries(table, site, old_entries, new_entries, key.size());
  if (code != StatusCode::kOk) return code;
  code = tree->Replace(key, after);
  const bool replaced = code == StatusCode::kOk;
  RemoveEntries(table, site, replaced ? old_entries : new_entries, replaced ? new_entries : old_entries);
  return code;
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::Create(const Catalog& catalog, const StoreOptions& options,
                                                     runtime::FileSystem& files) {
  (void)files;  // data is memory resident: durability `none`
  auto impl = std::make_unique<Impl>();
  impl->catalog = &catalog;
  impl->sites = options.sites;
  absl::StatusOr<std::unique_ptr<BufferPool>> pool = BufferPool::Create({.capacity_bytes = options.pool_bytes,
                                                                         .slots = options.sites.count + 1,
                                                                         .bind_memory = options.bind_memory,
                                                                         .alone = options.alone});
  if (!pool.ok()) return pool.status();
  impl->pool = *std::move(pool);
  if (absl::Status built = impl->Build(); !built.ok()) return built;
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

StatusCode Store::Read(TableId table, uint32_t site, KeyView key, std::vector<std::byte>* row) {
  const BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  return tree->Read(key, row);
}

StatusCode Store::Read(TableId table, uint32_t site, KeyView key, Lookup* hint,
                       absl::FunctionRef<void(TornBytes row)> take) {
  const BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  return tree->Find(key, hint, take) == KeyState::kRow ? StatusCode::kOk : StatusCode::kNotFound;
}

StatusCode Store::Modify(TableId table, uint32_t site, KeyView key, Part part,
                         absl::FunctionRef<void(std::span<std::byte>)> change, Lookup* hint) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table) || !impl_->tables[table].definition->Indexes(part.offset, part.bytes)) {
    return tree->Modify(key, change, hint);
  }
  // The caller's lock on the row keeps it as it is read here until it is replaced.
  std::vector<std::byte> before;
  if (const StatusCode code = tree->Read(key, &before); code != StatusCode::kOk) return code;
  std::vector<std::byte> after = before;
  change(after);
  return impl_->ReplaceIndexed(table, site, tree, key, before, after);
}

StatusCode Store::Insert(TableId table, uint32_t site, KeyView key, RowView row,
                         std::optional<uint64_t> expected) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key) || !impl_->tables[table].FitsRow(row))
    return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table)) return tree->Insert(key, row, expected);
  Entries entries;
  std::vector<std::byte> before;
  if (const StatusCode code = impl_->MakeEntries(table, key, row, &entries); code != StatusCode::kOk)
    return code;
  const bool ghost = tree->Find(key, &before) == KeyState::kGhost;
  if (const StatusCode code = tree->Insert(key, row, expected); code != StatusCode::kOk) return code;
  const StatusCode code = impl_->InsertEntries(table, site, {}, entries, key.size());
  if (code == StatusCode::kOk) return code;
  if (!ghost) {
    // Not removed: a scan may have met the key since, and locked the gap below it.
    const bool removed = Planted(PlantedBug::kRemoveRefusedInsert);
    ISLANDS_CHECK((removed ? tree->Remove(key) : tree->SetGhost(key, true)) == StatusCode::kOk);
    return code;
  }
  const UndoScope scope;
  ISLANDS_CHECK(tree->Replace(key, before) == StatusCode::kOk &&
                tree->SetGhost(key, true) == StatusCode::kOk);
  return code;
}

StatusCode Store::Replace(TableId table, uint32_t site, KeyView key, RowView row) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key) || !impl_->tables[table].FitsRow(row))
    return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table)) return tree->Replace(key, row);
  std::vector<std::byte> before;
  if (const StatusCode code = tree->Read(key, &before); code != StatusCode::kOk) return code;
  return impl_->ReplaceIndexed(table, site, tree, key, before, row);
}

StatusCode Store::Remove(TableId table, uint32_t site, KeyView key) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table)) return tree->Remove(key);
  std::vector<std::byte> row;
  Entries entries;
  StatusCode code = tree->Read(key, &row);
  if (code == StatusCode::kOk) code = impl_->MakeEntries(table, key, row, &entries);
  if (code == StatusCode::kOk) code = tree->Remove(key);
  if (code == StatusCode::kOk) impl_->RemoveEntries(table, site, entries, {});
  return code;
}

StatusCode Store::MarkGhost(TableId table, uint32_t site, KeyView key) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table)) return tree->SetGhost(key, true);
  std::vector<std::byte> row;
  Entries entries;
  StatusCode code = tree->Read(key, &row);
  if (code == StatusCode::kOk) code = impl_->MakeEntries(table, key, row, &entries);
  if (code == StatusCode::kOk) code = tree->SetGhost(key, true);
  if (code == StatusCode::kOk) impl_->RemoveEntries(table, site, entries, {});
  return code;
}

StatusCode Store::Unghost(TableId table, uint32_t site, KeyView key) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  if (!impl_->HasIndexes(table)) return tree->SetGhost(key, false);
  std::vector<std::byte> row;
  Entries entries;
  if (tree->Find(key, &row) != KeyState::kGhost) return StatusCode::kNotFound;
  StatusCode code = impl_->MakeEntries(table, key, row, &entries);
  if (code == StatusCode::kOk) code = impl_->InsertEntries(table, site, {}, entries, key.size());
  return code == StatusCode::kOk ? tree->SetGhost(key, false) : code;
}

StatusCode Store::RemoveGhost(TableId table, uint32_t site, KeyView key) {
  BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsKey(key)) return StatusCode::kInvalidArgument;
  return tree->Remove(key, /*only_ghost=*/true);
}

KeyState Store::Find(TableId table, uint32_t site, KeyView key, std::vector<std::byte>* row) {
  const BTree* tree = impl_->Find(table, site);
  return tree == nullptr || !IsKey(key) ? KeyState::kAbsent : tree->Find(key, row);
}

const BTree* Store::Rows(TableId table, uint32_t site) const { return impl_->Find(table, site); }

StatusCode Store::Scan(TableId table, uint32_t site, KeyView first, KeyView end, bool reverse,
                       absl::FunctionRef<bool(KeyView key, RowView row)> visit) {
  const BTree* tree = impl_->Find(table, site);
  if (tree == nullptr || !IsBound(first) || !IsBound(end)) return StatusCode::kInvalidArgument;
  tree->Scan(first, end, reverse, visit);
  return StatusCode::kOk;
}

StatusCode Store::IndexScan(TableId table, IndexId index, uint32_t site, KeyView first, KeyView end,
                            bool reverse, absl::FunctionRef<bool(KeyView primary_key)> visit) {
  if (impl_->Find(table, site) == nullptr || index >= impl_->tables[table].indexes.size() ||
      !IsBound(first) || !IsBound(end)) {
    return StatusCode::kInvalidArgument;
  }
  impl_->Index(table, index, site).Scan(first, end, reverse, [&](KeyView entry, RowView row) {
    return visit(PrimaryKeyOf(entry, row));
  });
  return StatusCode::kOk;
}

absl::Status Store::Truncate(TableId table) {
  if (table >= impl_->tables.size()) {
    return absl::InvalidArgumentError(fmt::format("no table {}; there are {}", table, impl_->tables.size()));
  }
  for (const auto& tree : impl_->tables[table].rows) {
    if (tree) tree->Clear();
  }
  for (const auto& index : impl_->tables[table].indexes) {
    for (const auto& tree : index) {
      if (tree) tree->Clear();
    }
  }
  return absl::OkStatus();
}

uint64_t Store::CountRows(TableId table) {
  uint64_t rows = 0;
  if (table >= impl_->tables.size()) return rows;
  for (const auto& tree : impl_->tables[table].rows) {
    if (tree) rows += tree->Count();
  }
  return rows;
}

PoolUsage Store::Usage() const {
  const BufferPool& pool = *impl_->pool;
  return {.resident_pages = pool.resident_pages(),
          .capacity_pages = pool.capacity_pages(),
          .region = pool.region(),
          .region_bytes = pool.region_bytes()};
}

// Every row's entry is in the index, and there are as many entries as rows: so no entry is without its row.
absl::Status Store::Impl::CheckIndexes(const TableTrees& table, uint32_t slot, uint64_t rows) {
  for (size_t i = 0; i < table.indexes.size(); ++i) {
    const IndexDefinition& index = table.definition->indexes[i];
    const BTree& tree = *table.indexes[i][slot];
    absl::Status status;
    const auto fault = [&](KeyView key, std::string_view what) {
      return absl::DataLossError(fmt::format("table '{}', index '{}', row {}: {}", table.definition->name,
                                             index.name, partitioner::KeyToString(table.definition->key, key),
                                             what));
    };
    std::vector<std::byte> found;
    table.rows[slot]->Scan({}, {}, false, [&](KeyView key, RowView row) {
      const absl::StatusOr<std::string> entry = IndexEntry(*table.definition, index, key, row);
      if (!entry.ok()) {
        status = fault(key, std::string(entry.status().message()));
      } else if (tree.Read(AsKey(*entry), &found) != StatusCode::kOk) {
        status = fault(key, "has no entry");
      } else if (CompareKeys(PrimaryKeyOf(AsKey(*entry), found), key) != 0) {
        status = fault(key, "its entry names another row");
      }
      return status.ok();
    });
    if (!status.ok()) return status;
    if (tree.Count() != rows) {
      return absl::DataLossError(fmt::format("table '{}', index '{}': {} entries for {} rows",
                                             table.definition->name, index.name, tree.Count(), rows));
    }
  }
  return absl::OkStatus();
}

absl::Status Store::Impl::CheckSlot(uint32_t slot) {
  uint64_t pages = 0;
  for (const TableTrees& table : tables) {
    if (!table.rows[slot]) continue;
    const absl::StatusOr<BTree::Totals> rows = table.rows[slot]->Check();
    if (!rows.ok()) return rows.status();
    pages += rows->pages;
    for (const auto& index : table.indexes) {
      const absl::StatusOr<BTree::Totals> entries = index[slot]->Check();
      if (!entries.ok()) return entries.status();
      pages += entries->pages;
    }
    if (absl::Status agree = CheckIndexes(table, slot, rows->rows); !agree.ok()) return agree;
  }
  return spaces[slot]->Check(pages);
}

absl::Status Store::Check() {
  for (uint32_t slot = 0; slot < impl_->spaces.size(); ++slot) {
    if (absl::Status status = impl_->CheckSlot(slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace islands::storage
