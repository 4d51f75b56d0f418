// Whose turn it is on a worker: coroutines that can go on, slots that are about to begin a transaction, and
// those that sleep until a point in time.
//
// Who has what it waited for goes on before anybody begins: its locks are in others' way. It goes on to the
// end of its transaction, if nothing else stops it (runtime/task.h), and its slot begins the next one when it
// is its turn again. On a worker that has nothing under way with other islands whoever it gives a lock to
// goes on in the same round, and nobody begins while one has stopped for a breath: else whoever begins wants
// its locks, waits for them, and is waited for in turn, and a queue at a row that everybody wants keeps
// itself alive (Payment in one warehouse did half as much).
//
// How long a round is says how long others wait until their messages are read. Messages that leave together
// are cheaper, so with other islands every slot begins once in a round; but a lock that somebody here waits
// for may be held by a transaction that waits for another island, and so on: then a round ends as soon as it
// may (TPC-C on two islands 1.3 times).
//
// Thread safety: owned by a worker.
//
// Invariant: a coroutine handle is in one of the queues or stored in its Waiter, never both.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "instance/worker/waiter.h"
#include "runtime/clock.h"
#include "runtime/ready_queue.h"

namespace islands::instance {

class Turns {
 public:
  // Transactions begun per round, and for how long: so much that polling the links costs a fraction of each,
  // and so little that others do not wait long for their answers.
  static constexpr uint32_t kBegunPerRound = 64;
  static constexpr int64_t kLongestRoundNs = 100 * runtime::kNsPerUs;
  // Of one who has begun. It takes locks for all that it has read when it stops (Executor::EndQuiet).
  static constexpr int64_t kLongestTurnNs = 200 * runtime::kNsPerUs;
  static constexpr int64_t kHurriedRoundNs = 10 * runtime::kNsPerUs;

  // Waits until a point in time.
  struct Pause {
    Turns& turns;
    int64_t until_ns;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) { turns.AddSleeper(until_ns, self); }
    void await_resume() const noexcept {}
  };
  // Lets the loop go round once: links are polled, and whoever is ready has a turn.
  struct Breath {
    Turns& turns;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) {
      if (turns.alone_) turns.begun_in_round_ = kBegunPerRound;  // nobody begins any more
      turns.next_.Push(self);
    }
    void await_resume() const noexcept {}
  };
  // Lets everybody go first who is ready, and the other slots that are about to begin a transaction.
  struct Yield {
    Turns& turns;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) { turns.fresh_.Push(self); }
    void await_resume() const noexcept {}
  };

  explicit Turns(const runtime::Clock& clock) : clock_(clock), now_ns_(clock.NowNs()) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  Pause PauseUntil(int64_t until_ns) { return {*this, until_ns}; }
  Breath Breathe() { return {*this}; }
  Yield LetOthersBegin() { return {*this}; }
  // The one who waits is now here. Those who wait for its locks see that; if somebody watches it, the clock
  // is read.
  void Note(Waiter& waiter, Stay stay) const {
    waiter.SetDoing(stay);
    if (waiter.stays.on()) waiter.stays.Move(stay, clock_.NowNs());
  }
  // Whoever goes on in this round, or the next.
  runtime::ReadyQueue* queue() { return &ready_; }
  // Its turn to begin a transaction will come, as that of whoever lets others begin.
  void QueueToBegin(std::coroutine_handle<> slot) { fresh_.Push(slot); }

  // `alone`: nothing is under way with other islands. `hurries`: somebody waits for a lock.
  void BeginRound(bool alone, bool hurries) {
    turn_began_ns_ = now_ns_ = clock_.NowNs();
    alone_ = alone;
    most_begun_ = kBegunPerRound;
    round_ns_ = alone || !hurries ? kLongestRoundNs : kHurriedRoundNs;
    while (!next_.empty()) ready_.Push(next_.Pop());
  }
  int64_t now_ns() const { return now_ns_; }        // when the round began
  int64_t NowNs() const { return clock_.NowNs(); }  // reads the clock
  size_t ready() const { return ready_.size() + next_.size() + fresh_.size(); }

  // A wait is over. Nothing happens if it does not wait.
  void Resume(Waiter& waiter) {
    if (!waiter.suspended) return;
    waiter.SetDoing(Stay::kTurn);
    if (waiter.stays.on()) waiter.stays.Move(Stay::kTurn, clock_.NowNs());
    ready_.Push(std::exchange(waiter.suspended, nullptr));
  }
  size_t WakeSleepers();
  void CheckInvariants() const;  // between two rounds
  // Resumes those that were ready, then lets others begin: one, at least, whatever is left of those, unless
  // it would be in their way; `after_each` is called whenever one has given control back, `between` before
  // anybody begins. Returns how many had a turn.
  template <typename AfterEach, typename Between>
  size_t ResumeReady(AfterEach after_each, Between between) {
    size_t resumed = 0;
    begun_in_round_ = 0;
    resumes_since_ns_ = clock_.NowNs();  // however long it took to read what others have sent, and to do it
    const auto resume = [&](runtime::ReadyQueue& queue) {
      queue.Pop().resume();
      after_each();
      ++resumed;
    };
    most_begun_ = 0;
    for (size_t left = ready_.size(); left > 0 || (alone_ && !ready_.empty()); left -= left > 0) {
      turn_began_ns_ = clock_.NowNs();
      if (resumed > 0 && turn_began_ns_ - resumes_since_ns_ > round_ns_) break;
      resume(ready_);
    }
    between();
    size_t left = fresh_.size();
    most_begun_ = alone_ ? kBegunPerRound : static_cast<uint32_t>(std::min<size_t>(left, kBegunPerRound));
    for (; left > 0 && IsInNobodysWay() && (begun_in_round_ == 0 || MayBegin()); --left) resume(fresh_);
    return resumed;
  }

  // A transaction begins. Returns the time, which it reads.
  int64_t NoteBegin() {
    ++begun_in_round_;
    return turn_began_ns_ = last_begun_ns_ = clock_.NowNs();
  }
  // Whether another transaction may begin in this round.
  bool MayBegin() const {
    return IsInNobodysWay() && begun_in_round_ < most_begun_ &&
           last_begun_ns_ - resumes_since_ns_ < round_ns_;
  }
  // Whether it is time to look after the links, for one who is in the midst of something: for how long it has
  // had its turn. Reads the clock.
  bool HasLongGoneOn() const { return clock_.NowNs() - turn_began_ns_ > kLongestTurnNs; }
  // When the next sleeper is to be woken; INT64_MAX if nobody sleeps.
  int64_t NextDeadlineNs() const {
    return sleepers_.empty() ? std::numeric_limits<int64_t>::max() : sleepers_.front().at_ns;
  }

 private:
  struct Sleeper {
    int64_t at_ns;
    std::coroutine_handle<> handle;
    bool operator<(const Sleeper& other) const { return at_ns > other.at_ns; }  // earliest on top
  };
  void AddSleeper(int64_t at_ns, std::coroutine_handle<> handle);
  // Whoever begins: alone, nobody does while somebody is ready, whom a commit may just have given its lock.
  bool IsInNobodysWay() const { return !alone_ || ready_.empty(); }

  const runtime::Clock& clock_;
  int64_t now_ns_;
  int64_t resumes_since_ns_ = 0;  // set by ResumeReady, as is what it is compared with
  int64_t round_ns_ = kLongestRoundNs;
  bool alone_ = true;
  runtime::ReadyQueue ready_;
  runtime::ReadyQueue next_;   // ready in the next round
  runtime::ReadyQueue fresh_;  // slots that wait for their turn to begin a transaction
  uint32_t begun_in_round_ = 0;
  uint32_t most_begun_ = kBegunPerRound;  // 0 while those go on who have what they waited for
  int64_t last_begun_ns_ = 0;
  int64_t turn_began_ns_ = 0;      // of who has the core: goes on, or has begun
  std::vector<Sleeper> sleepers_;  // heap
};

}  // namespace islands::instance
