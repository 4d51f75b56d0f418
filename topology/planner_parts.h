// The steps of MakePlan that judge what a person asked for, and what holds in the end; private to topology/.
//
// Thread safety: pure functions. Pointers in the results point into the given Machine.
#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"
#include "topology/planner.h"

namespace islands::topology {

using PlanComplaints = std::vector<PlanComplaint>;

struct ChosenCore {
  const Core* core = nullptr;
  std::vector<uint32_t> pus;  // those of the core's PUs that may be used, or that an island does use
};
using ChosenCores = std::vector<ChosenCore>;

// `layout: auto` of a measured machine: an island is a cluster, however many cores it has.
bool CutsByCluster(const Machine& machine, const PlanRequest& request);

// OS indexes of the nodes that have memory; of all where the machine does not say how much they have.
std::vector<uint32_t> NodesWithMemory(const Machine& machine);

// "island 3", "islands 0-2,5"
std::string NameIslands(const std::vector<uint32_t>& ids);

// Counts the cores in use, and notes what a person should know about them.
void NoteCores(const Machine& machine, const PlanRequest& request, const std::vector<ChosenCores>& cut,
               Plan& plan);

// Asserts what PlanRequest promises.
void CheckRequest(const Machine& machine, const PlanRequest& request);

// The cores, CPUs and nodes that were named are there and may be used.
void CheckCores(const Machine& machine, const PlanRequest& request, PlanComplaints& complaints);

// So many islands are possible, have a site each and their ports.
void CheckCount(const PlanRequest& request, size_t islands, uint32_t sites, PlanComplaints& complaints);

// Fills memory_bytes: what explicit islands name, else the total by the islands' sites; every island gets
// enough, and every node holds what its islands take of it (equal parts of each of their nodes).
void DivideMemory(const Machine& machine, const PlanRequest& request, Plan& plan, PlanComplaints& complaints);

// Asserts what planner.h promises of a Plan.
void CheckInvariants(const Machine& machine, const PlanRequest& request, const Plan& plan);

}  // namespace islands::topology
