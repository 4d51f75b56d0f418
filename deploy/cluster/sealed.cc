#include "deploy/cluster/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/mman.h>
#include <unistd.h>

namespace islands::deploy {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& config) {
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(config, &json, print);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  return json;
}

absl::StatusOr<runtime::UniqueFd> Seal(const std::string& text, const std::string& what) {
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  runtime::UniqueFd file(memfd_create(what.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return absl::ErrnoToStatus(errno, fmt::format("cannot make a memory file for an {}", what));
  absl::Status written = runtime::WriteAll(file.get(), text, what);
  if (!written.ok()) return written;
  if (lseek(file.get(), 0, SEEK_SET) != 0 || fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot seal an {}", what));
  }
  return file;
}

}  // namespace islands::deploy
