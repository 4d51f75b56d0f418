#include "instance/log/entry.h"

#include <cstring>

#include "instance/log/page_changes_cursor.h"

namespace islands::log {
namespace {

using coordinator::TransactionId;

struct IdLayout {
  uint32_t island;
  uint32_t worker;
  uint64_t boot_epoch;
  uint64_t sequence;
};
static_assert(sizeof(IdLayout) == 24);

bool TakeId(Cursor* from, TransactionId* id) {
  IdLayout layout;
  std::span<const std::byte> bytes;
  if (!from->TakeBytes(sizeof(layout), &bytes)) return false;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  *id = {layout.island, layout.worker, layout.boot_epoch, layout.sequence};
  return id->valid();
}

// What its kind has before the changes.
bool TakeHead(Cursor* from, Entry* entry) {
  if (entry->kind == EntryKind::kDone) return true;
  if (!TakeId(from, &entry->transaction)) return false;
  uint64_t number = 0;
  switch (entry->kind) {
    case EntryKind::kUpdate:
      return from->TakeVarint(&number) && from->TakeBytes(number, &entry->undo);
    case EntryKind::kCompensation:
      if (!from->TakeVarint(&number) || number > UINT32_MAX) return false;
      entry->left = static_cast<uint32_t>(number);
      return true;
    default:
      return true;
  }
}

void PutNumber(uint64_t value, RecordBuffer* out) {
  out->EndAt(PutVarint(out->Room(kMaxVarintBytes), value));
}

void PutBytes(std::span<const std::byte> bytes, RecordBuffer* out) {
  std::byte* at = out->Room(bytes.size());
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  out->EndAt(at + bytes.size());
}

}  // namespace

void EncodeEntryHead(const Entry& entry, RecordBuffer* head) {
  if (entry.kind == EntryKind::kDone) return;
  const TransactionId& id = entry.transaction;
  const IdLayout layout{id.island, id.worker, id.boot_epoch, id.sequence};
  PutBytes(std::as_bytes(std::span(&layout, 1)), head);
  if (entry.kind == EntryKind::kCompensation) PutNumber(entry.left, head);
  if (entry.kind != EntryKind::kUpdate) return;
  PutNumber(entry.undo.size(), head);
  PutBytes(entry.undo, head);
}

absl::StatusOr<Entry> DecodeEntry(const Record& record) {
  Entry entry{.kind = static_cast<EntryKind>(record.kind)};
  if (entry.kind < EntryKind::kDone || entry.kind > EntryKind::kAborted)
    return absl::DataLossError("a record of a kind that this version does not know");
  Cursor from(record.body);
  if (!TakeHead(&from, &entry)) return absl::DataLossError("a record ends before what its kind has");
  entry.changes = from.rest();
  return entry;
}

}  // namespace islands::log
