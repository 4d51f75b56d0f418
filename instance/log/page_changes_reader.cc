#include "instance/log/page_changes_reader.h"

#include "fmt/format.h"
#include "instance/log/page_changes_cursor.h"

namespace islands::log {

using storage::PageId;

bool PageChangeReader::Fail(const char* what) {
  status_ = absl::DataLossError(
      fmt::format("changes of pages in a log record, byte {} of {}: {}", at_, body_.size(), what));
  return false;
}

bool PageChangeReader::Next(PageChangeGroup* group) {
  Cursor cursor(body_.subspan(at_));
  if (cursor.empty() || !status_.ok()) return false;
  uint8_t head = 0;
  uint64_t site = 0;
  uint64_t number = 0;
  uint64_t lsn = 1;
  if (!cursor.TakeByte(&head) || ((head & kHeadSite) != 0 && !cursor.TakeVarint(&site)) ||
      !cursor.TakeVarint(&number) || ((head & kHeadLsn) != 0 && !cursor.TakeVarint(&lsn)) ||
      !cursor.TakeByte(&group->lsn_before_))
    return Fail("the head of a group is cut off");
  // Unsigned, so that any sum is a number; only those in range are good.
  site = before_page_.site() + UnZigZag(site);
  number = before_page_.number() + UnZigZag(number);
  if (site > UINT16_MAX || number >> PageId::kNumberBits != 0) return Fail("no page has this id");
  if (lsn >= UINT64_MAX - before_lsn_.value()) return Fail("an LSN beyond the last one");
  if (at_ == 0 && lsn == 0) return Fail("a first group without an LSN");
  group->page_ = PageId(static_cast<uint32_t>(site), number);
  group->lsn_ = Lsn::FromValue(before_lsn_.value() + lsn);

  const uint32_t count = head >> kHeadCountShift;
  if (count == 0) return Fail("a group without changes");
  group->changes_ = cursor.rest();
  group->image_ = false;
  for (uint32_t i = 0; i < count; ++i) {
    WrittenChange change;
    if (!TakeChange(&cursor, &change)) return Fail("a change is cut off");
    if (change.op == PageOp::kImage && count != 1) return Fail("an image that is not all of its group");
    group->image_ = change.op == PageOp::kImage;
  }
  group->changes_ = group->changes_.first(group->changes_.size() - cursor.rest().size());
  at_ = body_.size() - cursor.rest().size();
  before_page_ = group->page_;
  before_lsn_ = group->lsn_;
  return true;
}

}  // namespace islands::log
