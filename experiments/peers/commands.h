// The two ways to use the driver: a table of medians, or answers to one line after the other.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/peers/peer_driver.h"

namespace islands::experiments {

struct PeersCommand {
  PeerDriverOptions driver;
  std::vector<std::string> ops;  // "read", "update", "add"
  double seconds = 2;
  uint32_t repeat = 5;
  bool json = false;
};

// What is to be known of each engine beside its speed, as peer.h says.
nlohmann::json EnginesJson(const PeerDriver& driver);

// Measures every engine and op `repeat` times, in turn, and prints the result. The exit code.
int RunTable(const PeersCommand& command, PeerDriver& driver);

// Answers lines "ENGINE OP SECONDS [THREADS]" of standard input, each with one line of JSON, until it ends.
// The exit code: 1 when a measurement failed.
int RunServe(PeerDriver& driver);

}  // namespace islands::experiments
