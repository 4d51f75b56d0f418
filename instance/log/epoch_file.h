// EPOCH: up to which epoch everything is durable on all islands, and where the log of each ends (Silo's
// pepoch file). Answers, page writes and the cut after a power loss go by it, and by nothing else.
//
//   file     two blocks of EpochBlockBytes(islands), written in turns, each synced before the next is begun;
//            so at most one of them is torn, and the other says what was durable before
//   block    offset   bytes
//                 0       8  magic "ISLEPOCH"
//                 8       8  number of the block: how many were written, this one included; it lies at block
//                            number mod 2
//                16       8  cluster: as in segments
//                24       8  epoch
//                32       8  reaches: no record before the ends is of a later epoch
//                40       4  islands
//                44       4  CRC-32C of the block up to the last island, with this field zero
//                48  16 each  for every island: segment number and offset of its log's end
//
// What is before the ends and above the epoch is on disk, and counts as long as power is not lost: a box that
// starts goes on above `reaches`, and so does one that makes a cut.
//
// Only the logger writes it, and only after it has synced everything that the block speaks of.
//
// Who reads it while a logger lives may find either block half-written, or the one before the last: while it
// was on its way through the file both were written anew. ReadLiveEpochFile is for them; ReadEpochFile for
// those who have its lock, or know that no logger is there.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "instance/log/board.h"
#include "instance/log/segment.h"
#include "runtime/file_system.h"

namespace islands::log {

inline constexpr char kEpochFileName[] = "EPOCH";
inline constexpr uint32_t kMostIslands = 4096;

struct EpochBlock {
  uint64_t number = 0;
  uint64_t cluster = 0;
  uint64_t epoch = 0;
  uint64_t reaches = 0;
  std::vector<LogPosition> ends;  // by island
};

// Bytes of a block; a multiple of 4096, so that no sector belongs to both.
size_t EpochBlockBytes(size_t islands);
std::vector<std::byte> EncodeEpochBlock(const EpochBlock& block);
// The newest valid block of the whole file. DATA_LOSS: there is none.
absl::StatusOr<EpochBlock> DecodeEpochFile(std::span<const std::byte> file);
// The same of a file, whose data must be these. FAILED_PRECONDITION: they are others.
absl::StatusOr<EpochBlock> ReadEpochFile(runtime::FileSystem& files, const std::string& path,
                                         uint64_t cluster, size_t islands);

// Of a log in which nothing was ever written, and that goes on above `epoch`.
absl::Status MakeEpochFile(runtime::FileSystem& files, const std::string& path, uint64_t cluster,
                           uint32_t islands, uint64_t epoch);

// For recovery of one island while the others, and the logger, go on: a block that is not below what was
// durable when this was called. So what of a dead life ReleaseDrained has called drained is before its ends.
// The block itself need not be durable yet: go by its ends and `reaches`, and for what is durable by the
// board. UNAVAILABLE: the file stays below what the board says, which an old copy would do; errors as above.
absl::StatusOr<EpochBlock> ReadLiveEpochFile(runtime::FileSystem& files, const std::string& path,
                                             uint64_t cluster, size_t islands, const Board& board);

}  // namespace islands::log
