#include "instance/log/box_id.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <cerrno>

#include "absl/strings/ascii.h"

namespace islands::log {
namespace {

constexpr char kBootIdPath[] = "/proc/sys/kernel/random/boot_id";

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<BoxId> MakeBoxId() {
  BoxId id;
  if (getrandom(id.data(), id.size(), 0) == static_cast<ssize_t>(id.size())) return id;
  return absl::ErrnoToStatus(errno, "cannot ask the kernel for random bits");
}

std::string ToText(const BoxId& id) { return fmt::format("{:02x}", fmt::join(id, "")); }

absl::StatusOr<BoxId> ParseBoxId(std::string_view text) {
  BoxId id{};
  size_t digits = 0;
  for (const char c : text) {
    if (c == '-' || absl::ascii_isspace(static_cast<unsigned char>(c))) continue;
    const int digit = Digit(c);
    if (digit < 0 || digits == 2 * id.size()) return absl::DataLossError("it is no id of 32 digits");
    id[digits / 2] = static_cast<uint8_t>(id[digits / 2] << 4 | digit);
    ++digits;
  }
  if (digits != 2 * id.size() || id == BoxId{}) return absl::DataLossError("it is no id of 32 digits");
  return id;
}

absl::StatusOr<uint64_t> ClusterFingerprint(std::string_view cluster_id) {
  const absl::StatusOr<BoxId> id = ParseBoxId(cluster_id);
  if (!id.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("the cluster's id, '{}', is not 32 hexadecimal digits", cluster_id));
  }
  uint64_t fingerprint = 0;
  for (size_t i = 0; i < sizeof(fingerprint); ++i) fingerprint = fingerprint << 8 | (*id)[i];
  return fingerprint;
}

absl::StatusOr<BoxId> KernelBootId(runtime::FileSystem& files) {
  const absl::StatusOr<std::string> text = files.ReadFile(kBootIdPath);
  if (!text.ok()) return text.status();
  absl::StatusOr<BoxId> id = ParseBoxId(*text);
  if (id.ok()) return id;
  return absl::DataLossError(
      fmt::format("{} does not say which boot this is: {}", kBootIdPath, std::string(id.status().message())));
}

}  // namespace islands::log
