// Whom the gateway's Unix-domain sockets let in: its own user, and root.
//
// Thread safety: any thread.
#pragma once

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdint>

#include "instance/gateway/counters.h"

namespace islands::gateway {

class Admission {
 public:
  // Whoever has just connected, by the kernel's word. Counts.
  bool Admits(int64_t uid) {
    const int64_t self = geteuid();
    const bool admitted = uid == self || uid == kRoot;
    (admitted ? admitted_ : refused_).Add();
    if (!admitted)
      spdlog::warn("a client of user {} was refused: this is a deployment of user {}", uid, self);
    return admitted;
  }
  uint64_t admitted() const { return admitted_.Get(); }
  uint64_t refused() const { return refused_.Get(); }

 private:
  static constexpr int64_t kRoot = 0;
  SharedCounter admitted_, refused_;
};

}  // namespace islands::gateway
