#include "experiments/ipc/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "instance/worker/latency_histogram.h"

namespace islands::experiments {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kEnd = ~uint64_t{0};
constexpr int kRoundTripsPerLook = 8;  // at the clock

uint64_t CheckOf(uint64_t number, uint64_t seed) { return (number + 1) * 0x9e3779b97f4a7c15 + seed; }

class MessageFrame {
 public:
  explicit MessageFrame(const ExchangeOptions& options) : bytes_(options.bytes), seed_(options.seed) {}
  void Set(uint64_t number) {
    const uint64_t check = CheckOf(number, seed_);
    std::memcpy(bytes_.data(), &number, sizeof(number));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(check), &check, sizeof(check));
  }
  uint64_t number() const {
    uint64_t number = 0;
    std::memcpy(&number, bytes_.data(), sizeof(number));
    return number;
  }
  absl::Status Check(uint64_t expected) const {
    uint64_t check = 0;
    std::memcpy(&check, bytes_.data() + bytes_.size() - sizeof(check), sizeof(check));
    if (number() == expected && check == CheckOf(expected, seed_)) return absl::OkStatus();
    if (number() == expected) return absl::DataLossError(fmt::format("message {} is damaged", expected));
    return absl::DataLossError(fmt::format("message {} expected, {} came", expected, number()));
  }
  Message bytes() const { return bytes_; }
  MessageBuffer buffer() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  const uint64_t seed_;
};

class Exchanger {
 public:
  Exchanger(Channel& channel, const ExchangeOptions& options)
      : channel_(channel), options_(options), out_(options), in_(options) {}

  absl::StatusOr<ExchangeResult> Run() {
    if (absl::Status status = RunFor(options_.warmup_s); !status.ok()) return status;
    buckets_.fill(0);
    in_flight_max_ = 0;
    const uint64_t before = received_;
    const auto begin = Clock::now();
    if (absl::Status status = RunFor(options_.seconds); !status.ok()) return status;
    ExchangeResult result;
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    result.round_trips = received_ - before;
    result.in_flight_max = in_flight_max_;
    if (options_.batch == 1) {
      result.round_trip_us_p50 = instance::PercentileUs(buckets_, 0.5) / 1000;
      result.round_trip_us_p99 = instance::PercentileUs(buckets_, 0.99) / 1000;
    }
    while (received_ < sent_) {
      if (absl::Status status = ReceiveOne(); !status.ok()) return status;
    }
    out_.Set(kEnd);
    if (absl::Status status = channel_.Send(out_.bytes()); !status.ok()) return status;
    return result;
  }

 private:
  absl::Status RunFor(double seconds) {
    const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (auto now = Clock::now(), end = now + length; now < end; now = Clock::now()) {
      if (options_.batch == 1) {
        if (absl::Status status = RoundTrip(); !status.ok()) return status;
        Record(Clock::now() - now);
      }
      for (int i = options_.batch == 1 ? 1 : 0; i < kRoundTripsPerLook; ++i) {
        absl::Status status = options_.batch == 1 ? RoundTrip() : FillAndReceive();
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  void Record(Clock::duration time) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    ++buckets_[instance::BucketOf(static_cast<uint64_t>(std::max<int64_t>(ns, 0)))];
  }

  absl::Status SendOne() {
    out_.Set(sent_);
    if (absl::Status status = channel_.Send(out_.bytes()); !status.ok()) return status;
    ++sent_;
    return absl::OkStatus();
  }

  absl::Status ReceiveOne() {
    if (absl::Status status = channel_.Receive(in_.buffer()); !status.ok()) return status;
    return in_.Check(received_++);
  }

  absl::Status RoundTrip() {
    in_flight_max_ = 1;
    if (absl::Status status = SendOne(); !status.ok()) return status;
    return ReceiveOne();
  }

  // Waits only for messages, and only when some are on their way: so the other end, which may be waiting for
  // room, always gets it. With none on their way, waiting for room is safe.
  absl::Status FillAndReceive() {
    while (sent_ - received_ < options_.batch) {
      out_.Set(sent_);
      const absl::StatusOr<bool> sent = channel_.TrySend(out_.bytes());
      if (!sent.ok()) return sent.status();
      if (!*sent) break;
      ++sent_;
    }
    if (sent_ == received_) {
      if (absl::Status status = SendOne(); !status.ok()) return status;
    }
    in_flight_max_ = std::max(in_flight_max_, static_cast<uint32_t>(sent_ - received_));
    return ReceiveOne();
  }

  Channel& channel_;
  const ExchangeOptions& options_;
  MessageFrame out_, in_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint32_t in_flight_max_ = 0;
  std::array<uint64_t, instance::kLatencyBuckets> buckets_{};  // of nanoseconds here: up to 3.6 seconds
};

}  // namespace

absl::StatusOr<ExchangeResult> Exchange(Channel& channel, const ExchangeOptions& options) {
  return Exchanger(channel, options).Run();
}

absl::Status Echo(Channel& channel, const ExchangeOptions& options) {
  MessageFrame frame(options);
  for (uint64_t expected = 0;; ++expected) {
    if (absl::Status status = channel.Receive(frame.buffer()); !status.ok()) return status;
    if (frame.number() == kEnd) return frame.Check(kEnd);
    if (absl::Status status = frame.Check(expected); !status.ok()) return status;
    if (absl::Status status = channel.Send(frame.bytes()); !status.ok()) return status;
  }
}

}  // namespace islands::experiments
