#include "experiments/peers/peer.h"

#include <fmt/format.h>

namespace islands::experiments {
namespace {

constexpr double kServerFiles = 1.5 * (1 << 30);  // logs, system tables

struct Engine {
  const char* name;
  PeerNeeds needs;
  std::unique_ptr<Peer> (*make)(const PeerOptions& options);
  bool by_default = true;
  bool keeps = true;  // lazy and sync as well
  std::string (*server)() = nullptr;
};

const std::vector<Engine>& Engines() {
  static const std::vector<Engine> engines = {
      {"lmdb", {2.0, 0}, MakeLmdbPeer},
      {"rocksdb", {2.5, 1.5}, MakeRocksDbPeer},  // a compaction writes everything anew
      {"bdb", {1.5, 1.5}, MakeBerkeleyDbPeer},
      {"wiredtiger", {2.0, 2.0}, MakeWiredTigerPeer},
      {.name = "descents",
       .needs = {0, 1.1},
       .make = [](const PeerOptions& options) { return MakeDescentPeer(options, false); },
       .keeps = false},
      {.name = "interleaved",
       .needs = {0, 1.1},
       .make = [](const PeerOptions& options) { return MakeDescentPeer(options, true); },
       .keeps = false},
#ifdef ISLANDS_PEERS_SQLITE
      {.name = "sqlite", .needs = {3.0, 1.5}, .make = MakeSqlitePeer, .by_default = false},
#endif
#ifdef ISLANDS_PEERS_POSTGRES
      {.name = "postgres",
       .needs = {3.0, 3.0, kServerFiles},
       .make = MakePostgresPeer,
       .by_default = false,
       .server = [] { return PostgresProgram("postgres"); }},
#endif
#ifdef ISLANDS_PEERS_MARIADB
      {.name = "mariadb",
       .needs = {3.0, 2.0, kServerFiles},
       .make = MakeMariaDbPeer,
       .by_default = false,
       .server = MariaDbProgram},
#endif
  };
  return engines;
}

const Engine* Find(std::string_view name) {
  for (const Engine& engine : Engines()) {
    if (name == engine.name) return &engine;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> DefaultPeerNames() {
  std::vector<std::string> names;
  for (const Engine& engine : Engines()) {
    if (engine.by_default) names.emplace_back(engine.name);
  }
  return names;
}

std::vector<std::string> PeerNames() {
  std::vector<std::string> names;
  for (const Engine& engine : Engines()) names.emplace_back(engine.name);
  return names;
}

PeerNeeds NeedsOfPeer(std::string_view name) {
  const Engine* const engine = Find(name);
  return engine == nullptr ? PeerNeeds{} : engine->needs;
}

absl::Status PeerIsInstalled(std::string_view name) {
  const Engine* const engine = Find(name);
  if (engine == nullptr || engine->server == nullptr || !engine->server().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: its server is not installed; deploy/install-packages.sh engines installs it", name));
}

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(std::string_view name, const PeerOptions& options) {
  const Engine* const engine = Find(name);
  if (engine == nullptr) {
    return absl::NotFoundError(
        fmt::format("no engine '{}'; there are {}", name, fmt::join(PeerNames(), ", ")));
  }
  if (!engine->keeps && options.durability != PeerDurability::kNone)
    return absl::FailedPreconditionError(fmt::format("{} keeps nothing: --durability none", name));
  if (options.cache_bytes != 0 && options.durability == PeerDurability::kNone)
    return absl::FailedPreconditionError("data in a cache are on a disk: --durability lazy or sync");
  if (absl::Status status = PeerIsInstalled(name); !status.ok()) return status;
  return engine->make(options);
}

}  // namespace islands::experiments
