#include "instance/storage/files/page_reader.h"

#include <algorithm>
#include <vector>

#include "instance/storage/files/blocking_queue.h"

namespace islands::storage {

absl::Status ReadPages(runtime::FileSystem& files, runtime::FileHandle file, uint64_t pages,
                       absl::FunctionRef<void(uint64_t number, ConstPageBytes page)> visit) {
  std::vector<DiskPage> room(std::min<uint64_t>(pages, kPagesPerRead * kReadsInFlight));
  std::vector<uint64_t> first(kReadsInFlight);  // page of each request
  uint64_t next = 0;
  BlockingQueue queue(files);
  const auto buffer = [&](uint64_t request) {
    const size_t count = std::min<uint64_t>(kPagesPerRead, pages - first[request]);
    return std::span(room).subspan(request * kPagesPerRead, count);
  };
  const auto read_next = [&](uint64_t request) {
    if (next >= pages) return;
    first[request] = next;
    next += buffer(request).size();
    queue.Submit({.kind = runtime::IoKind::kRead,
                  .file = file,
                  .offset = first[request] * kPageBytes,
                  .buffer = AsBytes(buffer(request)),
                  .token = request});
  };
  for (uint64_t request = 0; request < kReadsInFlight; ++request) read_next(request);
  absl::Status failed;
  while (queue.under_way() != 0) {
    for (const runtime::IoCompletion& completion : queue.Wait()) {
      failed.Update(completion.status);
      if (!failed.ok()) continue;
      const std::span<DiskPage> got = buffer(completion.token);
      const std::span<std::byte> behind = AsBytes(got).subspan(completion.bytes);
      std::fill(behind.begin(), behind.end(), std::byte{0});
      for (size_t i = 0; i < got.size(); ++i) visit(first[completion.token] + i, got[i].bytes);
      read_next(completion.token);
    }
  }
  return failed;
}

}  // namespace islands::storage
