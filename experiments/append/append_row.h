// A row of table `append`: the list that transactions append to, as far as it fits.
//
//   count, 8 | life, 8 | elements, kept x 16 | count once more, 8        all little-endian
//
// Element number i (from 0) of the list lies in slot i % kept, so the last `kept` ones are there, and kept is
// what the table's row_bytes leave room for. An element is the name of the attempt that appended it. `life`
// says which load of which island the row stems from: what the workload cannot ask for it reads from data.
//
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "coordinator/transaction_id.h"
#include "instance/workload/operation.h"

namespace islands::experiments {

static_assert(std::endian::native == std::endian::little, "rows and history files are read as they lie");

// A transaction id in 16 bytes.
struct Element {
  uint64_t origin = 0;  // island, 16 bits | worker, 16 | boot epoch, 32
  uint64_t sequence = 0;

  static Element Of(const coordinator::TransactionId& id) {
    return {uint64_t{id.island} << 48 | uint64_t{id.worker & 0xffff} << 32 | (id.boot_epoch & 0xffffffff),
            id.sequence};
  }
  coordinator::TransactionId id() const {
    return {.island = static_cast<uint32_t>(origin >> 48),
            .worker = static_cast<uint32_t>(origin >> 32 & 0xffff),
            .boot_epoch = origin & 0xffffffff,
            .sequence = sequence};
  }
  bool none() const { return sequence == 0; }
  friend auto operator<=>(const Element&, const Element&) = default;
};
static_assert(sizeof(Element) == 16);

// The first site of the island that loaded the row | when it began to, in microseconds of the machine's
// monotonic clock, 48 bits. So an island's later loads have greater lives.
constexpr uint64_t MakeLife(uint32_t site, int64_t now_ns) {
  return uint64_t{site} << 48 | (static_cast<uint64_t>(now_ns / 1000) & 0xffffffffffff);
}
constexpr uint32_t SiteOfLife(uint64_t life) { return static_cast<uint32_t>(life >> 48); }

inline constexpr size_t kAppendLeastRowBytes = 3 * sizeof(uint64_t) + sizeof(Element);

struct AppendRow {
  uint64_t count = 0;
  uint64_t life = 0;
  Element last;  // none: nobody has appended yet
};

inline uint64_t KeptElements(size_t row_bytes) {
  return (row_bytes - 3 * sizeof(uint64_t)) / sizeof(Element);
}

inline void FillAppendRow(uint64_t life, std::span<std::byte> row) {
  std::memset(row.data(), 0, row.size());
  std::memcpy(row.data() + sizeof(uint64_t), &life, sizeof(life));
}

// Nothing: parts of the row are of different age, or it was never one of ours.
inline std::optional<AppendRow> ReadAppendRow(instance::RowView row) {
  if (row.size() < kAppendLeastRowBytes) return {};
  AppendRow found;
  uint64_t again = 0;
  std::memcpy(&found.count, row.data(), sizeof(found.count));
  std::memcpy(&found.life, row.data() + sizeof(uint64_t), sizeof(found.life));
  std::memcpy(&again, row.data() + row.size() - sizeof(again), sizeof(again));
  if (found.count != again) return {};
  const uint64_t kept = KeptElements(row.size());
  for (uint64_t slot = 0; slot < kept; ++slot) {
    Element element;
    std::memcpy(&element, row.data() + 2 * sizeof(uint64_t) + slot * sizeof(element), sizeof(element));
    if (element.none() != (slot >= found.count)) return {};
    if (found.count != 0 && slot == (found.count - 1) % kept) found.last = element;
  }
  return found;
}

inline void AppendToRow(const Element& element, std::span<std::byte> row) {
  uint64_t count = 0;
  std::memcpy(&count, row.data(), sizeof(count));
  const uint64_t slot = count % KeptElements(row.size());
  std::memcpy(row.data() + 2 * sizeof(uint64_t) + slot * sizeof(element), &element, sizeof(element));
  ++count;
  std::memcpy(row.data(), &count, sizeof(count));
  std::memcpy(row.data() + row.size() - sizeof(count), &count, sizeof(count));
}

}  // namespace islands::experiments
