// The entry of voter.so. A file of its own, so that voter.cc can be linked into tests beside other workloads.
#include "experiments/voter/voter.h"

ISLANDS_WORKLOAD(::islands::experiments::VoterWorkload::Create,
                 ::islands::experiments::VoterWorkload::Describe)
