// The entry of tatp.so. A file of its own, so that tatp.cc can be linked into tests beside other workloads.
#include "experiments/tatp/tatp.h"

ISLANDS_WORKLOAD(::islands::experiments::TatpWorkload::Create, ::islands::experiments::TatpWorkload::Describe)
