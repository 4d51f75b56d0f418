#include "instance/server/exposer.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <stop_token>
#include <thread>
#include <vector>

#include "runtime/descriptor.h"

namespace islands::server {
namespace {

constexpr std::chrono::milliseconds kKnockInterval{5};

// A connection that says nothing. Whether there is one makes no difference to who asks for it.
void Knock(int port) {
  const runtime::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<uint16_t>(port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_zero = {}};
  (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

}  // namespace

// The library's thread that accepts connections sees that it shall end only every two seconds, or when
// somebody connects. So somebody does until it is gone.
void EndExposer::operator()(prometheus::Exposer* exposer) const {
  const std::jthread knocking([ports = exposer->GetListeningPorts()](const std::stop_token& over) {
    while (!over.stop_requested()) {
      for (const int port : ports) Knock(port);
      std::this_thread::sleep_for(kKnockInterval);
    }
  });
  const std::unique_ptr<prometheus::Exposer> ended(exposer);
}

std::unique_ptr<prometheus::Exposer, EndExposer> ServeMetrics(
    uint32_t port, const std::shared_ptr<prometheus::Collectable>& collectable, std::string* problem) {
  if (port == 0) return nullptr;
  // A client that asks or reads slowly has a thread to itself until its time is over; the others are for
  // Prometheus.
  const std::vector<std::string> options = {
      "listening_ports", fmt::format("127.0.0.1:{}", port), "num_threads", "8", "request_timeout_ms", "1000"};
  try {
    std::unique_ptr<prometheus::Exposer, EndExposer> exposer(
        std::make_unique<prometheus::Exposer>(options).release());
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
