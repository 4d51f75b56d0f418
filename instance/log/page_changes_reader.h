// Reads the body that a PageChangeCollector wrote, and makes its changes again (redo).
//
//   PageChangeReader reader(body);
//   PageChangeGroup group;
//   while (reader.Next(&group)) status = Redo(group, page of group.page());
//   status = reader.status();
//
// The bytes come from a disk. Whatever they are, and whatever sound page they are applied to, the result is
// DATA_LOSS that says where and what, or a sound page: one that Node::FindFault has nothing to say about if
// it is of a tree. Nothing is read or written beyond body and page, and no assertion fails.
//
// Thread safety: none; readers of one body by several threads, and groups of different pages redone by
// several threads, are fine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "instance/log/lsn.h"
#include "instance/storage/pages/page.h"

namespace islands::log {

// What one exclusive latch changed on one page. Good as long as the body's bytes.
class PageChangeGroup {
 public:
  storage::PageId page() const { return page_; }
  Lsn lsn() const { return lsn_; }
  // Redo needs nothing of what the page was: the only kind of group for a page with a bad checksum, which the
  // caller clears first.
  bool is_image() const { return image_; }
  // Whether its first change is of bytes of a value that is there: in which slot, and where they end. For who
  // looks ahead.
  bool ChangesValue(uint32_t* slot, size_t* end) const;

 private:
  friend class PageChangeReader;
  friend absl::Status Redo(const PageChangeGroup& group, std::span<std::byte, storage::kPageBytes> page);
  storage::PageId page_;
  Lsn lsn_;
  uint8_t lsn_before_ = 0;  // folded
  bool image_ = false;
  std::span<const std::byte> changes_;  // well formed
};

class PageChangeReader {
 public:
  explicit PageChangeReader(std::span<const std::byte> body) : body_(body) {}

  // The next group; false at the end of the body, or if what follows is none.
  [[nodiscard]] bool Next(PageChangeGroup* group);
  // Why Next said no: OK at the body's end.
  const absl::Status& status() const { return status_; }

 private:
  bool Fail(const char* what);

  const std::span<const std::byte> body_;
  size_t at_ = 0;  // in the body: where the next group begins
  storage::PageId before_page_;
  Lsn before_lsn_;
  absl::Status status_;
};

// Makes the group's changes unless the page's LSN says that it has them; the page has the group's LSN then.
// `page` is aligned for PageHeader, and sound: as storage left it, as Redo left it, or zeros, which is a page
// never used. After an error it is of no use.
absl::Status Redo(const PageChangeGroup& group, std::span<std::byte, storage::kPageBytes> page);

}  // namespace islands::log
