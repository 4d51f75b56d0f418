#include "deploy/top/gateway.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <utility>

#include "deploy/cluster/report.h"
#include "deploy/processes/interrupts.h"
#include "runtime/descriptor.h"

namespace islands::deploy {
namespace {

constexpr size_t kMostPageBytes = 4u << 20;

std::optional<double> NumberOf(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Value of a label in {a="x",b="y"}. Ours hold no quotes.
std::string_view LabelOf(std::string_view labels, std::string_view name) {
  const std::string before = fmt::format("{}=\"", name);
  const size_t at = labels.find(before);
  if (at == std::string_view::npos) return "";
  labels.remove_prefix(at + before.size());
  return labels.substr(0, labels.find('"'));
}

void AddBucket(double bound_s, double count, std::vector<std::pair<double, double>>* buckets) {
  const auto at = std::lower_bound(buckets->begin(), buckets->end(), std::pair(bound_s, -1.0));
  if (at != buckets->end() && at->first == bound_s) {
    at->second += count;
  } else {
    buckets->insert(at, {bound_s, count});
  }
}

void TakeSample(std::string_view name, std::string_view labels, double value, GatewayCounts* counts) {
  if (name == "islands_gateway_calls_total") {
    counts->calls += value;
  } else if (name == "islands_gateway_transactions_total") {
    const std::string_view outcome = LabelOf(labels, "outcome");
    if (outcome == "committed") counts->committed += value;
    if (outcome == "aborted") counts->aborted += value;
    if (outcome == "unknown") counts->unknown += value;
    if (outcome == "rolled_back") counts->rolled_back += value;
  } else if (name == "islands_gateway_transactions_open") {
    counts->open = value;
  } else if (name == "islands_gateway_latency_seconds_sum") {
    counts->latency_s += value;
  } else if (name == "islands_gateway_island_wait_seconds_sum") {
    counts->island_wait_s += value;
  } else if (name == "islands_gateway_latency_seconds_bucket") {
    if (const auto bound_s = NumberOf(LabelOf(labels, "le"))) AddBucket(*bound_s, value, &counts->latency);
  } else if (name == "islands_gateway_start_time_seconds") {
    counts->started_at_s = value;
  }
}

double QuantileUs(double quantile, const std::vector<std::pair<double, double>>& before,
                  const std::vector<std::pair<double, double>>& after) {
  if (after.empty() || before.size() != after.size()) return 0;
  const double target = quantile * (after.back().second - before.back().second);
  double lower_s = 0, below = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double up_to = after[i].second - before[i].second;
    if (target > 0 && up_to >= target) {
      if (i + 1 == after.size()) break;  // beyond the last bound: that is all we know
      return (lower_s + (after[i].first - lower_s) * (target - below) / (up_to - below)) * 1e6;
    }
    below = up_to;
    if (i + 1 < after.size()) lower_s = after[i].first;
  }
  return target > 0 ? lower_s * 1e6 : 0;
}

// Waits until it can be read, or written. False: the time is over.
bool Await(int socket, int16_t events, int64_t until_ms) {
  pollfd wait{socket, events, 0};
  return poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, until_ms - MonotonicMs()))) > 0;
}

}  // namespace

absl::StatusOr<GatewayCounts> ParseGatewayPage(std::string_view page) {
  GatewayCounts counts;
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(line.size() + 1, page.size()));
    const size_t blank = line.rfind(' ');
    if (!line.starts_with("islands_gateway_") || blank == std::string_view::npos) continue;
    const std::optional<double> value = NumberOf(line.substr(blank + 1));
    if (!value) continue;
    const std::string_view series = line.substr(0, blank);
    const size_t brace = std::min(series.find('{'), series.size());
    TakeSample(series.substr(0, brace), series.substr(brace), *value, &counts);
  }
  // The last one on the page.
  if (counts.started_at_s == 0) return absl::InvalidArgumentError("this is no page of a gateway's metrics");
  return counts;
}

absl::StatusOr<std::string> ReadMetricsPage(uint32_t port, int64_t timeout_ms) {
  const int64_t until_ms = MonotonicMs() + timeout_ms;
  const runtime::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<uint16_t>(port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_zero = {}};
  const auto failed = [&] { return absl::ErrnoToStatus(errno, fmt::format("127.0.0.1:{}", port)); };
  const auto late = [&] {
    return absl::DeadlineExceededError(fmt::format("127.0.0.1:{} does not answer", port));
  };
  if (!socket) return failed();
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EINPROGRESS) {
    return failed();
  }
  if (!Await(socket.get(), POLLOUT, until_ms)) return late();
  constexpr std::string_view kRequest = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
  if (send(socket.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kRequest.size())) {
    return failed();
  }
  std::string page;
  std::array<char, 16'384> bytes;
  while (page.size() < kMostPageBytes) {
    if (!Await(socket.get(), POLLIN, until_ms)) return late();
    const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got == 0) return page;
    if (got < 0 && errno != EINTR && errno != EAGAIN) return failed();
    if (got > 0) page.append(bytes.data(), static_cast<size_t>(got));
  }
  return absl::OutOfRangeError(fmt::format("127.0.0.1:{} sends no end", port));
}

TopGateway GatewayMeter::Observe(const control::v1::GatewayStatus& status,
                                 const absl::StatusOr<GatewayCounts>& counts, int64_t now_ms) {
  TopGateway seen{.state = std::string(StateName(status)),
                  .restarts = status.restarts(),
                  .has_metrics = status.metrics_port() != 0,
                  .answers = counts.ok()};
  if (!counts.ok()) return seen;
  seen.open = counts->open;
  if (last_ && last_->started_at_s == counts->started_at_s && now_ms > last_ms_) {
    seen.seconds = static_cast<double>(now_ms - last_ms_) / 1000;
    const auto rate = [&](double GatewayCounts::*count) {
      return std::max(0.0, (*counts).*count - (*last_).*count) / seen.seconds;
    };
    seen.calls_per_s = rate(&GatewayCounts::calls);
    seen.committed_per_s = rate(&GatewayCounts::committed);
    seen.aborted_per_s = rate(&GatewayCounts::aborted);
    seen.unknown_per_s = rate(&GatewayCounts::unknown);
    seen.rolled_back_per_s = rate(&GatewayCounts::rolled_back);
    seen.p99_us = QuantileUs(0.99, last_->latency, counts->latency);
    const double latency = rate(&GatewayCounts::latency_s);
    if (latency > 0) seen.islands_share = std::min(1.0, rate(&GatewayCounts::island_wait_s) / latency);
  }
  last_ = *counts;
  last_ms_ = now_ms;
  return seen;
}

}  // namespace islands::deploy
