// A participant of a transaction, in the life that it takes part in.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>

namespace islands::coordinator {

struct Fellow {
  uint32_t island = 0;
  uint64_t boot_epoch = 0;
  friend bool operator==(const Fellow&, const Fellow&) = default;
};

}  // namespace islands::coordinator
