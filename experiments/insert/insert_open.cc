// The entry of insert.so. A file of its own, so that insert.cc can be linked into tests beside other
// workloads.
#include "experiments/insert/insert.h"

ISLANDS_WORKLOAD(::islands::experiments::InsertWorkload::Create,
                 ::islands::experiments::InsertWorkload::Describe)
