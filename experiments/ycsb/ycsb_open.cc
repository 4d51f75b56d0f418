// The entry of ycsb.so. A file of its own, so that ycsb.cc can be linked into tests beside other workloads.
#include "experiments/ycsb/ycsb.h"

ISLANDS_WORKLOAD(::islands::experiments::YcsbWorkload::Create, ::islands::experiments::YcsbWorkload::Describe)
