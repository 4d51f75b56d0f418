// Records: what a stream consists of (ring.h).
//
//   record   offset   bytes
//                 0       4  bytes of all of it, this header and the padding included; a multiple of 8
//                 4       4  CRC-32C of the record's address and of everything behind this field
//                 8       8  LSN: of the last change in it, or of what it says (COMMIT, PREPARE, ...)
//                16       1  kind
//                17       1  bytes of padding at the end, 0 to 7, all zero
//                18       6  zero
//                24          body; what is in it depends on the kind
//   address              8  life      (checksummed, not stored)
//                        4  island
//                        4  worker
//                        8  stream offset
//
// So a record that is read from another place than it was appended to does not check.
//
// Thread safety: plain functions; an Appender belongs to its worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "absl/status/statusor.h"
#include "instance/log/ring.h"

namespace islands::log {

inline constexpr size_t kRecordAlignment = Ring::kAlignment;
inline constexpr size_t kRecordHeaderBytes = 24;
// Holds several steps of any operation (journal.h), and fits several times into the smallest ring.
inline constexpr size_t kMostRecordBytes = Ring::kLeastCapacity / 4;

struct Record {
  uint64_t lsn = 0;
  uint8_t kind = 0;
  std::span<const std::byte> body;
  uint64_t settled = 0;  // of the frame it was read from (segment.h)
};

// Of a record with that much body.
constexpr size_t RecordBytes(size_t body_bytes) {
  return (kRecordHeaderBytes + body_bytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
}

// Appends a record whose body is `parts`, one behind the other; shown with the writer's next Show. The caller
// has made sure of RingWriter::Room.
void Append(RingWriter& writer, uint8_t kind, uint64_t lsn,
            std::initializer_list<std::span<const std::byte>> parts);

// The record at the beginning of `bytes`, which begin at `offset` of the stream. `*taken`: its length.
// DATA_LOSS: no whole record is there; says why.
absl::StatusOr<Record> ParseRecord(const StreamId& stream, uint64_t offset, std::span<const std::byte> bytes,
                                   size_t* taken);

}  // namespace islands::log
