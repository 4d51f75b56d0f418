// Clients of a gateway: threads that call and wait, each over a connection of its own, as so many programs
// would.
//
// One connection for all of them would be another load: gRPC reads several calls at once from it, and a
// client's threads wait for each other's writes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace islands::experiments {

enum class LoadOp : uint8_t { kGet, kPut, kAdd };

// Every transaction is one operation on each of `rows` rows of table `micro`: distinct, drawn uniformly,
// ascending.
struct LoadOptions {
  std::string address;  // as gRPC writes it: unix:PATH
  bool frames = false;  // on the socket beside it, instead of gRPC
  LoadOp op = LoadOp::kGet;
  uint32_t rows = 1;
  uint32_t clients = 16;
  uint32_t per_call = 1;  // transactions; more than one: ExecuteMany
  uint64_t range = 240'000;
  uint32_t row_bytes = 250;
  double seconds = 1;
  double warmup_s = 0.2;
  uint64_t seed = 1;
  int process = 0;  // the server's, whose processor time is wanted; 0 = none
};

// Of the measurement, without the warm-up.
struct LoadResult {
  uint64_t calls = 0;
  uint64_t transactions = 0;
  double seconds = 0;
  double p50_us = 0;  // of calls
  double p99_us = 0;
  double cpu_s = 0;  // that the server's process spent
};

// An error if any call fails, any transaction in it, or an answer is not what its operation has; and of adds
// also if all rows' counters have not become larger by as much as was added: then nobody else may change them
// meanwhile.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

}  // namespace islands::experiments
