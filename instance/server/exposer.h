// Where Prometheus reads what a process collects: http://127.0.0.1:PORT/metrics.
//
// Thread safety: one thread. What is collected is asked for on threads of the exposer's.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <cstdint>
#include <memory>
#include <string>

namespace islands::server {

// Ends what serves the page, within milliseconds.
struct EndExposer {
  void operator()(prometheus::Exposer* exposer) const;
};

// Null for port 0, and where it cannot listen: whoever has no metrics runs all the same, and why goes to
// `*problem`. It holds `collectable` only weakly.
std::unique_ptr<prometheus::Exposer, EndExposer> ServeMetrics(
    uint32_t port, const std::shared_ptr<prometheus::Collectable>& collectable, std::string* problem);

}  // namespace islands::server
