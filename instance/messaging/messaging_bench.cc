// What a message between two islands costs. Two processes on two cores, as two one-worker islands are: each
// runs Links under the scheduler that runs the workers, and spins. Beside it, in alternating rounds, the same
// bytes bounce over a bare socket of the same kind (of shm: over the socket that it spares) between two
// spinning loops. Medians of the rounds.
//
// Also: one message in flight on each of 46 connections, as among 24 islands, and what a round costs in which
// nothing comes on any of them. Text, or a JSON list with an object per transport.
//
// Longer than most files: the islands, the bare loops and their processes belong to one measurement.
//
//   messaging_bench [--json] [--rounds N] [--milliseconds M]     M per measurement
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <zmq.hpp>

#include "instance/messaging/links.h"
#include "instance/messaging/transport_test_util.h"
#include "instance/messaging/unix_socket.h"
#include "proto/data.pb.h"
#include "runtime/scheduler.h"

namespace islands::messaging {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kNear = 0;  // island and core
constexpr uint32_t kFar = 1;

struct Options {
  bool json = false;
  int rounds = 7;
  milliseconds time{120};
};

// Between the processes of one measurement.
struct Shared {
  std::atomic<bool> listening{false};  // the far side
  std::atomic<bool> stop{false};
  std::atomic<double> ns_each{0};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the near side received: how long each batch took. The median batch is one that nobody else on the core
// has interrupted. Owned by the thread that receives.
class Tally {
 public:
  explicit Tally(int in_flight) : batch_(std::max<uint64_t>(16, 4 * static_cast<uint64_t>(in_flight))) {
    batches_ns_.reserve(1 << 20);
  }
  void Count() {
    if (++received_ % batch_ != 0) return;
    begun_ = true;
    const int64_t now_ns = clock_.NowNs();
    if (last_ns_ != 0 && batches_ns_.size() < batches_ns_.capacity()) {
      batches_ns_.push_back(static_cast<double>(now_ns - last_ns_) / static_cast<double>(batch_));
    }
    last_ns_ = now_ns;
  }
  // From another thread: until a first batch is there. Beside other programs the two sides take long to meet,
  // and the time that is measured must not be over by then.
  void WaitForFirst() const {
    constexpr int64_t kPatienceNs = 20 * runtime::kNsPerSecond;
    const int64_t until_ns = clock_.NowNs() + kPatienceNs;
    while (!begun_ && clock_.NowNs() < until_ns) std::this_thread::sleep_for(milliseconds(1));
  }
  // Without the first quarter, the warm-up; 0 if there was nothing.
  double NsEach() const {
    std::vector<double> counted(batches_ns_.begin() + static_cast<ptrdiff_t>(batches_ns_.size() / 4),
                                batches_ns_.end());
    return counted.empty() ? 0 : Median(std::move(counted));
  }

 private:
  std::atomic<bool> begun_ = false;
  const uint64_t batch_;  // many rounds even when many messages arrive together
  const runtime::MonotonicClock clock_;
  uint64_t received_ = 0;
  int64_t last_ns_ = 0;
  std::vector<double> batches_ns_;
};

// A worker that does nothing but pass messages. The near one begins, the far one answers.
class Party : public runtime::Runnable {
 public:
  Party(const std::string& kind, const std::string& directory, uint32_t self, int in_flight)
      : near_(self == kNear), received_(in_flight) {
    auto transport = MakeTransport(kind, directory, {self, 0});
    if (!transport.ok()) std::abort();
    transport_ = std::move(*transport);
  }

  bool RunOnce() override {
    now_ns_ = clock_.NowNs();  // as a worker's round does
    const size_t work = Poll();
    transport_->Flush();
    return work != 0;
  }
  void Sleep(int64_t timeout_ns) override { transport_->Wait(timeout_ns); }
  void Wake() override { transport_->Wake(); }
  int64_t NextDeadlineNs() const override { return std::numeric_limits<int64_t>::max(); }

  const runtime::Clock& clock() const { return clock_; }
  const Tally& received() const { return received_; }

 protected:
  virtual size_t Poll() = 0;

  const bool near_;
  const runtime::MonotonicClock clock_;
  std::unique_ptr<Transport> transport_;
  int64_t now_ns_ = 0;
  Tally received_;
};

// An island: its messages go through Links. `in_flight` at a time.
class Island final : public Party, private LinksHandler {
 public:
  Island(const std::string& kind, const std::string& directory, uint32_t self, int in_flight)
      : Party(kind, directory, self, in_flight), in_flight_(in_flight) {
    LinksOptions options{.cluster_id = "bench", .self = {self, 0}, .boot_epoch = 1};
    options.workers_per_island = {1, 1};
    links_.emplace(options, *transport_, clock_, static_cast<LinksHandler&>(*this));
    if (!links_->Start().ok()) std::abort();
  }
  int64_t NextDeadlineNs() const override { return links_->NextDeadlineNs(); }

 private:
  size_t Poll() override { return links_->Poll(); }
  void OnPeerUp(uint32_t island, uint64_t) override {
    for (int i = 0; near_ && i < in_flight_; ++i) links_->Send(island, FrameType::kAcknowledge, message_);
  }
  void OnPeerLost(uint32_t, uint64_t, const absl::Status&) override {}
  void OnMessage(const Origin& origin, FrameType type, std::span<const std::byte> payload) override {
    if (!payload.empty()) std::abort();
    received_.Count();
    if (near_) {
      links_->Send(origin.peer.island, type, message_);
    } else {
      links_->SendBack(origin, type, message_);
    }
  }

  const int in_flight_;
  std::optional<Links> links_;
  data::v1::Acknowledge message_;
};

// Many connections between two bare transports, a frame under way on each: a worker among many islands.
class Crowd final : public Party, private TransportHandler {
 public:
  Crowd(const std::string& kind, const std::string& directory, uint32_t self, int connections)
      : Party(kind, directory, self, connections) {
    if (!transport_->Listen().ok()) std::abort();
    for (int i = 0; near_ && i < connections; ++i) {
      transport_->Send(transport_->Dial({kFar, 0}), FrameType::kAcknowledge, {});
    }
  }
  void Dial(int connections) {
    for (int i = 0; i < connections; ++i) transport_->Dial({kFar, 0});
  }

 private:
  size_t Poll() override { return transport_->Poll(*this); }
  void OnAccepted(ConnectionId, int64_t) override {}
  void OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) override {
    received_.Count();
    transport_->Send(connection, type, payload);
  }
  void OnClosed(ConnectionId, const absl::Status&) override {}
};

// A round in which nothing comes, on a transport with that many connections.
double IdleRoundNs(const std::string& kind, const std::string& directory, int connections) {
  Crowd near(kind, directory, kNear, 0);
  Crowd far(kind, directory, kFar, 0);
  near.Dial(connections);
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds / 4; ++i) {
    near.RunOnce();
    far.RunOnce();
  }
  const int64_t begun_ns = near.clock().NowNs();
  for (int i = 0; i < kRounds; ++i) near.RunOnce();
  return static_cast<double>(near.clock().NowNs() - begun_ns) / kRounds;
}

// Runs one side until the near one has measured.
template <typename Kind>
void RunParty(const Options& options, Shared& shared, const std::string& kind, const std::string& directory,
              uint32_t self, int count) {
  Kind party(kind, directory, self, count);
  const auto scheduler = runtime::MakeThreadScheduler(party.clock(), {});
  scheduler->Start({&party});
  if (self == kNear) {
    party.received().WaitForFirst();
    std::this_thread::sleep_for(options.time);
    shared.stop = true;
  } else {
    shared.listening = true;
    while (!shared.stop) std::this_thread::sleep_for(milliseconds(1));
  }
  scheduler->Stop();
  if (self == kNear) shared.ns_each = party.received().NsEach();
}

// The bare loops: as little as a spinning program can do for the same bytes.
struct BareSocket {
  std::function<bool()> receive;  // false: nothing is there
  std::function<void()> send;
  bool yields;  // when nothing is there: to ZeroMQ's I/O thread on the same core, else it takes longer
};

void RunBare(const Options& options, Shared& shared, const BareSocket& socket, bool near) {
  Tally received(1);
  std::thread loop([&] {
    if (near) socket.send();
    while (!shared.stop.load(std::memory_order_relaxed)) {
      if (!socket.receive()) {
        if (socket.yields) sched_yield();
        continue;
      }
      received.Count();
      socket.send();
    }
  });
  if (near) {
    received.WaitForFirst();
    std::this_thread::sleep_for(options.time);
    shared.stop = true;
  }
  loop.join();
  if (near) shared.ns_each = received.NsEach();
}

void BareUds(const Options& options, Shared& shared, int fd, bool near) {
  std::array<std::byte, kFrameHeaderBytes> frame{};
  const auto receive = [&] { return recv(fd, frame.data(), frame.size(), MSG_DONTWAIT) > 0; };
  const auto send = [&] {
    if (::send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) std::abort();
  };
  RunBare(options, shared, {receive, send, false}, near);
}

// DEALER to ROUTER, which are the sockets of the zmq transport.
void BareZmq(const Options& options, Shared& shared, const std::string& directory, bool near) {
  zmq::context_t context(1);
  zmq::socket_t socket(context, near ? zmq::socket_type::dealer : zmq::socket_type::router);
  socket.set(zmq::sockopt::linger, 0);
  const std::string endpoint = "ipc://" + directory + "/bare";
  if (near) {
    socket.connect(endpoint);
  } else {
    socket.bind(endpoint);
    shared.listening = true;
  }
  std::array<std::byte, kFrameHeaderBytes> frame{};
  std::array<std::byte, 64> routing_id;
  int routing_id_bytes = 0;
  void* const handle = socket.handle();
  const auto receive = [&] {
    if (!near) routing_id_bytes = zmq_recv(handle, routing_id.data(), routing_id.size(), ZMQ_DONTWAIT);
    return routing_id_bytes >= 0 && zmq_recv(handle, frame.data(), frame.size(), ZMQ_DONTWAIT) >= 0;
  };
  const auto send = [&] {
    if (!near) zmq_send(handle, routing_id.data(), static_cast<size_t>(routing_id_bytes), ZMQ_SNDMORE);
    if (zmq_send(handle, frame.data(), frame.size(), ZMQ_DONTWAIT) < 0) std::abort();
  };
  RunBare(options, shared, {receive, send, true}, near);
}

// Runs `side(self)` in a process for each side, pinned to a core each; the near one measures.
void RunSides(Shared& shared, const std::vector<int>& cores, const std::function<void(uint32_t)>& side) {
  shared.listening = shared.stop = false;
  shared.ns_each = 0;
  pid_t children[2];
  for (const uint32_t self : {kFar, kNear}) {
    children[self] = fork();
    if (children[self] != 0) continue;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(cores[self], &core);
    sched_setaffinity(0, sizeof(core), &core);
    while (self == kNear && !shared.listening) std::this_thread::yield();
    side(self);
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) < 0 || status != 0) shared.stop = shared.listening = true;
  }
}

// What the near side measured. On a crowded machine too little may come through at first.
double Measure(Shared& shared, const std::vector<int>& cores, const std::function<void(uint32_t)>& side) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    RunSides(shared, cores, side);
    if (shared.ns_each > 0) return shared.ns_each;
  }
  fmt::print(stderr, "messaging_bench: no message came through\n");
  std::exit(1);
}

constexpr int kConnections = 46;  // of a one-worker island among 24: 23 dialled, 23 accepted

struct Result {
  std::string kind;
  double bare_ns, island_ns, of_64_ns, of_46_connections_ns, idle_round_ns;
};

Result MeasureKind(const std::string& kind, const Options& options, Shared& shared,
                   const std::vector<int>& cores) {
  const auto bare = [&] {
    TemporaryDirectory directory;
    int fds[2] = {-1, -1};
    if (kind != "zmq" && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    const UniqueFd sides[2] = {UniqueFd(fds[0]), UniqueFd(fds[1])};
    shared.listening = false;
    return Measure(shared, cores, [&](uint32_t self) {
      if (kind == "zmq") return BareZmq(options, shared, directory.path(), self == kNear);
      shared.listening = true;
      BareUds(options, shared, sides[self].get(), self == kNear);
    });
  };
  const auto islands = [&](int in_flight) {
    TemporaryDirectory directory;
    return Measure(shared, cores, [&](uint32_t self) {
      RunParty<Island>(options, shared, kind, directory.path(), self, in_flight);
    });
  };
  const auto crowd = [&](int connections) {
    TemporaryDirectory directory;
    return Measure(shared, cores, [&](uint32_t self) {
      RunParty<Crowd>(options, shared, kind, directory.path(), self, connections);
    });
  };
  const auto idle = [&] {
    TemporaryDirectory directory;
    return Measure(shared, cores, [&](uint32_t self) {
      if (self == kNear) shared.ns_each = IdleRoundNs(kind, directory.path(), kConnections);
      shared.listening = true;
    });
  };
  std::vector<double> of[5];
  for (int round = 0; round < options.rounds; ++round) {
    of[0].push_back(bare());
    of[1].push_back(islands(1));
    of[2].push_back(islands(64));
    of[3].push_back(crowd(kConnections));
    of[4].push_back(idle());
  }
  return {kind, Median(of[0]), Median(of[1]), Median(of[2]), Median(of[3]), Median(of[4])};
}

void Print(const Result& result, bool json) {
  const double ratio = result.island_ns / result.bare_ns;
  const double share = result.of_64_ns / result.bare_ns;
  if (json) {
    fmt::print(
        R"({{"transport": "{}", "bare_round_trip_ns": {:.0f}, "round_trip_ns": {:.0f}, )"
        R"("round_trip_to_bare": {:.3f}, "in_flight_64_each_ns": {:.0f}, )"
        R"("in_flight_64_to_bare": {:.3f}, "connections_46_each_ns": {:.0f}, "idle_round_ns": {:.0f}}})",
        result.kind, result.bare_ns, result.island_ns, ratio, result.of_64_ns, share,
        result.of_46_connections_ns, result.idle_round_ns);
    return;
  }
  fmt::print("{:<10}{:>12.0f}{:>12.0f}{:>9.2f}{:>14.0f}{:>9.3f}{:>16.0f}{:>12.0f}\n", result.kind,
             result.bare_ns, result.island_ns, ratio, result.of_64_ns, share, result.of_46_connections_ns,
             result.idle_round_ns);
}

std::vector<int> TwoCores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int cpu = 0; cpu < CPU_SETSIZE && cores.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cores.push_back(cpu);
  }
  return cores;
}

std::optional<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (name == "--json") {
      options.json = true;
    } else if (name == "--rounds" && value > 0) {
      options.rounds = value, ++i;
    } else if (name == "--milliseconds" && value > 0) {
      options.time = milliseconds(value), ++i;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

int Main(int argc, char** argv) {
  const std::optional<Options> options = ParseOptions(argc, argv);
  if (!options) {
    fmt::print(stderr, "usage: messaging_bench [--json] [--rounds N] [--milliseconds M]\n");
    return 2;
  }
  const std::vector<int> cores = TwoCores();
  if (cores.size() < 2) {
    fmt::print(stderr, "messaging_bench: needs two cores that this process may use\n");
    return 1;
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Shared& shared = *std::construct_at(static_cast<Shared*>(memory));
  if (!options->json) {
    fmt::print("ns per message sent and answered; ratios to the bare round trip\n");
    fmt::print("{:<10}{:>12}{:>12}{:>9}{:>14}{:>9}{:>16}{:>12}\n", "transport", "bare", "islands", "ratio",
               "64 in flight", "ratio", "46 connections", "idle round");
  }
  const char* separator = "[";
  for (const char* kind : {"uds", "shm", "zmq"}) {
    const Result result = MeasureKind(kind, *options, shared, cores);
    if (options->json) fmt::print("{}", std::exchange(separator, ", "));
    Print(result, options->json);
    std::fflush(stdout);
  }
  if (options->json) fmt::print("]\n");
  return 0;
}

}  // namespace
}  // namespace islands::messaging

int main(int argc, char** argv) { return islands::messaging::Main(argc, argv); }
