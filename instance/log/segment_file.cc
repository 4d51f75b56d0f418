#include "instance/log/segment_file.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "runtime/clock.h"

namespace islands::log {
namespace {

constexpr char kPrefix[] = "segment-";
constexpr size_t kPrefixBytes = sizeof(kPrefix) - 1;

}  // namespace

std::string SegmentName(uint64_t number) { return fmt::format("{}{:010}", kPrefix, number); }

uint64_t SegmentNumber(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  uint64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefixBytes, end, number);
  return error == std::errc() && at == end && name == SegmentName(number) ? number : 0;
}

absl::StatusOr<SegmentHeader> ReadSegmentHeader(runtime::FileSystem& files, runtime::FileSystem::Queue& queue,
                                                const std::string& path, uint64_t* bytes) {
  const absl::StatusOr<runtime::FileHandle> file = files.Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  std::array<std::byte, kSegmentHeaderBytes> head;
  queue.Submit({.kind = runtime::IoKind::kRead, .file = *file, .buffer = head});
  const absl::StatusOr<uint64_t> size = files.Size(*file);
  std::vector<runtime::IoCompletion> done;
  while (queue.Poll(&done) == 0) queue.Wait(runtime::kNsPerSecond);
  files.Close(*file).IgnoreError();
  if (!size.ok()) return size.status();
  *bytes = *size;
  if (!done.front().status.ok()) return done.front().status;
  return DecodeSegmentHeader(std::span(head).first(done.front().bytes));
}

}  // namespace islands::log
