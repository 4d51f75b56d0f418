// Binding to cores and memory, and reading back what the kernel made of it.
//
// Thread safety: all functions may be called from any thread; Bind* act on the calling thread or the given
// memory. Where a container forbids a call the Status says so (PERMISSION_DENIED or UNIMPLEMENTED) and
// nothing changed: the caller warns once and runs unbound.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::topology {

enum class MemoryPolicy { kDefault, kPreferred, kBind };

// Pins the calling thread to one PU (OS index).
absl::Status BindThreadToCpu(uint32_t cpu);
// Lets the calling thread, and threads it starts later, run on any of these PUs: worker order `os`.
absl::Status BindThreadToCpus(std::span<const uint32_t> cpus);

// All future pages of [address, address + bytes) come from `nodes` (OS indexes). One node: preferred or
// bound; several: interleaved; with kBind: only from them, nearest first, as Linux cannot do both. Pages
// already touched are not moved. `address` lies at a page border.
absl::Status BindMemory(void* address, size_t bytes, std::span<const uint32_t> nodes, MemoryPolicy policy);

// Default policy of the calling thread's later allocations (heap, stacks), inherited by threads it starts.
absl::Status SetThreadMemoryPolicy(std::span<const uint32_t> nodes, MemoryPolicy policy);

// From /proc/PID/task/TID/status: Cpus_allowed_list.
absl::StatusOr<std::string> ReadCpusAllowed(pid_t pid, pid_t tid);

struct MemoryReadback {
  std::string policy;  // first matching line's policy, as numa_maps prints it: "prefer:1"
  std::map<uint32_t, uint64_t> pages_per_node;  // 4 KiB pages (huge pages counted as so many small ones)
};
// From /proc/PID/numa_maps: the mappings that overlap [address, address + bytes). Without numa_maps in the
// kernel: UNIMPLEMENTED.
absl::StatusOr<MemoryReadback> ReadMemoryPlacement(pid_t pid, uint64_t address, uint64_t bytes);
// The same from given text: what a test can hand in. numa_maps names only where a mapping starts; it is taken
// to reach to the next one's start.
absl::StatusOr<MemoryReadback> ParseNumaMaps(std::string_view text, uint64_t address, uint64_t bytes);

}  // namespace islands::topology
