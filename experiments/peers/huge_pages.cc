#include "experiments/peers/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

namespace islands::experiments {
namespace {

constexpr const char* kTunables = "GLIBC_TUNABLES";
constexpr std::string_view kHuge = "glibc.malloc.hugetlb=";
// Also for what the library would map piece by piece, in pieces too small for a huge page.
constexpr std::string_view kAsk = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432";
constexpr int kMadvCollapse = 25;  // MADV_COLLAPSE: newer than the C library's headers of Debian 12

}  // namespace

void AskForHugePages(char** argv) {
  const char* set = std::getenv(kTunables);
  std::string tunables = set == nullptr ? "" : set;
  if (tunables.find(kHuge) != std::string::npos) return;  // by us, or by somebody who wants it otherwise
  if (!tunables.empty()) tunables += ':';
  tunables += kAsk;
  setenv(kTunables, tunables.c_str(), 1);
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!error) execv(self.c_str(), argv);
}

void MakeGapForMapping(uint64_t bytes) {
  const size_t more = bytes + kHugePageBytes;
  void* const found = mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return;
  const auto begin = reinterpret_cast<uintptr_t>(found);
  const uintptr_t border = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // What is left on both sides stays mapped, so that nothing larger fits: address space only.
  munmap(reinterpret_cast<void*>(border), bytes);
}

void CollapseMapping(const std::string& file, uint64_t bytes) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(file, error).string();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; !error && std::getline(maps, line);) {
    if (line.size() <= path.size() || line.substr(line.size() - path.size() - 1) != " " + path) continue;
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    const uint64_t length = std::min<uint64_t>(bytes, end - begin);
    (void)madvise(reinterpret_cast<void*>(begin), length, kMadvCollapse);
    return;
  }
}

MemoryUse MemoryOfProcess() {
  MemoryUse use;
  std::ifstream file("/proc/self/smaps_rollup");
  std::string name;
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');  // the range of addresses
  uint64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "Rss:") use.bytes = kib << 10;
    if (name == "AnonHugePages:" || name == "ShmemPmdMapped:") use.huge_bytes += kib << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return use;
}

}  // namespace islands::experiments
