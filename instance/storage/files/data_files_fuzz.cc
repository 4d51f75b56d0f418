// Whatever lies where pages and their copies should be: only whole pages are taken, and put where they
// belong.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/double_write.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"

namespace {

using namespace islands;  // a fuzz target looks at several rooms
using storage::DiskPage;

// A batch of up to four pages, each made of what the input says, with checksums that are right or not.
std::vector<DiskPage> MakeBatch(std::span<const uint8_t> input) {
  std::vector<DiskPage> file(1 + input[0] % 5);
  const bool stamp = input[1] % 4 != 0, header = input[2] % 4 != 0;
  const std::span<std::byte> pages = storage::AsBytes(std::span(file).subspan(1));
  const std::span<const std::byte> rest = std::as_bytes(input.subspan(3));
  for (size_t at = 0; at < pages.size() && !rest.empty(); at += 1024)
    std::copy_n(rest.begin(), std::min<size_t>(rest.size(), 1024), pages.begin() + at);
  for (size_t i = 1; i < file.size(); ++i) {
    const uint64_t id = storage::PageId(4, input[i % input.size()] % 8).value();
    if (input[1] % 2 == 0) std::memcpy(file[i].bytes.data(), &id, sizeof(id));
    if (stamp) storage::StampChecksum(file[i].bytes);
  }
  if (header) storage::EncodeBatchHeader(1, std::span(file).subspan(1), &file[0]);
  if (!header) std::copy_n(rest.begin(), std::min<size_t>(rest.size(), 4096), file[0].bytes.begin());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  std::vector<DiskPage> file = MakeBatch({data, std::min<size_t>(size, 8192)});
  const auto batch = storage::DecodeBatch(storage::AsBytes(std::span(file)));
  for (const storage::ConstPageBytes page : batch)
    ISLANDS_CHECK(storage::IsWhole(page, storage::PageId::FromValue(storage::HeaderOf(page).page_id)));
  ISLANDS_CHECK(batch.size() < file.size());
  // On a disk; of what says that it belongs far away only what fits is tried.
  for (const storage::ConstPageBytes page : batch) {
    if (storage::PageId::FromValue(storage::HeaderOf(page).page_id).number() > 100) return 0;
  }
  runtime::MemoryFileSystem files;
  const auto home = storage::DataFiles::Create(files, {.directory = "/data", .sites = {4}});
  ISLANDS_CHECK(home.ok());
  storage::BlockingQueue queue(files);
  const runtime::IoRequest write{.kind = runtime::IoKind::kWrite,
                                 .file = home->double_write(),
                                 .buffer = storage::AsBytes(std::span(file))};
  ISLANDS_CHECK(queue.Do(write).ok() && storage::RestoreFromDoubleWrite(files, *home).ok());
  return 0;
}
