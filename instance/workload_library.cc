#include "instance/workload_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace islands::instance {

absl::StatusOr<std::shared_ptr<const Workload>> OpenWorkload(const std::string& object,
                                                             const storage::Catalog& catalog,
                                                             const Parameters& parameters) {
  void* library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(fmt::format("cannot open workload '{}': {}", object, dlerror()));
  }
  auto open = reinterpret_cast<OpenWorkloadFunction>(dlsym(library, "IslandsOpenWorkload"));
  if (open == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' is not a workload: it lacks ISLANDS_WORKLOAD", object));
  }
  std::string error;
  Workload* workload = open(kWorkloadAbi, &catalog, &parameters, &error);
  if (workload == nullptr) return absl::InvalidArgumentError(fmt::format("workload '{}': {}", object, error));
  return std::shared_ptr<const Workload>(workload);
}

}  // namespace islands::instance
