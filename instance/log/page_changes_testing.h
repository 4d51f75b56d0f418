// What the test, the fuzz target and the benchmark of page changes share. The latter two have no GoogleTest.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "instance/log/page_changes.h"
#include "instance/log/page_changes_reader.h"
#include "instance/storage/btree/btree.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/site_space.h"
#include "runtime/check.h"

namespace islands::log {

struct PageCopy {
  alignas(storage::PageHeader) std::array<std::byte, storage::kPageBytes> bytes = {};
  const storage::PageHeader& header() const {
    return *reinterpret_cast<const storage::PageHeader*>(bytes.data());
  }
};
using PageCopies = std::map<uint64_t, PageCopy>;  // by number

inline storage::KeyView AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A tree that one thread has to itself.
struct LoneTree {
  explicit LoneTree(uint64_t pages)
      : pool(*storage::BufferPool::Create({.capacity_bytes = pages * storage::kPageBytes, .alone = true})),
        space(pool.get(), 0, 3) {
    ISLANDS_CHECK(space.Format());
    tree.emplace(&space, 0, storage::BTree::MakeRoot(&space, 0, {}, {}));
  }
  std::unique_ptr<storage::BufferPool> pool;
  storage::SiteSpace space;
  std::optional<storage::BTree> tree;
};

// Makes all changes of a body; pages are zeros before their first.
inline absl::Status RedoAll(std::span<const std::byte> body, PageCopies* pages) {
  PageChangeReader reader(body);
  PageChangeGroup group;
  while (reader.Next(&group)) {
    const absl::Status status = Redo(group, (*pages)[group.page().number()].bytes);
    if (!status.ok()) return status;
  }
  return reader.status();
}

// Makes a collector this thread's sink as long as it lives.
class Listening {
 public:
  Listening() {
    collector.Begin(1, &body);
    storage::page_change_sink = &collector;
  }
  ~Listening() { storage::page_change_sink = nullptr; }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  // An empty body of the given epoch.
  void Again(uint64_t epoch) {
    body.Clear();
    collector.Begin(epoch, &body);
  }

  RecordBuffer body;
  PageChangeCollector collector;
};

// A page as its latch leaves it.
inline PageCopy CopyOf(const storage::SiteSpace& space, uint64_t number) {
  const storage::GuardS guard(space.At(number));
  PageCopy copy;
  std::copy_n(guard.bytes(), storage::kPageBytes, copy.bytes.begin());
  return copy;
}

}  // namespace islands::log
