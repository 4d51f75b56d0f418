#include "instance/log/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace islands::log {
namespace {

struct Header {
  uint32_t bytes;
  uint32_t checksum;
  uint64_t lsn;
  uint8_t kind;
  uint8_t padding;
  uint8_t zero[6];
};
static_assert(sizeof(Header) == kRecordHeaderBytes);
constexpr size_t kLine = 64;
constexpr size_t kAhead = 256;                      // a record of the commonest size
constexpr size_t kChecked = offsetof(Header, lsn);  // from here on

struct Address {
  uint64_t life;
  uint32_t island;
  uint32_t worker;
  uint64_t offset;
};

uint32_t Checksum(const StreamId& stream, uint64_t offset, std::span<const std::byte> record) {
  const Address address{stream.life, stream.island, stream.worker, offset};
  return runtime::Crc32c(record.subspan(kChecked), runtime::Crc32c(std::as_bytes(std::span(&address, 1))));
}

absl::Status Damaged(const StreamId& stream, uint64_t offset, const char* what) {
  return absl::DataLossError(fmt::format("no record at offset {} of worker {} in life {} of island {}: {}",
                                         offset, stream.worker, stream.life, stream.island, what));
}

}  // namespace

void Append(RingWriter& writer, uint8_t kind, uint64_t lsn,
            std::initializer_list<std::span<const std::byte>> parts) {
  size_t body_bytes = 0;
  for (const std::span<const std::byte> part : parts) body_bytes += part.size();
  const size_t whole = RecordBytes(body_bytes);
  ISLANDS_CHECK(whole <= kMostRecordBytes);
  std::byte* const record = writer.Next(whole);
  size_t bytes = kRecordHeaderBytes;
  for (const std::span<const std::byte> part : parts) {
    if (!part.empty()) std::memcpy(record + bytes, part.data(), part.size());
    bytes += part.size();
  }
  std::memset(record + bytes, 0, whole - bytes);
  Header header{static_cast<uint32_t>(whole), 0, lsn, kind, static_cast<uint8_t>(whole - bytes), {}};
  std::memcpy(record, &header, sizeof(header));
  header.checksum = Checksum(writer.stream(), writer.appended(), {record, whole});
  std::memcpy(record + offsetof(Header, checksum), &header.checksum, sizeof(header.checksum));
  writer.Advance(whole);
  // The logger's core has the lines that come next, from when it read them last: they are on their way back
  // before they are written to.
  for (size_t at = 0; at < kAhead; at += kLine) __builtin_prefetch(record + whole + at, /*rw=*/1);
}

absl::StatusOr<Record> ParseRecord(const StreamId& stream, uint64_t offset, std::span<const std::byte> bytes,
                                   size_t* taken) {
  Header header;
  if (bytes.size() < sizeof(header)) return Damaged(stream, offset, "too few bytes");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.bytes < sizeof(header) || header.bytes > kMostRecordBytes || header.bytes > bytes.size() ||
      header.bytes % kRecordAlignment != 0) {
    return Damaged(stream, offset, "its length cannot be");
  }
  const std::span<const std::byte> record = bytes.first(header.bytes);
  if (header.checksum != Checksum(stream, offset, record))
    return Damaged(stream, offset, "its checksum is wrong");
  // Checked, so we have written it: what follows would be a bug, or another version's.
  if (header.padding >= kRecordAlignment || header.padding > header.bytes - sizeof(header)) {
    return Damaged(stream, offset, "its padding cannot be");
  }
  *taken = header.bytes;
  return Record{header.lsn, header.kind,
                record.subspan(sizeof(header), header.bytes - sizeof(header) - header.padding)};
}

}  // namespace islands::log
