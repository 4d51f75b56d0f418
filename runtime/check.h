// Assertions that stay on in release: they mean a bug of ours. What a peer, a file or a user can cause is a
// Status.
//
// Thread safety: any thread.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ISLANDS_CHECK(condition)                                       \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::islands::runtime::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                  \
  } while (false)

namespace islands::runtime {

// Whether CheckInvariants() of what a worker owns runs after every round, whoever runs it: in builds that
// GCC has sanitized.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCheckEveryRound = true;
#else
inline constexpr bool kCheckEveryRound = false;
#endif

[[noreturn, gnu::cold, gnu::noinline]] inline void CheckFailed(const char* file, int line,
                                                               const char* condition) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace islands::runtime
