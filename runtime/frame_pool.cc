#include "runtime/frame_pool.h"

#include <array>
#include <new>

namespace islands::runtime {
namespace {

// Frames of procedures are some hundred bytes; 64-byte classes up to 4 KiB waste little. Larger ones go to
// the heap.
constexpr size_t kClassBytes = 64;
constexpr size_t kClasses = 64;

struct FreeFrame {
  FreeFrame* next;
};

struct FreeLists {
  std::array<FreeFrame*, kClasses> heads{};
  ~FreeLists() {
    for (FreeFrame* frame : heads) {
      while (frame != nullptr) {
        FreeFrame* next = frame->next;
        ::operator delete(frame);
        frame = next;
      }
    }
  }
};

thread_local FreeLists free_lists;

size_t ClassOf(size_t bytes) { return (bytes - 1) / kClassBytes; }

}  // namespace

void* FramePool::Allocate(size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  if (size_class >= kClasses) return ::operator new(bytes);
  FreeFrame*& head = free_lists.heads[size_class];
  if (head == nullptr) return ::operator new((size_class + 1) * kClassBytes);
  FreeFrame* frame = head;
  head = frame->next;
  return frame;
}

void FramePool::Free(void* frame, size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  if (size_class >= kClasses) {
    ::operator delete(frame);
    return;
  }
  auto* free_frame = static_cast<FreeFrame*>(frame);
  free_frame->next = free_lists.heads[size_class];
  free_lists.heads[size_class] = free_frame;
}

}  // namespace islands::runtime
