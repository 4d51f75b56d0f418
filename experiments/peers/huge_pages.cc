#include "experiments/peers/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
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

// What the kernel tells of a process's mappings together, by the words it uses.
std::map<std::string, uint64_t> SmapsOf(const std::string& process) {
  std::ifstream file("/proc/" + process + "/smaps_rollup");
  std::map<std::string, uint64_t> found;
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');  // the range of addresses
  std::string name;
  for (uint64_t kib = 0; file >> name >> kib; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    found[name] = kib;
  return found;
}

uint64_t KibOf(const std::map<std::string, uint64_t>& found, const char* name) {
  const auto at = found.find(name);
  return at == found.end() ? 0 : at->second;
}

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
  const auto kib = SmapsOf("self");
  return {KibOf(kib, "Rss:") << 10, (KibOf(kib, "AnonHugePages:") + KibOf(kib, "ShmemPmdMapped:")) << 10};
}

MemoryUse MemoryOfProcesses(std::span<const int> processes) {
  MemoryUse all;
  uint64_t shared_huge_kib = 0;  // what the first has, all have
  for (const int process : processes) {
    const auto kib = SmapsOf(std::to_string(process));
    const uint64_t reserved_kib = KibOf(kib, "Shared_Hugetlb:") + KibOf(kib, "Private_Hugetlb:");
    all.bytes += KibOf(kib, "Pss:") << 10;
    all.huge_bytes += KibOf(kib, "AnonHugePages:") << 10;
    shared_huge_kib = std::max(shared_huge_kib, KibOf(kib, "ShmemPmdMapped:") + reserved_kib);
    if (process == processes.front()) all.bytes += reserved_kib << 10;  // is in no Pss
  }
  all.huge_bytes += shared_huge_kib << 10;
  return all;
}

}  // namespace islands::experiments
