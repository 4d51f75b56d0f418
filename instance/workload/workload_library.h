// Opens workloads from shared objects.
//
// Thread safety: any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "instance/workload/workload.h"

namespace islands::instance {

// Opens `object` if nobody else could have put it there or can change it (else PERMISSION_DENIED), checks
// that it was built for this version and creates the workload with these parameters.
// The object stays loaded for the life of the process: its code may be on a coroutine's stack. Errors name
// the file and the parameter.
absl::StatusOr<std::shared_ptr<const Workload>> OpenWorkload(const std::string& object,
                                                             const storage::Catalog& catalog,
                                                             const Parameters& parameters);

// What `object` can be told, under the same conditions.
absl::StatusOr<Description> DescribeWorkload(const std::string& object);

}  // namespace islands::instance
