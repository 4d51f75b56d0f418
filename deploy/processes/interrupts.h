// What a command waits with: time that never jumps, and a sleep that Ctrl-C ends.
//
// Thread safety: MonotonicMs from any thread; Interrupts belongs to the main thread.
#pragma once

#include <cstdint>

namespace islands::deploy {

int64_t MonotonicMs();

// While it lives, SIGINT and SIGTERM do not end the process but are noticed here. Threads started meanwhile
// inherit that.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  enum class Wake { kTimeout, kInterrupted, kReadable };
  // Sleeps until interrupted (also if that was earlier), or until `file` (if >= 0) is readable or closed by
  // its writers.
  Wake Sleep(int64_t ms, int file = -1);
  bool interrupted() { return Sleep(0) == Wake::kInterrupted; }

 private:
  int signal_file_ = -1;
  bool interrupted_ = false;
};

}  // namespace islands::deploy
