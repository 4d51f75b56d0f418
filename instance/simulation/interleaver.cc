#include "instance/simulation/interleaver.h"

#include <ucontext.h>

#include <utility>

#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/page_change.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::simulation {
namespace {

constexpr size_t kStackBytes = 512 << 10;
constexpr int kTries = 1000;
Interleaver* active = nullptr;  // whose workers run

}  // namespace

struct Interleaver::Fiber {
  ucontext_t itself;
  ucontext_t main;
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  runtime::Runnable* worker = nullptr;  // null: has nothing to do
  bool busy = false;
  bool blocked = false;
  int undo_scopes = 0;
  storage::PageChangeSink* sink = nullptr;

  void SetUp() {
    ISLANDS_CHECK(getcontext(&itself) == 0);
    itself.uc_stack.ss_sp = stack.get();
    itself.uc_stack.ss_size = kStackBytes;
    itself.uc_link = nullptr;
    makecontext(&itself, &Interleaver::Enter, 0);
  }
  // Puts what is thread-local in or out.
  void SwapLocals() {
    undo_scopes = storage::UndoScope::Swap(undo_scopes);
    std::swap(sink, storage::page_change_sink);
  }
};

Interleaver::Interleaver(uint64_t seed, uint32_t percent)
    : random_(runtime::Random::Stream(seed, 0x1e4f)), percent_(percent) {}

Interleaver::~Interleaver() = default;

void Interleaver::Enter() {
  while (true) {
    Fiber& self = *active->running_;
    self.busy = self.worker->RunOnce();
    self.worker = nullptr;
    swapcontext(&self.itself, &self.main);
  }
}

void Interleaver::Give(bool blocked) {
  Fiber& self = *active->running_;
  if (!blocked && active->random_.Below(100) >= active->percent_) return;
  self.blocked = blocked;
  swapcontext(&self.itself, &self.main);
}

void Interleaver::Resume(Fiber& fiber) {
  running_ = &fiber;
  fiber.SwapLocals();
  ISLANDS_CHECK(swapcontext(&fiber.main, &fiber.itself) == 0);
  fiber.SwapLocals();
  running_ = nullptr;
}

std::vector<bool> Interleaver::Run(std::span<runtime::Runnable* const> workers) {
  while (fibers_.size() < workers.size()) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->SetUp();
  }
  for (size_t i = 0; i < workers.size(); ++i) fibers_[i]->worker = workers[i];
#ifdef ISLANDS_PLANTED_BUGS
  runtime::interleave = &Interleaver::Give;
#endif
  active = this;
  Fiber* last = nullptr;
  int alone = 0;
  std::vector<Fiber*> choice;
  while (true) {
    choice.clear();
    for (size_t i = 0; i < workers.size(); ++i) {
      Fiber& fiber = *fibers_[i];
      if (fiber.worker != nullptr && !(&fiber == last && fiber.blocked)) choice.push_back(&fiber);
    }
    if (choice.empty()) {
      if (last == nullptr || last->worker == nullptr) break;
      // The only one left tries again what somebody was in the way of; or waits for a latch nobody holds.
      ISLANDS_CHECK(++alone < kTries);
      choice.push_back(last);
    } else {
      alone = 0;
    }
    Fiber* const next = choice[random_.Below(choice.size())];
    if (last != nullptr && next != last) ++changes_;
    next->blocked = false;
    Resume(*next);
    last = next;
  }
  active = nullptr;
#ifdef ISLANDS_PLANTED_BUGS
  runtime::interleave = nullptr;
#endif
  std::vector<bool> busy;
  for (size_t i = 0; i < workers.size(); ++i) busy.push_back(fibers_[i]->busy);
  return busy;
}

}  // namespace islands::simulation
