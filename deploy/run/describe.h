// What a workload says of itself: the islandd beside this program opens its object and asks it.
//
// Thread safety: main thread only.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/workload/parameters.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct DescribedWorkload {
  std::string name;
  std::string object;  // the shared object's path
  instance::Description description;
};

// `workload`: a name, of an object in lib/islands beside the binaries or in ~/.local/lib/islands; or the path
// of an object, which has a '/' or ends in ".so". INVALID_ARGUMENT when there is none: names those there are.
absl::StatusOr<DescribedWorkload> DescribeWorkload(const std::string& workload,
                                                   const std::string& binary_directory);

// Whether the workload takes these tables and parameters, before any island is asked to empty something for
// them. `config`: any island's.
absl::Status CheckLoad(const control::v1::LoadSpec& load, control::v1::IslandConfig config,
                       const std::string& binary_directory);

// "append, micro", for people.
std::string NamesOfWorkloads(const std::string& binary_directory);

}  // namespace islands::deploy
