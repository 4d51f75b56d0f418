#include "runtime/ready_queue.h"

namespace islands::runtime {

thread_local ReadyQueue* ReadyQueue::current_ = nullptr;

}  // namespace islands::runtime
