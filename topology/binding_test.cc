#include "topology/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "topology/machine.h"

namespace islands::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr std::string_view kMaps =
    "55d000000000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4\n"
    "7f0000000000 prefer:1 anon=3 dirty=3 active=0 N0=1 N1=2 kernelpagesize_kB=4\n"
    "7f0000100000 interleave:0-1 file=/a\\040b anon=4 N0=2 N1=2 kernelpagesize_kB=4\n"
    "7f0000200000 bind:0 huge anon=2 dirty=2 N0=2 kernelpagesize_kB=2048\n"
    "7f0000800000 prefer (many):0-1 anon=1 N1=1 kernelpagesize_kB=4\n"
    "7f0000900000 weighted interleave:0-1\n"
    "7ffd00000000 default stack anon=3 N0=3 kernelpagesize_kB=4\n";

TEST(ParseNumaMaps, OneMapping) {
  auto readback = ParseNumaMaps(kMaps, 0x7f0000000000, 0x100000);
  ASSERT_TRUE(readback.ok()) << readback.status();
  EXPECT_EQ(readback->policy, "prefer:1");
  EXPECT_THAT(readback->pages_per_node, ElementsAre(Pair(0, 1), Pair(1, 2)));
}

TEST(ParseNumaMaps, RegionOverSeveralMappingsSumsThem) {
  auto readback = ParseNumaMaps(kMaps, 0x7f0000000000, 0x100001);
  ASSERT_TRUE(readback.ok());
  EXPECT_EQ(readback->policy, "prefer:1");
  EXPECT_THAT(readback->pages_per_node, ElementsAre(Pair(0, 3), Pair(1, 4)));
}

TEST(ParseNumaMaps, HugePagesCountAsManySmallOnes) {
  EXPECT_THAT(ParseNumaMaps(kMaps, 0x7f0000200000, 4096)->pages_per_node, ElementsAre(Pair(0, 1024)));
}

TEST(ParseNumaMaps, PoliciesOfTwoWords) {
  EXPECT_EQ(ParseNumaMaps(kMaps, 0x7f0000800000, 1)->policy, "prefer (many):0-1");
  EXPECT_EQ(ParseNumaMaps(kMaps, 0x7f0000900000, 1)->policy, "weighted interleave:0-1");
}

TEST(ParseNumaMaps, LastMappingAndAddressInside) {
  EXPECT_EQ(ParseNumaMaps(kMaps, 0x7ffd00001000, UINT64_MAX)->policy, "default");
  EXPECT_EQ(ParseNumaMaps(kMaps, 0x7f0000001000, 4096)->policy, "prefer:1");
}

TEST(ParseNumaMaps, NothingThere) {
  EXPECT_EQ(ParseNumaMaps(kMaps, 0x1000, 4096).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ParseNumaMaps("", 0, 4096).status().code(), absl::StatusCode::kNotFound);
}

TEST(ParseNumaMaps, MalformedLinesAreNamed) {
  EXPECT_THAT(std::string(ParseNumaMaps("zzz default\n", 0, 1).status().message()), HasSubstr("zzz default"));
  EXPECT_THAT(std::string(ParseNumaMaps("7f00\n", 0, 1).status().message()), HasSubstr("no policy"));
  EXPECT_THAT(std::string(ParseNumaMaps("7f00 default N0=x\n", 0, 1).status().message()),
              HasSubstr("'N0=x'"));
}

class Bound : public testing::Test {
 protected:
  void SetUp() override { machine_ = LoadThisMachine(); }
  uint32_t LastCpu() const { return machine_->cores.back().pus.back(); }
  uint32_t Node() const { return machine_->nodes[machine_->cores[0].nodes[0]].os_index; }

  // Binding is allowed here, or politely refused: then there is nothing more to see.
  static bool Refused(const absl::Status& status) {
    return absl::IsPermissionDenied(status) || absl::IsUnimplemented(status);
  }

  absl::StatusOr<Machine> machine_;
};

TEST_F(Bound, Thread_IsReadBackFromTheKernel) {
  ASSERT_TRUE(machine_.ok());
  std::thread([&] {
    absl::Status status = BindThreadToCpu(LastCpu());
    if (Refused(status)) return;
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sched_getcpu(), static_cast<int>(LastCpu()));
    auto allowed = ReadCpusAllowed(getpid(), gettid());
    ASSERT_TRUE(allowed.ok()) << allowed.status();
    EXPECT_EQ(*allowed, std::to_string(LastCpu()));
  }).join();
}

TEST_F(Bound, Thread_ToSeveralCpus) {
  ASSERT_TRUE(machine_.ok());
  std::vector<uint32_t> cpus;
  for (const Core& core : machine_->cores) cpus.insert(cpus.end(), core.pus.begin(), core.pus.end());
  std::thread([&] {
    absl::Status status = BindThreadToCpus(cpus);
    if (Refused(status)) return;
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*ReadCpusAllowed(getpid(), gettid()), FormatCpuList(cpus));
  }).join();
}

TEST_F(Bound, Thread_ToACpuThatDoesNotExist) {
  std::thread([] {
    EXPECT_THAT(std::string(BindThreadToCpu(60000).message()), HasSubstr("CPU 60000"));
    EXPECT_FALSE(BindThreadToCpu(4000000000).ok());
    EXPECT_FALSE(BindThreadToCpus({}).ok());
  }).join();
}

TEST_F(Bound, Memory_PreferredPagesAreReadBack) {
  ASSERT_TRUE(machine_.ok());
  constexpr size_t kBytes = 16 * 4096;
  // A border of its own on both sides, so that the kernel cannot merge the mapping with a neighbour.
  char* region =
      static_cast<char*>(mmap(nullptr, kBytes + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(region, MAP_FAILED);
  char* memory = region + 4096;
  ASSERT_EQ(mprotect(memory, kBytes, PROT_READ | PROT_WRITE), 0);
  for (MemoryPolicy policy : {MemoryPolicy::kPreferred, MemoryPolicy::kBind}) {
    uint32_t node = Node();
    absl::Status status = BindMemory(memory, kBytes, {&node, 1}, policy);
    if (Refused(status)) continue;
    ASSERT_TRUE(status.ok()) << status;
    std::memset(memory, 1, kBytes);
    auto readback = ReadMemoryPlacement(getpid(), reinterpret_cast<uint64_t>(memory), kBytes);
    if (absl::IsUnimplemented(readback.status())) continue;
    ASSERT_TRUE(readback.ok()) << readback.status();
    std::string name = policy == MemoryPolicy::kBind ? "bind:" : "prefer:";
    EXPECT_EQ(readback->policy, name + std::to_string(node));
    EXPECT_THAT(readback->pages_per_node, ElementsAre(Pair(node, 16)));
  }
  EXPECT_TRUE(BindMemory(memory, kBytes, {}, MemoryPolicy::kDefault).ok() ||
              Refused(BindMemory(memory, kBytes, {}, MemoryPolicy::kDefault)));
  munmap(region, kBytes + 2 * 4096);
}

TEST_F(Bound, Memory_BadArgumentsAreErrors) {
  uint32_t absent = 1000, beyond = 100000, node = 0;
  alignas(4096) static char page[4096];
  EXPECT_TRUE(BindMemory(page, 0, {}, MemoryPolicy::kBind).ok());
  EXPECT_FALSE(BindMemory(page, 4096, {}, MemoryPolicy::kBind).ok());
  EXPECT_FALSE(BindMemory(page, 4096, {&absent, 1}, MemoryPolicy::kBind).ok());
  EXPECT_FALSE(BindMemory(page, 4096, {&beyond, 1}, MemoryPolicy::kBind).ok());
  EXPECT_THAT(std::string(BindMemory(page + 1, 4095, {&node, 1}, MemoryPolicy::kBind).message()),
              HasSubstr("page border"));
}

TEST_F(Bound, ThreadMemoryPolicy_AppliesToNewPages) {
  ASSERT_TRUE(machine_.ok());
  std::thread([&] {
    uint32_t node = Node(), absent = 1000;
    EXPECT_FALSE(SetThreadMemoryPolicy({&absent, 1}, MemoryPolicy::kBind).ok());
    absl::Status status = SetThreadMemoryPolicy({&node, 1}, MemoryPolicy::kPreferred);
    if (Refused(status)) return;
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SetThreadMemoryPolicy({}, MemoryPolicy::kDefault).ok());
  }).join();
}

TEST(Readback, ProcessThatIsGone) {
  constexpr pid_t kNobody = 0x7ffffff0;
  EXPECT_EQ(ReadCpusAllowed(kNobody, kNobody).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadMemoryPlacement(kNobody, 0, 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace islands::topology
