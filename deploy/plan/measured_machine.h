// Files that describe machines: hwloc XML, and what `islands machine --measure` writes.
//
// Thread safety: plain values and functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/file/measured.h"
#include "topology/machine.h"

namespace islands::deploy {

// The machine of the file's XML, with the clusters that were measured and only the cores that were. If
// `here` is the same machine with the same cores, as far as can be seen, it is this machine and islands
// are bound on it; otherwise it is a machine somewhere else, as of an XML file. `file` names it.
// INVALID_ARGUMENT: a CPU that was measured is not in the XML.
absl::StatusOr<topology::Machine> MachineOfMeasured(const Measured& measured, const std::string& file,
                                                    topology::Machine described,
                                                    const topology::Machine& here);

// The machine of an hwloc XML file: `here`, if that is the same one, as far as can be seen - packages and
// their models, memory nodes and their distances, caches, cores and the CPUs that can be used now. What
// `here` has counts then, as its memory. Otherwise `described`, a machine somewhere else.
topology::Machine MachineOfXml(topology::Machine described, const std::string& file,
                               const topology::Machine& here);

// An hwloc XML file or a measured one, told apart by what is in them. INVALID_ARGUMENT: it is neither, and
// for one that was measured the complaints say where.
struct MachineFile {
  topology::Machine machine;
  std::optional<Measured> measured;
};
absl::StatusOr<MachineFile> LoadMachineFile(const std::string& path);
// The error is about places in a measured file: one `path:line:column: ...` per line, which needs no more
// words.
bool IsMeasuredComplaint(const absl::Status& status, const std::string& path);

// Measures all cores of this machine and finds their clusters. Minutes at most; says on stderr how far it
// is, if that is a terminal. Errors: round_trips.h's.
absl::StatusOr<MachineFile> MeasureThisMachine();

}  // namespace islands::deploy
