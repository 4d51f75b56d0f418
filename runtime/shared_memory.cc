#include "runtime/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "runtime/descriptor.h"

namespace islands::runtime {
namespace {

absl::Status Failed(const char* action, const std::string& what) {
  return absl::ErrnoToStatus(errno, fmt::format("cannot {} {}", action, what));
}

}  // namespace

std::vector<size_t> FirstOfIslands(std::span<const uint32_t> workers_per_island) {
  std::vector<size_t> first{0};
  for (const uint32_t workers : workers_per_island) first.push_back(first.back() + workers);
  return first;
}

absl::StatusOr<int> MakeSharedMemory(size_t bytes, const std::string& what) {
  UniqueFd file(memfd_create("islands", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Failed("make", what);
  if (Uninterrupted([&] { return ftruncate(file.get(), static_cast<off_t>(bytes)); }) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("size", what);
  }
  return file.Release();
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

absl::StatusOr<Mapping> Mapping::OfSharedMemory(int descriptor, size_t bytes, const std::string& what) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return Failed("look at", what);
  if (static_cast<size_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(fmt::format("{} has {} bytes, not {}", what, info.st_size, bytes));
  }
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return Failed("map", what);
  return Mapping(address, bytes);
}

}  // namespace islands::runtime
