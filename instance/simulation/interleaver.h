// Runs a round of several workers of one island on one thread, in pieces: where a worker is about to enter a
// latch, to validate what it has read without one, or has to wait for one (runtime/latch_site.h), another may
// go on. So a seed decides what threads leave to luck, and repeats it.
//
// Each worker has a stack of its own. All rounds come to their end before Run returns: nobody else ever sees
// a worker in the middle of a call.
//
// Only in the build with planted bugs: in the other there are no scheduling points.
//
// Thread safety: one thread, and one Interleaver that runs on it at a time.
//
// Invariants:
//  1. What lives in thread-local variables for the length of a scope moves with the worker that opened it.
//  2. A worker that waits for a latch is not chosen twice in a row while another can go on.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/random.h"
#include "runtime/scheduler.h"

namespace islands::simulation {

class Interleaver {
 public:
  // A worker gives way at about so many of a hundred scheduling points.
  Interleaver(uint64_t seed, uint32_t percent);
  ~Interleaver();

  // One round of each. By worker: whether there was anything to do.
  std::vector<bool> Run(std::span<runtime::Runnable* const> workers);
  uint64_t changes() const { return changes_; }

 private:
  struct Fiber;
  static void Enter();             // a fiber's outermost function
  static void Give(bool blocked);  // what scheduling points call
  void Resume(Fiber& fiber);

  runtime::Random random_;
  const uint32_t percent_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  uint64_t changes_ = 0;
};

}  // namespace islands::simulation
