// For tests: what a gateway does on its direct socket, with blocking calls and a thread for each connection.
//
// Thread safety: made and destroyed on one thread; what it serves with is called on others.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "instance/messaging/frame.h"
#include "proto/client.pb.h"

namespace islands::testing_frames {

using messaging::FrameHeader;
using messaging::FrameType;

// One connection.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}

  // False: the client is gone.
  bool Read(client::v1::DirectCall* call) const {
    FrameHeader header;
    if (!ReadAll(&header, sizeof(header))) return false;
    std::string payload(header.payload_bytes, '\0');
    return ReadAll(payload.data(), payload.size()) && call->ParseFromString(payload);
  }
  bool Write(const client::v1::DirectAnswer& answer) const {
    return WriteFrame(FrameType::kDirectAnswer, answer.SerializeAsString());
  }
  bool WriteFrame(FrameType type, const std::string& payload) const {
    FrameHeader header;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.type = static_cast<uint8_t>(type);
    return WriteBytes(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload);
  }
  bool WriteBytes(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t some = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (some <= 0) return false;
      sent += static_cast<size_t>(some);
    }
    return true;
  }

 private:
  bool ReadAll(void* to, size_t bytes) const {
    return bytes == 0 || recv(fd_, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

  const int fd_;
};

class FrameServer {
 public:
  // `serve`: for each connection, until it is to be closed.
  FrameServer(const std::string& path, std::function<void(Peer&)> serve) : serve_(std::move(serve)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    unlink(path.c_str());
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    listens_ = bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
               listen(listener_, 64) == 0;
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FrameServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    {
      const std::scoped_lock lock(mutex_);
      for (const Served& each : served_) shutdown(each.fd, SHUT_RDWR);
    }
    for (Served& each : served_) {
      each.thread.join();
      close(each.fd);
    }
  }
  bool listens() const { return listens_; }
  // How many connections have been served and closed.
  int closed() const { return closed_; }

 private:
  struct Served {
    int fd;
    std::thread thread;
  };
  void Accept() {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const std::scoped_lock lock(mutex_);
      served_.push_back({fd, std::thread([this, fd] {
                           Peer peer(fd);
                           serve_(peer);
                           shutdown(fd, SHUT_RDWR);
                           ++closed_;
                         })});
    }
  }

  const std::function<void(Peer&)> serve_;
  int listener_ = -1;
  bool listens_ = false;
  std::atomic<int> closed_{0};
  std::mutex mutex_;
  std::list<Served> served_;
  std::thread acceptor_;
};

}  // namespace islands::testing_frames
