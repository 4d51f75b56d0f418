#include "deploy/file/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/numbers.h"
#include "deploy/file/deployment_tables.h"
#include "deploy/file/yaml_reader.h"
#include "deploy/file/yaml_tree.h"
#include "instance/log/ring.h"
#include "instance/storage/catalog.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

bool IsDeploymentName(std::string_view name) {
  return !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Reads one document into a Deployment. Each method reads one top-level key or a group that belongs together.
class DeploymentReader {
 public:
  DeploymentReader(const YamlNode& root, Deployment* deployment, Complaints* complaints)
      : deployment_(*deployment),
        complaints_(*complaints),
        top_(root, "",
             {"version", "name", "machine", "cores", "hardware_threads", "layout", "islands", "placement",
              "workers", "without", "data", "storage", "messaging", "gateway", "control", "metrics",
              "timeouts"},
             &deployment->positions, complaints) {}

  void Read() {
    ReadIdentity();
    ReadCores();
    ReadLayout();
    ReadData();
    ReadStorage();
    ReadIslands();  // after storage: its sizes exclude each other
    ReadServices();
  }

 private:
  // A map below the document; `read` is called with it if it is there.
  template <typename Function>
  void Section(const MapReader& parent, std::string_view key, std::vector<std::string> keys, Function read) {
    if (const YamlNode* node = parent.Map(key)) {
      read(MapReader(*node, parent.Path(key), std::move(keys), &deployment_.positions, &complaints_));
    }
  }

  void ReadIdentity() {
    if (!top_.Has("version")) {
      complaints_.Add(top_.at(), "found no 'version', expected 'version: 1'");
    } else if (ParseInteger(*top_.Find("version")) != int64_t{kDeploymentVersion}) {
      top_.Unexpected("version", fmt::format("version {}, the one this program knows", kDeploymentVersion));
    }
    constexpr std::string_view kName = "a name of 1 to 32 characters from a-z, 0-9 and '-'";
    if (const auto name = top_.Text("name", kName)) {
      if (IsDeploymentName(*name)) {
        deployment_.name = *name;
      } else {
        top_.Unexpected("name", kName);
      }
    }
    if (const auto machine = top_.Text("machine", kMachineValues)) deployment_.machine = *machine;
  }

  void ReadCores() {
    if (const auto threads = top_.Word("hardware_threads", {"one", "all"})) {
      deployment_.use_all_pus = *threads == "all";
    }
    constexpr std::string_view kCores = "all, a number of cores, or a CPU list such as '0-5,12'";
    const auto text = top_.Text("cores", kCores);
    if (!text || *text == "all") return;
    if (const auto count = ParseInteger(*top_.Find("cores"))) {
      if (*count < 1 || *count > (1 << 16)) {
        top_.Unexpected("cores", kCores);
      } else {
        deployment_.core_count = static_cast<uint32_t>(*count);
      }
    } else {
      deployment_.cpus = top_.CpuList("cores", kCores);
    }
  }

  void ReadLayout() {
    if (const auto text = top_.Text("layout", topology::kLayoutWords)) {
      const auto layout = topology::ParseLayout(*text);
      if (!layout.ok()) {
        top_.Unexpected("layout", std::string(layout.status().message()));
      } else {
        deployment_.layout = *layout;
      }
    }
    if (const auto index = top_.Choice("placement", topology::kPlacementWords)) {
      deployment_.placement = static_cast<topology::Placement>(*index);
    }
    if (const auto index = top_.Choice("workers", topology::kWorkerOrderWords)) {
      deployment_.workers = static_cast<topology::WorkerOrder>(*index);
    }
    if (const auto without = top_.Word(
            "without", {"none", "huge_pages", "key_hints", "look_ahead", "lock_inheritance", "spinning"})) {
      deployment_.without = *without;
    }
  }

  void ReadIslands() {
    if (!top_.Has("islands")) return;
    for (const char* other : {"layout", "cores"}) {
      if (top_.Has(other)) {
        top_.Complain("islands",
                      fmt::format("found both 'islands' and '{0}', expected only one of them: the list says "
                                  "what '{0}' would",
                                  other));
      }
    }
    const std::vector<YamlNode>& items = top_.List("islands", "a list of islands such as {cpus: '0-5'}");
    if (items.size() > topology::kMaxIslands) {
      top_.Complain("islands", fmt::format("found {} islands, expected at most {}", items.size(),
                                           topology::kMaxIslands));
      return;
    }
    for (size_t i = 0; i < items.size(); ++i) ReadIsland(items[i], i);
    CheckIslandMemory();
  }

  void ReadIsland(const YamlNode& node, size_t number) {
    topology::ExplicitIsland& island = deployment_.islands_by_hand.emplace_back();
    const std::string path = fmt::format("islands[{}]", number);
    deployment_.positions[path] = node.at;
    if (node.kind != YamlNode::Kind::kMap) {
      complaints_.Add(node.at,
                      fmt::format("found {}, expected an island such as {{cpus: '0-5', numa_nodes: '0', "
                                  "memory: 3GiB}}",
                                  node.Describe()));
      return;
    }
    const MapReader map(node, path, {"cpus", "numa_nodes", "memory"}, &deployment_.positions, &complaints_);
    if (!map.Has("cpus"))
      map.Complain(map.at(), "found an island without 'cpus', expected a list such as '0-5,12'");
    if (auto cpus = map.CpuList("cpus", "a CPU list such as '0-5,12'")) {
      island.cpus = *std::move(cpus);
      CheckOverlap(map, number);
    }
    island.numa_nodes = map.CpuList("numa_nodes", "a list of NUMA nodes such as '0' or '0-1'");
    island.memory_bytes = map.Bytes("memory");
  }

  void CheckOverlap(const MapReader& map, size_t number) {
    for (const uint32_t cpu : deployment_.islands_by_hand[number].cpus) {
      const auto [owner, is_new] = island_of_cpu_.emplace(cpu, number);
      if (is_new) continue;
      map.Complain("cpus",
                   fmt::format("found CPU {} of island {} again, expected every CPU in one island only", cpu,
                               owner->second));
      return;
    }
  }

  // Sizes by hand make a total by themselves, so all islands have one and storage.buffer_pool has none.
  void CheckIslandMemory() {
    const auto& islands = deployment_.islands_by_hand;
    const auto said = [&](size_t i) {
      return deployment_.positions.contains(fmt::format("islands[{}].memory", i));
    };
    size_t count = 0;
    for (size_t i = 0; i < islands.size(); ++i) count += said(i) ? 1 : 0;
    if (count == 0) return;
    for (size_t i = 0; i < islands.size(); ++i) {
      if (said(i)) continue;
      complaints_.Add(deployment_.At(fmt::format("islands[{}]", i)),
                      "found an island without 'memory', expected it on every island or on none");
    }
    if (deployment_.positions.contains("storage.buffer_pool")) {
      top_.Complain("islands",
                    "found both 'memory' of islands and 'storage.buffer_pool', expected only one of them");
    }
  }

  void ReadData() {
    Section(top_, "data", {"directory", "sites", "tables"}, [&](const MapReader& data) {
      if (const auto directory = data.Directory("directory")) deployment_.data_directory = *directory;
      const YamlNode* sites = data.Find("sites");
      if (sites != nullptr && !(sites->kind == YamlNode::Kind::kScalar && sites->text == "auto")) {
        const auto count = ParseInteger(*sites);
        if (!count || *count < 1 || *count > storage::kMaxSites) {
          data.Unexpected("sites", fmt::format("auto or a whole number from 1 to {}", storage::kMaxSites));
        } else {
          deployment_.sites = static_cast<uint32_t>(*count);
        }
      }
      deployment_.tables = ReadTables(data, &deployment_.positions, &complaints_);
    });
    if (!deployment_.positions.contains("data.tables")) deployment_.tables = {DefaultTable()};
  }

  void ReadStorage() {
    Section(top_, "storage", {"buffer_pool", "mode", "memory_policy", "latching", "log"},
            [&](const MapReader& storage) { ReadStorage(storage); });
  }

  void ReadStorage(const MapReader& storage) {
    const YamlNode* pool = storage.Find("buffer_pool");
    if (pool != nullptr && !(pool->kind == YamlNode::Kind::kScalar && pool->text == "auto")) {
      deployment_.buffer_pool_bytes = storage.Bytes("buffer_pool");
    }
    if (const auto mode = storage.Word("mode", {"auto", "resident", "paged"})) {
      deployment_.storage_mode = *mode == "auto"    ? StorageMode::kAuto
                                 : *mode == "paged" ? StorageMode::kPaged
                                                    : StorageMode::kResident;
    }
    if (const auto policy = storage.Word("memory_policy", {"preferred", "bind", "default"})) {
      deployment_.memory_policy = *policy == "preferred" ? control::v1::MEMORY_PREFERRED
                                  : *policy == "bind"    ? control::v1::MEMORY_BIND
                                                         : control::v1::MEMORY_DEFAULT;
    }
    if (const auto latching = storage.Word("latching", {"auto", "always"})) {
      deployment_.always_latched = *latching == "always";
    }
    Section(storage, "log", {"directory", "durability", "votes", "ring_directory", "ring_bytes"},
            [&](const MapReader& log) { ReadLog(log); });
  }

  void ReadLog(const MapReader& log) {
    if (const auto directory = log.Directory("directory")) deployment_.log_directory = *directory;
    if (const auto directory = log.Directory("ring_directory")) deployment_.ring_directory = *directory;
    if (const auto bytes = log.Bytes("ring_bytes")) {
      deployment_.ring_bytes = *bytes;
      constexpr uint64_t kLeast = log::Ring::kLeastCapacity, kMost = log::Ring::kMostCapacity;
      if (*bytes < kLeast || *bytes > kMost || !std::has_single_bit(*bytes)) {
        log.Complain("ring_bytes", fmt::format("found {}, expected a power of two from {} to {}", *bytes,
                                               topology::FormatSize(kLeast), topology::FormatSize(kMost)));
      }
    }
    if (const auto votes = log.Word("votes", {"epoch", "forced"}))
      deployment_.forced_votes = *votes == "forced";
    if (const auto durability = log.Word("durability", {"none", "lazy", "sync", "command"})) {
      deployment_.durability = *durability == "none"   ? Durability::kNone
                               : *durability == "lazy" ? Durability::kLazy
                               : *durability == "sync" ? Durability::kSync
                                                       : Durability::kCommand;
    }
    if (deployment_.durability == Durability::kCommand && deployment_.storage_mode == StorageMode::kPaged) {
      log.Complain(
          "durability",
          "found 'command' with mode paged, expected resident or auto with it: what is repeated needs "
          "all rows in memory");
    }
    if (deployment_.forced_votes && deployment_.durability == Durability::kNone) {
      log.Complain(
          "votes",
          "found 'forced' with durability none, expected lazy, sync or command with it: without a log "
          "there is nothing that votes could wait for");
    }
  }

  void ReadServices() {
    Section(top_, "messaging", {"transport"}, [&](const MapReader& messaging) {
      if (const auto transport = messaging.Word("transport", {"shm", "uds", "zmq"}))
        deployment_.transport = TransportOf(*transport);
    });
    Section(top_, "gateway",
            {"enabled", "listen", "certificate", "key", "clients", "cpus", "idle_ms", "call_ms",
             "most_transactions"},
            [&](const MapReader& gateway) { ReadGateway(gateway); });
    Section(top_, "control", {"directory"}, [&](const MapReader& control) {
      if (const auto directory = control.Directory("directory")) deployment_.control_directory = *directory;
    });
    Section(top_, "metrics", {"base_port"}, [&](const MapReader& metrics) {
      const YamlNode* port = metrics.Find("base_port");
      if (port == nullptr) return;
      const auto value = ParseInteger(*port);
      if (!value || (*value != 0 && *value < topology::kMinPort) || *value > topology::kMaxPort) {
        metrics.Unexpected("base_port", fmt::format("a port from {} to {}, or 0 for no metrics",
                                                    topology::kMinPort, topology::kMaxPort));
      } else {
        deployment_.metrics_base_port = static_cast<uint32_t>(*value);
      }
    });
    Section(top_, "timeouts", {"transaction_ms", "hung_ms"}, [&](const MapReader& timeouts) {
      if (const auto ms = timeouts.Integer("hung_ms", 1000, 3600000)) deployment_.hung_ms = *ms;
      if (const auto ms = timeouts.Integer("transaction_ms", 1, 3600000))
        deployment_.transaction_timeout_ms = *ms;
    });
  }

  void ReadGateway(const MapReader& map) {
    GatewaySettings gateway;
    const auto enabled = map.Word("enabled", {"true", "false"});
    constexpr std::string_view kListen = "unix, or HOST:PORT for mutual TLS besides";
    if (const auto listen = map.Text("listen", kListen); listen && *listen != "unix") {
      const size_t colon = listen->rfind(':');
      uint32_t port = 0;
      const bool good = colon != std::string::npos && colon != 0 &&
                        absl::SimpleAtoi(listen->substr(colon + 1), &port) && port >= 1 &&
                        port <= topology::kMaxPort;
      if (!good) map.Unexpected("listen", kListen);
      gateway.listen = *listen;
    }
    for (const auto& [key, to] : {std::pair{"certificate", &gateway.certificate},
                                  std::pair{"key", &gateway.key}, std::pair{"clients", &gateway.clients}}) {
      if (const auto path = map.Text(key, "the path of a PEM file")) *to = *path;
      if (gateway.listen.empty() == to->empty()) continue;
      map.Complain(
          gateway.listen.empty() ? key : "listen",
          gateway.listen.empty()
              ? fmt::format("found '{}' without an address to listen on, expected 'listen: HOST:PORT'", key)
              : fmt::format("found no '{}', expected the PEM files 'certificate', 'key' and 'clients' (who "
                            "vouches for clients): without them nobody is let in over TCP",
                            key));
    }
    if (map.Has("cpus")) gateway.cpus = map.CpuList("cpus", "a CPU list such as '0-5,12'");
    if (const auto ms = map.Integer("idle_ms", 1, 3600000)) gateway.idle_ms = *ms;
    if (const auto ms = map.Integer("call_ms", 1, 3600000)) gateway.call_ms = *ms;
    if (const auto most = map.Integer("most_transactions", 1, 1000000))
      gateway.most_transactions = static_cast<uint32_t>(*most);
    if (!enabled || *enabled == "true") deployment_.gateway = std::move(gateway);
  }

  Deployment& deployment_;
  Complaints& complaints_;
  const MapReader top_;
  std::map<uint32_t, size_t> island_of_cpu_;
};

std::string AbsoluteFolder(const std::string& filename) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(filename, error);
  return error ? "" : absolute.lexically_normal().parent_path().string();
}

// Nullopt: there is nothing to read on with.
std::optional<Deployment> Read(std::string_view text, Complaints* complaints, std::string_view filename) {
  Deployment deployment;
  deployment.filename = filename;
  deployment.folder = AbsoluteFolder(deployment.filename);
  if (text.size() > kMaxDeploymentFileBytes) {
    complaints->Add(Position{1, 1}, fmt::format("found {} bytes, expected a deployment file of at most {}",
                                                text.size(), topology::FormatSize(kMaxDeploymentFileBytes)));
    return std::nullopt;
  }
  YamlNode root;
  if (!ParseYaml(text, &root, complaints)) return std::nullopt;
  if (root.kind != YamlNode::Kind::kMap) {
    complaints->Add(root.at,
                    fmt::format("found {}, expected a map that starts with 'version: 1'", root.Describe()));
    return std::nullopt;
  }
  DeploymentReader(root, &deployment, complaints).Read();
  return deployment;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(fmt::format("{}: found a directory, expected a deployment file", path));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    const std::string why = std::error_code(errno, std::generic_category()).message();
    return absl::InvalidArgumentError(
        fmt::format("{}: cannot be read ({}); expected a deployment file, for example from `islands template "
                    "2ISL --output {}`",
                    path, why, path));
  }
  std::string text(kMaxDeploymentFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

}  // namespace

std::string_view VotesName(bool forced) { return forced ? "forced" : "epoch"; }

std::string_view StorageModeName(StorageMode mode) {
  switch (mode) {
    case StorageMode::kAuto:
      return "auto";
    case StorageMode::kResident:
      return "resident";
    case StorageMode::kPaged:
      return "paged";
  }
  return "";
}

std::string_view DurabilityName(Durability durability) {
  switch (durability) {
    case Durability::kNone:
      return "none";
    case Durability::kLazy:
      return "lazy";
    case Durability::kSync:
      return "sync";
    case Durability::kCommand:
      return "command";
  }
  return "";
}

std::string_view TransportName(TransportKind transport) {
  switch (transport) {
    case TransportKind::kShm:
      return "shm";
    case TransportKind::kUds:
      return "uds";
    case TransportKind::kZmq:
      return "zmq";
  }
  return "";
}

TransportKind TransportOf(std::string_view name) {
  using enum TransportKind;
  return name == TransportName(kUds) ? kUds : name == TransportName(kZmq) ? kZmq : kShm;
}

Position Deployment::At(std::string_view path) const {
  while (!path.empty()) {
    if (const auto found = positions.find(path); found != positions.end()) return found->second;
    const size_t end = path.find_last_of(".[");
    path = end == std::string_view::npos ? "" : path.substr(0, end);
  }
  return Position{1, 1};
}

std::string Deployment::Complain(std::string_view path, std::string_view text) const {
  const Position at = At(path);
  return fmt::format("{}:{}:{}: {}", filename, at.line, at.column, text);
}

absl::StatusOr<Deployment> ParseDeployment(std::string_view text, std::string_view filename) {
  Complaints complaints{std::string(filename)};
  std::optional<Deployment> deployment = Read(text, &complaints, filename);
  if (!complaints.empty()) return complaints.ToStatus();
  return *std::move(deployment);
}

absl::StatusOr<Deployment> LoadDeployment(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  return ParseDeployment(*text, path);
}

absl::StatusOr<Deployment> LoadDeployment(const std::string& path, absl::Status* complaints) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  Complaints found(path);
  std::optional<Deployment> deployment = Read(*text, &found, path);
  *complaints = found.ToStatus();
  if (!deployment) return *complaints;
  return *std::move(deployment);
}

}  // namespace islands::deploy
