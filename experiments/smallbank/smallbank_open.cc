// The entry of smallbank.so. A file of its own, so that smallbank.cc can be linked into tests beside other
// workloads.
#include "experiments/smallbank/smallbank.h"

ISLANDS_WORKLOAD(::islands::experiments::SmallBankWorkload::Create,
                 ::islands::experiments::SmallBankWorkload::Describe)
