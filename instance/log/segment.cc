#include "instance/log/segment.h"

#include <fmt/format.h>

#include <cstring>

#include "instance/log/record.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace islands::log {
namespace {

constexpr char kSegmentMagic[] = "ISLSEGM3";
constexpr char kFrameMagic[] = "FRAM";

struct SegmentLayout {
  char magic[8];
  uint64_t cluster;
  uint64_t number;
  uint64_t bytes;
  uint64_t previous_segment;
  uint64_t previous_offset;
  uint32_t island;
  uint32_t checksum;
  uint64_t zero;
};
static_assert(sizeof(SegmentLayout) == 64);

struct FrameLayout {
  char magic[4];
  uint32_t checksum;
  uint64_t life;
  uint32_t worker;
  uint32_t bytes;
  uint64_t offset;
  uint32_t records_checksum;
  uint32_t zero;
  uint64_t settled;
};
static_assert(sizeof(FrameLayout) == kFrameHeaderBytes);

struct Place {
  uint64_t island;
  uint64_t segment;
  uint64_t offset;
};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Both have their checksum field zero here.
uint32_t Checksum(const SegmentLayout& layout) { return runtime::Crc32c(BytesOf(layout)); }
uint32_t Checksum(uint32_t island, const LogPosition& at, const FrameLayout& layout) {
  const Place place{island, at.segment, at.offset};
  return runtime::Crc32c(BytesOf(layout), runtime::Crc32c(BytesOf(place)));
}

absl::Status NoFrame(uint32_t island, const LogPosition& at, const char* what) {
  return absl::DataLossError(fmt::format("no frame at offset {} of log segment {} of island {}: {}",
                                         at.offset, at.segment, island, what));
}

}  // namespace

std::vector<std::byte> EncodeSegmentHeader(const SegmentHeader& header) {
  SegmentLayout layout{{},
                       header.cluster,
                       header.number,
                       header.bytes,
                       header.previous.segment,
                       header.previous.offset,
                       header.island,
                       0,
                       0};
  std::memcpy(layout.magic, kSegmentMagic, sizeof(layout.magic));
  layout.checksum = Checksum(layout);
  std::vector<std::byte> bytes(kSegmentHeaderBytes);
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  return bytes;
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes) {
  SegmentLayout layout;
  if (bytes.size() < kSegmentHeaderBytes) return absl::DataLossError("it is too short for a log segment");
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kSegmentMagic, sizeof(layout.magic)) != 0) {
    return absl::DataLossError("it is no log segment, or one of another version");
  }
  const uint32_t checksum = std::exchange(layout.checksum, 0);
  if (checksum != Checksum(layout)) return absl::DataLossError("the checksum of its header is wrong");
  return SegmentHeader{.cluster = layout.cluster,
                       .island = layout.island,
                       .number = layout.number,
                       .bytes = layout.bytes,
                       .previous = {layout.previous_segment, layout.previous_offset}};
}

void EncodeFrame(const Frame& frame, const LogPosition& at, std::vector<std::byte>* out) {
  ISLANDS_CHECK(!frame.records.empty() && frame.records.size() % kRecordAlignment == 0);
  FrameLayout layout{{},
                     0,
                     frame.stream.life,
                     frame.stream.worker,
                     static_cast<uint32_t>(frame.records.size()),
                     frame.offset,
                     runtime::Crc32c(frame.records),
                     0,
                     frame.settled};
  std::memcpy(layout.magic, kFrameMagic, sizeof(layout.magic));
  layout.checksum = Checksum(frame.stream.island, at, layout);
  const std::span<const std::byte> header = BytesOf(layout);
  out->insert(out->end(), header.begin(), header.end());
  out->insert(out->end(), frame.records.begin(), frame.records.end());
}

absl::StatusOr<Frame> DecodeFrame(uint32_t island, const LogPosition& at, std::span<const std::byte> bytes,
                                  size_t* taken) {
  FrameLayout layout;
  if (bytes.size() < sizeof(layout)) return NoFrame(island, at, "too few bytes");
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kFrameMagic, sizeof(layout.magic)) != 0)
    return NoFrame(island, at, "no magic");
  const uint32_t checksum = std::exchange(layout.checksum, 0);
  if (checksum != Checksum(island, at, layout)) {
    return NoFrame(island, at, "the checksum of its header is wrong");
  }
  bytes = bytes.subspan(sizeof(layout));
  if (layout.bytes > bytes.size() || layout.bytes % kRecordAlignment != 0) {
    return NoFrame(island, at, "its length cannot be");
  }
  const std::span<const std::byte> records = bytes.first(layout.bytes);
  if (layout.records_checksum != runtime::Crc32c(records)) {
    return NoFrame(island, at, "the checksum of its records is wrong");
  }
  *taken = sizeof(layout) + layout.bytes;
  return Frame{{layout.life, island, layout.worker}, layout.offset, layout.settled, records};
}

}  // namespace islands::log
