// Huge pages for all engines: address translation costs more than many a cache miss, in a virtual machine
// above all, and islands and the bare loops ask for them.
//
//   islands, bare loops   madvise(MADV_HUGEPAGE) on what they map themselves
//   RocksDB, Berkeley DB  take memory from the C library, which asks for them when it is told to
//   LMDB                  maps a file, at the border of a huge page; the kernel makes huge pages of small
//                         ones, where it can
//
// What of it was granted is counted, not believed.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace islands::experiments {

// Starts the program anew if its C library does not ask for huge pages yet (glibc from 2.35 reads
// GLIBC_TUNABLES when a process starts, and only then). To be called before anything is begun; returns when
// there is nothing to do, or nothing that can be done.
void AskForHugePages(char** argv);

inline constexpr uint64_t kHugePageBytes = 2 << 20;

// Leaves a gap of `bytes`, a multiple of kHugePageBytes, in the address space that begins at the border of a
// huge page. The kernel puts the next mapping of that size there.
void MakeGapForMapping(uint64_t bytes);

// Makes huge pages of the first `bytes` of the mapping of a file, where the kernel can (tmpfs, from Linux
// 6.1), whatever /sys/kernel/mm/transparent_hugepage says.
void CollapseMapping(const std::string& file, uint64_t bytes);

// Memory of a process, and how much of it is in huge pages. Zeros where the kernel does not tell.
struct MemoryUse {
  uint64_t bytes = 0;
  uint64_t huge_bytes = 0;
};
MemoryUse MemoryOfProcess();  // of this one
// Of several that share memory, which counts once.
MemoryUse MemoryOfProcesses(std::span<const int> processes);

}  // namespace islands::experiments
