// What a message costs: round trips of an empty frame between two threads, one or several in flight, over
// each transport and over a bare socketpair. Both sides spin a little and then sleep, as a worker does, so
// two idle cores are needed for meaningful numbers.
#include <benchmark/benchmark.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <thread>

#include "instance/messaging/transport_test_util.h"
#include "instance/messaging/unix_socket.h"

namespace islands::messaging {
namespace {

class Counter : public TransportHandler {
 public:
  explicit Counter(Transport* echo_through = nullptr) : echo_through_(echo_through) {}
  void OnAccepted(ConnectionId, int64_t) override {}
  void OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) override {
    ++frames;
    if (echo_through_ != nullptr) echo_through_->Send(connection, type, payload);
  }
  void OnClosed(ConnectionId, const absl::Status&) override {}
  uint64_t frames = 0;

 private:
  Transport* const echo_through_;
};

// Polls; sleeps when that has found nothing for a while.
void PollOrSleep(Transport& transport, Counter& counter, int* idle_polls) {
  *idle_polls = transport.Poll(counter) > 0 ? 0 : *idle_polls + 1;
  if (*idle_polls > 100) transport.Wait(runtime::kNsPerMs);
}

void RoundTrip(benchmark::State& state, const std::string& kind) {
  const auto in_flight = static_cast<uint64_t>(state.range(0));
  TestNetwork network(kind);
  const std::unique_ptr<Transport> near = network.Make({0, 0});
  const std::unique_ptr<Transport> far = network.Make({1, 0});
  if (!near->Listen().ok() || !far->Listen().ok()) return state.SkipWithError("cannot listen");
  std::atomic<bool> stop{false};
  std::thread echo([&] {
    Counter counter(far.get());
    for (int idle_polls = 0; !stop.load(std::memory_order_relaxed);) {
      PollOrSleep(*far, counter, &idle_polls);
      far->Flush();
    }
  });
  Counter counter;
  const ConnectionId connection = near->Dial({1, 0});
  const auto trips = [&] {
    for (uint64_t i = 0; i < in_flight; ++i) near->Send(connection, FrameType::kProbe, {});
    near->Flush();
    int idle_polls = 0;
    for (const uint64_t until = counter.frames + in_flight; counter.frames < until;) {
      PollOrSleep(*near, counter, &idle_polls);
    }
  };
  trips();
  for (auto _ : state) trips();
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * in_flight));
  stop = true;
  echo.join();
}

void Uds(benchmark::State& state) { RoundTrip(state, "uds"); }
void Zmq(benchmark::State& state) { RoundTrip(state, "zmq"); }
void Memory(benchmark::State& state) { RoundTrip(state, "memory"); }

// What the kernel takes for the same bytes, both sides blocking in read.
void BareSocketpair(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0)) * kFrameHeaderBytes;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return state.SkipWithError("socketpair");
  UniqueFd near(fds[0]);
  const auto pass_on = [bytes](int fd, bool first) {
    std::vector<char> buffer(bytes);
    if (first && send(fd, buffer.data(), bytes, MSG_NOSIGNAL) < 0) return false;
    if (recv(fd, buffer.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) return false;
    return first || send(fd, buffer.data(), bytes, MSG_NOSIGNAL) >= 0;
  };
  std::thread echo([&, far = UniqueFd(fds[1])] {
    while (pass_on(far.get(), false)) {
    }
  });
  for (auto _ : state) pass_on(near.get(), true);
  state.SetItemsProcessed(state.iterations() * state.range(0));
  near.Reset();
  echo.join();
}

BENCHMARK(BareSocketpair)->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK(Uds)->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK(Zmq)->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK(Memory)->Arg(1)->Arg(64)->UseRealTime();

// A round of a worker that finds nothing to do.
void IdlePoll(benchmark::State& state, const std::string& kind) {
  TestNetwork network(kind);
  const std::unique_ptr<Transport> near = network.Make({0, 0});
  const std::unique_ptr<Transport> far = network.Make({1, 0});
  if (!near->Listen().ok() || !far->Listen().ok()) return state.SkipWithError("cannot listen");
  Counter counter;
  for (int i = 0; i < 23; ++i) near->Dial({1, 0});
  for (int i = 0; i < 10'000; ++i) {
    near->Poll(counter);
    far->Poll(counter);
  }
  for (auto _ : state) {
    near->Flush();
    near->Poll(counter);
  }
}
BENCHMARK_CAPTURE(IdlePoll, uds, "uds");
BENCHMARK_CAPTURE(IdlePoll, zmq, "zmq");
BENCHMARK_CAPTURE(IdlePoll, memory, "memory");

}  // namespace
}  // namespace islands::messaging
