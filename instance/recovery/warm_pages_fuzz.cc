// Whatever lies where the list of warm pages should be, with a checksum that is right or not: pages that are
// there, or nothing.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "instance/recovery/island_data.h"
#include "instance/recovery/warm_pages.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"

namespace {

using namespace islands;  // a fuzz target looks at several rooms

const recovery::IslandDataOptions kWhere{.directory = "/data", .cluster = 1};

const storage::Catalog& MakeCatalog() {
  static const auto catalog = [] {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("t");
    table->add_key("uint64");
    table->set_range_end(9);
    return *storage::Catalog::Create(specs, 1);
  }();
  return catalog;
}

// The input's bytes as page ids, few of them far away.
std::vector<uint64_t> PagesOf(std::span<const uint8_t> input) {
  std::vector<uint64_t> pages;
  for (size_t at = 0; at + 3 <= input.size(); at += 3)
    pages.push_back(uint64_t{input[at]} << 48 | uint64_t{input[at + 1]} << (input[at + 2] % 48));
  return pages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  if (const auto warm = recovery::DecodeWarmPages(std::as_bytes(input))) {
    const std::vector<std::byte> again = recovery::EncodeWarmPages(*warm);
    ISLANDS_CHECK(again.size() <= size && std::memcmp(again.data(), data, again.size()) == 0);
  }
  runtime::MemoryFileSystem files;
  const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true, .paged = true};
  {
    const auto store = *storage::Store::Create(MakeCatalog(), options, files);
    auto begun = recovery::BeginGeneration(files, kWhere, *store);
    ISLANDS_CHECK(begun.ok());
    ISLANDS_CHECK(recovery::WriteGeneration(files, MakeCatalog(), kWhere, *store, {}, recovery::NoProgress,
                                            *std::move(begun))
                      .ok());
  }
  const recovery::WarmPages list{.cluster = 1, .generation = 1, .island = 0, .pages = PagesOf(input)};
  const std::vector<std::byte> bytes = recovery::EncodeWarmPages(list);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ISLANDS_CHECK(files.ReplaceFile(recovery::WarmPagesPath("/data", 1), text).ok());
  const auto store = *storage::Store::CreateForRedo(MakeCatalog(), options);
  const auto read = recovery::ReadGeneration(files, MakeCatalog(), kWhere, *store, recovery::NoProgress);
  ISLANDS_CHECK(read.ok() && store->FindTrees(MakeCatalog()).ok());
  recovery::WarmingUp progress;
  recovery::WarmUp warm_up(files, *store, "/data", {.cluster = 1, .generation = 1, .island = 0, .pages = {}},
                           &progress);
  while (warm_up.RunOnce(1)) continue;
  ISLANDS_CHECK(progress.listed == 0 && store->Check().ok());
  return 0;
}
