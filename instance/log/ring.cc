#include "instance/log/ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/descriptor.h"
#include "runtime/private_files.h"

namespace islands::log {
namespace {

constexpr char kMagic[] = "ISLRING2";
constexpr char kMemory[] = "the memory of a log ring";

bool IsCapacity(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= Ring::kLeastCapacity && bytes <= Ring::kMostCapacity;
}

absl::Status Failed(const char* action, const std::string& path) {
  return absl::ErrnoToStatus(errno, fmt::format("cannot {} {}", action, path));
}

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(fmt::format("{} is not a log ring as an island leaves it: {}", path, what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ring>> Ring::MapFile(int file, size_t capacity, const std::string& path) {
  static_assert(sizeof(Header) <= kHeaderBytes && offsetof(Header, epoch_block) == 32 &&
                offsetof(Header, tail) == 64 && offsetof(Header, head) == 128);
  // First the addresses, then the file over them, its data twice.
  const size_t bytes = kHeaderBytes + 2 * capacity;
  void* const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return Failed("map", path);
  std::unique_ptr<Ring> ring(new Ring());
  ring->mapping_ = runtime::Mapping(room, bytes);
  auto* const begin = static_cast<std::byte*>(room);
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if (mmap(begin, kHeaderBytes + capacity, kAccess, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED ||
      mmap(begin + kHeaderBytes + capacity, capacity, kAccess, MAP_SHARED | MAP_FIXED, file, kHeaderBytes) ==
          MAP_FAILED) {
    return Failed("map", path);
  }
  ring->header_ = reinterpret_cast<Header*>(begin);
  ring->data_ = begin + kHeaderBytes;
  ring->capacity_ = capacity;
  return ring;
}

absl::StatusOr<std::unique_ptr<Ring>> Ring::Begin(int file, const StreamId& stream, size_t capacity,
                                                  const std::string& path) {
  absl::StatusOr<std::unique_ptr<Ring>> ring = MapFile(file, capacity, path);
  if (!ring.ok()) return ring.status();
  Header& header = *(*ring)->header_;
  header.life = stream.life;
  header.island = stream.island;
  header.worker = stream.worker;
  header.capacity = capacity;
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  (*ring)->stream_ = stream;
  return ring;
}

absl::StatusOr<std::unique_ptr<Ring>> Ring::Create(const std::string& path, const StreamId& stream,
                                                   size_t capacity) {
  ISLANDS_CHECK(IsCapacity(capacity));
  // Under another name until it is one: who is killed here leaves nothing that must be whole.
  const std::string unfinished = path + ".new";
  absl::StatusOr<runtime::UniqueFd> file = runtime::OpenPrivateFile(unfinished, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();
  if (runtime::Uninterrupted([&] { return ftruncate(file->get(), 0); }) != 0)
    return Failed("empty", unfinished);
  // Memory that is promised and not there would end the process at a store, long after.
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file->get(), 0, static_cast<off_t>(kHeaderBytes + capacity));
  if (error != 0) {
    unlink(unfinished.c_str());
    return absl::ErrnoToStatus(error, fmt::format("no room for a log ring of {} bytes at {}; choose another "
                                                  "storage.log.ring_directory or fewer ring_bytes",
                                                  capacity, path));
  }
  absl::StatusOr<std::unique_ptr<Ring>> ring = Begin(file->get(), stream, capacity, path);
  if (!ring.ok()) return ring.status();
  if (renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return ring;
  const absl::Status failed = Failed("name", path);
  unlink(unfinished.c_str());
  return failed;
}

absl::StatusOr<std::unique_ptr<Ring>> Ring::Open(const std::string& path) {
  absl::StatusOr<runtime::UniqueFd> file = runtime::OpenPrivateFile(path, O_RDWR);
  if (!file.ok()) return file.status();
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return Failed("look at", path);
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes <= kHeaderBytes || !IsCapacity(bytes - kHeaderBytes)) {
    return Damaged(path, fmt::format("it has {} bytes", bytes));
  }
  absl::StatusOr<std::unique_ptr<Ring>> ring = MapFile(file->get(), bytes - kHeaderBytes, path);
  if (!ring.ok()) return ring.status();
  const Header& header = *(*ring)->header_;
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) return Damaged(path, "no magic");
  if (header.capacity != (*ring)->capacity_) return Damaged(path, "its capacity is not its size");
  const uint64_t head = (*ring)->head(), tail = (*ring)->tail();
  if (!(*ring)->IsSound(head, tail)) {
    return Damaged(path, fmt::format("head {} and tail {} cannot be", head, tail));
  }
  (*ring)->stream_ = {header.life, header.island, header.worker};
  return ring;
}

std::unique_ptr<Ring> Ring::InMemory(const StreamId& stream, size_t capacity) {
  ISLANDS_CHECK(IsCapacity(capacity));
  const absl::StatusOr<int> memory = runtime::MakeSharedMemory(kHeaderBytes + capacity, kMemory);
  ISLANDS_CHECK(memory.ok());
  const runtime::UniqueFd file(*memory);
  absl::StatusOr<std::unique_ptr<Ring>> ring = Begin(file.get(), stream, capacity, kMemory);
  ISLANDS_CHECK(ring.ok());
  return std::move(*ring);
}

}  // namespace islands::log
