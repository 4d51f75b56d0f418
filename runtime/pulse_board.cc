#include "runtime/pulse_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace islands::runtime {
namespace {

std::vector<size_t> FirstLines(std::span<const uint32_t> workers_per_island) {
  std::vector<size_t> first{0};
  for (const uint32_t workers : workers_per_island) first.push_back(first.back() + workers);
  return first;
}

absl::Status Failed(const char* what) {
  return absl::InternalError(
      fmt::format("cannot {} the memory in which islands show that they move: {}", what, strerror(errno)));
}

}  // namespace

PulseBoard::PulseBoard(std::span<const uint32_t> workers_per_island)
    : PulseBoard(FirstLines(workers_per_island)) {
  own_ = std::make_unique<Line[]>(first_.back());
  lines_ = own_.get();
}

PulseBoard::~PulseBoard() {
  if (lines_ != nullptr && own_ == nullptr) munmap(lines_, first_.back() * sizeof(Line));
}

absl::StatusOr<int> PulseBoard::MakeShared(std::span<const uint32_t> workers_per_island) {
  const int descriptor = memfd_create("islands-pulse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return Failed("make");
  const auto bytes = static_cast<off_t>(FirstLines(workers_per_island).back() * sizeof(Line));
  if (ftruncate(descriptor, bytes) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return descriptor;
  }
  const absl::Status failed = Failed("size");
  close(descriptor);
  return failed;
}

absl::StatusOr<std::unique_ptr<PulseBoard>> PulseBoard::Map(int descriptor,
                                                            std::span<const uint32_t> workers_per_island) {
  std::unique_ptr<PulseBoard> board(new PulseBoard(FirstLines(workers_per_island)));
  const size_t bytes = board->first_.back() * sizeof(Line);
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return Failed("look at");
  if (static_cast<size_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(fmt::format(
        "the memory in which islands show that they move has {} bytes, not {}", info.st_size, bytes));
  }
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return Failed("map");
  board->lines_ = static_cast<Line*>(address);
  return board;
}

}  // namespace islands::runtime
