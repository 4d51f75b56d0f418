// How much room data take, before there are any, and whether a pool is to page for them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "instance/storage/catalog.h"

namespace islands::storage {

// storage.mode `auto`, where there are data files: resident as long as they leave some room to grow.
constexpr bool ShouldPage(uint64_t data_bytes, uint64_t pool_bytes) {
  return data_bytes > pool_bytes / 8 * 7;
}

// About how many pages the table's trees take on sites [first, first + count) of so many, if there is a row
// for each value of its range, put there in the order of keys. Empty: how many rows there will be, or how
// long they are, does not follow from its definition. Inner nodes are counted, and an index's leaves are
// taken as two thirds full.
std::optional<uint64_t> PagesOfTable(const TableDefinition& table, uint32_t first, uint32_t count);

}  // namespace islands::storage
