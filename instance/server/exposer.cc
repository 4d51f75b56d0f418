#include "instance/server/exposer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <vector>

namespace islands::server {

std::unique_ptr<prometheus::Exposer> ServeMetrics(uint32_t port,
                                                  const std::shared_ptr<prometheus::Collectable>& collectable,
                                                  std::string* problem) {
  if (port == 0) return nullptr;
  // A client that asks or reads slowly has a thread to itself until its time is over; the others are for
  // Prometheus.
  const std::vector<std::string> options = {
      "listening_ports", fmt::format("127.0.0.1:{}", port), "num_threads", "8", "request_timeout_ms", "1000"};
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    exposer->RegisterCollectable(collectable);
    return exposer;
  } catch (const std::exception& error) {
    *problem = fmt::format(
        "cannot listen on 127.0.0.1:{}, most likely it is in use; change metrics.base_port", port);
    spdlog::warn("no metrics: {} ({})", *problem, error.what());
    return nullptr;
  }
}

}  // namespace islands::server
