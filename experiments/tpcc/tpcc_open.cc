// The entry of tpcc.so. A file of its own, so that tpcc.cc can be linked into tests beside other workloads.
#include "experiments/tpcc/tpcc.h"

ISLANDS_WORKLOAD(::islands::experiments::TpccWorkload::Create, ::islands::experiments::TpccWorkload::Describe)
