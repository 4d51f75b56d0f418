// Where a Machine comes from: this machine, hwloc XML, a synthetic string.
//
// hwloc 2.9 asserts, reads out of bounds or runs away on some malformed XML and synthetic strings (a mutated
// shelf file kills it about once in ten times). So a description is first loaded, checked and converted in a
// forked child with limits on memory and time; only what passed there is loaded here. Same bytes, same code:
// what the child survived, we survive.
#include <fcntl.h>
#include <hwloc.h>
#include <hwloc/export.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "fmt/format.h"
#include "topology/machine.h"
#include "topology/machine_hwloc.h"
#include "topology/memory_sizes.h"

namespace islands::topology {
namespace {

constexpr unsigned kChildSeconds = 10;
constexpr uint64_t kChildBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxSyntheticPus = 16384;
constexpr int64_t kMaxFileBytes = 64 << 20;

struct TopologyFree {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyFree>;
using SetSource = std::function<int(hwloc_topology_t)>;  // hwloc_topology_set_...; 0 on success

absl::StatusOr<Topology> LoadTopology(const SetSource& set_source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return absl::InternalError("hwloc_topology_init failed");
  Topology topology(raw);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (set_source(raw) != 0 || hwloc_topology_load(raw) != 0) {
    return absl::InvalidArgumentError(fmt::format("hwloc cannot read it ({})", std::strerror(errno)));
  }
  return topology;
}

// Bounds what a hostile description can take from the machine, and makes every way to die quiet and final.
void RestrainChild() {
  for (int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGTERM, SIGINT})
    std::signal(number, SIG_DFL);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Relative to what is mapped already, which under sanitizers is terabytes.
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit address_space{};
  if (pages > 0 && getrlimit(RLIMIT_AS, &address_space) == 0) {
    uint64_t limit = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + kChildBytes;
    address_space.rlim_cur = std::min<uint64_t>(limit, address_space.rlim_max);
    setrlimit(RLIMIT_AS, &address_space);
  }
  int null = open("/dev/null", O_RDWR);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  alarm(kChildSeconds);
}

// The child's whole life: "k" into the pipe, or "e" and why not. Dying without a word is an answer, too.
[[noreturn]] void TryAndExit(const SetSource& set_source, int answer_fd) {
  RestrainChild();
  absl::StatusOr<Topology> topology = LoadTopology(set_source);
  absl::Status status = topology.status();
  if (status.ok()) {
    hwloc_topology_check(topology->get());  // asserts on a tree that contradicts itself
    status = BuildMachine(topology->get(), "").status();
  }
  std::string answer = status.ok() ? "k" : "e" + std::string(status.message());
  ssize_t written = write(answer_fd, answer.data(), std::min<size_t>(answer.size(), PIPE_BUF));
  _exit(written > 0 ? 0 : 1);
}

// Everything the child says until it closes its end.
std::string ReadAnswer(int fd) {
  std::string answer;
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2 * kChildSeconds);
  char buffer[4096];
  while (true) {
    auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) return answer;
    pollfd waiting{fd, POLLIN, 0};
    int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return answer;
    if (ready <= 0) continue;
    ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0 || (got < 0 && errno != EINTR)) return answer;
    if (got > 0) answer.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status TryInChild(const SetSource& set_source) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  pid_t child = fork();
  if (child == 0) TryAndExit(set_source, fds[1]);
  int fork_error = errno;
  close(fds[1]);
  if (child < 0) {
    close(fds[0]);
    return absl::ErrnoToStatus(fork_error, "fork");
  }
  std::string answer = ReadAnswer(fds[0]);
  close(fds[0]);
  kill(child, SIGKILL);  // no-op after a normal end: nobody has waited for it yet
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answer == "k") return absl::OkStatus();
  if (answer.starts_with("e")) return absl::InvalidArgumentError(answer.substr(1));
  return absl::InvalidArgumentError("it contradicts itself, or is too large for hwloc");
}

absl::StatusOr<Machine> LoadDescribed(const std::string& source, std::string_view expected,
                                      const SetSource& set) {
  absl::Status status = TryInChild(set);
  if (!status.ok()) {
    return absl::Status(status.code(), fmt::format("machine '{}': {}; expected {}", source,
                                                   std::string(status.message()), expected));
  }
  absl::StatusOr<Topology> topology = LoadTopology(set);
  if (!topology.ok()) return topology.status();
  absl::StatusOr<Machine> machine = BuildMachine(topology->get(), source);
  if (machine.ok()) machine->is_this_machine = false;
  return machine;
}

// The product of the counts in "pack:4 [numa] core:6 pu:1(indexes=...)": hwloc would build millions of PUs
// for minutes.
uint64_t SyntheticPus(std::string_view description) {
  constexpr uint64_t kEnough = uint64_t{1} << 32;
  uint64_t product = 1;
  int depth = 0;  // inside brackets (memory) and parentheses (attributes) nothing multiplies
  for (size_t i = 0; i < description.size(); ++i) {
    char c = description[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    bool starts_number =
        c >= '0' && c <= '9' && (i == 0 || description[i - 1] == ':' || description[i - 1] == ' ');
    if (depth != 0 || !starts_number) continue;
    uint64_t count = std::strtoull(std::string(description.substr(i, 24)).c_str(), nullptr, 0);
    product = std::min(product * std::clamp<uint64_t>(count, 1, kEnough), kEnough - 1);
  }
  return product;
}

std::string TextOf(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Nodes that this process may not use count, too: what they have is none of the rest. Returns a word on it
// for people; empty if nothing is changed.
std::string TakeKernelMemory(hwloc_topology_t topology) {
  std::vector<NodeBytes> nodes;
  uint64_t said = 0;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back({.os_index = node->os_index, .bytes = node->attr->numanode.local_memory});
    said += nodes.back().bytes;
  }
  const std::vector<NodeBytes> more =
      NodesWithKernelMemory(nodes, TextOf("/proc/meminfo"), TextOf("/proc/zoneinfo"));
  uint64_t total = 0;
  for (const NodeBytes& node : more) {
    hwloc_get_numanode_obj_by_os_index(topology, node.os_index)->attr->numanode.local_memory = node.bytes;
    total += node.bytes;
  }
  if (more.empty()) return "";
  return fmt::format("memory is the kernel's: it has {}, of which the NUMA nodes' sizes say {}",
                     FormatBytes(total), FormatBytes(said));
}

struct LoadedHere {
  Topology topology;
  std::string memory_note;
};

absl::StatusOr<LoadedHere> LoadTopologyHere() {
  absl::StatusOr<Topology> topology = LoadTopology([](hwloc_topology_t) { return 0; });
  if (!topology.ok()) return topology.status();
  LoadedHere here{.topology = *std::move(topology)};
  // $HWLOC_XMLFILE and the like can put another machine here, of which this kernel knows nothing.
  if (hwloc_topology_is_thissystem(here.topology.get()) != 0)
    here.memory_note = TakeKernelMemory(here.topology.get());
  return here;
}

}  // namespace

absl::StatusOr<std::string> ReadMachineFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("machine file '{}'", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("machine file '{}': not a regular file", path));
  }
  if (info.st_size > kMaxFileBytes) {
    return absl::InvalidArgumentError(fmt::format("machine file '{}': {} is too large, one is at most {}",
                                                  path, FormatBytes(info.st_size),
                                                  FormatBytes(kMaxFileBytes)));
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::PermissionDeniedError(fmt::format("machine file '{}': cannot be read", path));
  return text.str();
}

bool NamesMachineFile(const std::string& spec) {
  if (spec.empty() || spec == "auto") return false;
  struct stat info {};
  return spec.find('/') != std::string::npos || spec.ends_with(".xml") || spec.ends_with(".json") ||
         stat(spec.c_str(), &info) == 0;
}

absl::StatusOr<Machine> LoadMachine(std::string_view spec) {
  if (spec.empty() || spec == "auto") return LoadThisMachine();
  const std::string text(spec);
  return NamesMachineFile(text) ? LoadMachineXml(text) : LoadMachineSynthetic(text);
}

absl::StatusOr<Machine> LoadThisMachine() {
  absl::StatusOr<LoadedHere> here = LoadTopologyHere();
  if (!here.ok()) return here.status();
  absl::StatusOr<Machine> machine = BuildMachine(here->topology.get(), "this machine");
  if (machine.ok()) machine->memory_note = here->memory_note;
  return machine;
}

absl::StatusOr<Machine> LoadMachineXml(const std::string& path) {
  absl::StatusOr<std::string> xml = ReadMachineFile(path);
  if (!xml.ok()) return xml.status();
  return LoadMachineXmlText(*xml, path);
}

absl::StatusOr<Machine> LoadMachineXmlText(const std::string& xml, const std::string& source) {
  return LoadDescribed(
      source, "an hwloc XML file as `lstopo FILE.xml` writes it", [&xml](hwloc_topology_t topology) {
        // hwloc counts the closing NUL in; one in the middle would end the text early.
        if (xml.empty() || xml.find('\0') != std::string::npos) return errno = EINVAL, -1;
        return hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size() + 1));
      });
}

absl::StatusOr<Machine> LoadMachineSynthetic(const std::string& description) {
  if (SyntheticPus(description) > kMaxSyntheticPus) {
    return absl::InvalidArgumentError(
        fmt::format("machine '{}': more than {} PUs; expected 'auto', an hwloc XML file or a "
                    "synthetic string such as 'pack:4 [numa] core:6 pu:1'",
                    description, kMaxSyntheticPus));
  }
  return LoadDescribed(description,
                       "'auto', an hwloc XML file or a synthetic string such as 'pack:4 [numa] core:6 pu:1'",
                       [&description](hwloc_topology_t topology) {
                         if (description.find('\0') != std::string::npos) return errno = EINVAL, -1;
                         return hwloc_topology_set_synthetic(topology, description.c_str());
                       });
}

absl::StatusOr<std::string> ExportThisMachineXml() {
  absl::StatusOr<LoadedHere> here = LoadTopologyHere();
  if (!here.ok()) return here.status();
  char* buffer = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(here->topology.get(), &buffer, &length, 0) != 0) {
    return absl::ErrnoToStatus(errno, "hwloc cannot export this machine as XML");
  }
  std::string xml(buffer);
  hwloc_free_xmlbuffer(here->topology.get(), buffer);
  return xml;
}

}  // namespace islands::topology
