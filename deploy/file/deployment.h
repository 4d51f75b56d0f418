// The deployment file (design, section 6): one YAML document that says which machine, how it is cut into
// islands, what data they hold and where everything lies.
//
// Parsing is strict and says everything that is wrong at once: unknown or duplicate keys, aliases, wrong
// types, bad sizes, bad names. Each complaint is one line, `file:line:column: found X, expected Y`. What
// needs the machine to be judged (cores, memory, sites against islands, socket paths) is resolve.h's
// business; it complains in the same form through Complain().
//
// Thread safety: plain values and functions.
//
// Invariants:
//  1. A Deployment that ParseDeployment returned has passed every check that needs no machine: names, types,
//     sizes, tables (storage::Catalog::Create accepts them for any number of sites).
//  2. Every error of this header is INVALID_ARGUMENT and its message is one complaint per line, in file
//     order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "topology/planner.h"

namespace islands::deploy {

inline constexpr uint32_t kDeploymentVersion = 1;
inline constexpr size_t kMaxDeploymentFileBytes = 1u << 20;

// What `machine` may be.
inline constexpr std::string_view kMachineValues =
    "auto, an hwloc XML file, what `islands machine --measure` wrote, or a synthetic string such as "
    "'pack:4 [numa] core:6 pu:1'";

// Where something stands in the file; lines and columns start at 1, as editors count.
struct Position {
  uint32_t line = 0;
  uint32_t column = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

enum class Durability { kNone, kLazy, kSync, kCommand };
enum class TransportKind { kShm, kUds, kZmq };
enum class StorageMode { kAuto, kResident, kPaged };

std::string_view DurabilityName(Durability durability);
std::string_view VotesName(bool forced);
std::string_view StorageModeName(StorageMode mode);
std::string_view TransportName(TransportKind transport);
TransportKind TransportOf(std::string_view name);  // that TransportName has given

// The front door for programs outside; without a `gateway:` in the file there is none.
struct GatewaySettings {
  std::string listen;  // HOST:PORT besides the Unix-domain socket; empty: nothing
  // PEM files, for `listen`: its own, and who vouches for clients. As the file has them.
  std::string certificate, key, clients;
  std::optional<std::vector<uint32_t>> cpus;
  uint64_t idle_ms = 10'000;          // for so long an open transaction waits for its client's next word
  uint64_t call_ms = 10'000;          // deadline of calls that bring none
  uint32_t most_transactions = 4096;  // open at a time
};

struct Deployment {
  std::string filename;  // as given; the start of every complaint
  std::string folder;    // absolute folder of the file: relative paths begin here

  std::string name = "islands";
  std::string machine = "auto";               // as kMachineValues says
  std::optional<uint32_t> core_count;         // cores: 6
  std::optional<std::vector<uint32_t>> cpus;  // cores: '0-5,12'
  bool use_all_pus = false;                   // hardware_threads: all
  std::optional<uint32_t> layout;             // 4ISL -> 4; nullopt = auto, or islands_by_hand is not empty
  std::vector<topology::ExplicitIsland> islands_by_hand;  // islands:
  topology::Placement placement = topology::Placement::kIslands;
  topology::WorkerOrder workers = topology::WorkerOrder::kGrouped;

  std::string data_directory = "data";
  std::optional<uint32_t> sites;  // nullopt = auto
  std::vector<control::v1::TableSpec> tables;

  std::optional<uint64_t> buffer_pool_bytes;  // of all islands together; nullopt = auto
  control::v1::MemoryPolicy memory_policy = control::v1::MEMORY_PREFERRED;
  bool always_latched = false;   // latching: always
  std::string without = "none";  // a technique of the engine that is left out
  StorageMode storage_mode = StorageMode::kAuto;
  std::string log_directory;  // empty: DATA/log
  Durability durability = Durability::kLazy;
  bool forced_votes = false;       // votes: forced
  std::string ring_directory;      // empty: in /dev/shm
  uint64_t ring_bytes = 8u << 20;  // of every worker's

  TransportKind transport = TransportKind::kShm;
  std::string control_directory = "run";
  uint32_t metrics_base_port = 9400;  // 0 = no metrics
  uint64_t transaction_timeout_ms = 2000;
  std::optional<GatewaySettings> gateway;
  std::optional<uint64_t> hung_ms;  // an island that does not move for so long is killed; nullopt = never

  // "storage.log.durability" or "data.tables[0].range" -> where its value stands. Keys that the file leaves
  // out are not in it.
  std::map<std::string, Position, std::less<>> positions;

  // Where `path` stands, or its nearest enclosing key that the file has, or the beginning of the file.
  Position At(std::string_view path) const;
  // "deployment.yaml:12:9: TEXT"
  std::string Complain(std::string_view path, std::string_view text) const;
};

// `filename` is used for complaints and, made absolute, to find the folder relative paths begin at. Never
// throws; any bytes may be given.
absl::StatusOr<Deployment> ParseDeployment(std::string_view text, std::string_view filename);

// Reads and parses. A file that cannot be read is INVALID_ARGUMENT too: the user named the wrong thing.
absl::StatusOr<Deployment> LoadDeployment(const std::string& path);
// For what ends a deployment: one that runs must not keep running because its file has been spoilt meanwhile.
// What is wrong goes to `*complaints`, and the rest is as far as it could be read.
absl::StatusOr<Deployment> LoadDeployment(const std::string& path, absl::Status* complaints);

}  // namespace islands::deploy
