#include "experiments/peers/peer.h"

#include <fmt/format.h>

namespace islands::experiments {
namespace {

struct Engine {
  const char* name;
  PeerNeeds needs;
  std::unique_ptr<Peer> (*make)(const PeerOptions& options);
};

constexpr Engine kEngines[] = {
    {"lmdb", {2.0, 0}, MakeLmdbPeer},
    {"rocksdb", {2.5, 1.5}, MakeRocksDbPeer},  // a compaction writes everything anew
    {"bdb", {1.5, 1.5}, MakeBerkeleyDbPeer},
    {"wiredtiger", {2.0, 2.0}, MakeWiredTigerPeer},
    {"descents", {0, 1.1}, [](const PeerOptions& options) { return MakeDescentPeer(options, false); }},
    {"interleaved", {0, 1.1}, [](const PeerOptions& options) { return MakeDescentPeer(options, true); }},
};

}  // namespace

std::vector<std::string> PeerNames() {
  std::vector<std::string> names;
  for (const Engine& engine : kEngines) names.emplace_back(engine.name);
  return names;
}

PeerNeeds NeedsOfPeer(std::string_view name) {
  for (const Engine& engine : kEngines) {
    if (name == engine.name) return engine.needs;
  }
  return {};
}

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(std::string_view name, const PeerOptions& options) {
  for (const Engine& engine : kEngines) {
    if (name == engine.name) return engine.make(options);
  }
  return absl::NotFoundError(fmt::format("no engine '{}'; there are {}", name, fmt::join(PeerNames(), ", ")));
}

}  // namespace islands::experiments
