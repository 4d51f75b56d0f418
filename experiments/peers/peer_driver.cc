#include "experiments/peers/peer_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

namespace islands::experiments {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kTransactionsPerLook = 16;  // at the clock
constexpr double kRowOverhead = 32;            // bytes: key and what engines add
constexpr double kFixedBytes = 512 << 20;      // logs, memtables, buffers

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "MemAvailable" of the kernel; infinite where it is not told.
double AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<double>::infinity();
}

// A full file system would end an engine that maps its files with SIGBUS, and full memory with the OOM
// killer.
absl::Status CheckRoom(const PeerDriverOptions& options) {
  PeerNeeds needs;
  for (const std::string& engine : options.engines) {
    const PeerNeeds more = NeedsOfPeer(engine);
    needs.files += more.files;
    needs.memory += more.memory;
  }
  const double data = static_cast<double>(options.range) * (options.row_bytes + kRowOverhead);
  const double files = needs.files > 0 ? data * needs.files + kFixedBytes : 0;
  std::error_code error;
  const auto space = std::filesystem::space(options.directory, error);
  if (!error && static_cast<double>(space.available) < files) {
    return absl::ResourceExhaustedError(
        fmt::format("'{}' has {:.1f} GB free, but {:.1f} GB may be needed; use a smaller --range, fewer "
                    "engines at a time or another --directory",
                    options.directory, static_cast<double>(space.available) / 1e9, files / 1e9));
  }
  // Files are counted here too: on tmpfs they are memory.
  const double memory = data * needs.memory + files;
  if (AvailableMemory() >= memory) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{:.1f} GB of memory are available, but {:.1f} GB may be needed; use a smaller --range or "
                  "fewer engines at a time",
                  AvailableMemory() / 1e9, memory / 1e9));
}

}  // namespace

PeerDriver::PeerDriver(const PeerDriverOptions& options)
    : options_(options), rows_(static_cast<size_t>(options.rows) * options.row_bytes) {}

absl::StatusOr<std::unique_ptr<PeerDriver>> PeerDriver::Create(const PeerDriverOptions& options, Maker make) {
  if (absl::Status status = CheckRoom(options); !status.ok()) return status;
  std::unique_ptr<PeerDriver> driver(new PeerDriver(options));
  // One site: keys are drawn over the whole of the data.
  const auto partition = partitioner::RangePartition::Create(0, static_cast<int64_t>(options.range), 1);
  if (!partition.ok()) return partition.status();
  for (const MicroOp op : {MicroOp::kRead, MicroOp::kUpdate, MicroOp::kAdd}) {
    const MicroOptions drawn = {.op = op, .rows = options.rows, .zipf = options.zipf};
    if (absl::Status fits = CheckRowsFit(drawn, *partition, 1); !fits.ok()) return fits;
    driver->generators_[op] = std::make_unique<MicroGenerator>(drawn, *partition, partitioner::SiteRun{0, 1});
  }
  for (const std::string& engine : options.engines) {
    if (absl::Status status = driver->Load(engine, make); !status.ok()) return status;
  }
  return driver;
}

absl::Status PeerDriver::Load(const std::string& engine, Maker make) {
  const std::string directory = options_.directory + "/" + engine;
  std::error_code error;
  std::filesystem::create_directory(directory, error);
  if (error) return absl::FailedPreconditionError(fmt::format("{}: {}", directory, error.message()));
  auto peer = make(engine, {directory, options_.range, options_.row_bytes});
  if (!peer.ok()) return peer.status();
  Loaded& loaded = engines_[engine];
  loaded.peer = *std::move(peer);
  const MemoryUse before = MemoryOfProcess();
  if (absl::Status status = loaded.peer->Load(); !status.ok()) return status;
  const absl::Status sum = CheckSum(engine, loaded);  // also fills its caches
  const MemoryUse after = MemoryOfProcess();
  loaded.memory = {after.bytes - std::min(after.bytes, before.bytes),
                   after.huge_bytes - std::min(after.huge_bytes, before.huge_bytes)};
  return sum;
}

absl::StatusOr<PeerMeasurement> PeerDriver::Measure(const std::string& engine, MicroOp op, double seconds,
                                                    uint64_t stream) {
  const auto found = engines_.find(engine);
  if (found == engines_.end()) return absl::NotFoundError(fmt::format("engine '{}' is not loaded", engine));
  Loaded& loaded = found->second;
  runtime::Random random = runtime::Random::Stream(options_.seed, stream);
  if (auto warmed = RunFor(loaded, op, options_.warmup_s, random); !warmed.ok()) return warmed.status();
  auto measured = RunFor(loaded, op, seconds, random);
  if (!measured.ok() || op == MicroOp::kRead) return measured;
  if (absl::Status status = CheckSum(engine, loaded); !status.ok()) return status;
  if (absl::Status status = loaded.peer->Settle(); !status.ok()) return status;
  return measured;
}

absl::Status PeerDriver::RunOne(Peer& peer, const MicroRequest& request) {
  switch (request.op) {
    case MicroOp::kRead:
      return peer.Read(request.keys, rows_.data());
    case MicroOp::kUpdate:
      return peer.Update(request.keys);
    case MicroOp::kAdd:
      return peer.Add(request.keys);
  }
  return absl::InternalError("no such op");
}

absl::StatusOr<PeerMeasurement> PeerDriver::RunFor(Loaded& loaded, MicroOp op, double seconds,
                                                   runtime::Random& random) {
  MicroGenerator& generator = *generators_.at(op);
  const std::unique_ptr<instance::Request> request = generator.MakeRequest();
  PeerMeasurement measured;
  const Clock::time_point start = Clock::now();
  while (measured.seconds < seconds) {
    for (uint32_t i = 0; i < kTransactionsPerLook; ++i) {
      generator.Next(random, *request);
      const absl::Status status = RunOne(*loaded.peer, static_cast<const MicroRequest&>(*request));
      if (!status.ok()) return status;
      loaded.committed += request->audit_delta;
    }
    measured.transactions += kTransactionsPerLook;
    measured.seconds = SecondsSince(start);
  }
  return measured;
}

absl::Status PeerDriver::CheckSum(const std::string& engine, Loaded& loaded) {
  const absl::StatusOr<int64_t> sum = loaded.peer->SumCounters();
  if (!sum.ok()) return sum.status();
  if (*sum == loaded.committed) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: committed updates add up to {}, but the rows' counters to {}",
                                         engine, loaded.committed, *sum));
}

std::map<std::string, PeerDriver::Description> PeerDriver::Describe() const {
  std::map<std::string, Description> descriptions;
  for (const auto& [name, loaded] : engines_) descriptions[name] = {loaded.peer->Facts(), loaded.memory};
  return descriptions;
}

}  // namespace islands::experiments
