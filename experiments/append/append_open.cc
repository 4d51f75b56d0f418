// The entry of append.so.
#include "experiments/append/append.h"

ISLANDS_WORKLOAD(::islands::experiments::AppendWorkload::Create,
                 ::islands::experiments::AppendWorkload::Describe)
