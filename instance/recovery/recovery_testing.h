// What tests of recovery share: rows as text, and what transactions make of them.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/storage/store.h"

namespace islands::recovery {

inline storage::RowView Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Rows = std::map<uint64_t, std::string>;
// A transaction's changes; no text: the row is gone.
using Changes = std::map<uint64_t, std::optional<std::string>>;

inline void Apply(const Changes& changes, Rows* rows) {
  for (const auto& [key, row] : changes) {
    rows->erase(key);
    if (row) (*rows)[key] = *row;
  }
}

// Of table 0, by keys of type uint64.
inline Rows RowsOf(const storage::Store& store, uint32_t site = 0) {
  Rows rows;
  store.At(0, site)->Scan({}, {}, false, [&](storage::KeyView key, storage::RowView row) {
    uint64_t number = 0;
    for (const std::byte byte : key) number = number << 8 | static_cast<uint64_t>(byte);
    rows[number] = Text(row);
    return true;
  });
  return rows;
}

// What the ring holds between the two offsets.
inline absl::Status VisitRecords(const log::Ring& ring, uint64_t from, uint64_t tail,
                                 absl::FunctionRef<absl::Status(const log::Record&)> visit) {
  for (size_t taken = 0; from < tail; from += taken) {
    const auto record = log::ParseRecord(ring.stream(), from, ring.Bytes(from, tail), &taken);
    if (!record.ok()) return record.status();
    if (absl::Status visited = visit(*record); !visited.ok()) return visited;
  }
  return absl::OkStatus();
}

}  // namespace islands::recovery
