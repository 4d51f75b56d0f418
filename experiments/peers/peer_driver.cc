#include "experiments/peers/peer_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

namespace islands::experiments {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kTransactionsPerLook = 16;  // at the clock
constexpr size_t kRowsPerSum = 100;            // read in a transaction to be added up
constexpr std::chrono::milliseconds kSyncEvery{1000};
constexpr double kRowOverhead = 32;        // bytes: key and what engines add
constexpr double kFixedBytes = 512 << 20;  // logs, memtables, buffers

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
    needs.fixed_bytes += more.fixed_bytes;
  }
  const double data = static_cast<double>(options.range) * (options.row_bytes + kRowOverhead);
  const double files = needs.files > 0 ? data * needs.files + kFixedBytes + needs.fixed_bytes : 0;
  std::error_code error;
  const auto space = std::filesystem::space(options.directory, error);
  if (!error && static_cast<double>(space.available) < files) {
    return absl::ResourceExhaustedError(
        fmt::format("'{}' has {:.1f} GB free, but {:.1f} GB may be needed; use a smaller --range, fewer "
                    "engines at a time or another --directory",
                    options.directory, static_cast<double>(space.available) / 1e9, files / 1e9));
  }
  // Files are counted here too: on tmpfs they are memory.
  const double in_memory = data * needs.memory + files;
  const double cached =
      static_cast<double>(options.cache_bytes) * 2 * static_cast<double>(options.engines.size());
  const double memory = options.cache_bytes != 0 ? cached : in_memory;
  if (AvailableMemory() >= memory) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{:.1f} GB of memory are available, but {:.1f} GB may be needed; use a smaller --range or "
                  "fewer engines at a time",
                  AvailableMemory() / 1e9, memory / 1e9));
}

absl::Status RunOne(Peer& peer, const MicroRequest& request, std::byte* rows) {
  switch (request.op) {
    case MicroOp::kRead:
      return peer.Read(request.keys, rows);
    case MicroOp::kUpdate:
      return peer.Update(request.keys);
    case MicroOp::kAdd:
      return peer.Add(request.keys);
  }
  return absl::InternalError("no such op");
}

}  // namespace

absl::Status PeerDriver::MakeCallers() {
  // One site: keys are drawn over the whole of the data.
  const auto partition = partitioner::RangePartition::Create(0, static_cast<int64_t>(options_.range), 1);
  if (!partition.ok()) return partition.status();
  callers_.resize(options_.threads);
  for (Caller& caller : callers_) {
    caller.rows.resize(std::max<size_t>(options_.rows, kRowsPerSum) * options_.row_bytes);
    for (const MicroOp op : {MicroOp::kRead, MicroOp::kUpdate, MicroOp::kAdd}) {
      const MicroOptions drawn = {.op = op, .rows = options_.rows, .zipf = options_.zipf};
      if (absl::Status fits = CheckRowsFit(drawn, *partition, 1); !fits.ok()) return fits;
      caller.generators[op] = std::make_unique<MicroGenerator>(drawn, *partition, partitioner::SiteRun{0, 1});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PeerDriver>> PeerDriver::Create(const PeerDriverOptions& options, Maker make) {
  if (absl::Status status = CheckRoom(options); !status.ok()) return status;
  std::unique_ptr<PeerDriver> driver(new PeerDriver(options));
  if (absl::Status status = driver->MakeCallers(); !status.ok()) return status;
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
  auto peer = make(engine, {directory, options_.range, options_.row_bytes, options_.cache_bytes,
                            options_.durability, options_.threads});
  if (!peer.ok()) return peer.status();
  Loaded& loaded = engines_[engine];
  loaded.peer = *std::move(peer);
  const MemoryUse before = MemoryOfProcess();
  if (absl::Status status = loaded.peer->Load(); !status.ok()) return status;
  while (in_threads() && loaded.sessions.size() < callers_.size()) {
    auto session = loaded.peer->Session();
    if (!session.ok()) return session.status();
    loaded.sessions.push_back(*std::move(session));
  }
  const absl::Status sum = CheckSum(engine, loaded);  // also fills its caches
  const MemoryUse after = MemoryOfProcess();
  const MemoryUse server = loaded.peer->ServerMemory();
  loaded.memory = {after.bytes - std::min(after.bytes, before.bytes) + server.bytes,
                   after.huge_bytes - std::min(after.huge_bytes, before.huge_bytes) + server.huge_bytes};
  return sum;
}

absl::StatusOr<PeerMeasurement> PeerDriver::Measure(const std::string& engine, MicroOp op, double seconds,
                                                    uint64_t stream, uint32_t threads) {
  const auto found = engines_.find(engine);
  if (found == engines_.end()) return absl::NotFoundError(fmt::format("engine '{}' is not loaded", engine));
  Loaded& loaded = found->second;
  if (threads > options_.threads)
    return absl::InvalidArgumentError(
        fmt::format("found {} threads, expected 1 to {}", threads, options_.threads));
  const size_t used = threads == 0 ? callers_.size() : threads;
  for (size_t i = 0; i < callers_.size(); ++i) {
    callers_[i].random = runtime::Random::Stream(options_.seed, stream * callers_.size() + i);
  }
  if (auto warmed = RunFor(loaded, op, options_.warmup_s, used); !warmed.ok()) return warmed.status();
  auto measured = RunFor(loaded, op, seconds, used);
  if (!measured.ok() || op == MicroOp::kRead) return measured;
  if (absl::Status status = CheckSum(engine, loaded); !status.ok()) return status;
  // Where data are larger than memory its debts are a part of what it costs, and the next measurement has
  // them.
  if (options_.cache_bytes != 0) return measured;
  if (absl::Status status = loaded.peer->Settle(); !status.ok()) return status;
  return measured;
}

template <typename Work>
absl::Status PeerDriver::InThreads(Loaded& loaded, size_t count, const Work& work) {
  std::mutex mutex;
  std::condition_variable over;
  size_t running = count;
  std::vector<std::thread> threads;
  for (size_t number = 0; number < count; ++number) {
    threads.emplace_back([&, number] {
      work(number);
      const std::lock_guard lock(mutex);
      if (--running == 0) over.notify_one();
    });
  }
  absl::Status status;
  std::chrono::milliseconds wait = kSyncEvery / 2;  // so that a measurement of a second has a sync, too
  for (std::unique_lock lock(mutex); !over.wait_for(lock, wait, [&] { return running == 0; });) {
    wait = kSyncEvery;
    lock.unlock();
    if (options_.durability == PeerDurability::kLazy) status.Update(loaded.peer->Sync());
    lock.lock();
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

absl::StatusOr<PeerMeasurement> PeerDriver::RunFor(Loaded& loaded, MicroOp op, double seconds,
                                                   size_t threads) {
  std::vector<Part> parts(threads);
  absl::Status status;
  if (loaded.sessions.empty()) {
    parts[0] = RunPart(callers_[0], *loaded.peer, op, seconds, kTransactionsPerLook);
  } else {
    status = InThreads(loaded, threads, [&](size_t number) {
      parts[number] = RunPart(callers_[number], *loaded.sessions[number], op, seconds, 1);
    });
  }
  PeerMeasurement measured;
  for (const Part& part : parts) {
    status.Update(part.status);
    loaded.committed += part.committed;
    measured.transactions += part.measured.transactions;
    measured.seconds = std::max(measured.seconds, part.measured.seconds);
  }
  if (!status.ok()) return status;
  return measured;
}

PeerDriver::Part PeerDriver::RunPart(Caller& caller, Peer& peer, MicroOp op, double seconds,
                                     uint32_t transactions_per_look) const {
  MicroGenerator& generator = *caller.generators.at(op);
  const std::unique_ptr<instance::Request> request = generator.MakeRequest();
  Part part;
  const Clock::time_point start = Clock::now();
  while (part.measured.seconds < seconds) {
    for (uint32_t i = 0; i < transactions_per_look; ++i) {
      generator.Next(caller.random, *request);
      do {
        part.status = RunOne(peer, static_cast<const MicroRequest&>(*request), caller.rows.data());
      } while (absl::IsAborted(part.status));
      if (!part.status.ok()) return part;
      part.committed += request->audit_delta;
    }
    part.measured.transactions += transactions_per_look;
    part.measured.seconds = SecondsSince(start);
  }
  return part;
}

// Sessions read all rows, each a part of them: a single thread would wait for one page of the disk after the
// other.
absl::StatusOr<int64_t> PeerDriver::Sum(Loaded& loaded) {
  if (loaded.sessions.empty()) return loaded.peer->SumCounters();
  std::vector<absl::StatusOr<int64_t>> sums(callers_.size(), 0);
  std::atomic<uint64_t> next = 0;
  absl::Status status = InThreads(loaded, callers_.size(), [&](size_t number) {
    std::byte* const rows = callers_[number].rows.data();
    std::vector<uint64_t> keys;
    for (uint64_t begin; sums[number].ok() && (begin = next.fetch_add(kRowsPerSum)) < options_.range;) {
      keys.resize(std::min<uint64_t>(kRowsPerSum, options_.range - begin));
      std::iota(keys.begin(), keys.end(), begin);
      if (absl::Status read = loaded.sessions[number]->Read(keys, rows); !read.ok()) sums[number] = read;
      for (size_t i = 0; i < keys.size() && sums[number].ok(); ++i) {
        *sums[number] += CounterOf(rows + i * options_.row_bytes);
      }
    }
  });
  int64_t all = 0;
  for (const absl::StatusOr<int64_t>& sum : sums) {
    status.Update(sum.status());
    all += sum.value_or(0);
  }
  if (!status.ok()) return status;
  return all;
}

absl::Status PeerDriver::CheckSum(const std::string& engine, Loaded& loaded) {
  const absl::StatusOr<int64_t> sum = Sum(loaded);
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
