// Whatever lies where the manifest should be: an error or a manifest that survives being written and read
// again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "instance/storage/manifest.h"
#include "runtime/check.h"

namespace {

void Try(std::string_view text) {
  const auto manifest = islands::storage::ParseManifest(text, "fuzz");
  if (!manifest.ok()) {
    ISLANDS_CHECK(manifest.status().code() == absl::StatusCode::kDataLoss);
    return;
  }
  const std::string written = islands::storage::ManifestToText(*manifest);
  const auto again = islands::storage::ParseManifest(written, "fuzz");
  ISLANDS_CHECK(again.ok());
  ISLANDS_CHECK(islands::storage::ManifestToText(*again) == written);
  ISLANDS_CHECK(islands::storage::CheckSameData(*manifest, *again).ok());
}

constexpr std::string_view kGood =
    R"({"format":1,"cluster_id":"ab","deployment":"d","layout_generation":1,"sites":2,"islands":1,)"
    R"("tables":[{"name":"t","key":["uint64","string"],"range":[-1,9],"row_bytes":8,"replicated":false,)"
    R"("indexes":[{"name":"i","key":["key:0","row:0:uint8"]}]}],"boot_epochs":[3]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Try(std::string_view(reinterpret_cast<const char*>(data), size));
  // And near misses of a good one: bytes of the input are laid over it, two giving the place of each.
  std::string text(kGood);
  for (size_t i = 0; i + 2 < size && i < 12; i += 3)
    text[(data[i] * 256u + data[i + 1]) % text.size()] = data[i + 2];
  Try(text);
  return 0;
}
