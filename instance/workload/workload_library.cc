#include "instance/workload/workload_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace islands::instance {
namespace {

// Nobody but those who could run anything in our name anyway may change it: us, root, the owner of this
// program. A group may where it is our own - which is nobody else's where the umask is 002 -, where root lets
// it, or where it may change this program, too. A directory that others may write to must be sticky, as /tmp.
absl::Status CheckTrusted(const std::filesystem::path& path) {
  struct stat info {};
  struct stat program {};
  if (stat(path.c_str(), &info) != 0 || stat("/proc/self/exe", &program) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot look at {}", path.string()));
  }
  if (info.st_uid != geteuid() && info.st_uid != 0 && info.st_uid != program.st_uid) {
    return absl::PermissionDeniedError(
        fmt::format("{} belongs to user {}, who could run anything as user {} by it; copy it to a directory "
                    "of your own",
                    path.string(), info.st_uid, geteuid()));
  }
  const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
  const bool programs_group = info.st_gid == program.st_gid && (program.st_mode & S_IWGRP) != 0;
  const bool group_may = info.st_gid == getegid() || info.st_uid == 0 || programs_group;
  const mode_t writable = info.st_mode & (group_may ? S_IWOTH : S_IWOTH | S_IWGRP);
  if (writable == 0 || sticky) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format(
      "{} can be changed by other users, who could run anything as user {} by it; use `chmod go-w {}`",
      path.string(), geteuid(), path.string()));
}

absl::Status Unfit(const std::string& object, std::string_view reason) {
  return absl::InvalidArgumentError(fmt::format("workload '{}': {}", object, reason));
}

absl::StatusOr<void*> OpenObject(const std::string& object) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(object, error);
  if (error) {
    return absl::NotFoundError(fmt::format("cannot open workload '{}': {}", object, error.message()));
  }
  for (const std::filesystem::path& path : {file.parent_path(), file}) {
    if (absl::Status trusted = CheckTrusted(path); !trusted.ok()) return trusted;
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(fmt::format("cannot open workload '{}': {}", object, dlerror()));
  }
  if (dlsym(library, "IslandsOpenWorkload") != nullptr) return library;
  return absl::InvalidArgumentError(fmt::format("'{}' is not a workload: it lacks ISLANDS_WORKLOAD", object));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Workload>> OpenWorkload(const std::string& object,
                                                             const storage::Catalog& catalog,
                                                             const Parameters& parameters) {
  const absl::StatusOr<void*> library = OpenObject(object);
  if (!library.ok()) return library.status();
  const auto open = reinterpret_cast<OpenWorkloadFunction>(dlsym(*library, "IslandsOpenWorkload"));
  std::string reason;
  Workload* workload = open(kWorkloadAbi, &catalog, &parameters, &reason);
  if (workload == nullptr) return Unfit(object, reason);
  return std::shared_ptr<const Workload>(workload);
}

absl::StatusOr<Description> DescribeWorkload(const std::string& object) {
  const absl::StatusOr<void*> library = OpenObject(object);
  if (!library.ok()) return library.status();
  const auto describe =
      reinterpret_cast<DescribeWorkloadFunction>(dlsym(*library, "IslandsDescribeWorkload"));
  const Description* description = describe == nullptr ? nullptr : describe(kWorkloadAbi);
  if (description == nullptr) return Unfit(object, kOtherAbi);
  if (absl::Status status = CheckDescription(*description); !status.ok())
    return Unfit(object, std::string(status.message()));
  return *description;
}

}  // namespace islands::instance
