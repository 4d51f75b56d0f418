// What an island's metrics tell of its log and its checkpoints.
//
// Thread safety: any thread; all that is read was made to be (island/keeper.h, worker/counters.h).
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "instance/island/island.h"

namespace islands::server {

// Adds nothing where nothing is kept.
void AddLog(const instance::Island& island, std::vector<prometheus::MetricFamily>* families);

}  // namespace islands::server
