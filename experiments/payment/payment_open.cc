// The entry of payment.so. A file of its own, so that payment.cc can be linked into tests beside other
// workloads.
#include "experiments/payment/payment.h"

ISLANDS_WORKLOAD(::islands::experiments::PaymentWorkload::Create,
                 ::islands::experiments::PaymentWorkload::Describe)
