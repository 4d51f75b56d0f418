// What a freshly loaded row of table `micro` holds, for the workload and for those who measure other engines
// on the same rows (experiments/peers/).
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace islands::experiments {

// A counter of 0, then filler that differs from row to row, so that a row that came from the wrong place
// shows in a dump.
inline void FillMicroRow(uint64_t key, std::span<std::byte> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = i < sizeof(int64_t) ? std::byte{0} : static_cast<std::byte>('a' + (key + i) % 26);
  }
}

}  // namespace islands::experiments
