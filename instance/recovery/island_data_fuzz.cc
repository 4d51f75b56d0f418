// Whatever lies where data files and checkpoint should be, with checksums that are right: an error that says
// what, or pages that redo and trees can be trusted with.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "instance/recovery/island_data.h"
#include "instance/storage/btree/btree_node.h"
#include "instance/storage/files/disk_page.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"

namespace {

using namespace islands;  // a fuzz target looks at several rooms

const recovery::IslandDataOptions kWhere{.directory = "/data", .cluster = 1};
const storage::StoreOptions kStore{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true};

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

// Sound files, whose contents are as a load left them.
std::pair<std::string, std::string> SiteAndCheckpoint() {
  runtime::MemoryFileSystem files;
  const auto store = storage::Store::Create(MakeCatalog(), kStore, files);
  ISLANDS_CHECK(
      recovery::WriteGeneration(files, MakeCatalog(), kWhere, **store, {}, recovery::NoProgress).ok());
  return {*files.ReadFile("/data/generation-0000000001-site-00000"),
          *files.ReadFile("/data/generation-0000000001-checkpoint")};
}

// Bytes of the input go over some of these; then checksums are made right.
void Scribble(std::span<const uint8_t> input, std::string* site) {
  for (size_t at = 0; at + 4 <= input.size(); at += 4) {
    const size_t page = input[at] % (site->size() / storage::kPageBytes);
    const size_t offset = input[at + 1] % 2 == 0 ? input[at + 2] : input[at + 2] * 16;
    (*site)[page * storage::kPageBytes + offset] = static_cast<char>(input[at + 3]);
  }
  for (size_t at = 0; at < site->size(); at += storage::kPageBytes) {
    storage::DiskPage page;
    std::memcpy(page.bytes.data(), site->data() + at, storage::kPageBytes);
    storage::StampChecksum(page.bytes);
    std::memcpy(site->data() + at, page.bytes.data(), storage::kPageBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto sound = SiteAndCheckpoint();
  const std::span<const uint8_t> input(data, std::min<size_t>(size, 8192));
  (void)recovery::DecodeCheckpointFile(std::as_bytes(input));
  if (input.empty()) return 0;
  auto [site, checkpoint] = sound;
  if (input[0] % 2 == 0) {
    Scribble(input.subspan(1), &site);
  } else {  // numbers of a checkpoint
    auto found = *recovery::DecodeCheckpointFile(std::as_bytes(std::span(checkpoint)));
    std::byte* const numbers = reinterpret_cast<std::byte*>(&found);
    std::memcpy(numbers, input.data(), std::min(input.size(), offsetof(recovery::Checkpoint, sites)));
    if (input.size() >= 52 + sizeof(found.sites[0]))
      std::memcpy(&found.sites[0], input.data() + 52, sizeof(found.sites[0]));
    const std::vector<std::byte> block = recovery::EncodeCheckpoint(found);
    checkpoint.assign(2 * block.size(), '\0');
    std::memcpy(checkpoint.data(), block.data(), block.size());
  }
  runtime::MemoryFileSystem files;
  ISLANDS_CHECK(files.MakeDirectories("/data").ok());
  ISLANDS_CHECK(files.ReplaceFile("/data/generation-0000000001-site-00000", site).ok());
  ISLANDS_CHECK(files.ReplaceFile("/data/generation-0000000001-checkpoint", checkpoint).ok());
  ISLANDS_CHECK(files.ReplaceFile("/data/generation-0000000001-double-write", "").ok());
  const auto store = storage::Store::CreateForRedo(MakeCatalog(), kStore);
  const auto read = recovery::ReadGeneration(files, MakeCatalog(), kWhere, **store, recovery::NoProgress);
  if (!read.ok()) return 0;
  for (uint64_t number = 0; number < site.size() / storage::kPageBytes; ++number) {
    const storage::GuardX page = (*store)->PageForRedo({0, number});
    const auto* header = reinterpret_cast<const storage::PageHeader*>(page.bytes());
    ISLANDS_CHECK(header->type != storage::PageType::kTree ||
                  storage::Node::At(page.bytes())->FindFault() == nullptr);
  }
  (void)(*store)->FindTrees(MakeCatalog());
  return 0;
}
