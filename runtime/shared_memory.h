// Memory without a name that processes share: made by one, inherited by its children as a descriptor. It is
// gone with the last of them.
//
// Thread safety: plain values; what is in the memory is the business of those who share it.
//
// Invariants: 1. nobody can make the memory smaller while it is in use; 2. it begins as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::runtime {

// Where each island's workers begin in an array of all workers of a deployment, and, last, how many there
// are.
std::vector<size_t> FirstOfIslands(std::span<const uint32_t> workers_per_island);

// `what` names the memory in errors.
absl::StatusOr<int> MakeSharedMemory(size_t bytes, const std::string& what);

// A mapping of a file, shared; unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t bytes) : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  // Of what MakeSharedMemory made; the descriptor may be closed afterwards. INVALID_ARGUMENT: it has another
  // size.
  static absl::StatusOr<Mapping> OfSharedMemory(int descriptor, size_t bytes, const std::string& what);

  void* address() const { return address_; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace islands::runtime
