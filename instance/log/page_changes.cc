#include "instance/log/page_changes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "instance/storage/btree/btree_node.h"
#include "runtime/check.h"

namespace islands::log {
namespace {

using storage::kPageBytes;
using storage::Node;
using storage::PageChange;
using storage::PageHeader;
using storage::PageId;
using storage::PageType;
using Kind = storage::PageChange::Kind;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

constexpr size_t kMostHeadBytes = 1 + 4 * kMaxVarintBytes + 1;
constexpr size_t kMostChangeBytes = 1 + 3 * kMaxVarintBytes + storage::kMaxTreeKeyBytes;  // besides its bytes
// No more than this is no reason to look at how large an image would be.
constexpr size_t kFewBytes = 256;

std::byte* PutBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == sizeof(uint64_t)) {  // the commonest, without a call
    std::memcpy(to, from, sizeof(uint64_t));
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
  return to + bytes;
}

std::byte* PutOp(std::byte* to, PageOp op, uint32_t slot) {
  const uint32_t near = slot < kOpFarSlot ? slot : kOpFarSlot;
  *to++ = static_cast<std::byte>(static_cast<uint32_t>(op) | near << kOpSlotShift);
  return near == kOpFarSlot ? PutVarint(to, slot) : to;
}

const PageHeader& HeaderOf(const std::byte* page) { return *reinterpret_cast<const PageHeader*>(page); }

// The zeros in the middle of a page: [begin, end).
struct FreeRoom {
  size_t begin;
  size_t end;
  size_t image_bytes() const { return begin - kImageBegin + kPageBytes - end; }
};

FreeRoom FindFreeRoom(const std::byte* page) {
  if (HeaderOf(page).type == PageType::kTree) {
    const Node* node = Node::At(page);
    ISLANDS_CHECK(node->slots_end() <= node->heap_begin() && node->heap_begin() <= kPageBytes);
    return {node->slots_end(), node->heap_begin()};
  }
  size_t used = kPageBytes;
  while (used > sizeof(PageHeader) && page[used - 1] == std::byte{0}) --used;
  return {used, kPageBytes};
}

// Whether `next` can be told together with `last`: bytes side by side or one over the other.
[[gnu::noinline]] bool Absorb(PageChange* last, const PageChange& next) {
  if (last->kind != next.kind || (next.kind != Kind::kBytes && next.kind != Kind::kValue)) return false;
  const size_t last_end = last->offset + last->bytes;
  const size_t next_end = next.offset + next.bytes;
  if (last->slot != next.slot || next.offset > last_end || last->offset > next_end) return false;
  last->offset = std::min(last->offset, next.offset);
  last->bytes = std::max(last_end, next_end) - last->offset;
  return true;
}

[[gnu::noinline]] std::byte* PutImage(std::byte* to, const std::byte* page) {
  const FreeRoom room = FindFreeRoom(page);
  to = PutOp(to, PageOp::kImage, 0);
  to = PutVarint(to, room.begin - kImageBegin);
  to = PutVarint(to, kPageBytes - room.end);
  std::byte* const front = to;
  to = PutBytes(to, page + kImageBegin, room.begin - kImageBegin);
  std::fill(front + offsetof(PageHeader, stamper) - kImageBegin,
            front + offsetof(PageHeader, zero) - kImageBegin, std::byte{0});
  return PutBytes(to, page + room.end, kPageBytes - room.end);
}

[[gnu::noinline]] std::byte* PutFarHead(std::byte* to, uint32_t count, int64_t site_delta,
                                        uint64_t number_delta, uint64_t lsn_delta) {
  *to++ = static_cast<std::byte>((site_delta != 0 ? kHeadSite : 0) | (lsn_delta != 1 ? kHeadLsn : 0) |
                                 count << kHeadCountShift);
  if (site_delta != 0) to = PutVarint(to, ZigZag(site_delta));
  to = PutVarint(to, number_delta);
  return lsn_delta != 1 ? PutVarint(to, lsn_delta) : to;
}

}  // namespace

void PageChangeCollector::Begin(uint64_t epoch, RecordBuffer* body) {
  RaiseEpoch(epoch);
  body_ = body;
  before_page_ = {};
  before_lsn_ = {};
}

[[gnu::always_inline]] inline PageChangeCollector::ChangedPage* PageChangeCollector::Find(
    const std::byte* page) {
  for (size_t i = 0; i < changed_pages_; ++i) {
    if (pages_[i].page == page) return &pages_[i];
  }
  return nullptr;
}

[[gnu::always_inline]] inline PageChangeCollector::ChangedPage* PageChangeCollector::Add(
    const std::byte* page) {
  if (changed_pages_ == room_) [[unlikely]]
    GrowPages();
  ChangedPage* changed = &pages_[changed_pages_++];
  Begin(changed, page);
  changed->bytes = 0;
  changed->count = 0;
  return changed;
}

// Out of line, as the rest that is rare: the common way keeps its values in registers.
[[gnu::noinline]] void PageChangeCollector::GrowPages() {
  pages_.emplace_back();
  room_ = pages_.size();
}

void PageChangeCollector::AddChange(const std::byte* page, const PageChange& change) {
  ChangedPage* changed = Find(page);
  if (changed == nullptr) changed = Add(page);
  changed->bytes += change.bytes;
  if (changed->count != 0) {
    if (changed->count > ChangedPage::kMostChanges) return;  // an image
    if (Absorb(&changed->changes[changed->count - 1], change)) return;
  }
  if (changed->count < ChangedPage::kMostChanges) changed->changes[changed->count] = change;
  ++changed->count;
}

bool PageChangeCollector::InStep(const std::byte* page) { return Find(page) != nullptr; }

bool PageChangeCollector::LightStep() const {
  if (changed_pages_ != 1) return false;
  const ChangedPage& changed = pages_.front();
  if (changed.lsn == 0 || changed.bytes > kFewBytes || changed.count > ChangedPage::kMostChanges)
    return false;
  return std::all_of(changed.changes.begin(), changed.changes.begin() + changed.count,
                     [](const PageChange& change) { return change.kind == Kind::kValue; });
}

Lsn PageChangeCollector::NextStamp() const {
  Lsn last = std::max(last_, floor_);
  for (size_t i = 0; i < changed_pages_; ++i) last = std::max(last, Lsn::FromValue(pages_[i].lsn));
  return last.Next();
}

[[gnu::always_inline]] inline void PageChangeCollector::Stamp(const ChangedPage& changed) {
  auto& header = const_cast<PageHeader&>(HeaderOf(changed.page));  // ours to write (page_change.h)
  ISLANDS_CHECK(header.lsn == changed.lsn);                        // invariant 1: nobody else writes it
  header.lsn = last_.value();
  header.stamper = stamper_;
}

// Of more than a few bytes: whether the header is announced, or more changes than the page holds.
[[gnu::noinline]] bool PageChangeCollector::MostlyChanged(const ChangedPage& changed) {
  for (uint32_t i = 0; i < changed.count; ++i) {
    if (changed.changes[i].kind == Kind::kBytes && changed.changes[i].offset < kImageBegin) return true;
  }
  return changed.bytes >= FindFreeRoom(changed.page).image_bytes();
}

// Locals, since a byte that is written may be anybody's as far as a compiler knows.
[[gnu::always_inline]] inline void PageChangeCollector::WriteGroup(const ChangedPage& changed, uint32_t count,
                                                                   bool image) {
  const std::byte* const bytes = changed.page;
  const PageId page = PageId::FromValue(HeaderOf(bytes).page_id);
  const PageId before_page = before_page_;
  const uint64_t lsn_delta = last_.value() - before_lsn_.value();
  const auto fold = static_cast<std::byte>(FoldLsn(Lsn::FromValue(changed.lsn)));
  before_page_ = page;
  before_lsn_ = last_;
  const uint64_t number_delta = ZigZag(static_cast<int64_t>(page.number() - before_page.number()));
  RecordBuffer* const body = body_;
  std::byte* to = body->Room(kMostHeadBytes + kPageBytes + changed.bytes + count * kMostChangeBytes);
  if (page.site() == before_page.site() && lsn_delta == 1) [[likely]] {
    *to++ = static_cast<std::byte>(count << kHeadCountShift);
    to = PutVarint(to, number_delta);
  } else {
    to = PutFarHead(to, count, int64_t{page.site()} - before_page.site(), number_delta, lsn_delta);
  }
  *to++ = fold;
  if (image) {
    to = PutImage(to, bytes);
  } else {
    for (uint32_t i = 0; i < count; ++i) to = PutChange(to, bytes, changed.changes[i]);
  }
  body->EndAt(to);
}

[[gnu::noinline]] void PageChangeCollector::WriteAnyGroup(const ChangedPage& changed) {
  const bool image = changed.lsn == 0 || changed.count > ChangedPage::kMostChanges ||
                     (changed.bytes > kFewBytes && MostlyChanged(changed));
  WriteGroup(changed, image ? 1 : changed.count, image);
}

// The checks, here and below: what was announced is still there, as storage has promised (page_change.h).
[[gnu::always_inline]] inline std::byte* PageChangeCollector::PutChange(std::byte* to, const std::byte* page,
                                                                        const PageChange& change) {
  if (change.kind == Kind::kValue) [[likely]] {
    const Node& node = *Node::At(page);
    const storage::RowView value = node.value(change.slot);
    ISLANDS_CHECK(change.slot < node.count() && change.offset + change.bytes <= value.size());
    to = PutVarint(PutVarint(PutOp(to, PageOp::kValue, change.slot), change.offset), change.bytes);
    return PutBytes(to, value.data() + change.offset, change.bytes);
  }
  if (change.kind != Kind::kBytes) return PutEntry(to, page, change);
  ISLANDS_CHECK(change.offset + change.bytes <= kPageBytes);
  to = PutVarint(PutVarint(PutOp(to, PageOp::kBytes, 0), change.offset), change.bytes);
  return PutBytes(to, page + change.offset, change.bytes);
}

void PageChangeCollector::Release(const std::byte* page) {
  const ChangedPage& first = pages_.front();
  if (changed_pages_ == 1 && first.count == 1 && first.lsn != 0 && first.bytes <= kFewBytes &&
      first.changes[0].kind == Kind::kValue) [[likely]] {  // the commonest: a path of its own
    if (first.page != page) return;
    last_ = std::max({last_, floor_, Lsn::FromValue(first.lsn)}).Next();
    Stamp(first);
    changed_pages_ = 0;
    return WriteGroup(first, 1, /*image=*/false);
  }
  if (Find(page) == nullptr) return;
  last_ = NextStamp();
  for (size_t i = 0; i < changed_pages_; ++i) {
    Stamp(pages_[i]);
    WriteAnyGroup(pages_[i]);
  }
  changed_pages_ = 0;
}

std::byte* PageChangeCollector::PutEntry(std::byte* to, const std::byte* page, const PageChange& change) {
  if (change.kind == Kind::kRemove) return PutOp(to, PageOp::kRemove, change.slot);
  const Node& node = *Node::At(page);
  ISLANDS_CHECK(change.slot < node.count());
  if (change.kind == Kind::kGhost)
    return PutOp(to, node.ghost(change.slot) ? PageOp::kGhost : PageOp::kNoGhost, change.slot);
  const storage::RowView value = node.value(change.slot);
  ISLANDS_CHECK(change.bytes == value.size());
  if (change.kind == Kind::kInsert) {
    const storage::KeyView key = node.suffix(change.slot);
    to = PutVarint(PutVarint(PutOp(to, PageOp::kInsert, change.slot), key.size()), value.size());
    to = PutBytes(to, key.data(), key.size());
  } else {
    ISLANDS_CHECK(change.kind == Kind::kNewValue);
    to = PutVarint(PutOp(to, PageOp::kNewValue, change.slot), value.size());
  }
  return PutBytes(to, value.data(), value.size());
}

}  // namespace islands::log
