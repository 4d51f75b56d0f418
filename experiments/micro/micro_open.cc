// The entry of micro.so. A file of its own, so that micro.cc can be linked into tests beside other workloads.
#include "experiments/micro/micro.h"

ISLANDS_WORKLOAD(::islands::experiments::MicroWorkload::Create,
                 ::islands::experiments::MicroWorkload::Describe)
