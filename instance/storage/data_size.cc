#include "instance/storage/data_size.h"

#include <algorithm>

#include "instance/storage/btree/btree_node.h"

namespace islands::storage {
namespace {

// All nodes of a tree with so many entries of so many bytes each, without the slot and the length.
uint64_t PagesOfTree(uint64_t entries, size_t entry_bytes, size_t fence_bytes, double fill) {
  constexpr uint64_t kChildren = 150;  // of an inner node: separators are short
  const double room = static_cast<double>(kPageBytes - Node::kHeaderBytes - 2 * fence_bytes) * fill;
  const uint64_t per_leaf = std::max<uint64_t>(
      1, static_cast<uint64_t>(room / static_cast<double>(sizeof(Slot) + sizeof(uint16_t) + entry_bytes)));
  uint64_t pages = 0;
  for (uint64_t level = std::max<uint64_t>(1, (entries + per_leaf - 1) / per_leaf);;
       level = (level + kChildren - 1) / kChildren) {
    pages += level;
    if (level == 1) return pages;
  }
}

size_t BytesOf(const IndexDefinition& index, const TableDefinition& table) {
  size_t bytes = 0;
  for (const IndexComponent& component : index.components) {
    const partitioner::KeyType type = component.from_key ? table.key[component.component] : component.type;
    bytes += component.string_bytes != 0 ? component.string_bytes : partitioner::KeyTypeBytes(type);
  }
  return bytes;
}

}  // namespace

std::optional<uint64_t> PagesOfTable(const TableDefinition& table, uint32_t first, uint32_t count) {
  if (table.replicated() || table.key.size() != 1 || table.row_bytes == 0) return std::nullopt;
  // Neighbours in a leaf have all of an integer key in common but its last one or two bytes.
  constexpr size_t kOwnKeyBytes = 2;
  constexpr double kFilledInAnyOrder = 2.0 / 3;
  const size_t key_bytes = partitioner::KeyTypeBytes(table.key[0]);
  uint64_t pages = 0;
  for (uint32_t site = first; site < first + count; ++site) {
    const uint64_t rows = static_cast<uint64_t>(table.partition->SiteBegin(site + 1)) -
                          static_cast<uint64_t>(table.partition->SiteBegin(site));
    pages += PagesOfTree(rows, std::min(key_bytes, kOwnKeyBytes) + table.row_bytes, key_bytes, 1);
    for (const IndexDefinition& index : table.indexes) {
      const size_t bytes = BytesOf(index, table) + key_bytes;
      pages += PagesOfTree(rows, bytes, bytes, kFilledInAnyOrder);
    }
  }
  return pages;
}

}  // namespace islands::storage
