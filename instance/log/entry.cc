#include "instance/log/entry.h"

#include <cstring>

#include "instance/log/page_changes_cursor.h"

namespace islands::log {
namespace {

using coordinator::TransactionId;

bool TakeId(Cursor* from, TransactionId* id) {
  uint64_t island = 0, worker = 0;
  if (!from->TakeVarint(&island) || !from->TakeVarint(&worker) || !from->TakeVarint(&id->boot_epoch) ||
      !from->TakeVarint(&id->sequence) || island > UINT32_MAX || worker > UINT32_MAX)
    return false;
  id->island = static_cast<uint32_t>(island);
  id->worker = static_cast<uint32_t>(worker);
  return id->valid();
}

bool TakeSized(Cursor* from, std::span<const std::byte>* bytes) {
  uint64_t size = 0;
  return from->TakeVarint(&size) && from->TakeBytes(size, bytes);
}

// What its kind has before the changes.
bool TakeHead(Cursor* from, Entry* entry) {
  if (entry->kind == EntryKind::kDone) return true;
  if (!TakeId(from, &entry->transaction)) return false;
  uint64_t number = 0;
  switch (entry->kind) {
    case EntryKind::kUpdate:
      return TakeSized(from, &entry->undo);
    case EntryKind::kPrepare:
      return TakeSized(from, &entry->fellows) && TakeSized(from, &entry->undo);
    case EntryKind::kDecision:
      return TakeSized(from, &entry->fellows);
    case EntryKind::kCompensation:
      if (!from->TakeVarint(&number) || number > UINT32_MAX) return false;
      entry->left = static_cast<uint32_t>(number);
      return true;
    case EntryKind::kCommand:
    case EntryKind::kCall: {
      std::span<const std::byte> check;
      if (!from->TakeBytes(sizeof(entry->check), &check)) return false;
      std::memcpy(&entry->check, check.data(), sizeof(entry->check));
      return TakeSized(from, &entry->workload) && TakeSized(from, &entry->input);
    }
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

void PutSized(std::span<const std::byte> bytes, RecordBuffer* out) {
  PutNumber(bytes.size(), out);
  PutBytes(bytes, out);
}

struct [[gnu::packed]] FellowLayout {
  uint32_t island;
  uint64_t boot_epoch;
};
static_assert(sizeof(FellowLayout) == kFellowBytes);

}  // namespace

void EncodeEntryHead(const Entry& entry, RecordBuffer* head) {
  if (entry.kind == EntryKind::kDone) return;
  const TransactionId& id = entry.transaction;
  std::byte* to = head->Room(4 * kMaxVarintBytes);
  to = PutVarint(PutVarint(to, id.island), id.worker);
  head->EndAt(PutVarint(PutVarint(to, id.boot_epoch), id.sequence));
  if (entry.kind == EntryKind::kCompensation) PutNumber(entry.left, head);
  if (entry.kind == EntryKind::kPrepare || entry.kind == EntryKind::kDecision) PutSized(entry.fellows, head);
  if (entry.kind == EntryKind::kPrepare || entry.kind == EntryKind::kUpdate) PutSized(entry.undo, head);
  if (IsCommand(entry.kind)) {
    PutBytes(std::as_bytes(std::span(&entry.check, 1)), head);
    PutSized(entry.workload, head);
    PutSized(entry.input, head);
  }
}

void EncodeFellows(std::span<const coordinator::Fellow> fellows, std::vector<std::byte>* out) {
  for (const coordinator::Fellow& fellow : fellows) {
    const FellowLayout layout{fellow.island, fellow.boot_epoch};
    const auto bytes = std::as_bytes(std::span(&layout, 1));
    out->insert(out->end(), bytes.begin(), bytes.end());
  }
}

absl::StatusOr<std::vector<coordinator::Fellow>> DecodeFellows(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(FellowLayout) != 0) return absl::DataLossError("a list of islands is cut off");
  std::vector<coordinator::Fellow> fellows;
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(FellowLayout))) {
    FellowLayout layout;
    std::memcpy(&layout, bytes.data(), sizeof(layout));
    fellows.push_back({layout.island, layout.boot_epoch});
  }
  return fellows;
}

absl::StatusOr<Entry> DecodeEntry(const Record& record) {
  Entry entry{.kind = static_cast<EntryKind>(record.kind)};
  if (entry.kind < EntryKind::kDone || entry.kind > EntryKind::kCall)
    return absl::DataLossError("a record of a kind that this version does not know");
  Cursor from(record.body);
  if (!TakeHead(&from, &entry)) return absl::DataLossError("a record ends before what its kind has");
  entry.changes = from.rest();
  if (IsCommand(entry.kind) && !entry.changes.empty())
    return absl::DataLossError("a command has more than a command's");
  return entry;
}

}  // namespace islands::log
