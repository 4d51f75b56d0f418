// Coroutine frames without malloc: free lists by size class, one set per thread.
//
// A frame may be freed on another thread than the one that allocated it (at shutdown); it then joins that
// thread's lists. Memory goes back to the system when the thread ends.
//
// Thread safety: every thread has its own lists.
#pragma once

#include <cstddef>

namespace islands::runtime {

class FramePool {
 public:
  static void* Allocate(size_t bytes);
  static void Free(void* frame, size_t bytes);
};

}  // namespace islands::runtime
