// Any bytes as a manifest of a log: refused, or read for exactly what they are.
#include <cstdint>
#include <cstring>
#include <vector>

#include "instance/log/box_manifest.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace islands::log {
namespace {

constexpr size_t kChecksumAt = 56;

void Try(std::span<const std::byte> bytes) {
  const absl::StatusOr<BoxManifest> manifest = DecodeBoxManifest(bytes);
  if (!manifest.ok()) {
    ISLANDS_CHECK(absl::IsDataLoss(manifest.status()));
    return;
  }
  const std::vector<std::byte> again = EncodeBoxManifest(*manifest);
  ISLANDS_CHECK(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), bytes.size()) == 0);
  // Whatever it says can be cut.
  BoxManifest cut = *manifest;
  Cut(&cut, {.epoch = 1'000'000, .reaches = 2'000'000, .ends = {}});
  ISLANDS_CHECK(DecodeBoxManifest(EncodeBoxManifest(cut)).ok());
}

}  // namespace
}  // namespace islands::log

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace islands;
  std::vector<std::byte> bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  log::Try(bytes);
  // As if it were what somebody wrote: with magic, lengths that fit and a checksum.
  if (size < 64) return 0;
  std::memcpy(bytes.data(), "ISLBOXM1", 8);
  const uint32_t islands = static_cast<uint32_t>(data[48]) % ((size - 64) / 8 + 1);
  const auto cuts = static_cast<uint32_t>((size - 64 - islands * 8) / 16);
  bytes.resize(64 + islands * 8 + cuts * 16);
  std::memcpy(bytes.data() + 48, &islands, 4);
  std::memcpy(bytes.data() + 52, &cuts, 4);
  std::memset(bytes.data() + log::kChecksumAt, 0, 8);
  const uint32_t checksum = runtime::Crc32c(bytes);
  std::memcpy(bytes.data() + log::kChecksumAt, &checksum, 4);
  log::Try(bytes);
  return 0;
}
