// What the tests of this folder share: a handler that remembers, directories that vanish, and the three
// networks.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "instance/messaging/memory_transport.h"
#include "instance/messaging/transport.h"
#include "instance/messaging/transport_factory.h"

namespace islands::messaging {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "islands-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A network of one kind: "shm", "uds", "zmq" or "memory".
class TestNetwork {
 public:
  explicit TestNetwork(std::string kind) : kind_(std::move(kind)) {}
  std::unique_ptr<Transport> Make(Address self) {
    if (kind_ == "memory") return hub_.MakeTransport(self);
    auto transport = MakeTransport(kind_, directory_.path(), self);
    if (!transport.ok()) std::abort();
    return std::move(*transport);
  }
  const std::string& kind() const { return kind_; }
  const std::string& directory() const { return directory_.path(); }
  MemoryHub& hub() { return hub_; }

 private:
  const std::string kind_;
  TemporaryDirectory directory_;
  MemoryHub hub_;
};

inline std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string AsString(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Remembers everything; `on_frame` may do more.
class Recorder : public TransportHandler {
 public:
  struct Frame {
    ConnectionId connection;
    FrameType type;
    std::string payload;
  };

  void OnAccepted(ConnectionId connection, int64_t peer_uid) override {
    accepted.push_back(connection);
    uids.push_back(peer_uid);
  }
  void OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) override {
    frames.push_back({connection, type, AsString(payload)});
    if (on_frame) on_frame(connection, type, payload);
  }
  void OnClosed(ConnectionId connection, const absl::Status& why) override {
    ++closed[connection];
    last_closed = why;
  }

  std::vector<ConnectionId> accepted;
  std::vector<int64_t> uids;
  std::vector<Frame> frames;
  std::map<ConnectionId, int> closed;  // how often
  absl::Status last_closed;
  std::function<void(ConnectionId, FrameType, std::span<const std::byte>)> on_frame;
};

// A worker with nothing but a transport.
struct Node {
  std::unique_ptr<Transport> transport;
  Recorder seen;
};

// Runs rounds of `step` until `done`, for thirty seconds at most. Returns done().
inline bool RunUntil(const std::function<bool()>& done, const std::function<void()>& step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    step();
    std::this_thread::yield();
  }
  return true;
}

inline bool PumpUntil(const std::vector<Node*>& nodes, const std::function<bool()>& done) {
  return RunUntil(done, [&] {
    for (Node* node : nodes) {
      if (!node->transport) continue;
      node->transport->Flush();
      node->transport->Poll(node->seen);
    }
  });
}

// Long enough for anything that is wrongly under way to arrive.
inline void PumpFor(const std::vector<Node*>& nodes,
                    std::chrono::milliseconds time = std::chrono::milliseconds(30)) {
  const auto end = std::chrono::steady_clock::now() + time;
  PumpUntil(nodes, [end] { return std::chrono::steady_clock::now() >= end; });
}

}  // namespace islands::messaging
