// Latencies in log-linear buckets: exact to 1/16 of the value, from 1 us to about an hour, in 464 counters.
//
//   bucket b < 16:    latency of b microseconds
//   above:            every power of two is cut into 16 equal buckets
//
// Thread safety: written by one worker, read by any thread (relaxed atomics, no read-modify-write); a reader
// may see a value that is counted but not yet summed.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace islands::instance {

inline constexpr uint32_t kLatencySubBuckets = 16;
inline constexpr uint32_t kLatencyBuckets = 464;

// Bucket of a latency in microseconds.
constexpr uint32_t BucketOf(uint64_t us) {
  if (us < kLatencySubBuckets) return static_cast<uint32_t>(us);
  const uint32_t shift = static_cast<uint32_t>(std::bit_width(us)) - 5;  // keeps 5 significant bits
  const uint32_t bucket = kLatencySubBuckets * (shift + 1) + static_cast<uint32_t>((us >> shift) & 15);
  return bucket < kLatencyBuckets ? bucket : kLatencyBuckets - 1;
}

// Smallest latency that lies above the bucket, in microseconds.
constexpr uint64_t BucketUpperUs(uint32_t bucket) {
  if (bucket < kLatencySubBuckets) return bucket + 1;
  const uint32_t shift = bucket / kLatencySubBuckets - 1;
  return static_cast<uint64_t>(kLatencySubBuckets + bucket % kLatencySubBuckets + 1) << shift;
}

// The p-quantile (0..1) of counted buckets in microseconds: the middle of the bucket it falls in. 0 when
// empty.
inline double PercentileUs(std::span<const uint64_t> buckets, double p) {
  uint64_t count = 0;
  for (uint64_t n : buckets) count += n;
  if (count == 0) return 0;
  const double target = p * static_cast<double>(count);
  uint64_t below = 0;
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    below += buckets[b];
    if (buckets[b] != 0 && static_cast<double>(below) >= target) {
      const double lower = b == 0 ? 0 : static_cast<double>(BucketUpperUs(b - 1));
      return (lower + static_cast<double>(BucketUpperUs(b))) / 2;
    }
  }
  return static_cast<double>(BucketUpperUs(static_cast<uint32_t>(buckets.size()) - 1));
}

class LatencyHistogram {
 public:
  void Record(int64_t ns) {
    const uint64_t us = ns < 0 ? 0 : static_cast<uint64_t>(ns) / 1000;
    Bump(buckets_[BucketOf(us)], 1);
    Bump(sum_ns_, ns < 0 ? 0 : static_cast<uint64_t>(ns));
  }
  uint64_t bucket(uint32_t b) const { return buckets_[b].load(std::memory_order_relaxed); }
  uint64_t sum_ns() const { return sum_ns_.load(std::memory_order_relaxed); }

 private:
  static void Bump(std::atomic<uint64_t>& counter, uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  std::array<std::atomic<uint64_t>, kLatencyBuckets> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace islands::instance
