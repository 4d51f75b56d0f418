#include "experiments/peers/huge_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "experiments/peers/scratch_directory.h"

namespace islands::experiments {
namespace {

// A file that is mapped as LMDB maps its own. Whether pages become huge is the kernel's business; that they
// keep their bytes is not.
TEST(HugePages, MappedFile_BeginsAtABorderAndKeepsItsBytes) {
  std::string name = DefaultScratchParent() + "/islands-huge-pages-XXXXXX";
  const int file = mkstemp(name.data());
  ASSERT_GE(file, 0);
  constexpr size_t kBytes = 8 * kHugePageBytes;
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  MakeGapForMapping(kBytes);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped) % kHugePageBytes, 0u);
  auto* const bytes = static_cast<unsigned char*>(mapped);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<unsigned char>(i % 251);
  const MemoryUse before = MemoryOfProcess();
  CollapseMapping(name, kBytes - 1);
  CollapseMapping(name + ".none", kBytes);
  const MemoryUse after = MemoryOfProcess();
  EXPECT_GE(before.bytes, kBytes);
  EXPECT_GE(after.huge_bytes, before.huge_bytes);
  EXPECT_LE(after.huge_bytes, after.bytes);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes[i], i % 251);
  munmap(mapped, kBytes);
  close(file);
  unlink(name.c_str());
}

}  // namespace
}  // namespace islands::experiments
