#include "experiments/ipc/message_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace islands::experiments {
namespace {

// Not FUTEX_PRIVATE_FLAG: the two ends may be in different processes. Errors (the value moved, a signal came)
// mean looking again, which the callers do anyway.
void Futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op, value, nullptr, nullptr, 0);
}

}  // namespace

RingShape::RingShape(uint32_t messages, uint32_t bytes)
    : capacity(std::bit_ceil(std::max(messages, 2u))),
      slot_bytes(static_cast<uint32_t>((bytes + kRingLineBytes - 1) / kRingLineBytes * kRingLineBytes)) {}

void RingEnd::Wait(std::atomic<uint32_t>& counter, uint32_t seen, std::atomic<uint32_t>& sleeps) const {
  if (options_.spin) {
    SpinPause(options_);
    return;
  }
  sleeps.store(1);
  if (counter.load() == seen) Futex(sleeps, FUTEX_WAIT, 1);
  sleeps.store(0, std::memory_order_relaxed);
}

void RingEnd::Move(std::atomic<uint32_t>& counter, uint32_t to, std::atomic<uint32_t>& sleeps) const {
  if (options_.spin) {
    counter.store(to, std::memory_order_release);
    return;
  }
  counter.store(to);
  // Lowered here, as several messages may follow before the other end runs: one call wakes it.
  if (sleeps.load() != 0 && sleeps.exchange(0) != 0) Futex(sleeps, FUTEX_WAKE, 1);
}

bool RingWriter::TryPush(Message message) {
  if (head_ - seen_tail_ == shape_.capacity) {
    seen_tail_ = header_->tail.load(std::memory_order_acquire);
    if (head_ - seen_tail_ == shape_.capacity) return false;
  }
  std::memcpy(slot(head_), message.data(), message.size());
  Move(header_->head, ++head_, header_->reader_sleeps);
  return true;
}

void RingWriter::Push(Message message) {
  while (!TryPush(message)) Wait(header_->tail, seen_tail_, header_->writer_sleeps);
}

void RingReader::Pop(MessageBuffer message) {
  while (tail_ == seen_head_) {
    seen_head_ = header_->head.load(std::memory_order_acquire);
    if (tail_ == seen_head_) Wait(header_->head, seen_head_, header_->reader_sleeps);
  }
  std::memcpy(message.data(), slot(tail_), message.size());
  Move(header_->tail, ++tail_, header_->writer_sleeps);
}

}  // namespace islands::experiments
