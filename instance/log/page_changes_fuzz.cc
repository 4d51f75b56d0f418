// Whatever a log has to say about pages: an error, or sound pages.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "instance/log/page_changes_format.h"
#include "instance/log/page_changes_testing.h"
#include "runtime/check.h"

namespace islands::log {
namespace {

using storage::Node;

void Try(std::span<const std::byte> body, PageCopies pages) {
  const absl::Status status = RedoAll(body, &pages);
  if (!status.ok()) {
    ISLANDS_CHECK(status.code() == absl::StatusCode::kDataLoss);
    return;
  }
  for (const auto& [number, page] : pages) {
    ISLANDS_CHECK(page.header().type != storage::PageType::kTree ||
                  Node::At(page.bytes.data())->FindFault() == nullptr);
  }
}

// A tree of two levels, before and after each page has had changes of all kinds; the first of them are
// images.
struct Good {
  Good() : tree(100) {
    for (int i = 0; i < 40; ++i) tree.tree->Insert(AsBytes(Key(i)), AsBytes(std::string(200, 'r')));
    Copy(&before);
    Listening listening;
    for (const int i : {3, 4, 30, 31}) {
      tree.tree->Modify(AsBytes(Key(i)), {8, 8}, [](std::span<std::byte> row) { row[9] = std::byte{9}; });
      tree.tree->SetGhost(AsBytes(Key(i + 1)), true);
      tree.tree->Replace(AsBytes(Key(i)), AsBytes("short"));
      tree.tree->Remove(AsBytes(Key(i + 2)));
      tree.tree->Insert(AsBytes(Key(i) + "x"), AsBytes("new"));
    }
    for (int i = 0; i < 30; ++i)
      tree.tree->Insert(AsBytes(Key(5) + Key(i)), AsBytes(std::string(100, 's')));  // splits
    body.assign(listening.body.bytes().begin(), listening.body.bytes().end());
    Copy(&after);
  }
  static std::string Key(int i) { return "key" + std::to_string(1000 + i); }
  void Copy(PageCopies* copies) {
    for (uint64_t i = 0; i < tree.space.used_pages(); ++i) (*copies)[i] = CopyOf(tree.space, i);
  }
  LoneTree tree;
  PageCopies before, after;
  std::vector<std::byte> body;
};

// Near misses of a good body: bytes of the input are laid over it, two giving the place of each. On pages
// that it was made for, and on none.
void TryNearMisses(const Good& good, std::span<const std::byte> data) {
  std::vector<std::byte> body = good.body;
  for (size_t i = 0; i + 2 < data.size() && i < 12; i += 3) {
    const size_t at = std::to_integer<size_t>(data[i]) << 8 | std::to_integer<size_t>(data[i + 1]);
    body[at % body.size()] = data[i + 2];
  }
  Try(body, good.before);
  Try(body, {});
}

// A body of one group with one change, made of four bytes of the input; those behind them are what it puts
// in.
class OneChange {
 public:
  OneChange(const storage::PageHeader& page, std::span<const std::byte> data) {
    const storage::PageId id = storage::PageId::FromValue(page.page_id);
    const auto at = [&](size_t i) { return std::to_integer<uint32_t>(data[i % data.size()]); };
    Put(kHeadSite | kHeadLsn | 1 << kHeadCountShift);
    PutVarint(ZigZag(id.site()));
    PutVarint(ZigZag(static_cast<int64_t>(id.number())));
    PutVarint(page.lsn + 1);  // the next one
    Put(FoldLsn(Lsn::FromValue(page.lsn)));
    const auto op = static_cast<PageOp>(at(0) & kOpMask);
    Put(static_cast<uint32_t>(op) | (at(1) % kOpFarSlot) << kOpSlotShift);
    const bool has_key = op == PageOp::kInsert || op == PageOp::kImage;
    const bool has_place = has_key || op == PageOp::kBytes || op == PageOp::kValue;
    const uint32_t place = has_key ? at(2) % 16 : at(2) * (at(0) < 0x80 ? 1 : 17);
    const uint32_t bytes = at(3);
    if (has_place) PutVarint(place);
    if (has_place || op == PageOp::kNewValue) PutVarint(bytes);
    for (uint32_t n = 0; n < bytes + (has_key ? place : 0); ++n) {
      if (has_place || op == PageOp::kNewValue) Put(at(4 + n));
    }
  }
  std::span<const std::byte> body() const { return body_; }

 private:
  void Put(uint32_t byte) { body_.push_back(static_cast<std::byte>(byte)); }
  void PutVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) Put(static_cast<uint32_t>(value | 0x80));
    Put(static_cast<uint32_t>(value));
  }
  std::vector<std::byte> body_;
};

// Changes of the right form for a page that they may not fit, one after the other; those that do not are
// passed over.
void TryChanges(const PageCopy& begin, std::span<const std::byte> data) {
  PageCopies pages{{storage::PageId::FromValue(begin.header().page_id).number(), begin}};
  for (; data.size() >= 4; data = data.subspan(4)) {
    const OneChange change(pages.begin()->second.header(), data);
    Try(change.body(), pages);
    PageCopies changed = pages;
    if (RedoAll(change.body(), &changed).ok()) pages = changed;
  }
}

}  // namespace
}  // namespace islands::log

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const islands::log::Good good;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  islands::log::Try(bytes, good.before);
  islands::log::TryNearMisses(good, bytes);
  if (size == 0) return 0;
  const auto page = good.after.find(data[0] % good.after.size());
  islands::log::TryChanges(page->second, bytes.subspan(1, std::min<size_t>(size - 1, 64)));
  return 0;
}
