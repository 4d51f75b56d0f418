#include "instance/log/ring_owner.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace islands::log {

absl::StatusOr<Place> PlaceOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("cannot look at {}", path));
  std::error_code error;
  const std::filesystem::path direct = std::filesystem::canonical(path, error);
  return Place{info.st_dev, info.st_ino, error ? path : direct.string()};
}

std::string ToText(const RingOwner& owner) {
  return fmt::format("{} {} {} {} {} {}\n", owner.log.device, owner.log.inode, owner.device, owner.inode,
                     owner.process, owner.log.path);
}

std::optional<RingOwner> ParseRingOwner(const std::string& text) {
  unsigned long device = 0, inode = 0, own_device = 0, own_inode = 0;
  int process = 0, read = 0;
  const int found = std::sscanf(text.c_str(), "%lu %lu %lu %lu %d%n", &device, &inode, &own_device,
                                &own_inode, &process, &read);
  if (found != 5) return std::nullopt;
  const auto begin = static_cast<size_t>(read) + 1;
  if (text.size() < begin + 2 || text[begin - 1] != ' ' || text.back() != '\n') return std::nullopt;
  return RingOwner{.log = {device, inode, text.substr(begin, text.size() - begin - 1)},
                   .device = own_device,
                   .inode = own_inode,
                   .process = process};
}

}  // namespace islands::log
