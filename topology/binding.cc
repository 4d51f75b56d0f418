#include "topology/binding.h"

#include <numaif.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fmt/format.h"
#include "topology/machine.h"

namespace islands::topology {
namespace {

constexpr uint32_t kMaxCpu = 65535;
constexpr uint32_t kMaxNode = 1023;  // MAX_NUMNODES of the kernel
constexpr size_t kBitsPerWord = 8 * sizeof(unsigned long);

absl::Status ErrnoStatus(int error, std::string what) {
  if (error == EINVAL) what += " (does not exist, is offline or outside the cgroup)";
  return absl::ErrnoToStatus(error, what);
}

struct NodeMask {
  unsigned long words[(kMaxNode + 1) / kBitsPerWord] = {};
  // The kernel looks at one bit less than it is told.
  static constexpr unsigned long kMaxNodeArgument = kMaxNode + 2;
};

absl::StatusOr<NodeMask> MaskOf(std::span<const uint32_t> nodes) {
  if (nodes.empty()) return absl::InvalidArgumentError("memory policy: no NUMA nodes given");
  NodeMask mask;
  for (uint32_t node : nodes) {
    if (node > kMaxNode)
      return absl::InvalidArgumentError(fmt::format("memory policy: no NUMA node {}", node));
    mask.words[node / kBitsPerWord] |= 1UL << (node % kBitsPerWord);
  }
  return mask;
}

// Linux has no mode that both interleaves and refuses other nodes; of several bound nodes the nearest is
// filled first.
int ModeOf(size_t nodes, MemoryPolicy policy) {
  if (policy == MemoryPolicy::kBind) return MPOL_BIND;
  return nodes == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
}

std::string NameNodes(std::span<const uint32_t> nodes) {
  return FormatCpuList(std::vector<uint32_t>(nodes.begin(), nodes.end()));
}

}  // namespace

absl::Status BindThreadToCpu(uint32_t cpu) { return BindThreadToCpus({&cpu, 1}); }

absl::Status BindThreadToCpus(std::span<const uint32_t> cpus) {
  if (cpus.empty()) return absl::InvalidArgumentError("bind thread: no CPUs given");
  uint32_t highest = *std::max_element(cpus.begin(), cpus.end());
  if (highest > kMaxCpu) return absl::InvalidArgumentError(fmt::format("bind thread: no CPU {}", highest));
  std::vector<unsigned long> words(highest / kBitsPerWord + 1, 0);
  for (uint32_t cpu : cpus) words[cpu / kBitsPerWord] |= 1UL << (cpu % kBitsPerWord);
  const auto* set = reinterpret_cast<const cpu_set_t*>(words.data());
  if (sched_setaffinity(0, words.size() * sizeof(unsigned long), set) == 0) return absl::OkStatus();
  int error = errno;
  return ErrnoStatus(error, fmt::format("bind thread to CPU {}", NameNodes(cpus)));
}

absl::Status BindMemory(void* address, size_t bytes, std::span<const uint32_t> nodes, MemoryPolicy policy) {
  if (bytes == 0) return absl::OkStatus();
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) != 0) {
    return absl::InvalidArgumentError("bind memory: the address is not at a page border");
  }
  long failed = 0;
  if (policy == MemoryPolicy::kDefault) {
    failed = mbind(address, bytes, MPOL_DEFAULT, nullptr, 0, 0);
  } else {
    absl::StatusOr<NodeMask> mask = MaskOf(nodes);
    if (!mask.ok()) return mask.status();
    failed = mbind(address, bytes, ModeOf(nodes.size(), policy), mask->words, NodeMask::kMaxNodeArgument, 0);
  }
  if (failed == 0) return absl::OkStatus();
  int error = errno;
  return ErrnoStatus(error,
                     fmt::format("bind {} of memory to NUMA node {}", FormatBytes(bytes), NameNodes(nodes)));
}

absl::Status SetThreadMemoryPolicy(std::span<const uint32_t> nodes, MemoryPolicy policy) {
  long failed = 0;
  if (policy == MemoryPolicy::kDefault) {
    failed = set_mempolicy(MPOL_DEFAULT, nullptr, 0);
  } else {
    absl::StatusOr<NodeMask> mask = MaskOf(nodes);
    if (!mask.ok()) return mask.status();
    failed = set_mempolicy(ModeOf(nodes.size(), policy), mask->words, NodeMask::kMaxNodeArgument);
  }
  if (failed == 0) return absl::OkStatus();
  int error = errno;
  return ErrnoStatus(error, fmt::format("memory policy of the thread: NUMA node {}", NameNodes(nodes)));
}

}  // namespace islands::topology
