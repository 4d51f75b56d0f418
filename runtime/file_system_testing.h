// What tests of files have in common.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "runtime/file_system.h"

namespace islands::runtime {

inline std::span<std::byte> Bytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// Waits for `expected` completions; in the order of their tokens.
inline std::vector<IoCompletion> PollAll(FileSystem::Queue& queue, size_t expected) {
  std::vector<IoCompletion> completions;
  while (completions.size() < expected) {
    queue.Wait(1'000'000'000);
    queue.Poll(&completions);
  }
  std::sort(completions.begin(), completions.end(),
            [](const IoCompletion& a, const IoCompletion& b) { return a.token < b.token; });
  return completions;
}

// One request, from submission to completion.
inline IoCompletion Do(FileSystem::Queue& queue, const IoRequest& request) {
  queue.Submit(request);
  return PollAll(queue, 1).front();
}

inline absl::Status Write(FileSystem::Queue& queue, FileHandle file, uint64_t offset, std::string text) {
  return Do(queue, {.kind = IoKind::kWrite, .file = file, .offset = offset, .buffer = Bytes(text)}).status;
}

inline absl::Status Sync(FileSystem::Queue& queue, FileHandle file) {
  return Do(queue, {.kind = IoKind::kSync, .file = file}).status;
}

}  // namespace islands::runtime
