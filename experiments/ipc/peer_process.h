// The second process of `ipc`, and a watch over both. A thread that waits in a pipe's read, on a futex or
// inside libzmq cannot be told that its peer is gone; so a watching thread ends the whole program when
//   - the peer dies or fails: one line on stderr, exit code 1 (a peer that exits with 1 has said why itself),
//   - SIGINT or SIGTERM comes: exit code 130,
//   - nothing has come to an end by the deadline: one line, exit code 1.
// The kernel kills the peer if this process dies in any other way. In each case no process stays behind.
//
// Thread safety: used by the thread that started it, which must live as long as the peer.
//
// Invariants:
//  1. The peer is reaped before this process ends, unless this process is killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "experiments/ipc/descriptor.h"

namespace islands::experiments {

// SIGINT and SIGTERM wait, in this thread and those it starts, until a PeerProcess watches for them. To be
// called before anything is made that a signal should not leave behind.
void BlockTermination();

class PeerProcess {
 public:
  // Forks; the peer runs `body` and exits with what it returns. Other threads of this process do not exist
  // there. The watch begins with Watch: what belongs to the peer (its ends of channels) should be let go of
  // before.
  static absl::StatusOr<std::unique_ptr<PeerProcess>> Start(std::string program,
                                                            const std::function<int()>& body);
  PeerProcess(std::string program, pid_t pid) : program_(std::move(program)), pid_(pid) {}  // use Start
  ~PeerProcess();  // ends watch and peer
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void Watch(double deadline_s);
  // For a thread that met an error of the channel: if the peer is gone, that is the reason, and the watch
  // ends this process; else returns.
  void EndIfPeerIsGone();
  pid_t pid() const { return pid_; }

 private:
  void RunWatch(int timeout_ms);
  void KillAndReap();
  void ReapPeer();  // ends this process unless the peer finished as it was told to
  [[noreturn]] void End(int exit_code, const std::string& why);

  const std::string program_;
  const pid_t pid_;
  Descriptor pid_fd_, signal_fd_, stop_fd_;
  bool reaped_ = false;  // of the watch until it is joined
  std::thread watch_;
};

}  // namespace islands::experiments
