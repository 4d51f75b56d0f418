// Sessions as transactions of the product: a workload whose procedure carries out steps as they are posted.
//
// A procedure can only suspend where the product suspends. While a session has nothing to do it reads, again
// and again, a row of its own on an island that holds nothing else: each read is a wait for a remote answer,
// with all that belongs to it (a transaction that runs without locks must take them first). So every
// transaction of a script is a distributed one; what its steps do where the data is stays what they say.
//
// A session is one attempt: the victim of a deadlock is not run again.
//
// Thread safety: none; a simulated cluster is one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "instance/simulation/isolation/judge.h"
#include "instance/simulation/isolation/placement.h"
#include "instance/simulation/isolation/script.h"
#include "instance/workload/workload.h"

namespace islands::simulation::isolation {

// The state of one run, shared by the driver and the procedures.
struct Stage {
  struct Session {
    uint32_t number = 0;
    std::vector<uint32_t> posted;  // steps of the scenario
    size_t next = 0;               // the first of them that is not done
    bool claimed = false;          // a worker's slot runs it
    bool attempted = false;        // its procedure was started
    bool dead = false;             // its procedure has come to an end; the rest of its steps is void
    End end = End::kNever;         // how the transaction ended, by the product's own word
    std::string why;               // it died of this
  };

  Stage(const Scenario& scenario, const Arrangement& arrangement);

  const Scenario& scenario;
  const Arrangement arrangement;
  std::vector<Session> sessions;
  std::vector<Observation::StepSeen> steps;
  bool closing = false;  // sessions still alive give up
};

control::v1::TableSpec RowsTable(const Scenario& scenario);
// `stage` outlives the workload.
std::shared_ptr<const instance::Workload> OpenSessions(const storage::Catalog& catalog, Stage& stage);

}  // namespace islands::simulation::isolation
